"""Tokens: which tokens did it?

Answer, tiles, table and reader are of one window: the step of a link, else the chosen steps, else the latest ones.
"""

from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.attribution import OWNED_SUMS, OWNERS, Attribution
from ratioscope.analysis.tokens.attribution import attribution_sentence as carried
from ratioscope.analysis.tokens.contributions import Contributions, contributions_sentence
from ratioscope.dashboard import state
from ratioscope.dashboard.components.blocks import computed, draw, page_subject, say
from ratioscope.dashboard.components.explained import explained
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.opening import opening
from ratioscope.dashboard.components.response_search import response_search
from ratioscope.dashboard.components.sequence_reader import open_sequence, sequence_reader
from ratioscope.dashboard.components.sequences import (
    by_picker,
    criterion_label,
    in_the_plain_form,
    position_of,
    sequence_table,
    worst,
)
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.dashboard.formats import escape, share
from ratioscope.dashboard.sections import tokens
from ratioscope.dashboard.sections.subject import Subject, worst_step
from ratioscope.errors import RatioscopeError
from ratioscope.inert import safe

_THESE, _THIS = "these steps", "this step"


def render() -> None:
    """The page."""
    opened = run_page(tokens.PAGE)
    if opened is None:
        return
    subject = page_subject(opened)
    said = st.container()
    window = _window(subject)
    explained(opened, window)  # high up: the link that opens it is in the bar of every page
    line = st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="worst-line")
    found, by = _found(subject, window, line)
    with said:
        if not subject.log.has_ratios:
            answer(tokens.without_ratios(subject))
        elif found is not None:
            step = tokens.highest(opened.summary, by, window)
            opening(tokens.PAGE, subject, tokens.told(found, window, step, partial(_of, window, by)))
            say(in_the_plain_form(window, by, found))
    place = _worst(window, found, by, tokens.highest(opened.summary, by, window))
    with line:
        _other_steps(subject, window, place)
    if place is not None:
        response_search(opened, place[:2], partial(_open_in, window), line)
        st.fragment(sequence_reader)(state.lent(opened), *place)
    if subject.log.has_ratios:
        _attribution(subject, window)
        _extremes(subject)
    how_to_read(tokens.PAGE.explained(opened.limits))


def _window(subject: Subject) -> Window:
    """The steps that everything on the page is about: the one of a link, the chosen ones, or the latest."""
    window, step = subject.window(tokens.TOKENS), state.url_number("step")
    where = st.query_params.get("where", "")
    alone = where == _THIS or (where != _THESE and state.step_range() == (None, None))
    return replace(window, first=step, last=step) if step is not None and alone else window


def _found(subject: Subject, window: Window, line: DeltaGenerator) -> tuple[Contributions | None, str]:
    """The worst responses, and what they are sorted by; None after an error, which is shown.

    Args:
        line: where it is chosen.
    """
    with line:
        asked = st.query_params.get("show", "")
        by = by_picker("by", tokens.sorted_by(subject.opened.summary), asked=asked, in_url=True)
    try:
        with st.spinner("Searching for the worst responses"):
            return worst(window, by), by
    except RatioscopeError as error:
        st.error("The responses cannot be read.", icon=":material/error:")
        st.text(safe(error))
        return None, by


def _other_steps(subject: Subject, window: Window, place: tuple[int, int, int | None] | None) -> None:
    """From a link's step to all of the steps, or from these to the step of the open response."""
    if window.first == window.last == state.url_number("step"):
        words = subject.window(tokens.TOKENS).words
        st.button(f"Show {words} instead", key="where", on_click=_look_at, args=(_THESE,), type="tertiary")
    elif place is not None and window.steps != (place[0], place[0]):
        step = place[0]
        st.button(f"Show step {step} alone", key="where", on_click=_open_step, args=(step,), type="tertiary")


def _of(window: Window, by: str, first: int, last: int) -> Contributions:
    return worst(replace(window, first=first, last=last), by)


def _look_at(where: str) -> None:
    st.query_params["where"] = where


def _open_step(step: int) -> None:
    st.query_params["step"] = str(step)
    for key in ("seq", "token"):
        st.query_params.pop(key, None)
    _look_at(_THIS)


