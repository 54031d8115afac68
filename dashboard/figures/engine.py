"""Figures of the Engine page: its part beside age and update, where it sits, its size against the probability."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.findings.facts import Cause
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.theme import Mode

_COLOURS = {Cause.AGE: theme.CURRENT, Cause.ENGINE_OR_AGE: theme.CURRENT, Cause.UPDATE: theme.NEW}
_WORDS = {
    Cause.ENGINE: "engine mismatch",
    Cause.AGE: "age",
    Cause.ENGINE_OR_AGE: "engine mismatch with age",
    Cause.UPDATE: "update drift",
}


def word(cause: Cause) -> str:
    """A part's name in a legend and a table."""
    return _WORDS[cause]


def parts(
    series: Mapping[Cause, "pd.Series[float]"],
    limit: float,
    mode: Mode,
    steps: tuple[int | None, int | None] = (None, None),
) -> go.Figure:
    """The parts of the path over the steps, the engine's with its limit where that is not far off."""
    fig = base.figure(mode, y_title="total variation", height=280)
    alone = not {Cause.AGE, Cause.ENGINE_OR_AGE} & {*series}  # then it is the staleness that other pages draw
    for cause, values in series.items():
        colour = theme.CURRENT if cause is Cause.ENGINE and alone else _COLOURS.get(cause, mode.text)
        finite = values.where(np.isfinite(values))
        sparse = finite.notna().mean() < 1
        if cause is Cause.ENGINE and sparse:  # known in some steps: a line would join what is not known
            known = base.reduce(finite.dropna())
            fig.add_scatter(
                x=known.index.to_numpy(np.int32), y=base.single(known), name=word(cause), mode="markers",
                marker={"size": 6, "color": colour}, hovertemplate="%{y:.3g}",
            )  # fmt: skip
            continue
        base.add_line(fig, finite, name=word(cause), colour=colour, width=2.2 if cause is Cause.ENGINE else 1.4,
                      marks=cause is Cause.ENGINE and bool(sparse))  # fmt: skip
    largest = max((float(values.max()) for values in series.values() if values.notna().any()), default=0.0)
    if Cause.ENGINE in series and largest > limit / 4:
        base.add_threshold(fig, limit, f"mismatch<br>limit {limit:.3g}", mode)
    fig.update_yaxes(rangemode="tozero")
    index = next(iter(series.values())).index if series else pd.Index([], dtype=int)
    return base.set_steps(fig, steps, index)


def holds(rows: pd.DataFrame, mode: Mode) -> go.Figure:
    """By dimension, what its densest part holds of the distance, beside what the probability of its tokens explains.

    Args:
        rows: words, share_of_distance, share_expected.
    """
    fig = base.figure(mode, height=max(140, 44 + 34 * len(rows)), x_title="share of the distance")
    names = [base.plotly_text(str(words)) for words in rows["words"]]
    fig.add_bar(
        y=names,
        x=rows["share_of_distance"].to_numpy(np.float32),
        customdata=rows[["share_expected"]].to_numpy(np.float32),
        orientation="h",
        marker={"color": theme.CURRENT},
        hovertemplate="%{x:.0%} of the distance, %{customdata[0]:.0%} expected<extra></extra>",
        name="held",
    )
    fig.add_bar(
        y=names,
        x=rows["share_expected"].to_numpy(np.float32),
        orientation="h",
        marker={"color": "rgba(0,0,0,0)", "line": {"width": 2, "color": mode.text}},
        hoverinfo="skip",
        name="expected by the tokens' probability",
    )
    fig.update_xaxes(tickformat="~p", range=[0, 1], showgrid=True)
    fig.update_yaxes(autorange="reversed", showgrid=False)
    return fig.update_layout(barmode="overlay", hovermode="closest", dragmode=False, bargap=0.35, margin={"t": 8})


def against_probability(rows: pd.DataFrame, mode: Mode) -> go.Figure:
    """Mean |Δ log-prob| by the token's uncertainty 1 - p, both logarithmic: slope 1 is a difference of logits.

    Args:
        rows: strata of probability of `analysis.engine.where`.
    """
    fig = base.figure(mode, height=280, x_title="1 − p of the token", y_title="mean |Δ log-prob|, nats")
    shown = rows[(rows["uncertainty"] > 0) & (rows["apart"] > 0)]
    fig.add_scatter(
        x=shown["uncertainty"].to_numpy(np.float32),
        y=shown["apart"].to_numpy(np.float32),
        mode="lines+markers",
        name="measured",
        line={"color": mode.text, "width": 2},
        marker={"size": 7},
        customdata=shown[["share_of_tokens"]].to_numpy(np.float32),
        hovertemplate="%{y:.2g} nats, %{customdata[0]:.1%} of the tokens<extra></extra>",
    )
    if len(shown):
        level = float((shown["n"] * shown["apart"]).sum() / (shown["n"] * shown["uncertainty"]).sum())
        ends = shown["uncertainty"].agg(["min", "max"]).to_numpy(float)
        fig.add_scatter(
            x=ends.astype(np.float32), y=(level * ends).astype(np.float32), mode="lines", name="a difference of logits",
            line={"color": mode.muted, "width": 1.2, "dash": "dash"}, hoverinfo="skip",
        )  # fmt: skip
        base.log_axis(fig)
        fig.update_xaxes(type="log", exponentformat="power", minorloglabels="none")
    return fig.update_layout(hovermode="closest", dragmode="zoom")
