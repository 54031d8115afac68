"""Runs side by side: settings over a common axis with bands over their seeds, and the difference of two of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ratioscope.analysis.compare.alignment import Axis
from ratioscope.analysis.compare.curves import SettingCurve
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.cut_names import LONGEST_NAME, cut_apart
from ratioscope.dashboard.figures.line_styles import Style, legend_names, styles
from ratioscope.dashboard.figures.series import AXIS_ROUNDING
from ratioscope.dashboard.formats import hover_number, is_share, metric_value
from ratioscope.dashboard.theme import Mode

MOST_IN_A_ROW = 4
"""Panels beside each other; more wrap into rows."""
_LINE = 16  # pixels of a name at the end of a line
_LEGEND_ROW = 29  # pixels of a name below a chart
_STROKES = {"solid": "━━", "dash": "╍╍", "dot": "┅┅", "dashdot": "━·━", "longdash": "━ ━", "longdashdot": "━ ·"}
_MOST_UNIFIED = 8  # lines in one hover box
_CLOCK = ((7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))

Ends = tuple[float | None, float | None]


@dataclass(frozen=True)
class CurveLine:
    """A curve as it is drawn."""

    curve: SettingCurve
    name: str
    style: Style
    quiet: bool = False
    """Whether it is one of too many: thin, grey, and in colour only while it is touched."""


class AxisScale(NamedTuple):
    """The horizontal axis: its title, and what one unit of it is in the axis's own unit."""

    title: str
    unit: float = 1.0


def lines(
    found: Sequence[SettingCurve], colour: str = "variant", dash: str = "variant",
    looks: Mapping[int, Style] | None = None,
) -> list[CurveLine]:  # fmt: skip
    """Curves with the styles that tell them apart: by these attributes (`analysis.compare.attribute`).

    Args:
        looks: of those that are drawn in colour, by their places; None: of all.
    """
    settings = [curve.setting for curve in found]
    looks = dict(enumerate(styles(settings, colour, dash))) if looks is None else looks
    called, grey = legend_names(settings, colour, dash), Style(theme.LIGHT.behavior, "solid", "")
    return [
        CurveLine(curve, name, looks.get(place, grey), quiet=place not in looks)
        for place, (curve, name) in enumerate(zip(found, called, strict=True))
    ]


def axis_scale(by: Axis, last: float) -> AxisScale:
    """The axis for runs that end at `last`; time in a unit that fits its length."""
    if by == "step":
        return AxisScale("step")
    if by == "tokens":
        return AxisScale("tokens trained on")
    unit, name = next((unit, name) for least, unit, name in _CLOCK if not last < least)
    return AxisScale(f"{name} since the first update", unit)


def panel(
    shown: Sequence[CurveLine],
    metric: str,
    mode: Mode,
    *,
    by: Axis = "step",
    x: Ends = (None, None),
    y: Ends = (None, None),
    extent: Ends = (None, None),
    logarithmic: bool = False,
    seeds: bool = False,
    named: bool = False,
    height: int = 320,
) -> go.Figure:
    """Settings in one chart.

    Args:
        x: what is shown of the axis, in the axis's own unit (steps, tokens, seconds); None: all.
        y: the ends of the y axis (`value_range`), the same for all panels that are compared; None: what fits.
        extent: where the axis begins and ends over all panels that are compared (`extent_of`); None: over these lines.
        seeds: draw each seed faintly.
        named: write the names of the lines at their ends, where they fit (`fits_names`).
    """
    extent = extent_of(shown) if extent[1] is None else extent
    across = axis_scale(by, extent[1] or 0.0)
    fig = base.figure(mode, height=height, x_title=across.title)
    for line in sorted(shown, key=lambda line: not line.quiet):  # grey ones lie below
        _add(fig, line, metric, across.unit, mode, seeds=seeds)
    _add_infinite(fig, shown, across.unit, y[1], mode)
    _add_beyond(fig, shown, metric, x, y, mode)
    _finish(fig, metric, by, logarithmic=logarithmic)
    fig.update_layout(
        showlegend=False,
        margin={"t": 12},
        hovermode="x unified" if len(shown) <= _MOST_UNIFIED else "closest",
        uirevision=f"{metric} {by} {logarithmic}",  # what was zoomed there means nothing here
    )
    fig.update_xaxes(range=_range(x, extent, across.unit, by))
    fig.update_yaxes(range=_on_axis(y, logarithmic=logarithmic))
    if named and y[0] is not None and y[1] is not None:
        _add_names(fig, [line for line in shown if not line.quiet], (y[0], y[1]), x, height)
    return fig


