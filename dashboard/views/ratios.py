"""Ratios: how heavy are the tails?"""

import pandas as pd
import streamlit as st

from analysis import answers
from analysis.distributions import Survival, survival
from analysis.store import open_run
from dashboard import state
from dashboard.components.chart import plain_chart, step_chart
from dashboard.components.frame import answer, run_page
from dashboard.components.tile import metric_row
from dashboard.figures import ratios as figures
from dashboard.figures.series import Limit, over_steps
from dashboard.state import Opened

TILES = ("khat_token", "ess_token", "ess_seq", "log1p_chi2_seq")


def render() -> None:
    """The page."""
    opened = run_page("Ratios", "How heavy are the tails?")
    if opened is None:
        return
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    inside = summary.up_to(*steps)
    answer(answers.ratios(summary))
    metric_row(summary, TILES)
    step_chart(
        figures.heat_map(inside, mode, steps),
        key="heat",
        title="Where the ratios are: every token, step by step",
        takeaway="Heat map of the token ratios over the updates, finer near 1.",
        data=inside.histogram,
    )
    left, right = st.columns(2, gap="medium")
    with left:
        columns = ["ratio_min", "ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999", "ratio_max"]
        step_chart(
            figures.quantile_fan(summary, mode, steps),
            key="fan",
            title="Quantiles of the ratio",
            takeaway="Quantiles of the token ratio over the updates, from minimum to maximum.",
            data=summary.values[columns],
        )
        step_chart(
            over_steps(summary, ["ess_token", "ess_seq"], mode, y_title="share of the sample", steps=steps),
            key="ess",
            title="Effective sample size, tokens and sequences",
            takeaway="Share of the tokens and of the sequences that importance weighting leaves effective.",
            data=summary.values[["ess_token", "ess_seq"]],
        )
    with right:
        _survival(opened)
        step_chart(
            over_steps(
                summary,
                ["khat_token", "khat_seq"],
                mode,
                y_title="tail index",
                limits=[Limit(0.7, "means fail"), Limit(0.35, "squares fail")],
                steps=steps,
            ),
            key="khat",
            title="Tail index: can means and squares be estimated?",
            takeaway=answers.ratios(summary),
            data=summary.values[["khat_token", "khat_seq", "khat_token_new"]],
        )
    step_chart(
        over_steps(summary, ["chi2_token", "log1p_chi2_seq"], mode, y_title="χ²", logarithmic=True, steps=steps),
        key="chi2",
        title="Variance of the weights: token χ², log(1 + χ²) of the sequences (below 1e-9 lies rounding)",
        takeaway="Token chi-square and the log form of the sequence chi-square over the updates.",
        data=summary.values[["chi2_token", "chi2_seq", "log1p_chi2_seq"]],
    )
    with st.expander("How to read this page"):
        st.markdown(
            r"""
The ratio $\rho_k=\pi_k/\hat\pi$ weighs every importance-sampled number. A tail index $\hat k$ is fitted to the largest
weights of each step; moments up to $1/\hat k$ exist. From $\hat k=0.7$ on a mean of $\rho$ cannot be estimated from
this many tokens, and a mean of $\rho^2$ ($\chi^2$, effective sample size) already from $0.35$ on; such values are open
circles, and their intervals are withheld. Sequence ratios multiply token ratios, so their variance grows
exponentially with the length. Bounded staleness and clip fractions need no moment and are always good.
"""
        )


@st.cache_data(max_entries=64, show_spinner=False)
def _curve(folder: str, signature: str, first: int, last: int) -> Survival:
    return survival(open_run(folder), first, last)


def _survival(opened: Opened) -> None:
    first, last = state.step_range()
    end = opened.summary.last_step
    if first is None or last is None:
        first, last = max(0, end - 19), end
    curve = _curve(str(opened.run.folder), opened.run.signature, first, last)
    where = f"steps {first} to {last}, {curve.n_tokens:,} tokens"
    plain_chart(
        figures.survival_curve(curve, state.mode()),
        key="survival",
        title=f"Survival curve of the ratio ({where})",
        takeaway=f"Share of tokens above each ratio, {where}; tail index {curve.khat or curve.reason}.",
        data=pd.DataFrame({"ratio": curve.ratio, "share of tokens above": curve.share}),
    )
