"""A page of a run, drawn as it is declared: head, answer, main blocks, tiles, parts, how to read it."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import streamlit as st

from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import beside, draw, page_subject
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import nothing_here, opening
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.components.ways_in import ways_in
from ratioscope.dashboard.sections.page import Beside, Choice, Notice, Page, Part, Shown
from ratioscope.dashboard.sections.subject import Subject, worst_step
from ratioscope.errors import RatioscopeError
from ratioscope.inert import safe

_LONGEST_TEXT = 200


def draw_page(page: Page) -> None:
    """The page of the chosen run."""
    assert page.answer is not None
    opened = run_page(page)
    if opened is None:
        return
    subject = page_subject(opened)
    if nothing_here(page, subject):
        return
    said = st.container()
    chosen = _choices(page.choices, subject, ())
    with said, st.skeleton(height=48) if page.slow else nullcontext():
        sentence = page.answer(subject, *chosen)
    with said:
        opening(page, subject, sentence)
    if page.all_said is not None and page.all_said(subject):
        return
    if page.main is not None:
        _draw(page.main, (subject, *chosen), page)
    above = [bool(_told(part.above, subject, chosen)) for part in page.parts]
    for part in (part for part, first in zip(page.parts, above, strict=True) if first):
        _part(page, part, subject, chosen)
    without = set(page.without(subject) if page.without else ())
    metric_row(opened, [key for key in subject.applicable(page.tiles) if key not in without])
    for part in (part for part, first in zip(page.parts, above, strict=True) if not first):
        _part(page, part, subject, chosen)
    as_reported(page, subject)
    if explanation := page.explained(opened.limits):
        how_to_read(explanation)
    ways_in(page.key)


def _part(page: Page, part: Part, subject: Subject, chosen: Sequence[Any]) -> None:
    """Its line, and below it what it shows, where it is open."""
    try:
        if part.when is not None and not part.when(subject, *chosen):
            return
    except RatioscopeError:  # what the page shows first has said why
        return
    title = _told(part.title, subject, chosen)
    if not title:
        _content(page, part, subject, chosen)
        return
    says = _told(part.says, subject, chosen) or worst_step(subject, part.metrics)
    opened = bool(_told(part.opened, subject, chosen))
    with fold(part.key, title, says, opened=opened, metrics=part.metrics) as door:
        found = _content(page, part, subject, chosen) if door.open else None
    if found is not None:
        for each in part.then:
            _part(page, each, subject, found)


def _content(page: Page, part: Part, subject: Subject, chosen: Sequence[Any]) -> Sequence[Any] | None:
    """Draws it; returns all that is chosen, or None after an error, which is shown."""
    if isinstance(part.shows, str):
        getattr(import_module(f"ratioscope.dashboard.views.{page.key}"), part.shows)(subject, *chosen)
        return chosen
    chosen = (*chosen, *_choices(part.choices, subject, chosen))
    return chosen if _draw(part.shows, (subject, *chosen), part) else None


def _draw(make: Callable[..., Iterable[Shown]], given: Sequence[Any], of: Page | Part) -> bool:
    """Blocks below each other; False after an error, which is shown in place of the rest."""
    found: list[Shown] = []
    failed = ""
    try:
        with st.skeleton(height=of.height) if of.height else nullcontext():
            found.extend(make(*given))
    except RatioscopeError as error:
        failed = safe(error)
    for block in found:
        if isinstance(block, Beside):
            beside(*block.places, caption=of.caption, across=block.across, widths=block.widths)
        elif isinstance(block, Notice):
            st.info(block.text, icon=":material/info:")
        else:
            draw(block, caption=of.caption)
    if failed:
        st.text(failed)
    return not failed


def _choices(choices: Sequence[Choice], subject: Subject, chosen: Sequence[Any]) -> list[Any]:
    """The widgets, several beside each other; what is chosen with each."""
    places: Sequence[Any] = [st] * len(choices)
    if any(choice.kind == "text" for choice in choices):
        places = st.columns([1 if choice.kind == "text" else 4 for choice in choices])
    elif len(choices) > 1 and any(choice.width for choice in choices):
        places = [st.container(horizontal=True, vertical_alignment="bottom")] * len(choices)
    elif len(choices) > 1:
        places = st.columns(len(choices))
    return [_choice(choice, place, subject, chosen) for choice, place in zip(choices, places, strict=True)]


def _choice(choice: Choice, place: Any, subject: Subject, chosen: Sequence[Any]) -> Any:
    options = choice.options(subject) if callable(choice.options) else choice.options
    if not options and choice.kind not in ("several", "text"):
        return None
    names = list(options)
    usual: Any = choice.usual(options, *chosen) if choice.usual else next(iter(names), None)
    said: dict[str, Any] = {"key": choice.key, "bind": "query-params", "help": _told(choice.help, subject, ()) or None}
    if choice.width:
        said["width"] = choice.width
    match choice.kind:
        case "slider":
            found = place.select_slider(choice.label, names, usual, **said)
        case "segments":
            found = place.segmented_control(choice.label, names, default=usual, **said)
        case "several":
            said |= {"placeholder": choice.hint, "filter_mode": "contains"}
            kept = place.multiselect(choice.label, names, default=usual, **said)
            return {name: options[name] for name in kept}
        case "text":
            return place.text_input(choice.label, placeholder=choice.hint, max_chars=_LONGEST_TEXT, **said).strip()
        case "search":
            found = place.selectbox(choice.label, names, names.index(usual), filter_mode="contains", **said)
        case "tick":
            return options[names[place.checkbox(choice.label, **said)]]
        case "select":
            found = place.selectbox(choice.label, names, names.index(usual), **said)
    return options.get(found, options[usual])


def _told(value: Any, subject: Subject, chosen: Sequence[Any]) -> Any:
    return value(subject, *chosen) if callable(value) else value
