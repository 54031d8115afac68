"""Figure of the linter: staleness against the noise between two passes of one model."""

import numpy as np
import plotly.graph_objects as go

from ratioscope.analysis.findings.facts import STALENESS, Cause
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.theme import Mode

FLOORS = {
    "noise_floor_shape": ("noise floor, other batch shapes", "circle"),
    "noise_floor_dtype": ("noise floor, bfloat16", "diamond"),
}
"""Columns of the steps table, what they are, and their mark."""


def noise_floor(summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None] = (None, None)) -> go.Figure:
    """Staleness and engine mismatch over the steps beside the measured noise floors."""
    floors = {name: summary.steps[name].dropna() for name in FLOORS if name in summary.steps}
    floors = {name: values[values > 0] for name, values in floors.items()}
    fig = base.figure(mode, height=280, y_title="total variation")
    base.log_axis(fig)
    lines = ((STALENESS, "staleness", theme.CURRENT, "solid"), (Cause.ENGINE.key, "engine mismatch", theme.NEW, "dot"))
    for key, name, colour, dash in lines:  # on-policy the two are one line
        series = summary.values[key]
        shown = series.where((series > 0) & np.isfinite(series))
        if shown.notna().any():
            base.add_line(fig, shown, name=name, colour=colour, dash=dash, number=".2g")
    for name, values in floors.items():
        words, symbol = FLOORS[name]
        shown = base.reduce(values)
        fig.add_scatter(
            x=shown.index.to_numpy(np.int32),
            y=shown.to_numpy(np.float32),
            name=words,
            mode="markers",
            marker={"symbol": symbol, "size": 8, "color": mode.exact},
            hovertemplate="%{y:.2g}",
        )
    return base.set_steps(fig, steps, summary.values.index)
