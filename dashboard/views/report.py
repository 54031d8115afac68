"""Report: a file to share."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.dashboard import state
from ratioscope.dashboard.components.frame import chosen_steps, how_to_read, no_runs, page_head, still_there
from ratioscope.dashboard.components.metric_choice import metric_choice
from ratioscope.dashboard.components.view_tools import view_tools
from ratioscope.dashboard.formats import count, escape
from ratioscope.dashboard.report.build import (
    command_line,
    comparison_report,
    default_pages,
    full_pages,
    run_report,
)
from ratioscope.dashboard.report.chromium import find_chromium
from ratioscope.dashboard.report.ordered import Made, Order
from ratioscope.dashboard.report.write import contents
from ratioscope.dashboard.sections import PAGES, SECTIONS
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe

MOST_RUNS = 40
_NAMES = {".html": "HTML", ".pdf": "PDF", ".md": "Markdown", ".json": "JSON"}
_NEEDS_CHROMIUM = (".pdf", ".md")
_MEDIA = {".html": "text/html", ".pdf": "application/pdf", ".md": "application/zip", ".json": "application/json"}
_WHAT = {
    ".html": "One file that works offline: interactive figures with their numbers, light and dark, ready to print.",
    ".pdf": "A4, printed by Chromium on this machine.",
    ".md": "A ZIP archive: the text, and a folder with images and CSV files of all figures.",
    ".json": "For programs; the schema is published with ratioscope.",
}

_HOW_TO_READ = """
The short form is for somebody who was not there: three lights, what happened, what to change, the findings with
their evidence; of several runs, the comparison. The full form has every page, with captions computed from the data,
and what was run. Methods has every definition used, with its source; Provenance says how to make the report again.

It covers all steps, or those selected on any page. Findings are always those of the whole run. Parts that read
single tokens use the latest 50,000 to 300,000 of them and say so, or the selected steps. The same input gives
the same file.
"""


def render() -> None:
    """The page."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        page_head(PAGES["report"])
        view_tools()
    if not state.runs():
        no_runs()
        return
    opened = _runs()
    if not opened:
        st.info("Choose the runs to report.", icon=":material/description:")
        return
    order = _order(opened)
    if order is None:
        return
    command = command_line(opened, order.pages, order.steps, order.metric, output=order.file_name)
    st.code(one_line(command), language=None, wrap_lines=True)
    made = session().report
    clicked, place = st.button("Make the report", type="primary", icon=":material/description:"), st.empty()
    if clicked:
        made = _make(order, opened, place)
    # A live run goes on: its report stays on offer, and says that it is one of before.
    if made is not None and made.order.without_states() == order.without_states():
        _hand_out(made)
        if made.order != order:
            st.caption("The run has gone on since then; make the report again for its latest steps.")
    how_to_read(_HOW_TO_READ)


def _runs() -> list[Opened]:
    """The chosen runs that can be read and have steps."""
    known = state.runs()
    wanted = state.chosen_ids()[:MOST_RUNS]
    if st.session_state.get("report-runs") != wanted:
        st.session_state["report-runs"] = wanted

    def change() -> None:
        state.choose(st.session_state["report-runs"])

    chosen = st.multiselect(
        "Runs", list(known), key="report-runs", on_change=change, max_selections=MOST_RUNS, format_func=one_line
    )
    still_there([known[run_id] for run_id in chosen if run_id in known])
    opened, reading = [], st.empty()
    for place, run_id in enumerate(chosen):
        if len(chosen) > 1:
            reading.progress(place / len(chosen), text=f"Reading run {place + 1} of {len(chosen)}")
        try:
            found = state.open_listed(known[run_id])
        except RatioscopeError as error:
            st.warning("A run was left out.", icon=":material/warning:")
            st.text(safe(error))
            continue
        for problem in found.run.problems:
            st.warning("A file of a run was left out.", icon=":material/warning:")
            st.text(safe(problem))
        if len(found.summary.values):
            opened.append(found)
        else:
            st.text(one_line(f"{run_id}: left out, no step is on disk."))
    reading.empty()
    return opened


