"""Overview: is this run healthy?"""

import streamlit as st

from analysis import answers
from analysis.diagnosis import Severity
from dashboard import state, theme
from dashboard.components.chart import step_chart
from dashboard.components.finding_card import finding_card, notice
from dashboard.components.frame import answer, run_page
from dashboard.components.tile import metric_row
from dashboard.figures.series import Limit, over_steps
from ratioscope.catalogue import EPSILON, EPSILON_STALE

TILES = ("reward", "eval_accuracy", "s_k", "u_k", "clip_fraction", "ess_token", "khat_token", "entropy")


def render() -> None:
    """The page."""
    opened = run_page("Overview", "Is this run healthy?")
    if opened is None:
        return
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    answer(answers.overview(summary, opened.findings, thresholds=opened.thresholds))
    grave = [finding for finding in opened.findings if finding.severity > Severity.NOTICE]
    notices = opened.findings[len(grave) :]
    for finding in grave:
        finding_card(finding, summary, mode, opened.run_id)
    if notices:
        with st.expander(f"{len(notices)} notice{'s' * (len(notices) > 1)}", icon=theme.SEVERITY_ICON[Severity.NOTICE]):
            for finding in notices:
                notice(finding, opened.run_id)

    metric_row(summary, TILES[:4])
    metric_row(summary, TILES[4:])

    left, right = st.columns(2, gap="medium")
    with left:
        step_chart(
            over_steps(summary, ["reward", "eval_accuracy"], mode, y_title="share of right answers", steps=steps),
            key="reward",
            title="Is it learning? Training reward and evaluation accuracy",
            takeaway=answers.overview(summary, opened.findings, thresholds=opened.thresholds),
            data=summary.values[["reward", "eval_accuracy"]],
        )
        step_chart(
            over_steps(summary, ["entropy", "kl_to_initial"], mode, y_title="nats", steps=steps),
            key="entropy",
            title="What does it cost? Entropy and KL to the initial policy",
            takeaway="Entropy of the current policy and its KL divergence to the initial policy over the updates.",
            data=summary.values[["entropy", "kl_to_initial"]],
        )
    with right:
        step_chart(
            over_steps(
                summary,
                ["s_k", "u_k"],
                mode,
                y_title="total variation",
                limits=[Limit(EPSILON_STALE.value / 2, "ε<sub>stale</sub>/2"), Limit(EPSILON.value / 2, "ε/2")],
                steps=steps,
            ),
            key="staleness",
            title="How off-policy is it? Staleness and update drift",
            takeaway=answers.drift(summary, thresholds=opened.thresholds),
            data=summary.values[["s_k", "u_k"]],
        )
        step_chart(
            over_steps(summary, ["clip_fraction"], mode, y_title="share of tokens", steps=steps),
            key="clip",
            title="What is thrown away? Clip fraction",
            takeaway=answers.clipping(summary),
            data=summary.values[["clip_fraction"]],
        )
