"""Drift: staleness, or the update?"""

import streamlit as st

from analysis import answers
from dashboard import state
from dashboard.components.chart import step_chart
from dashboard.components.frame import answer, run_page
from dashboard.components.tile import metric_row
from dashboard.figures.series import Limit, over_steps
from ratioscope.catalogue import EPSILON, EPSILON_STALE

TILES = ("s_k", "s_k_bounded", "u_k", "tv_new_behavior")


def render() -> None:
    """The page."""
    opened = run_page("Drift", "Staleness, or the update?")
    if opened is None:
        return
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    answer(answers.drift(summary, thresholds=opened.thresholds))
    metric_row(summary, TILES)
    step_chart(
        over_steps(
            summary,
            ["s_k", "u_k", "tv_new_behavior"],
            mode,
            y_title="total variation",
            limits=[Limit(EPSILON_STALE.value / 2, "ε<sub>stale</sub>/2"), Limit(EPSILON.value / 2, "ε/2")],
            height=360,
            steps=steps,
        ),
        key="path",
        title="The path behavior → current → new: staleness, update, and the distance that PPO clips",
        takeaway=answers.drift(summary, thresholds=opened.thresholds),
        data=summary.values[["s_k", "u_k", "tv_new_behavior"]],
    )
    left, right = st.columns(2, gap="medium")
    with left:
        step_chart(
            over_steps(summary, ["kl_k1", "kl_k2", "kl_k3"], mode, y_title="nats", steps=steps),
            key="kl",
            title="KL of current from behavior, three estimators",
            takeaway="The three KL estimators agree where the mean ratio is 1 and the policies are close.",
            data=summary.values[["kl_k1", "kl_k2", "kl_k3", "kl_reverse"]],
        )
        step_chart(
            over_steps(summary, ["version_lag"], mode, y_title="updates", steps=steps),
            key="lag",
            title="Age of the data",
            takeaway="Mean number of updates between the sampling policy and the current one.",
            data=summary.values[["version_lag"]],
        )
    with right:
        step_chart(
            over_steps(summary, ["s_k", "s_k_bounded"], mode, y_title="total variation", steps=steps),
            key="bounded",
            title="Staleness, plain and bounded form",
            takeaway="The two forms agree when the mean ratio is 1; the bounded one cannot be spoilt by a heavy tail.",
            data=summary.values[["s_k", "s_k_bounded", "ratio_mean"]],
        )
        step_chart(
            over_steps(summary, ["ratio_mean"], mode, y_title="mean ρ", limits=[Limit(1.0, "must be 1")], steps=steps),
            key="residual",
            title="Mean ratio: can the denominators be believed?",
            takeaway="The mean ratio must be 1 when the sampler's support covers the policy's.",
            data=summary.values[["ratio_mean"]],
        )
    with st.expander("How to read this page"):
        st.markdown(
            r"""
Samples come from the sampler $\hat\pi$; the update starts at $\pi_k$ and ends at $\pi_{k+1}$. All distances are total
variations, estimated from the sampled tokens:

$$S_k=\tfrac12\,\mathrm{mean}|\rho_k-1|\qquad U_k=\tfrac12\,\mathrm{mean}|\rho_{k+1}-\rho_k|\qquad
\mathrm{TV}(\pi_{k+1},\hat\pi)=\tfrac12\,\mathrm{mean}|\rho_{k+1}-1|\le U_k+S_k$$

Staleness is what the schedule and the engine do; the update is what the loss does. Standard PPO clips their sum: when
$S_k$ alone comes near $\varepsilon/2$, its clip leaves no room to learn, and the remedy is fresher data or a clip
centred at $\rho_k$. Bands are 95 % intervals over prompt groups. Open circles are values that this log cannot
support, because the tail of the ratios is too heavy.
"""
        )