def fits_names(shown: Sequence[CurveLine], height: int = 320) -> bool:
    """Whether the names of the lines have room below each other at the right."""
    return sum(not line.quiet for line in shown) * _LINE <= height - 60


def _add_names(fig: go.Figure, shown: Sequence[CurveLine], y: tuple[float, float], x: Ends, height: int) -> None:
    """The name of each line where it ends; those that would cover each other are moved apart."""
    last = {place: line.curve.frame.loc[slice(*x), "value"] for place, line in enumerate(shown)}
    ends = {place: float(values.iloc[-1]) for place, found in last.items() if len(values := _finite(found))}
    apart = _LINE * (y[1] - y[0]) / (height - 60)
    places = sorted(ends, key=ends.__getitem__)
    at = np.array([ends[place] for place in places])
    for number in range(1, len(at)):
        at[number] = max(at[number], at[number - 1] + apart)
    if len(at):  # from the top down, so that none leaves the panel
        at[-1] = min(at[-1], y[1])
        for number in range(len(at) - 2, -1, -1):
            at[number] = min(at[number], at[number + 1] - apart)
    named = cut_apart([shown[place].name for place in places], LONGEST_NAME)
    for place, name, where in zip(places, named, at.tolist(), strict=True):
        line = shown[place]
        fig.add_annotation(
            x=1, xref="paper", xanchor="left", xshift=6, y=where, showarrow=False, font={"size": 12},
            text=f'<span style="color:{line.style.colour}">{_STROKES[line.style.dash]}</span> {base.plotly_text(name)}',
            align="left",
        )  # fmt: skip
    legend = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "font": {"size": 12},
              "bgcolor": "rgba(0,0,0,0)"}  # fmt: skip
    room = 50 + _LEGEND_ROW * len(places)
    phone = {"showlegend": True, "annotations": [], "legend": legend, "height": height - 40 + room,
             "margin": {"l": 8, "r": 8, "t": 12, "b": room}}  # fmt: skip
    fig.update_layout(margin={"r": 24 + 7 * max(map(len, named), default=0)}, meta={"narrow": phone})