def _order(opened: list[Opened]) -> Order | None:
    """Pages, metric, steps, format; None while no page is chosen."""
    left, right = st.columns([3, 2], gap="large", vertical_alignment="top")
    with left:
        usual, several = default_pages(opened), len(opened) > 1
        # Several runs have another default, so their choice is another widget.
        key = "reportpagesofeach" if several else "reportpages"
        pages = st.pills(
            "Pages of each run, after the comparison" if several else "Pages",
            list(SECTIONS), default=usual, format_func=_title, selection_mode="multi", wrap=True,
            key=key, bind="query-params",
        )  # fmt: skip
        with st.container(horizontal=True):
            for name, form in (("Short form", usual), ("Full form", full_pages(opened))):
                st.button(name, key=f"{key}-{name}", type="tertiary", on_click=_choose, args=(key, form))
        metric = metric_choice("reportmetric") if several else None
    with right:
        usable = [kind for kind in _NAMES if kind not in _NEEDS_CHROMIUM or find_chromium()]
        kind = st.segmented_control(
            "Format", usable, default=".html", required=True, format_func=_NAMES.__getitem__, key="format",
            bind="query-params",
        )  # fmt: skip
        st.caption(_WHAT[kind])
        if len(usable) < len(_NAMES):
            st.caption("PDF and Markdown need Chromium or Chrome on this machine (on Debian: apt install chromium).")
        chosen_steps()
    if not pages and not several:
        st.info("Choose at least one page.", icon=":material/info:")
        return None
    states = tuple((each.run_id, each.run.signature) for each in opened)
    return Order(states, tuple(name for name in SECTIONS if name in pages), metric, state.step_range(), str(kind))


def _choose(key: str, pages: tuple[str, ...]) -> None:
    st.session_state[key] = list(pages)


def _title(name: str) -> str:
    return SECTIONS[name].written_as[0]


def _make(order: Order, opened: list[Opened], place: DeltaGenerator) -> Made | None:
    """The report and its file; the session keeps the last one.

    Args:
        place: where progress is shown; a click on Stop there, or on anything else, ends the work.
    """
    with place.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, text="Starting")
        st.button("Stop", key="stop", icon=":material/close:")

    def progress(done: int, of: int, name: str) -> None:
        bar.progress(done / (of + 1), text=f"{escape(_stage(name))}, part {done + 1} of {of}")

    try:
        if len(opened) == 1:
            report = run_report(opened[0], pages=order.pages, steps=order.steps, progress=progress)
        else:
            report = comparison_report(
                opened, pages=order.pages, metric=order.metric, steps=order.steps, progress=progress
            )
        bar.progress(0.95, text=f"Writing {_NAMES[order.kind]}")
        made = Made(order, report, contents(report, order.kind))
    except RatioscopeError as error:
        st.error("The report could not be made.", icon=":material/error:")
        st.text(safe(error))
        return None
    finally:
        place.empty()
    session().report = made
    return made


def _stage(name: str) -> str:
    """A part of the work in words: a page, or a page of a run."""
    run_id, found, page = name.rpartition(": ")
    return f"{run_id}{found}{_title(page)}"


def _hand_out(made: Made) -> None:
    """The file, and its verdict."""
    order, report = made.order, made.report
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(f"## {escape(report.title)}", width="content")
            figures = sum(1 for _ in report.charts)
            st.download_button(
                f"Download {_NAMES[order.kind]} ({count(len(made.contents))}B, {figures} figures)", made.contents,
                file_name=f"{order.file_name.removesuffix('.md')}.zip" if order.kind == ".md" else order.file_name,
                mime=_MEDIA[order.kind], on_click="ignore", icon=":material/download:", type="primary",
            )  # fmt: skip
        for question, sentence in report.verdict:
            with st.container(gap=None):
                if question:
                    st.caption(escape(question))
                st.markdown(escape(sentence))
