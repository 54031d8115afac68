"""Figure of the Tokens page: in which steps the extreme ratios are."""

import plotly.graph_objects as go

from ratioscope.analysis.findings.course import sync_steps
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.theme import Mode

COLUMNS = ("ratio_max", "ratio_min")


def extremes(summary: StepSummary, mode: Mode, steps: tuple[int | None, int | None] = (None, None)) -> go.Figure:
    """Largest and smallest ratio of a token by step, on a logarithmic axis; 0 and infinity are not on it."""
    fig = base.figure(mode, height=280, y_title="ρ")
    base.log_axis(fig)
    # The colours of the reader: above 1 orange, below 1 blue.
    for key, name, colour in zip(COLUMNS, ("largest", "smallest"), (theme.NEW, theme.CURRENT), strict=True):
        series = summary.values[key]
        finite = series.where((series > 0) & (series != float("inf")))
        base.add_line(fig, finite, name=name, colour=colour, number=".3g")
    base.add_threshold(fig, 1.0, "on-policy", mode)
    base.add_sync_ticks(fig, sync_steps(summary.values["version_lag"]), mode)
    return base.set_steps(fig, steps, summary.values.index)
