"""Links from pages of a run to the experiments of the laboratory that explain them."""

import streamlit as st

from ratioscope.dashboard.sections.laboratory import MEETINGS, PAGE
from ratioscope.dashboard.session import session

CHOICE = "experiment"
"""In the address."""


def experiment_link(key: str, label: str, icon: str | None = PAGE.icon) -> None:
    """A link to an experiment, which keeps the chosen run."""
    kept = {"run": run} if (run := st.query_params.get("run")) else {}
    st.page_link(session().pages[PAGE.key], label=label, icon=icon, query_params={CHOICE: key, **kept})


def ways_in(page: str) -> None:
    """What somebody on this page asks, as links to the experiments that answer."""
    asked = [meeting for meeting in MEETINGS if meeting.page == page]
    if not asked:
        return
    with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
        st.caption(PAGE.title, width="content")
        for meeting in asked:
            experiment_link(meeting.experiment, meeting.asks)
