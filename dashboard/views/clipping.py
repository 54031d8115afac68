"""Clipping: what did the loss throw away?"""

import pandas as pd
import streamlit as st

from analysis import answers
from analysis.distributions import quadrants
from analysis.store import open_run
from dashboard import state
from dashboard.components.chart import step_chart
from dashboard.components.frame import answer, run_page
from dashboard.components.tile import metric_row
from dashboard.figures.series import over_steps
from dashboard.state import Opened

TILES = ("clip_fraction", "clip_fraction_positive", "clip_fraction_negative", "effective_token_fraction")


def render() -> None:
    """The page."""
    opened = run_page("Clipping", "What did the loss throw away?")
    if opened is None:
        return
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    answer(answers.clipping(summary))
    metric_row(summary, TILES)
    left, right = st.columns(2, gap="medium")
    with left:
        sides = ["clip_fraction", "clip_fraction_low", "clip_fraction_high"]
        step_chart(
            over_steps(summary, sides, mode, y_title="share of tokens", steps=steps),
            key="sides",
            title="Clip fraction by bound",
            takeaway=answers.clipping(summary),
            data=summary.values[sides],
        )
    with right:
        signs = ["clip_fraction_positive", "clip_fraction_negative"]
        step_chart(
            over_steps(summary, signs, mode, y_title="share of tokens of that sign", steps=steps),
            key="signs",
            title="Clip fraction by sign of the advantage",
            takeaway="Share clipped among tokens with positive and with negative advantage.",
            data=summary.values[signs],
        )
    left, right = st.columns(2, gap="medium")
    with left:
        used = ["effective_token_fraction", "zero_advantage_group_fraction"]
        step_chart(
            over_steps(summary, used, mode, y_title="share", steps=steps),
            key="used",
            title="What is left to learn from",
            takeaway="Share of tokens that still teach, and share of prompt groups without any signal.",
            data=summary.values[used],
        )
    with right:
        _quadrants(opened)
    with st.expander("How to read this page"):
        _gate(opened)
        st.markdown(
            r"""
One-sided gates (S3 eq. 8) stop a token's gradient when $A>0$ and $\rho>1+\varepsilon_{high}$, or $A<0$ and
$\rho<1-\varepsilon_{low}$: the policy has already gone that way. What is shown is what the loss really did at its
last pass, not a mask derived afterwards. A mask stops gradients; it does not pull ratios back, and it does not bound
the update.
"""
        )


@st.cache_data(max_entries=64, show_spinner=False)
def _table(folder: str, signature: str, first: int, last: int) -> pd.DataFrame:
    return quadrants(open_run(folder), first, last)


def _quadrants(opened: Opened) -> None:
    first, last = state.step_range()
    if first is None or last is None:
        first, last = 0, opened.summary.last_step
    frame = _table(str(opened.run.folder), opened.run.signature, first, last)
    st.markdown(f"###### Who drives the gradient? Advantage by ratio, steps {first} to {last}")
    share = st.column_config.ProgressColumn
    st.dataframe(
        frame.drop(columns=["tokens"]),
        hide_index=True,
        row_height=44,
        column_config={
            "advantage": st.column_config.TextColumn("Advantage", width=70),
            "ratio": st.column_config.TextColumn("Ratio", width=60),
            "share": share("Tokens", width=110, format="percent", min_value=0, max_value=1),
            "clipped": share("Clipped", width=110, format="percent", min_value=0, max_value=1),
            "gradient": share("Gradient", width=110, format="percent", min_value=0, max_value=1),
        },
        alt="Share of tokens, clipped tokens and gradient weight by advantage sign and ratio side",
    )
    st.caption(
        "Shares of tokens and of Σ|coefficient of ∇log π| as the loss used it; clipped: share of the quadrant. "
        "Tokens with advantage 0 are left out."
    )


def _gate(opened: Opened) -> None:
    algorithm = opened.run.manifest.algorithm
    if algorithm:
        st.text(
            f"Algorithm {algorithm.get('name')}: {algorithm.get('parts')}, parameters {algorithm.get('parameters')}"
        )
