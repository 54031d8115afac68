"""The answers about a run, each with one link to what shows it."""

import streamlit as st

from ratioscope.analysis.overview.verdict import HEALTHY, WHAT, Verdict
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.blocks import PageSubject
from ratioscope.dashboard.evidence import link_of
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session


def answers(subject: PageSubject, verdict: Verdict) -> None:
    """Question, answer and link below each other; whether it is healthy, and what happened, in bold."""
    pages, tokens = session().pages, subject.log.has_tokens
    with st.container(gap=None):
        st.caption(HEALTHY)
        icon = f"{theme.SEVERITY_ICON[verdict.lead.severity]} " if verdict.lead else ""
        st.markdown(f"{icon}**{escape(verdict.health)}**")
    for answer in verdict.answers:
        with st.container(gap=None):
            with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
                st.caption(answer.question, width="content")
                link = link_of(answer, subject.opened.run_id, has_tokens=tokens)
                if link is not None:
                    page = pages[link.page]
                    st.page_link(page, label=link.label or page.title, icon=page.icon, query_params=link.query)
            st.markdown(f"**{escape(answer.text)}**" if answer.question == WHAT else escape(answer.text))
