"""Clipping: what did the loss throw away?"""

import pandas as pd
import streamlit as st

from ratioscope.analysis.clipping.quadrants import by_quadrant, quadrant_sentence
from ratioscope.analysis.clipping.rule_shape import replay_sentence
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings import answers
from ratioscope.analysis.ratios.distributions import quadrants
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.what_if import Curve, Rule
from ratioscope.dashboard import state
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import page_subject
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.judged import Place, digest_of, own_of, shares_of, start_of
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.figures.kept import over_steps
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.views.what_if import place_of, what_if
from ratioscope.errors import RatioscopeError

TILES = ("clip_fraction", "clip_fraction_positive", "clip_fraction_negative", "effective_token_fraction")


def render() -> None:
    """The page."""
    opened = run_page("Clipping", "What did the loss throw away?")
    if opened is None:
        return
    answer(answers.clipping(opened.summary))
    metric_row(opened.summary, TILES)
    if opened.summary.values["clip_fraction"].isna().all():
        st.info(
            "This log has neither the clip mask nor the side. What a rule would stop follows from the log-probs: "
            "see what-if below.",
            icon=":material/visibility_off:",
        )
    _logged(opened)
    what_if(opened, state.step_range(), st.session_state.get("clicked_step"))
    place = place_of(opened)
    left, right = st.columns(2, gap="medium")
    with left:
        _quadrants(opened, place)
    with right:
        _replay(opened, place)
    as_reported(page_subject(opened), "clipping")
    _explanation(opened)


def _logged(opened: Opened) -> None:
    """What the loss did, as it was logged."""
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    charts = {
        "sides": ("Clipped, by bound", ["clip_fraction", "clip_fraction_low", "clip_fraction_high"],
                  "share of tokens", answers.clipping(summary)),
        "signs": ("Clipped, by sign of A", ["clip_fraction_positive", "clip_fraction_negative"],
                  "share of tokens of that sign", "Share clipped among tokens with A > 0 and with A < 0."),
        "used": ("Left to learn from", ["effective_token_fraction", "zero_advantage_group_fraction"], "share",
                 "Share of tokens that still teach, and share of prompt groups without any signal."),
    }  # fmt: skip
    for column, (key, (title, metrics, y_title, takeaway)) in zip(
        st.columns(len(charts), gap="medium"), charts.items(), strict=True
    ):
        with column:
            step_chart(
                over_steps(summary, metrics, mode, y_title=y_title, steps=steps, height=280),
                key=key,
                title=title,
                takeaway=takeaway,
                data=summary.values[metrics],
            )


@st.cache_data(max_entries=64, show_spinner=False)
def _table(window: Window) -> pd.DataFrame:
    return quadrants(window.run(), *window.steps)


def _quadrants(opened: Opened, place: Place) -> None:
    own = own_of(place.window).rule
    try:
        shares = shares_of(place, str(own)) if own else None
    except RatioscopeError:  # what-if has said why
        return
    frame = by_quadrant(_table(place.window), shares)
    if not len(frame):
        st.info("No token of these steps has an advantage other than 0.", icon=":material/data_alert:")
        return
    sentence = quadrant_sentence(frame)
    plain_chart(
        figures.quadrant_bars(frame, state.mode()),
        key="quadrants",
        title=f"Who drives the gradient? {place.window.words.capitalize()}",
        takeaway=sentence,
        data=frame,
    )
    st.markdown(escape(sentence))
    columns = {
        "share": ("Tokens", "Share of the tokens with an advantage."),
        "clipped": ("Clipped", "Share of the quadrant's tokens that the loss clipped, as logged."),
        "before": ("Gradient before", "Share of Σ|weight A| before the gate, by the rule that the run states."),
        "taken": ("Taken by the gate", "Share of the quadrant's Σ|weight A| that the gate takes: its clipped tokens."),
        "gradient": ("Gradient", "Share of Σ|coefficient of ∇log π| as the loss used it."),
    }
    known = [name for name in columns if name in frame and frame[name].notna().any()]
    st.dataframe(
        frame[["advantage", "ratio", *known]],
        hide_index=True,
        height="content",
        column_config={
            "advantage": st.column_config.TextColumn("A", width=60),
            "ratio": st.column_config.TextColumn("ρ", width=60),
            **{
                name: st.column_config.NumberColumn(columns[name][0], help=columns[name][1], format="percent")
                for name in known
            },
        },
        alt=f"Shares of tokens, clipped tokens and gradient by advantage and ratio. {sentence}",
    )


def _replay(opened: Opened, place: Place) -> None:
    """Raw beside applied: what the stated gate says of the log-probs, and what the log says the loss did."""
    summary = opened.summary
    own: Rule | None = own_of(place.window).rule
    if own is None:
        return
    try:
        replayed, start = digest_of(place, str(own)), start_of(place, str(own))
    except RatioscopeError:
        return
    curve = replayed.curves["clip_fraction"]
    assert curve is not None
    gate = pd.Series(curve.values, index=list(replayed.steps))
    logged = summary.values["clip_fraction"]
    inside = logged.loc[place.window.first : place.window.last]
    lines = {"logged": (list(inside.index), Curve.bare(inside.to_numpy(dtype=float)))}
    frame = pd.DataFrame({"logged": inside, "gate, replayed": gate})
    if start is not None and start.curves["clip_fraction"] is not None:
        # After several passes the ratios have moved: raw is what the gate says of the data as they came.
        lines["gate, first pass"] = (list(start.steps), start.curves["clip_fraction"])
        frame["gate, first pass"] = pd.Series(start.curves["clip_fraction"].values, index=list(start.steps))
    else:
        lines["gate, replayed"] = (list(replayed.steps), curve)
    sentence = replay_sentence(inside, gate)
    step_chart(
        figures.against(lines, state.mode(), share=True, steps=state.step_range(), height=300),
        key="replay",
        title="Raw beside applied: the gate, the log",
        takeaway=sentence,
        data=frame.rename_axis("step"),
    )
    st.markdown(escape(sentence))
    if place.sampled:
        st.caption("The replay is of a sample of the tokens.")


def _explanation(opened: Opened) -> None:
    how_to_read(
        r"""
One-sided gates (S3 eq. 8) stop a token's gradient when $A>0$ and $\rho>1+\varepsilon_{high}$, or $A<0$ and
$\rho<1-\varepsilon_{low}$: the policy has already gone that way. The first charts show what the loss really did at its
last pass, not a mask derived afterwards. A mask stops gradients; it does not pull ratios back, and it does not bound
the update.

**What-if** lays any gate, filter and weight over the logged tokens. With gate $m$, weight $w$ and ratio $\rho$,
the applied weight of a token is $v=m\,w$, and over the tokens with $A\neq0$:

$$\text{kept gradient}=\frac{\sum v\,|A|}{\sum w\,|A|}\qquad
\text{ESS}=\frac{(\sum v)^2}{n\sum v^2}\qquad
\text{variance proxy}=\overline{v^2}\qquad
\text{bias proxy}=\overline{m\,(\rho-w)^+}+\overline{(1-m)\,\rho}$$

The *permitted drift* is half the mean step that a gate's bounds leave to the ratios, the largest $U_k$ that its masked
gradient asks for. The logged tokens stay as they are: a rule that had been in force would have led to other policies
and other tokens. What an update would have done is not in the log.
"""
    )
    algorithm = opened.run.manifest.algorithm
    if algorithm:
        with st.expander("The rule as the run states it", icon=":material/rule:"):
            st.text(
                f"Algorithm {algorithm.get('name')}: {algorithm.get('parts')}, parameters {algorithm.get('parameters')}"
            )
