"""A framework's number over the steps, beside the metric that is closest to it."""

import pandas as pd
import plotly.graph_objects as go

from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.series import label
from ratioscope.dashboard.theme import Mode


def theirs_and_ours(
    by_step: pd.DataFrame, name: str, ours: str, mode: Mode, steps: tuple[int | None, int | None] = (None, None)
) -> go.Figure:
    """Their series dashed, ours solid where there is one.

    Args:
        by_step: index step; value and our_value, as of `analysis.frameworks.translation.Line`.
        name: theirs.
        ours: key of the catalogue; "": there is none like it.
    """
    fig = base.figure(mode, height=300)
    for column, words, colour, dash in (
        ("our_value", label(ours) if ours else "", theme.CURRENT, "solid"),
        ("value", name, theme.NEW, "dash"),
    ):
        if words:
            series = by_step[column].astype(float)
            finite = series.where(series.abs() != float("inf"))
            base.add_line(fig, finite, name=words, colour=colour, dash=dash, number=".3g")
            base.add_infinite(fig, series, mode)
    return base.set_steps(fig, steps, by_step.index)
