"""A finding card: a sentence, severity, sparkline of the steps concerned, numbers, why, do, show me; and a notice."""

from collections.abc import Sequence
from typing import Literal

import streamlit as st

from ratioscope.analysis.diagnosis import Finding, Severity
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.analysis.tokens.contributions import has_parts
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.plot import plot
from ratioscope.dashboard.evidence import PAGE_OF
from ratioscope.dashboard.figures.evidence import can_be_shown, sparkline
from ratioscope.dashboard.formats import quote
from ratioscope.dashboard.session import session
from ratioscope.dashboard.theme import Mode
from ratioscope.sources import linked

_BADGE: dict[Severity, Literal["blue", "orange", "red"]] = {
    Severity.NOTICE: "blue",
    Severity.WARNING: "orange",
    Severity.CRITICAL: "red",
}


def finding_cards(findings: Sequence[Finding], summary: StepSummary, mode: Mode, run_id: str) -> None:
    """Cards in two columns, so that the charts below are not far; `run_id` goes into the links to the evidence."""
    for start in range(0, len(findings), 2):
        pair = findings[start : start + 2]
        for column, finding in zip(st.columns(len(pair), gap="small"), pair, strict=True):
            with column, st.container(border=True, height="stretch", gap="xsmall"):
                _card(finding, summary, mode, run_id)


def _card(finding: Finding, summary: StepSummary, mode: Mode, run_id: str) -> None:
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.badge(finding.severity.word, icon=theme.SEVERITY_ICON[finding.severity], color=_BADGE[finding.severity])
        show_me(finding, run_id)
    st.markdown(f"##### {finding.sentence}")
    if can_be_shown(finding, summary):
        plot(sparkline(finding, summary, mode), key=f"finding-{finding.rule}", alt=finding.sentence, still=True)
    st.caption(" · ".join(quote(finding.metric, quoted) for quoted in finding.numbers))
    _reasons(finding)


def notice(finding: Finding, run_id: str) -> None:
    """Draw a notice: a sentence, without numbers and chart."""
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.markdown(f"**{finding.sentence}**", width="stretch")
            show_me(finding, run_id)
        st.caption(" · ".join(quote(finding.metric, quoted) for quoted in finding.numbers))
        _reasons(finding)


def _reasons(finding: Finding) -> None:
    st.markdown(f"**Why** — {finding.why}")
    st.markdown(f"**Do** — {finding.do}")
    if finding.sure:
        st.markdown(f"**How sure** — {finding.sure}")
    st.caption(f"Source: {linked(finding.source)}")


def show_me(finding: Finding, run_id: str) -> None:
    """The links to the page and the steps that are the evidence, and to the responses that make its number."""
    query = {"run": run_id, "show": finding.metric}
    if len(finding.steps) > 1:
        query |= {"from": str(min(finding.steps)), "to": str(max(finding.steps))}
    pages = session().pages
    with st.container(horizontal=True, gap="xsmall", width="content"):
        if has_parts(finding.metric):
            st.page_link(pages["tokens"], label="Responses", icon=":material/match_word:", query_params=query)
        st.page_link(pages[PAGE_OF[finding.rule]], label="Show me", icon=":material/arrow_forward:", query_params=query)
