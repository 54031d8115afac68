"""What there is to say of a finding beside its sentence: numbers, why, do, how sure, source, the link to its page."""

import streamlit as st

from ratioscope.analysis.diagnosis import RULES, Finding
from ratioscope.analysis.tokens.contributions import has_parts
from ratioscope.dashboard.evidence import steps_query
from ratioscope.dashboard.formats import escape, quote
from ratioscope.dashboard.session import session
from ratioscope.sources import linked


def finding_details(finding: Finding, run_id: str) -> None:
    """All but the sentence."""
    numbers = " · ".join(quote(finding.metric, quoted) for quoted in finding.numbers)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.caption(numbers, width="stretch")
        show_me(finding, run_id)
    st.markdown(f"**Why** — {escape(finding.why)}")
    st.markdown(f"**Do** — {escape(finding.do)}")
    if finding.sure:
        st.markdown(f"**How sure** — {escape(finding.sure)}")
    st.caption(f"Source: {linked(finding.source)}")


def show_me(finding: Finding, run_id: str, label: str = "Show me") -> None:
    """The links to the page and the steps that are the evidence, and to the responses that make its number."""
    pages, query = session().pages, steps_query(finding, run_id)
    with st.container(horizontal=True, gap="xsmall", width="content"):
        if has_parts(finding.metric):
            st.page_link(pages["tokens"], label="Responses", icon=":material/match_word:", query_params=query)
        st.page_link(pages[RULES[finding.rule].page], label=label, icon=":material/arrow_forward:", query_params=query)
