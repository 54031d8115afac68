"""The head of a run's page: which run, is it alive, how fresh, the step range; follows a live run."""

from datetime import UTC, datetime

import streamlit as st

from analysis.comparison import schedule_words
from analysis.store import Listed, Run, signature
from dashboard import state
from dashboard.roots import roots
from dashboard.state import Opened
from ratioscope.errors import RatioscopeError

POLL_SECONDS = 2.0

_STATUS = {
    "running": ("live", "green", ":material/sensors:"),
    "stalled": ("stalled", "orange", ":material/hourglass_disabled:"),
    "finished": ("finished", "gray", ":material/check:"),
    "interrupted": ("interrupted", "gray", ":material/pause:"),
    "failed": ("failed", "red", ":material/error:"),
}


def status_words(run: Listed) -> str:
    """The status as the list of runs shows it."""
    return _STATUS[run.manifest.live_status()][0] if run.manifest else "cannot be read"


def run_page(title: str, question: str) -> Opened | None:
    """Title, run picker, status and live follow; returns the run, or None after having said what is wrong."""
    head, picker = st.columns([3, 2], vertical_alignment="bottom")
    with head:
        st.title(title, anchor=False)
        st.caption(question)
    with picker:
        listed = _pick()
    if listed is None:
        if state.runs():
            _no_such_run()
        else:
            no_runs()
        return None
    try:
        with st.spinner("Reading the run"):
            opened = state.open_listed(listed)
    except RatioscopeError as error:
        st.error("This run cannot be read.", icon=":material/error:")
        st.text(str(error))
        return None
    _bar(listed, opened)
    for problem in opened.run.problems:
        st.warning("A file of this run was left out.", icon=":material/warning:")
        st.text(problem)
    if not len(opened.summary.values):
        st.info(
            "No step is on disk yet. This page fills in when the first ones arrive.", icon=":material/hourglass_top:"
        )
        return None
    return opened


def answer(sentence: str) -> None:
    """What a page says first: the answer to its question in words; Markdown, so text from logs comes escaped."""
    st.markdown(f"**{sentence}**")


def how_to_read(explanation: str) -> None:
    """The formulas and how to read them, folded away at the end of a page; Markdown."""
    with st.expander("How to read this page", icon=":material/menu_book:"):
        st.markdown(explanation)


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
    )
    return known[chosen[0]] if chosen else None


def _no_such_run() -> None:
    """A link from elsewhere, or one to a run that is only just being started."""
    st.info(
        "The link names a run that is not below the folders of this dashboard. It opens as soon as it is there.",
        icon=":material/hourglass_top:",
    )
    _await_another(list(state.runs()))


def no_runs() -> None:
    """The empty state: says how to get a first run."""
    st.info("There is no run below the folders this dashboard was started on.", icon=":material/folder_open:")
    st.code("ratioscope train sync_interval algorithm=grpo   # a run of two minutes\nratioscope demo", language="shell")
    st.text("Folders: " + ", ".join(map(str, roots())))
    _await_another([])


@st.fragment(run_every=POLL_SECONDS)
def _await_another(known: list[str]) -> None:
    """Draw the page again when the list of runs has changed: a trainer that has just been started takes a moment."""
    if list(state.runs()) != known:
        st.rerun()


def _bar(listed: Listed, opened: Opened) -> None:
    """Status, parts of the algorithm, how fresh the data are, the step range."""
    manifest = opened.run.manifest
    word, colour, icon = _STATUS[opened.run.status]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(word, icon=icon, color=colour)  # type: ignore[arg-type]
        st.text(_setting(opened.run))
        if opened.run.status in ("running", "stalled"):
            follow = st.toggle("Follow", value=True, key="follow", help="Show new steps as they arrive.")
            _follow(listed, opened, follow=follow)
        _range_bar(opened)
    if manifest.status_reason:
        st.text(manifest.status_reason)


def _setting(run: Run) -> str:
    manifest = run.manifest
    algorithm = manifest.algorithm.get("name", "algorithm not stated")
    return f"{algorithm} · {schedule_words(manifest.schedule)} · seed {manifest.seed}"


@st.fragment(run_every=POLL_SECONDS)
def _follow(listed: Listed, opened: Opened, *, follow: bool) -> None:
    """The only thing that runs while nothing happens: one comparison of two short texts."""
    if follow and signature(listed.folder) != opened.run.signature:
        st.rerun()
    st.text(f"data up to step {opened.summary.last_step}, {_age(opened)} old")


def _age(opened: Opened) -> str:
    times = opened.summary.steps.get("wall_time")
    if times is None or not len(times):
        return "unknown"
    seconds = (datetime.now(UTC) - times.iloc[-1].to_pydatetime().astimezone(UTC)).total_seconds()
    if seconds < 90:
        return f"{max(0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


def _range_bar(opened: Opened) -> None:
    first, last = state.step_range()
    if first is None:
        st.caption("Drag over a chart to look at some steps.")
        return
    st.badge(f"steps {first} to {last}", icon=":material/straighten:", color="blue")
    st.button("All steps", key="all-steps", on_click=state.clear_range, icon=":material/zoom_out_map:")
