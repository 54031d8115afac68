"""The head of a run's page: which run, is it alive, how fresh, the step range; follows a live run."""

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from ratioscope.analysis.compare.grouping import Member, schedule_words
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.words import judged_without
from ratioscope.analysis.runs.store import Listed, Run
from ratioscope.dashboard import state
from ratioscope.dashboard.annotations import annotation_of
from ratioscope.dashboard.components.alarm import alarm
from ratioscope.dashboard.components.axis_choice import axis_choice
from ratioscope.dashboard.components.explained import explain_link
from ratioscope.dashboard.components.step_dialog import show_step
from ratioscope.dashboard.components.view_tools import view_tools
from ratioscope.dashboard.figures.along import along_of
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.roots import roots
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import steps_in_words
from ratioscope.dashboard.session import drawing, rested, session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe
from ratioscope.run_format.manifest import MANIFEST_NAME, as_finite
from ratioscope.sources import linked

# Markdown ends a formula that stands by itself only at a line of nothing but dollars; until there all is formula.
_FORMULA = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
POLL_SECONDS = 2.0
_LOOK_SECONDS = 5.0

_STATUS = {
    "running": ("live", "green", ":material/sensors:"),
    "stalled": ("stalled", "orange", ":material/hourglass_disabled:"),
    "finished": ("finished", "gray", ":material/check:"),
    "interrupted": ("interrupted", "gray", ":material/pause:"),
    "failed": ("failed", "red", ":material/error:"),
}


def status_words(run: Listed) -> str:
    """The status as the list of runs shows it."""
    return _STATUS[run.status][0] if run.manifest else "cannot be read"


def run_page(page: Page, *, brief: bool = False) -> Opened | None:
    """Title, run picker, status and live updates; returns the run, or None after an error, which is shown.

    Args:
        brief: leave out what the page itself says: its question, and what is wrong.
    """
    head, picker = st.columns([3, 2], vertical_alignment="center")
    with head:
        page_head(page, asks=not brief)
    with picker:
        listed = _pick()
    if listed is None:
        if state.runs():
            _no_such_run()
        else:
            no_runs()
        return None
    # A spinner is a row: on a run that is followed everything below would jump at each news.
    first = session().read != listed.run_id
    drawing()
    try:
        with st.spinner("Reading the run") if first else nullcontext():
            opened = state.open_listed(listed)
    except RatioscopeError as error:
        st.error("This run cannot be read.", icon=":material/error:")
        st.text(safe(error))
        return None
    session().read = listed.run_id
    session().pins = annotation_of(opened.run.folder).pins
    _bar(listed, opened)
    # One element, whatever it says: the charts below would be built anew, zoom and hidden lines lost, if one came more.
    with st.container():
        _messages(listed, opened, brief=brief)
    if not len(opened.summary.values):
        _without_steps(opened)
        return None
    show_step(opened)
    return opened


def _messages(listed: Listed, opened: Opened, *, brief: bool) -> None:
    """What is to be said of the run before its page: why it ended, alarm, steps that it does not have, broken files."""
    reason = (listed.manifest or opened.run.manifest).status_reason
    if reason:
        st.text(safe(reason))
    alarm(listed, opened, brief=brief)
    _watch([listed.folder])
    for line in _not_there(opened):
        st.text(line)
    if without := judged_without(opened.run.left_out):
        st.text(safe(without))
    for problem in opened.run.problems:
        st.warning("A file of this run was left out.", icon=":material/warning:")
        st.text(safe(problem))


def _not_there(opened: Opened) -> Iterator[str]:
    """What a link asks for that the run, once it has steps, does not have."""
    there, (first, last), step = opened.summary.values.index, state.step_range(), state.url_number("step")
    if not len(there):
        return
    end = opened.summary.last_step
    if first is not None and last is not None and last > end:
        yield f"This link asks for {steps_in_words(first, last)}; the run ends at step {end}."
    if step is not None and step not in there:
        why = f"the run ends at step {end}" if step > end else "the run has no such step"
        yield f"This link asks for step {step}; {why}."


def _without_steps(opened: Opened) -> None:
    for finding in opened.findings:
        st.error(escape(f"{finding.sentence} {finding.do}"), icon=":material/error:")
    if not opened.findings:
        st.info("No step is on disk yet. The page updates when the first one arrives.", icon=":material/hourglass_top:")


