"""The story of a run in one picture: what it is for, how far it is off-policy, and what the cause names, one above the
other along the same steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue.total_variation import DISTANCES
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
_SHADE, _PALE = 0.2, 0.09
"""Of what is found in a panel's own metrics, and of the same steps in the others."""
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
    marked: str = "the finding",
    height: int = 480,
    **options: Any,
) -> go.Figure:
    """Panels below each other with one cursor; the steps of a finding are shaded, or dots where they are many.

    The shade is pale in the panels that it says nothing of.

    Args:
        finding: what the shade or the dots mark; None: nothing.
        marked: what it finds there, for the legend.
        options: of `series.over_steps`, for each panel.
    """
    stretches = _stretches(finding, summary) if finding is not None else []
    figures = []
    for panel in panels:
        wide = len(panel.keys) == 1 and _spans(summary, panel.keys[0]) > _ORDERS
        figures.append(
            over_steps(
                summary, panel.keys, mode, limits=panel.limits, **options | ({"logarithmic": True} if wide else {})
            )
        )
        if finding is not None and not stretches and finding.metric in panel.keys:
            evidence.mark_steps(figures[-1], finding, summary, mode)
    heights = (_FIRST, *(1.0 for _ in panels[1:]))
    fig = base.stacked(figures, mode, heights=heights, gap=_BETWEEN, height=height)
    fig.update_yaxes({"nticks": 4}, {"type": "log"})  # powers of ten are high, and a panel is low
    for panel, (bottom, top) in zip(panels, base.domains(heights, _BETWEEN), strict=True):
        if finding is not None:
            strength = _SHADE if finding.metric in panel.keys else _PALE
            for first, last in stretches:
                fig.add_shape(
                    type="rect", xref="x", yref="paper", layer="below", line={"width": 0}, x0=first - 0.5,
                    x1=last + 0.5, y0=bottom, y1=top,
                    fillcolor=theme.rgba(mode.severity[finding.severity], strength),
                )  # fmt: skip
        fig.add_annotation(
            x=0, xref="paper", y=top, yref="paper", text=_named(panel.keys), showarrow=False, xanchor="left",
            yanchor="bottom", font={"size": 12},
        )  # fmt: skip
    if any("band" in str(each.layout.xaxis.title.text) for each in figures):
        base.name_mark(fig, "band: 95%")
    if finding is not None:
        base.name_mark(fig, f"{'shaded' if stretches else 'dots'}: {marked}")
    return fig


def _named(keys: Sequence[str]) -> str:
    """The metrics of a panel, each behind a dot in the colour of its line; of distances what they are."""
    names = "  ".join(f'<span style="color:{theme.metric_colour(key)}">●</span> {label(key)}' for key in keys)
    return f"{names} (total variation)" if DISTANCES.issuperset(keys) else names


def _spans(summary: StepSummary, key: str) -> float:
    """Powers of ten between the low and the high ones of the positive values."""
    values = summary.values[key].to_numpy(float)
    positive = values[np.isfinite(values) & (values > axis_floor(key))]
    low, high = np.quantile(positive, _LOW_AND_HIGH) if len(positive) else (1.0, 1.0)
    return float(np.log10(high / low))


def _stretches(finding: Finding, summary: StepSummary) -> list[tuple[int, int]]:
    """Where the finding is, from step to step of those that its metric has a value in; none where they are a comb."""
    known = summary.values.index[np.isfinite(summary.values[finding.metric].to_numpy(float))]
    inside = known.isin(finding.steps)
    ends = np.flatnonzero(np.diff(inside.astype(int), prepend=0, append=0)).reshape(-1, 2)
    return (
        [(int(known[first]), int(known[beyond - 1])) for first, beyond in ends] if len(ends) <= _MOST_STRETCHES else []
    )