def _worst(
    window: Window, found: Contributions | None, by: str, highest: int | None
) -> tuple[int, int, int | None] | None:
    """The table of the worst responses; returns step and seq_id to read, and the position of the token to open at.

    Args:
        highest: see `sections.tokens.highest`: without a choice, what the answer names is open.
    """
    step, seq_id = state.url_number("step"), state.url_number("seq")
    chosen = (step, seq_id) if step is not None and seq_id is not None else None
    if found is None or not len(found.frame):
        if found is not None:
            st.info(escape(contributions_sentence(found, window.words)))
        return (*chosen, None) if chosen else None
    frame = found.frame
    named = tokens.named(found, highest, partial(_of, window, by)).frame
    shown = chosen or (int(named["step"].iloc[0]), int(named["seq_id"].iloc[0]))

    sequence_table(
        frame,
        key="worst",
        alt=f"The first {len(frame)} responses of {window.words} by: {criterion_label(by)}",
        what=found.what,
        chosen=shown,
        on_choice=lambda step, seq_id: _open_in(window, step, seq_id, position_of(frame, (step, seq_id))),
        rows=5,
    )
    position = position_of(frame, shown)
    return (*shown, position_of(named, shown) if position is None else position)


def _open_in(window: Window, step: int, seq_id: int, position: int | None = None) -> None:
    """Open a response; a page of several steps stays one."""
    if window.first < window.last:
        _look_at(_THESE)
    open_sequence(step, seq_id, position)


def _extremes(subject: Subject) -> None:
    """The largest and the smallest ratio of each step: one line until it is opened."""
    drawn = tokens.extremes(subject)
    with fold("extremes", drawn.title, tokens.largest_ratio(subject), metrics=drawn.metrics) as door:
        if door.open:
            draw(drawn)


def _attribution(subject: Subject, window: Window) -> None:
    """Which tokens carry a sum: the choice, the sentence, the table."""
    says = worst_step(subject, ("top1pct_share",)) or window.words
    with fold("carry", "Which tokens, prompts or versions carry it?", says) as door:
        if door.open:
            _owned(subject, window)


def _owned(subject: Subject, window: Window) -> None:
    pickers = st.columns([2, 2, 3], vertical_alignment="bottom")
    with pickers[0]:
        measure = st.selectbox(
            "Sum",
            tokens.measures(subject),
            format_func=lambda name: OWNED_SUMS[name].symbol,
            key="measure",
            bind="query-params",
        )
    with pickers[1]:
        names = tokens.owners(subject)
        owner = st.selectbox(
            "By",
            names,
            format_func=lambda name: OWNERS[name].title,
            key="owner",
            bind="query-params",
        )
    with pickers[2]:
        top = st.toggle("Only the 1% of tokens with the largest parts", True, key="top1", bind="query-params")
    among = tokens.TOP if top else None
    owned = computed(partial(tokens.owned, subject, window, measure, owner, among), height=320)
    if owned is None:
        return
    if owned.undefined:
        st.info(escape(f"{owned.undefined}."))
        return
    st.text(safe(carried(owned)))
    _owners(owned)
    tops = ", ".join(f"{100 * part:g}% carry {share(of)}" for part, of in owned.top.items())
    notes = " ".join(f"{capital(note)}." for note in owned.notes)
    st.caption(escape(f"Of {owned.n_tokens:,} tokens, the largest {tops}. {notes}"))


def _owners(owned: Attribution) -> None:
    frame = owned.frame
    places = list(zip(frame["step"], frame["seq_id"], frame["position"], strict=True))
    widget = f"owners-{hash(tuple(places)) & 0xFFFFFFFF:08x}"

    def choose() -> None:
        rows = st.session_state[widget]["selection"]["rows"]
        if rows:
            open_sequence(*(int(number) for number in places[rows[0]]))

    percent = st.column_config.NumberColumn
    st.dataframe(
        # Without withheld intervals.
        frame.drop(columns=["owner"]).dropna(axis="columns", how="all").assign(label=list(map(safe, frame["label"]))),
        key=widget,
        hide_index=True,
        on_select=choose,
        selection_mode="single-row",
        height=whole_rows(len(frame), 8),
        column_config={
            "label": st.column_config.TextColumn(owned.owner.title, width=170),
            "tokens": percent("Tokens", format="localized", help="All tokens of this row."),
            "share_of_tokens": percent("Share of tokens", format="percent"),
            "tokens_counted": percent("Counted", format="localized", help="Those of them that are counted."),
            "share": st.column_config.ProgressColumn(
                f"Share of {owned.measure.symbol}", format="percent", min_value=0, max_value=1, width=130
            ),
            "low": percent("95% from", format="percent", help="Interval over prompt groups; empty: withheld."),
            "high": percent("to", format="percent"),
            "share_ratio": percent("Over-represented", format="%.3g ×", help="Share of the sum by share of tokens."),
            "largest_log_ratio": percent("Largest log ρ", format="%.3g", help="In nats."),
            "step": percent("Step", format="%d", help="Of the token with the largest part, like the next two columns."),
            "seq_id": percent("Sequence", format="%d"),
            "position": percent("Position", format="%d"),
        },
        alt=safe(carried(owned)),
    )
    st.caption("Select a row to read its largest token.")
