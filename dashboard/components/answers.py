"""The answers about a run, each with one link to what shows it."""

import streamlit as st

from ratioscope.analysis.findings.inventory import rule_words
from ratioscope.analysis.overview.verdict import WHAT, Answer, Verdict
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.blocks import PageSubject
from ratioscope.dashboard.evidence import link_of
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session


def answers(subject: PageSubject, verdict: Verdict) -> None:
    """Question, answer and link below each other; the first one, what happened, in bold."""
    pages, tokens = session().pages, subject.log.has_tokens
    for place, answer in enumerate(verdict.answers):
        with st.container(gap=None):
            with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
                st.caption(_asked(answer), width="content")
                link = link_of(answer, subject.opened.run_id, has_tokens=tokens)
                if link is not None:
                    page = pages[link.page]
                    st.page_link(page, label=link.label or page.title, icon=page.icon, query_params=link.query)
            st.markdown(f"**{escape(answer.text)}**" if place == 0 else escape(answer.text))


def _asked(answer: Answer) -> str:
    """The question; of what happened with the finding's severity and name, as the list of runs has them."""
    finding = answer.finding
    if answer.question != WHAT or finding is None:
        return answer.question
    icon = theme.SEVERITY_ICON[finding.severity]
    return f"{answer.question} {icon} **{finding.severity.word.capitalize()}: {rule_words(finding.rule)}**"
