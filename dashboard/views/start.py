"""Start: the first page of the demo: how far the live run is, and three finished ones that explain themselves."""

import streamlit as st

from ratioscope.dashboard.components.leave import leave_for
from ratioscope.dashboard.components.view_tools import saved_view_links
from ratioscope.dashboard.demo import Demo, Stage, demo, stage
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session
from ratioscope.dashboard.watching.reader import server_reader
from ratioscope.inert import safe


def render() -> None:
    """The page."""
    st.title("Start", anchor=False)
    live = demo()
    if live is None:
        st.info("This dashboard is no demo.", icon=":material/info:")
        return
    if not stage(live).has_steps:
        st.caption("The page of the live run opens here with its first step.")
    _live(live)
    laboratory = session().pages["laboratory"]
    st.page_link(laboratory, label="Meanwhile: play with the theory", icon=laboratory.icon)
    st.header("Three finished runs, each one click from its answer", anchor=False)
    _guided(live)
    saved_view_links()
    st.page_link(session().pages["runs"], label="All runs", icon=":material/list:")


@st.fragment(run_every=1.0)
def _live(live: Demo) -> None:
    """How far the trainer is; with the first step, its page, once."""
    now = stage(live)
    if now.has_steps and not session().saw_live_run:
        session().saw_live_run = True
        leave_for("overview", {"run": live.folder.name})
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.badge("ended" if now.ended else "live", icon=_icon(now), color="gray" if now.ended else "green")
        st.markdown(f"**{escape(now.says)}**", width="content")
        if now.has_steps:
            st.page_link(
                session().pages["overview"],
                label="Open it",
                icon=":material/arrow_forward:",
                query_params={"run": live.folder.name},
            )
        if now.detail:
            st.text(safe(now.detail), width="content")
        if not (now.ended or now.has_steps):
            st.caption(f"{live.seconds:.0f} s since the start", width="content")


def _icon(now: Stage) -> str:
    if now.ended:
        return ":material/check:" if now.has_steps else ":material/error:"
    return ":material/sensors:" if now.has_steps else ":material/hourglass_top:"


@st.fragment(run_every=1.0)
def _guided(live: Demo) -> None:
    """A card a run: what one will see, in the words of its own page."""
    if not live.guided:
        return
    for column, (title, folder, icon) in zip(st.columns(len(live.guided)), live.guided, strict=True):
        found = server_reader().of(folder)
        with column, st.container(border=True, height="stretch"):
            st.header(f"{icon} {title}", anchor=False)
            st.markdown(escape(found.answer) if found else "Its findings are being read …")
            st.page_link(
                session().pages["overview"],
                label="See its answer",
                icon=":material/arrow_forward:",
                query_params={"run": folder.name},
            )