def page_head(page: Page, *, asks: bool = True) -> None:
    """The page's name and, unless its first row asks it anyway, the question that it answers."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.title(page.title, anchor=False, width="content")
        if asks:
            st.caption(page.question, width="content")


def answer(sentence: str) -> None:
    """What a page says first: the answer to its question in words; plain text."""
    st.markdown(f"**{escape(sentence)}**")


def how_to_read(explanation: str) -> None:
    """The formulas and how to read them, folded away at the end of a page; Markdown."""
    with st.expander("**How to read this page**"):
        st.markdown(_FORMULA.sub(r"\n\n$$\n\1\n$$\n\n", linked(explanation)))


def _pick() -> Listed | None:
    """The run of the URL, or the newest where it names none; a select box to change it."""
    known = state.runs()
    if not known:
        return None
    names = list(known)
    chosen = state.chosen_ids()[:1] or ([] if "run" in st.query_params else names[:1])

    def change() -> None:
        state.choose([st.session_state["run-picker"]])

    st.session_state["run-picker"] = chosen[0] if chosen else None  # the URL decides, not what the widget remembers
    st.selectbox(
        "Run",
        names,
        index=None,
        placeholder="Choose a run",
        key="run-picker",
        on_change=change,
        label_visibility="collapsed",
        format_func=one_line,
    )
    return known[chosen[0]] if chosen else None


def _no_such_run() -> None:
    """A link from elsewhere, one to a run that is only just being started, or a run that was deleted."""
    named = st.query_params.get("run", "")
    if session().read == named:
        st.warning("This run is gone: its folder is no longer there.", icon=":material/folder_off:")
        st.text(safe(named))
        st.page_link(session().pages["runs"], label="All runs", icon=":material/list:")
    else:
        st.info(
            "The run in this link is not in the folders of this dashboard. It opens as soon as it appears.",
            icon=":material/hourglass_top:",
        )
        st.text(safe(named))
    _await_another(list(state.runs()))


def no_runs() -> None:
    """The empty state: says how to get a first run."""
    st.info("There are no runs in the folders of this dashboard.", icon=":material/folder_open:")
    st.code("ratioscope train sync_interval algorithm=grpo   # takes two minutes\nratioscope demo", language="shell")
    st.text(one_line("Folders: " + ", ".join(map(str, roots()))))
    st.page_link(
        session().pages["laboratory"],
        label="Or play with the theory, without a run",
        icon=session().pages["laboratory"].icon,
    )
    _await_another([])


@st.fragment(run_every=POLL_SECONDS)
def _await_another(known: list[str]) -> None:
    """Draw the page again when the list of runs has changed: a trainer that has just been started takes a moment."""
    if list(state.runs()) != known:
        st.rerun()


def _bar(listed: Listed, opened: Opened) -> None:
    """Status, parts of the algorithm, how fresh the data are, the step range."""
    manifest = listed.manifest or opened.run.manifest
    # Of the list, which is as fresh as the heartbeat: what is opened stays as it is until there are new steps.
    status = listed.status or manifest.live_status()
    word, colour, icon = _STATUS[status]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(word, icon=icon, color=colour)  # type: ignore[arg-type]
        st.text(_setting(opened.run))
        if status in ("running", "stalled"):
            follow = st.toggle("Follow", value=True, key="follow", help="Show new steps as they arrive.")
            session().follows = follow
            _follow(state.DrawnState.of(opened), status, follow=follow)
        _range_bar(opened)
        _lines(opened)
        view_tools(opened.run_id)


def still_there(shown: Sequence[Listed]) -> None:
    """Name the runs of the link that are not there, and draw the page again when one appears, or one that it shows is
    deleted."""
    known = state.runs()
    if missing := [one_line(run_id) for run_id in st.query_params.get_all("run") if run_id not in known]:
        st.warning("Some chosen runs are not in the folders of this dashboard.", icon=":material/folder_off:")
        st.text("\n".join(missing))
        _await_another(list(known))
    _watch([run.folder for run in shown])


@st.fragment(run_every=_LOOK_SECONDS)
def _watch(folders: Sequence[Path]) -> None:
    """Draw the page again when one of these runs was deleted; one look at a file of each."""
    if not all((folder / MANIFEST_NAME).exists() for folder in folders):
        state.listed_runs.clear()
        st.rerun()


def _setting(run: Run) -> str:
    manifest = run.manifest
    known = [f"from {manifest.source['framework']}"] if manifest.source.get("framework") else []
    if manifest.algorithm_name or not known:
        known.append(manifest.algorithm_name or "algorithm not stated")
    if manifest.schedule or not known:
        known.append(schedule_words(manifest.schedule, manifest.sampler))
    rate = as_finite(manifest.optimiser.get("learning_rate"))
    if rate is not None:
        known.append(f"lr {rate:g}")
    if manifest.seed is not None:
        known.append(f"seed {manifest.seed}")
    return " · ".join(map(one_line, known))


@st.fragment(run_every=POLL_SECONDS)
def _follow(drawn: state.DrawnState, status: str, *, follow: bool) -> None:
    """The only thing that runs while nothing happens: one comparison of two short texts, and of the status in the list
    with the one that is drawn."""
    if follow and rested():
        listed = state.runs().get(drawn.run_id)
        if state.has_news(drawn) or (listed is not None and listed.status not in ("", status)):
            st.rerun()
    st.text(f"data up to step {drawn.last_step}, {_age(drawn.logged)} old")


def _age(logged: datetime | None) -> str:
    if logged is None:
        return "unknown"
    seconds = (datetime.now(UTC) - logged).total_seconds()
    if seconds < 90:
        return f"{max(0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


def chosen_steps() -> None:
    """The chosen steps and the way to all of them, or the way back."""
    first, last = state.step_range()
    if first is not None and last is not None:
        st.badge(steps_in_words(first, last), icon=":material/straighten:", color="blue")
        st.button(
            "All steps", key="all-steps", on_click=state.clear_range, icon=":material/zoom_out_map:", type="tertiary"
        )
    elif left := state.left_range():
        words = f"Back to {steps_in_words(*left)}"
        st.button(
            words, key="back-to-steps", on_click=state.set_range, args=left, icon=":material/undo:", type="tertiary"
        )


def _range_bar(opened: Opened) -> None:
    """The step range: what a drag over a chart sets, for the keyboard too, and the way back."""
    first, last = state.step_range()
    end = opened.summary.last_step
    chosen_steps()
    if first is not None and last is not None:
        explain_link(opened)
    with st.popover("Steps", icon=":material/straighten:", type="tertiary", key="steps", on_change="rerun") as popover:
        if popover.open:
            st.caption("Or drag over any chart. Click a point to open its step.")

            def change(changed: str) -> None:
                # The end that was typed stays: the other one is moved by it.
                typed = st.session_state[changed]
                chosen = st.session_state["first-step"], st.session_state["last-step"]
                state.set_range(min(chosen[0], typed), max(chosen[1], typed))

            st.session_state["first-step"] = min(first or 0, end)
            st.session_state["last-step"] = min(end if last is None else last, end)
            st.number_input("First step", 0, end, key="first-step", on_change=change, args=("first-step",))
            st.number_input("Last step", 0, end, key="last-step", on_change=change, args=("last-step",))
            for latest in (20, 100):
                if end >= latest:
                    span = (end - latest + 1, end)
                    st.button(f"Latest {latest}", key=f"latest-{latest}", on_click=state.set_range, args=span)


def _lines(opened: Opened) -> None:
    """How the lines over the steps are drawn, on all pages of a run."""
    session().along = None
    with st.popover("Display", icon=":material/tune:", type="tertiary", key="lines"):
        st.select_slider(
            "Running mean over", state.SMOOTHING, value=1, key="mean", bind="query-params",
            help="Steps, centred. The band behind it goes from the lowest to the highest of these steps. Intervals and "
            "marks of single steps are not drawn then. 1: as logged.",
        )  # fmt: skip
        st.toggle(
            "Log scale", key="logy", bind="query-params", help="Values of 0 and less are not drawn on a log scale."
        )
        by = axis_choice()
        try:
            session().along = along_of(Member(opened.run_id, opened.run, opened.summary), by)
        except RatioscopeError as error:
            st.text(safe(error))
