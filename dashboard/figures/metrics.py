"""Figures of a user's own view: a column of the steps table over the steps, and one number over another."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.theme import Mode


def column_over_steps(
    values: "pd.Series[float]", mode: Mode, *, steps: tuple[int | None, int | None] = (None, None)
) -> go.Figure:
    """A column that has no entry in the catalogue; where it is logged now and then, as points."""
    fig = base.figure(mode, height=210)
    finite = values.where(np.isfinite(values))
    base.add_line(
        fig, finite, name="logged", colour=theme.CURRENT, legend=False, marks=bool(finite.isna().mean() > 0.5)
    )
    base.add_infinite(fig, values, mode)
    return base.set_steps(fig, steps, values.index)


def against(frame: pd.DataFrame, mode: Mode, *, x_title: str, y_title: str) -> go.Figure:
    """Points (x, y) of steps, the index, joined in their order and coloured by it; what is infinite is left out."""
    drawn = frame[np.isfinite(frame).all(axis=1)]
    most = base.MOST_POINTS // 2
    drawn = drawn.loc[base.reduce(drawn["x"], most).index.union(base.reduce(drawn["y"], most).index)]
    fig = base.figure(mode, height=280, x_title=base.plotly_text(x_title), y_title=base.plotly_text(y_title))
    place: dict[str, Any] = {"x": base.single(drawn["x"]), "y": base.single(drawn["y"]), "showlegend": False}
    fig.add_scatter(**place, mode="lines", line={"color": mode.muted, "width": 0.7}, opacity=0.35, hoverinfo="skip")
    fig.add_scatter(
        **place, mode="markers", customdata=drawn.index.to_numpy(np.int32),
        marker={
            "size": 6, "color": drawn.index.to_numpy(np.int32),
            "colorscale": [[0, mode.sequential[0]], [1, mode.sequential[1]]],
            "colorbar": {"title": {"text": "step"}, "thickness": 10, "outlinewidth": 0},
        },
        hovertemplate="step %{customdata}: %{x:.3g}, %{y:.3g}<extra></extra>",
    )  # fmt: skip
    return fig.update_layout(hovermode="closest", dragmode="zoom")