def small_multiples(
    facets: Mapping[str, Sequence[CurveLine]],
    metric: str,
    mode: Mode,
    *,
    steps: tuple[int | None, int | None] = (None, None),
) -> go.Figure:
    """One titled panel a facet in one figure, on equal axes, with one legend below: for print and notebooks."""
    shown = [line for drawn in facets.values() for line in drawn]
    places = np.repeat(np.arange(len(facets)), [len(drawn) for drawn in facets.values()])
    across, rows = min(len(facets), MOST_IN_A_ROW), -(-len(facets) // MOST_IN_A_ROW)
    fig = make_subplots(
        rows=rows,
        cols=across,
        shared_xaxes="all",
        shared_yaxes="all",
        subplot_titles=[base.plotly_text(facet) for facet in facets],
        horizontal_spacing=0.03,
        vertical_spacing=0.16 / rows,
    )
    template = base.figure(mode, height=300 * rows + 80).layout
    axes = {name: {"tickfont": template[name].tickfont, "title": template[name].title} for name in ("xaxis", "yaxis")}
    fig.update_layout({key: value for key, value in template.to_plotly_json().items() if key not in axes})
    fig.update_layout(hovermode="x", legend={"y": -0.3 / rows, "yanchor": "top"})
    named: set[str] = set()
    for line, place in zip(shown, places.tolist(), strict=True):
        at = (place // across + 1, place % across + 1)
        _add(fig, line, metric, 1.0, mode, legend=line.name not in named, at=at)
        named.add(line.name)
    fig.update_xaxes(axes["xaxis"], showgrid=False, zeroline=False, linecolor=mode.grid)
    fig.update_xaxes(range=_range(steps, extent_of(shown), 1.0, "step"))
    fig.update_yaxes(axes["yaxis"], gridcolor=mode.grid, zerolinecolor=mode.grid, range=value_range(shown))
    fig.update_annotations(font={"size": 13, "color": mode.text})
    _finish(fig, metric, "step", logarithmic=False)
    return fig


def differences(
    shown: Sequence[tuple[str, Style | None, pd.DataFrame]],
    metric: str,
    mode: Mode,
    *,
    name: str = "A minus B",
    by: Axis = "step",
    x: Ends = (None, None),
    height: int = 300,
) -> go.Figure:
    """Differences of settings along the axis, with the line of no difference; `difference_over` has the tables.

    Args:
        shown: of each its name, look and table; one without a look has its 95 % band, which those of several would
            cover.
        name: of the axis.
    """
    ends = [_ends(table.index) for *_, table in shown]
    extent = min(low for low, _ in ends if low is not None), max(high for _, high in ends if high is not None)
    across = axis_scale(by, extent[1])
    fig = base.figure(mode, height=height, x_title=across.title, y_title=_minus(name, metric))
    for called, style, table in shown:
        finite = table.where(np.isfinite(table)) * _points(metric)
        if style is None:
            _add_band(fig, finite, mode.text, across.unit)
        look, value = style or Style(mode.text, "solid", ""), base.reduce(finite["difference"].dropna())
        _add_line(fig, value, metric, across.unit, called, look, _of_difference(metric))
    base.add_threshold(fig, 0.0, "no difference", mode)
    fig.update_xaxes(range=_range(x, extent, across.unit, by))
    fig.update_layout(
        margin={"t": 12},
        showlegend=False,
        hovermode="x unified" if len(shown) <= _MOST_UNIFIED else "closest",
        uirevision=f"{metric} {by}",
    )
    if by != "step":
        fig.update_layout(dragmode="zoom")
    return fig


def extent_of(shown: Sequence[CurveLine]) -> Ends:
    """Where the axis begins and ends over these lines."""
    ends = [_ends(line.curve.seeds.index) for line in shown if len(line.curve.seeds)]
    return (min(first for first, _ in ends), max(last for _, last in ends)) if ends else (None, None)  # type: ignore[type-var]


def value_range(
    shown: Sequence[CurveLine], x: Ends = (None, None), *, seeds: bool = False, logarithmic: bool = False
) -> Ends:
    """Both ends of a y axis on which these lines fit inside x; (None, None) where there is nothing to fit.

    Grey lines may leave it: those in colour are told apart where they lie close to each other.
    """
    found = []
    for line in [line for line in shown if not line.quiet] or shown:
        curve = line.curve
        frames = [curve.frame[["value", "low", "high"]], curve.raw.to_frame(), *([curve.seeds] if seeds else [])]
        for frame in frames:
            values = frame.loc[slice(*x)].to_numpy(dtype=float).ravel()
            found.append(values[np.isfinite(values) & ((values > AXIS_ROUNDING) | (not logarithmic))])
    values = np.concatenate(found) if found else np.array([])
    if not len(values):
        return None, None
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        return low / 1.2, high * 1.2
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return low - pad, high + pad


def _add(
    fig: go.Figure,
    line: CurveLine,
    metric: str,
    unit: float,
    mode: Mode,
    *,
    seeds: bool = False,
    legend: bool = True,
    at: tuple[int, int] | None = None,
) -> None:
    """Band, each seed, what was logged, and on top the line itself; `at`: row and column of the panel."""
    place = {"row": at[0], "col": at[1]} if at else {}
    if line.quiet:
        _add_quiet(fig, line, metric, unit, mode, place)
        return
    colour = line.style.colour
    name, curve = base.plotly_text(line.name), line.curve
    faint = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "legendgroup": name, "connectgaps": True}
    _add_band(fig, curve.frame.where(np.isfinite(curve.frame)), colour, unit, legendgroup=name, **place)
    columns = [curve.seeds[seed] for seed in curve.seeds] if seeds else []
    value = curve.frame["value"]
    if not value.equals(curve.raw):
        columns.append(curve.raw)
    for series in columns:
        drawn = base.reduce(_finite(series))
        fig.add_scatter(
            x=_places(drawn.index, unit), y=drawn.to_numpy(np.float32),
            line={"color": theme.rgba(colour, 0.35), "width": 1}, **faint, **place,
        )  # fmt: skip
    drawn = base.reduce(_finite(value), base.MOST_POINTS - 2)
    hover = "%{y:" + hover_number(metric) + "}"
    _add_line(fig, drawn, metric, unit, line.name, line.style, hover, legendgroup=name, showlegend=legend, **place)


def _add_quiet(fig: go.Figure, line: CurveLine, metric: str, unit: float, mode: Mode, place: Mapping[str, int]) -> None:
    """A line that is grey until it is touched (`components/plot.js`)."""
    drawn = base.reduce(_finite(line.curve.frame["value"]), base.MOST_POINTS - 2)
    fig.add_scatter(
        x=_places(drawn.index, unit), y=drawn.to_numpy(np.float32), name=base.plotly_text(line.name), mode="lines",
        line={"color": theme.rgba(mode.behavior, 0.5), "width": 1.2}, showlegend=False, meta="quiet",
        hovertemplate="%{y:" + hover_number(metric) + "}", **place,
    )  # fmt: skip


def _add_line(
    fig: go.Figure, value: pd.Series, metric: str, unit: float, name: str, style: Style, hover: str, **others: object
) -> None:
    """A line in a setting's look."""
    colour, dash, symbol = style
    fig.add_scatter(
        x=_places(value.index, unit), y=value.to_numpy(np.float32), name=base.plotly_text(name),
        mode="lines+markers" if CATALOGUE[metric].sparse or symbol or len(value) == 1 else "lines",
        marker={"size": 7, "symbol": symbol, "maxdisplayed": 15} if symbol else {"size": 4},
        line={"color": colour, "width": 2, "dash": dash}, hovertemplate=hover, **others,
    )  # fmt: skip


def _add_band(fig: go.Figure, frame: pd.DataFrame, colour: str, unit: float, **others: object) -> None:
    """low to high; each stretch without a gap is a polygon of its own, the longest sixty of them."""
    known = (frame["low"] < frame["high"]).to_numpy()
    stretches = np.split(np.arange(len(frame)), np.flatnonzero(np.diff(known.astype(int))) + 1)
    whole = sorted((part for part in stretches if len(part) > 1 and known[part[0]]), key=len)[-60:]
    for part in whole:
        low, high = (base.reduce(frame[end].iloc[part], base.MOST_POINTS // 2) for end in ("low", "high"))
        fig.add_scatter(
            x=np.concatenate([_places(high.index, unit), _places(low.index, unit)[::-1]]),
            y=np.concatenate([high.to_numpy(np.float32), low.to_numpy(np.float32)[::-1]]),
            fill="toself", fillcolor=theme.rgba(colour, 0.13), line={"width": 0}, mode="lines", hoverinfo="skip",
            showlegend=False, **others,
        )  # fmt: skip


def _add_infinite(fig: go.Figure, shown: Sequence[CurveLine], unit: float, top: float | None, mode: Mode) -> None:
    """Triangles at the upper edge where a seed's value is infinite, with their number."""
    places = np.array(sorted({float(place) for line in shown for place in line.curve.infinite}))
    if not len(places):
        return
    drawn = places[:: -(-len(places) // base.MOST_POINTS)]
    fig.add_scatter(
        x=_places(pd.Index(drawn), unit), y=np.full(len(drawn), 1.0 if top is None else top, np.float32),
        name=f"infinite in {len(places)} places", mode="markers", cliponaxis=False, showlegend=True,
        marker={"symbol": "triangle-up", "size": 8, "color": mode.severity[max(mode.severity)]}, hoverinfo="name",
    )  # fmt: skip


def _add_beyond(fig: go.Figure, shown: Sequence[CurveLine], metric: str, x: Ends, y: Ends, mode: Mode) -> None:
    """At the lower and the upper edge how many grey lines leave it, and how far (`value_range`)."""
    if y[0] is None or y[1] is None:
        return
    inside = [_finite(line.curve.frame.loc[slice(*x), "value"]) for line in shown if line.quiet]
    for sign, edge, at, arrow in ((-1, y[0], 0, "↓"), (1, y[1], 1, "↑")):
        far = [sign * furthest for each in inside if len(each) and (furthest := (sign * each).max()) > sign * edge]
        if far:
            lines = f"{len(far)} line{'s' * (len(far) > 1)}"
            fig.add_annotation(
                x=1, xref="paper", xanchor="right", xshift=-4, y=at, yref="paper", yanchor=("bottom", "top")[at],
                text=f"{arrow} {lines}, to {metric_value(metric, sign * max(sign * end for end in far))}",
                font={"size": 12, "color": mode.muted}, bgcolor=theme.rgba(mode.surface, 0.85), showarrow=False,
            )  # fmt: skip


def _finish(fig: go.Figure, metric: str, by: Axis, *, logarithmic: bool) -> None:
    if logarithmic:
        base.log_axis(fig)
    elif is_share(metric):
        fig.update_yaxes(tickformat=".0%")
    if by != "step":
        fig.update_layout(dragmode="zoom")


def _finite(series: "pd.Series[float]") -> "pd.Series[float]":
    return series.where(np.isfinite(series)).dropna()


def _places(index: "pd.Index[float]", unit: float) -> np.ndarray:
    """The index as it is drawn: whole steps, or single precision."""
    whole = index.dtype.kind == "i"
    return index.to_numpy(np.int32) if whole else (index.to_numpy(dtype=float) / unit).astype(np.float32)


_LONGEST = 34
"""Letters of an axis's title."""


def _points(metric: str) -> int:
    """By what a difference is multiplied: those of shares are in percentage points."""
    return 100 if is_share(metric) else 1


def _minus(name: str, metric: str) -> str:
    """The title of an axis of differences."""
    shown = name if len(name) <= _LONGEST else "difference"
    return f"{base.plotly_text(shown)}{', points' * is_share(metric)}"


def _of_difference(metric: str) -> str:
    return "%{y:+.1f} points" if is_share(metric) else "%{y:+.3g}"


def _ends(index: "pd.Index[float]") -> Ends:
    return (float(index.min()), float(index.max())) if len(index) else (None, None)


def _range(x: Ends, extent: Ends, unit: float, by: Axis) -> list[float] | None:
    """The ends of the axis: those asked for, else its whole extent, with a little room."""
    room = 0.5 if by == "step" else 0.0
    if x[0] is not None and x[1] is not None:
        return [(x[0] - room) / unit, (x[1] + room) / unit]
    if extent[0] is None or extent[1] is None:
        return None
    pad = room + 0.01 * (extent[1] - extent[0])
    return [(extent[0] - pad) / unit, (extent[1] + pad) / unit]


def _on_axis(y: Ends, *, logarithmic: bool) -> list[float] | None:
    if y[0] is None or y[1] is None:
        return None
    return [float(np.log10(y[0])), float(np.log10(y[1]))] if logarithmic else [y[0], y[1]]
