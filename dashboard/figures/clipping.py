"""Figures of clipping: applied against what-if over steps, a rule over the ratio, quadrants, a sweep.

They are drawn again at every move of a slider, so they are put together as plain dictionaries: Plotly's checks of every
single change of a figure would take most of the time that there is.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.theme import Mode

if TYPE_CHECKING:  # they come with torch, which takes seconds
    from ratioscope.analysis.clipping.rule_shape import Density, Profile
    from ratioscope.analysis.what_if import MeasureCurve

# What was applied is blue and solid, what might have been is violet and dashed, everywhere on the page.
APPLIED, WHAT_IF = theme.CURRENT, "#9467BD"

CURVES = ("clip_fraction", "effective_token_fraction")
"""What is drawn over steps."""

TracePart = dict[str, Any]
Floats = NDArray[np.float64]


def against(
    curves: Mapping[str, tuple[Sequence[int], "MeasureCurve | None"]],
    mode: Mode,
    *,
    share: bool,
    steps: tuple[int | None, int | None] = (None, None),
    height: int = 240,
) -> go.Figure:
    """One measure over steps for the rule that was applied and for another, on the same axes.

    Args:
        curves: the applied one first, by the name in the legend, each with its steps.
        share: whether the measure is a share.
    """
    layout, number = _layout(mode, height), ".1%" if share else ".3g"
    traces: list[TracePart] = []
    marks: list[TracePart] = []
    every: list[int] = []
    for place, (name, (index, curve)) in enumerate(curves.items()):
        every += index
        if curve is None:
            continue
        colour, at, values = WHAT_IF if place else APPLIED, np.asarray(index, np.int32), curve.values
        comb = np.isin(values, [0.0, 1.0]) & share  # Wilson's interval there: as wide as groups are few
        traces.append(base.band(at, np.where(comb, np.nan, curve.low), np.where(comb, np.nan, curve.high), colour))
        shown = base.kept(np.where(np.isinf(values), np.nan, values))
        traces.append({
            "x": at[shown], "y": np.where(np.isinf(values), np.nan, values)[shown].astype(np.float32),
            "name": base.plotly_text(name), "mode": "lines" if len(shown) > 1 else "lines+markers",
            "connectgaps": False,
            "line": {"color": colour, "width": 2.2 if place else 1.8, "dash": "dash" if place else "solid"},
            "hovertemplate": "%{y:" + number + "}",
        })  # fmt: skip
        marks += _doubtful(at, values, curve.trusted, mode) + _infinite(at, values, name, mode, layout)
    for trace in [trace for trace in marks if trace["name"] == "unreliable"][1:]:
        trace["showlegend"] = False
    layout["yaxis"] |= {"rangemode": "tozero"} | ({"tickformat": "~p"} if share else {})
    if share and not any(c is not None and np.nanmax(c.values, initial=0) > 0 for _, c in curves.values()):
        layout["yaxis"]["range"] = [0, 0.1]
    first, last = steps
    if first is not None and last is not None:
        layout["xaxis"]["range"] = [first - 0.5, last + 0.5]
    elif every:
        pad = 0.5 + 0.01 * (max(every) - min(every))  # as `base.set_steps` has it
        layout["xaxis"]["range"] = [min(every) - pad, max(every) + pad]
    return _figure(traces + marks, layout)


def gates(profiles: Mapping[str, "Profile"], seen: "Density", mode: Mode, height: int = 370) -> go.Figure:
    """Factor on a token's gradient, over its ratio, and behind it where the ratios are.

    Args:
        profiles: of the applied rule first, by the name in the legend.
    """
    layout = _layout(mode, height, x_title="ratio", y_title="weight × gate")
    highest = [np.max(np.concatenate([p.positive, p.negative])) for p in profiles.values() if len(p.ratio)]
    top = 1.1 * float(np.clip(max([*highest, 1.0]), 1, 6))
    traces: list[TracePart] = []
    for place, (sign, counts) in enumerate((("positive", seen.positive), ("negative", seen.negative))):
        axes = {"xaxis": "x2", "yaxis": "y2"} if place else {}
        if len(counts) and counts.max() > 0:
            # Most ratios are within rounding of 1: on a linear scale the others would not be seen.
            filled = np.log1p(counts) / np.log1p(counts.max()) * top
            traces.append(axes | {
                "x": seen.ratio.astype(np.float32), "y": filled.astype(np.float32),
                "customdata": counts.astype(np.float32), "name": "tokens at this ratio (log scale)",
                "legendgroup": "tokens", "showlegend": not place, "mode": "lines",
                "line": {"width": 0, "shape": "hvh"}, "fill": "tozeroy",
                "fillcolor": theme.rgba(mode.behavior, 0.28),
                "hovertemplate": "%{customdata:,.0f} tokens near ratio %{x:.3g}<extra></extra>",
            })  # fmt: skip
        for number, (name, profile) in enumerate(profiles.items()):
            if not len(profile.ratio):
                continue
            line = {"color": WHAT_IF if number else APPLIED, "width": 2.2, "dash": "dash" if number else "solid"}
            traces.append(axes | {
                "x": profile.ratio.astype(np.float32), "y": getattr(profile, sign).astype(np.float32),
                "name": base.plotly_text(name), "legendgroup": name, "showlegend": not place, "mode": "lines",
                "line": line,
                "hovertemplate": "ratio %{x:.3g}: gradient × %{y:.3g}<extra></extra>",
            })  # fmt: skip
    wide = len(seen.ratio) > 0 and seen.ratio[-1] / seen.ratio[0] > 50
    ticks = [0.001, 0.01, 0.1, 1, 10, 100, 1000] if wide else [0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3, 5]
    layout["xaxis"] |= {"type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks], "domain": [0, 0.48]}
    layout["yaxis"]["range"] = [0, top]
    layout["xaxis2"] = layout["xaxis"] | {"domain": [0.52, 1], "anchor": "y2"}
    layout["yaxis2"] = layout["yaxis"] | {"anchor": "x2", "matches": "y", "showticklabels": False, "title": {}}
    layout |= {"hovermode": "closest", "dragmode": "zoom", "selectdirection": "any"}
    layout["margin"]["t"] = 64
    layout["legend"]["y"] = 1.1
    layout["annotations"] = [
        {
            "text": text, "x": x, "y": 1.0, "xref": "paper", "yref": "paper", "yanchor": "bottom", "showarrow": False,
            "font": {"size": 13, "color": mode.text},
        }
        for text, x in (("A > 0", 0.24), ("A < 0", 0.76))
    ]  # fmt: skip
    return _figure(traces, layout)


BARS = (
    ("share", "tokens", "#7F7F7F"),
    ("before", "gradient before the gate", theme.SKY),
    ("gradient", "gradient as applied", "#D55E00"),
)


def quadrant_bars(frame: pd.DataFrame, mode: Mode) -> go.Figure:
    """Shares of tokens and of the gradient by advantage and ratio; `frame` has the columns of `BARS` that are known."""
    layout = _layout(mode, 300, x_title="share of the total")
    names = [f"{row.advantage}, {row.ratio}" for row in frame.itertuples()]
    traces: list[TracePart] = []
    top = 0.1
    for key, name, colour in BARS:
        if key not in frame or frame[key].isna().all():
            continue
        values = frame[key].astype(float)
        top = max(top, float(values.max()))
        traces.append({
            "type": "bar", "y": names, "x": values.to_numpy(np.float32), "orientation": "h", "name": name,
            "marker": {"color": colour}, "text": ["" if np.isnan(value) else f"{value:.0%}" for value in values],
            "textposition": "outside", "cliponaxis": False, "textfont": {"size": 11, "color": mode.text},
            "hovertemplate": f"{name}: %{{x:.1%}}<extra></extra>",
        })  # fmt: skip
    layout |= {"barmode": "group", "bargap": 0.25, "hovermode": "closest", "dragmode": False}
    layout["margin"] |= {"l": 110, "r": 40}
    layout["xaxis"] |= {"tickformat": ".0%", "range": [0, 1.15 * top], "showgrid": True, "gridcolor": mode.grid}
    layout["yaxis"] |= {"autorange": "reversed", "showgrid": False}
    return _figure(traces, layout)


def sweep_figure(
    frame: pd.DataFrame,
    key: str,
    mode: Mode,
    *,
    x_title: str,
    y_title: str,
    share: bool,
    marks: Mapping[str, float],
    logarithmic: bool = True,
    height: int = 300,
) -> go.Figure:
    """A measure over the values of a parameter, its interval as a band, values in force as vertical lines.

    Args:
        frame: indexed by the parameter, with `key`, `key`_lower, `key`_upper and unreliable, of `Numbers.row`.
        share: whether the measure is a share.
        marks: where the parameter is, by name: applied, what-if.
    """
    layout = _layout(mode, height, x_title=x_title, y_title=y_title)
    x = frame.index.to_numpy(dtype=float)
    frame = frame[np.isfinite(x) & ((x > 0) | (not logarithmic))]
    x = frame.index.to_numpy(dtype=float)
    values = frame[key].to_numpy(dtype=float)
    traces: list[TracePart] = []
    if f"{key}_lower" in frame:
        low, high = (frame[f"{key}_{end}"].to_numpy(dtype=float) for end in ("lower", "upper"))
        traces.append(base.band(x, low, high, WHAT_IF))
    traces.append({
        "x": x.astype(np.float32), "y": np.where(np.isinf(values), np.nan, values).astype(np.float32),
        "mode": "lines+markers", "marker": {"size": 4}, "line": {"color": WHAT_IF, "width": 2}, "showlegend": False,
        "name": base.plotly_text(y_title),
        "hovertemplate": "%{x:.3g}: %{y:" + (".1%" if share else ".3g") + "}<extra></extra>",
    })  # fmt: skip
    trusted = np.array([key not in str(names).split(", ") for names in frame["unreliable"]], dtype=bool)
    traces += _doubtful(x, values, trusted, mode, size=9)
    layout["shapes"], layout["annotations"] = [], []
    for place, (name, value) in enumerate(marks.items()):
        if not np.isfinite(value) or (logarithmic and value <= 0):
            continue
        at = {"xref": "x", "yref": "paper"}
        colour = WHAT_IF if name == "what-if" else APPLIED
        layout["shapes"].append(
            at | {"type": "line", "x0": value, "x1": value, "y0": 0, "y1": 1,
                  "line": {"color": colour, "width": 1.5, "dash": "dot"}}
        )  # fmt: skip
        layout["annotations"].append(
            at | {"x": np.log10(value) if logarithmic else value, "y": 1 - 0.09 * place, "text": base.plotly_text(name),
                  "showarrow": False, "xanchor": "left", "xshift": 4, "font": {"size": 11, "color": mode.muted}}
        )  # fmt: skip
    if logarithmic:
        layout["xaxis"] |= {"type": "log", "exponentformat": "power", "nticks": 7, "minorloglabels": "none"}
    layout["yaxis"] |= {"rangemode": "tozero"} | ({"tickformat": "~p"} if share else {})
    layout |= {"hovermode": "closest", "dragmode": "zoom", "selectdirection": "any"}
    return _figure(traces, layout)


@cache
def _house(dark: bool, height: int, x_title: str, y_title: str) -> TracePart:
    fig = base.figure(theme.DARK if dark else theme.LIGHT, height=height, x_title=x_title, y_title=y_title)
    layout: TracePart = fig.to_dict()["layout"]
    return layout


def _layout(mode: Mode, height: int, x_title: str = "step", y_title: str = "") -> TracePart:
    """The house style, to be changed."""
    return deepcopy(_house(mode is theme.DARK, height, x_title, y_title))


def _figure(traces: list[TracePart], layout: TracePart) -> go.Figure:
    return go.Figure({"data": [{"type": "scatter"} | trace for trace in traces], "layout": layout})


def _doubtful(
    at: Floats | NDArray[np.int32], values: Floats, trusted: NDArray[np.bool_], mode: Mode, size: int = 5
) -> list[TracePart]:
    """Open circles on values that are not trusted; the most extreme ones stay when there are many."""
    doubtful = np.flatnonzero(~trusted & np.isfinite(values))
    if not len(doubtful):
        return []
    shown = np.sort(doubtful[np.argsort(-np.abs(values[doubtful]))][: base.MOST_POINTS // 4])
    return [{
        "x": np.asarray(at, np.float32)[shown], "y": values[shown].astype(np.float32), "name": "unreliable",
        "mode": "markers", "hoverinfo": "skip",
        "marker": {"symbol": "circle-open", "size": size, "color": mode.muted, "line": {"width": 1}},
    }]  # fmt: skip


def _infinite(at: NDArray[np.int32], values: Floats, name: str, mode: Mode, layout: TracePart) -> list[TracePart]:
    """Infinite values as triangles on the upper edge, with their number in the legend."""
    infinite = at[np.isinf(values)]
    if not len(infinite):
        return []
    layout["yaxis2"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    shown = infinite[:: -(-len(infinite) // base.MOST_POINTS)]
    return [{
        "x": shown, "y": np.ones(len(shown), np.float32), "yaxis": "y2", "mode": "markers",
        "name": f"{base.plotly_text(name)}: infinite in {len(infinite)} steps", "hoverinfo": "skip",
        "marker": {"symbol": "triangle-up", "size": 8, "color": mode.severity[max(mode.severity)]},
    }]  # fmt: skip
