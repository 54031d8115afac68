"""What a finding rests on: its metric over the steps, with those marked that it is about."""

from math import isfinite

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.runs.window import FirstLast
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.series import Limit, over_steps
from ratioscope.dashboard.theme import Mode

_MOST_MARKS = 300


def can_be_shown(finding: Finding, summary: StepSummary) -> bool:
    """Whether there is a series to show; a finding may be about what is not there."""
    return bool(finding.steps) and len(_finite(summary, finding.metric)) > 0


def evidence(
    finding: Finding, summary: StepSummary, mode: Mode, height: int = 300, steps: FirstLast = (None, None)
) -> go.Figure:
    """The metric over the steps with its intervals, the limit, and the steps that the finding is about."""
    rule = RULES.get(finding.rule)
    name = "low &lt;" if rule is not None and rule.outcome else "limit"
    limits = [Limit(finding.limit, name)] if isfinite(finding.limit) else []
    unit = CATALOGUE[finding.metric].unit
    fig = over_steps(summary, [finding.metric], mode, limits=limits, y_title=unit, height=height, steps=steps)
    mark_steps(fig, finding, summary, mode)
    base.name_mark(fig, "dots: the finding")
    return fig


def mark_steps(fig: go.Figure, finding: Finding, summary: StepSummary, mode: Mode) -> None:
    """A dot in the severity's colour on each step that the finding is about; the caller names them."""
    series = _finite(summary, finding.metric)
    concerned = base.reduce(series.loc[series.index.isin(finding.steps)], _MOST_MARKS)
    fig.add_scatter(
        x=concerned.index,
        y=concerned,
        name="concerned",
        mode="markers",
        marker={"size": 5, "color": mode.severity[finding.severity]},
        showlegend=False,
        hoverinfo="skip",
    )


def _finite(summary: StepSummary, key: str) -> "pd.Series[float]":
    values = summary.values[key]
    return values[np.isfinite(values)]
