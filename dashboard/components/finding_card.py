"""A finding card: a sentence, severity, sparkline of the steps concerned, numbers, why, do, show me; and a notice."""

from typing import Literal

import plotly.graph_objects as go
import streamlit as st

from analysis.diagnosis import Finding, Number, Severity
from analysis.summary import StepSummary
from dashboard import theme
from dashboard.figures import base
from dashboard.formats import number
from dashboard.theme import Mode

_BADGE: dict[Severity, Literal["blue", "orange", "red"]] = {
    Severity.NOTICE: "blue",
    Severity.WARNING: "orange",
    Severity.CRITICAL: "red",
}


def finding_card(finding: Finding, summary: StepSummary, mode: Mode, run_id: str) -> None:
    """Draw one card; `run_id` goes into the link to the evidence."""
    with st.container(border=True):
        text, chart = st.columns([2, 1], gap="medium", vertical_alignment="center")
        with text:
            st.badge(finding.severity.word, icon=theme.SEVERITY_ICON[finding.severity], color=_BADGE[finding.severity])
            st.markdown(f"##### {finding.sentence}")
            st.caption(" · ".join(_quote(finding.metric, quoted) for quoted in finding.numbers))
        with chart:
            st.plotly_chart(
                _sparkline(finding, summary, mode),
                theme=None,
                key=f"finding-{finding.rule}",
                config={"displayModeBar": False, "staticPlot": True},
                alt=finding.sentence,
            )
        _reasons(finding, run_id)


def notice(finding: Finding, run_id: str) -> None:
    """Draw what is worth a word and no more."""
    with st.container(border=True):
        st.markdown(f"**{finding.sentence}**")
        st.caption(" · ".join(_quote(finding.metric, quoted) for quoted in finding.numbers))
        _reasons(finding, run_id)


def _reasons(finding: Finding, run_id: str) -> None:
    why, do = st.columns(2, gap="medium")
    why.markdown(f"**Why** — {finding.why}")
    do.markdown(f"**Do** — {finding.do}")
    source, link = st.columns([3, 1], vertical_alignment="center")
    source.caption(f"Source: {finding.source}")
    with link:
        show_me(finding, run_id)


def show_me(finding: Finding, run_id: str) -> None:
    """The link to the page and the steps that are the evidence."""
    first, last = min(finding.steps), max(finding.steps)
    query = {"run": run_id, "from": str(first), "to": str(last)} if last > first else {"run": run_id}
    st.page_link(
        st.session_state["pages"][finding.page], label="Show me", icon=":material/arrow_forward:", query_params=query
    )


def _quote(metric: str, quoted: Number) -> str:
    text = f"{quoted.label}: {number(metric, quoted.value)}"
    if quoted.low == quoted.low:  # not NaN
        text += f" (95 %: {number(metric, quoted.low)} to {number(metric, quoted.high)})"
    elif quoted.note.startswith("unreliable"):
        text += " (interval withheld)"
    return text


def _sparkline(finding: Finding, summary: StepSummary, mode: Mode) -> go.Figure:
    series = summary.values[finding.metric]
    fig = base.figure(mode, height=110)
    base.add_line(fig, series, name="", colour=theme.metric_colour(finding.metric), legend=False, width=1.5)
    concerned = base.reduce(series.loc[list(finding.steps)], 300)
    fig.add_scatter(
        x=concerned.index,
        y=concerned,
        mode="markers",
        marker={"size": 4, "color": mode.severity[finding.severity]},
        showlegend=False,
        hoverinfo="skip",
    )
    fig.add_hline(y=finding.limit, line={"color": mode.muted, "width": 1, "dash": "dash"})
    fig.update_layout(margin={"l": 4, "r": 4, "t": 4, "b": 4})
    fig.update_xaxes(visible=False)
    fig.update_yaxes(visible=False)
    return fig
