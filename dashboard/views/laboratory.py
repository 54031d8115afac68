"""The laboratory: all experiments as claims, or one of them with the same picture drawn from a run."""

import re
from collections.abc import Callable

import streamlit as st

from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.laboratory.experiment import Experiment
from ratioscope.dashboard import state
from ratioscope.dashboard.components.blocks import draw, page_subject
from ratioscope.dashboard.components.experiment import COLOURS, experiment, preview
from ratioscope.dashboard.components.frame import page_head
from ratioscope.dashboard.components.ways_in import CHOICE, experiment_link
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections import PAGES
from ratioscope.dashboard.sections.laboratory import MEETINGS, PAGE
from ratioscope.dashboard.sections.model import Piece, has_content
from ratioscope.dashboard.session import session
from ratioscope.dashboard.theme import as_text
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe
from ratioscope.sources import linked

_COLOURED = re.compile(r"\\(" + "|".join(COLOURS) + r")\{")
_AT = "at"


def render() -> None:
    """The page."""
    page_head(PAGE)
    wanted = st.query_params.get(CHOICE, "")
    if wanted in EXPERIMENTS:
        _one(EXPERIMENTS[wanted])
        return
    if wanted:
        st.text(safe(f"There is no experiment {wanted[:40]!r}. These are there:"))
    _all()


def _all() -> None:
    st.markdown("Small enough to be exact. Guess, move, see.")
    experiments = list(EXPERIMENTS.values())
    for first in range(0, len(experiments), 3):
        row = enumerate(experiments[first : first + 3], first)
        for column, (place, each) in zip(st.columns(3), row, strict=False):
            with column, st.container(border=True, height="stretch"):
                experiment_link(each.key, f"**{place + 1}. {escape(each.claim)}**", icon=None)
                preview(each, key=f"lab-preview-{each.key}")


def _one(of: Experiment) -> None:
    order = list(EXPERIMENTS)
    place = order.index(of.key)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(session().pages[PAGE.key], label="All experiments", icon=":material/apps:")
        if place + 1 < len(order):
            experiment_link(
                order[place + 1], f"Next: {EXPERIMENTS[order[place + 1]].claim}", ":material/arrow_forward:"
            )
    st.header(of.claim, anchor=False)
    st.markdown(of.prose)
    mode = state.mode()
    formula = _COLOURED.sub(lambda found: rf"\textcolor{{{as_text(COLOURS[found[1]], mode)}}}{{", of.formula)
    with st.container(horizontal=True, gap="large", key="lab-formula"):
        for part in formula.split(r", \qquad"):
            st.latex(part, width="content")
    experiment(of, key=f"lab-{of.key}", start=_start(of), on_values=_keeping(of))
    _from_a_run(of)
    st.caption(f"Source: {linked(of.source)}. In a terminal: `ratioscope lab {of.key}`. In Python: "
               f"`from ratioscope.analysis.laboratory import {of.key}`.")  # fmt: skip


def _start(of: Experiment) -> dict[str, float]:
    """What the address asks for, as far as the sliders have it."""
    found = {}
    for key, _, value in (part.partition(":") for part in st.query_params.get(_AT, "").split(",")):
        slider = next((slider for slider in of.sliders if slider.key == key), None)
        try:
            wanted = float(value)
        except ValueError:
            continue
        if slider is not None and slider.stops[0] <= wanted <= slider.stops[-1]:
            found[key] = min(slider.stops, key=lambda stop: abs(stop - wanted))
    return found


def _keeping(of: Experiment) -> Callable[[dict[str, float]], None]:
    """What puts the sliders' values into the address, where they are not the source's."""
    # A link to the page that one is on leaves Streamlit without the rest of the address when it calls back.
    address = {key: st.query_params.get_all(key) for key in st.query_params if key != _AT}

    def keep(values: dict[str, float]) -> None:
        moved = [f"{key}:{value:.6g}" for key, value in values.items() if value != of.paper[key]]
        st.query_params.from_dict(address | ({_AT: [",".join(moved)]} if moved else {}))

    return keep


def _from_a_run(of: Experiment) -> None:
    """The same from the chosen run, or from the sample run in which it is plain."""
    known = state.runs()
    for meeting in (meeting for meeting in MEETINGS if meeting.experiment == of.key):
        page = PAGES[meeting.page]
        head = st.container(horizontal=True, vertical_alignment="center")
        head.subheader("Where one meets it in a run", anchor=False, width="content")
        asked = [run for run in (*state.chosen_ids()[:1], meeting.run) if run in known]
        if not asked:
            st.caption(f"Open a run, or make one in which it is plain: `ratioscope train --sample {meeting.run}`.")
            continue
        found: list[Piece] = []
        for name in asked:
            try:
                found = [*filter(has_content, meeting.shows(page_subject(state.open_listed(known[name]))))]
            except RatioscopeError as error:
                st.text(safe(error))
            if found:
                break
        told = f", page {page.title}" if found else " has not the columns for it"
        words, target = f"{escape(one_line(name))}{told}", session().pages[page.key]
        head.page_link(target, label=words, icon=page.icon, query_params={"run": name})
        draw(*found, caption="above")
