"""The story of a run in one picture: what it is for, how far it is off-policy, and what the cause names, one above the
other along the same steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base, evidence
from ratioscope.dashboard.figures.series import Limit, axis_floor, label, over_steps
from ratioscope.dashboard.theme import Mode

_BETWEEN = 0.09
"""Of the height: a panel's title stands there."""
_MOST_STRETCHES = 12
"""More shaded stretches than these are a comb; dots mark the steps then."""
_ORDERS, _LOW_AND_HIGH = 2.0, (0.1, 0.9)
"""A metric that spans so many powers of ten between these quantiles has a logarithmic axis."""
_FIRST = 1.5
"""Of the height of the others: the panel of what the run is for."""


@dataclass(frozen=True)
class Panel:
    """Metrics of one unit, and what they are held against."""

    keys: tuple[str, ...]
    limits: tuple[Limit, ...] = ()


def story(
    panels: Sequence[Panel],
    summary: StepSummary,
    mode: Mode,
    *,
    finding: Finding | None = None,
    height: int = 480,
    **options: Any,
) -> go.Figure:
    """Panels below each other with one cursor, the steps of a finding shaded in all of them.

    Args:
        finding: what the shade and the dots mark; None: nothing.
        options: of `series.over_steps`, for each panel.
    """
    figures = []
    for panel in panels:
        wide = len(panel.keys) == 1 and _spans(summary, panel.keys[0]) > _ORDERS
        figures.append(
            over_steps(
                summary, panel.keys, mode, limits=panel.limits, **options | ({"logarithmic": True} if wide else {})
            )
        )
        if finding is not None and finding.metric in panel.keys:
            evidence.mark_steps(figures[-1], finding, summary, mode)
    heights = (_FIRST, *(1.0 for _ in panels[1:]))
    fig = base.stacked(figures, mode, heights=heights, gap=_BETWEEN, height=height)
    for panel, (_, top) in zip(panels, base.domains(heights, _BETWEEN), strict=True):
        fig.add_annotation(
            x=0, xref="paper", y=top, yref="paper", text=_named(panel.keys), showarrow=False, xanchor="left",
            yanchor="bottom", font={"size": 12},
        )  # fmt: skip
    if finding is not None:
        _shade(fig, finding, summary, mode)
    return fig


def _named(keys: Sequence[str]) -> str:
    """The metrics of a panel, each behind a dot in the colour of its line."""
    return "  ".join(f'<span style="color:{theme.metric_colour(key)}">●</span> {label(key)}' for key in keys)


def _spans(summary: StepSummary, key: str) -> float:
    """Powers of ten between the low and the high ones of the positive values."""
    values = summary.values[key].to_numpy(float)
    positive = values[np.isfinite(values) & (values > axis_floor(key))]
    low, high = np.quantile(positive, _LOW_AND_HIGH) if len(positive) else (1.0, 1.0)
    return float(np.log10(high / low))


def _shade(fig: go.Figure, finding: Finding, summary: StepSummary, mode: Mode) -> None:
    """A band over all panels where the finding is: from step to step of those that the metric has a value in."""
    known = summary.values.index[np.isfinite(summary.values[finding.metric].to_numpy(float))]
    inside = known.isin(finding.steps)
    ends = np.flatnonzero(np.diff(inside.astype(int), prepend=0, append=0)).reshape(-1, 2)
    if not len(ends) or len(ends) > _MOST_STRETCHES:
        return
    for first, beyond in ends:
        fig.add_shape(
            type="rect", xref="x", yref="paper", layer="below", line={"width": 0},
            x0=int(known[first]) - 0.5, x1=int(known[beyond - 1]) + 0.5, y0=0, y1=1,
            fillcolor=theme.rgba(mode.severity[finding.severity], 0.1),
        )  # fmt: skip
    base.name_mark(fig, "shaded: the finding")
