"""What every figure shares: the template, axes by step, thresholds, sync ticks, marks for unreliable values."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from ratioscope.dashboard import theme
from ratioscope.dashboard.theme import Mode

# A chart shows no more points than it has pixels; a reduction keeps the extremes of every bucket.
MOST_POINTS = 2_000

Values = NDArray[np.floating[Any]]

# More circles than these are a comb.
_MOST_CIRCLES = 20

# Of so few that are shown each has a tick of its own, and none stands between them.
_FEW_STEPS = 8

INTERVAL = "95% interval"
"""The name of a band."""

_GAP = np.full(1, np.nan, np.float32)


def figure(mode: Mode, *, height: int = 300, y_title: str = "", x_title: str = "step") -> go.Figure:
    """An empty figure in the house style."""
    return go.Figure(layout=_layout(mode, height, y_title, x_title))


@lru_cache(maxsize=256)
def _layout(mode: Mode, height: int, y_title: str, x_title: str) -> dict[str, Any]:
    """What all figures with these titles begin with, checked by Plotly once: that takes longer than most lines take."""
    axis: dict[str, Any] = {
        "gridcolor": mode.grid,
        "zerolinecolor": mode.grid,
        "linecolor": mode.grid,
        "tickfont": {"color": mode.muted, "size": 12},
        "title": {"font": {"color": mode.muted, "size": 12}},
        "automargin": True,
    }
    return go.Layout(
        template="none",
        height=height,
        margin={"l": 56, "r": 20, "t": 26, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": theme.FONT, "color": mode.text, "size": 13},
        hovermode="x unified",
        hoverlabel={"bgcolor": mode.panel, "font": {"color": mode.text, "size": 12}, "bordercolor": mode.grid},
        legend={
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "font": {"size": 12, "color": mode.text},
            "bgcolor": "rgba(0,0,0,0)",
        },
        xaxis=axis
        | {"title": {"text": x_title, "font": axis["title"]["font"]}, "showgrid": False, "zeroline": False}
        | {"spikecolor": mode.muted, "spikethickness": 1, "spikedash": "dot"},
        yaxis=axis | {"title": {"text": y_title, "font": axis["title"]["font"]}},
        dragmode="select",
        selectdirection="h",
        newselection={"line": {"color": theme.CURRENT, "width": 1, "dash": "dot"}},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": mode.muted, "activecolor": mode.text},
    ).to_plotly_json()


def kept(values: Values, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Which values are drawn: all of them, or at most `most` with the smallest and the largest of every bucket."""
    n, buckets = len(values), most // 2
    if n <= most:
        return np.arange(n)
    starts = np.arange(buckets) * n // buckets
    ends = np.append(starts[1:], n)
    # All buckets as rows of one array; the last value of a short one stands in for what it lacks.
    places = np.minimum(starts[:, None] + np.arange((ends - starts).max()), ends[:, None] - 1)
    inside, rows = values[places], np.arange(buckets)
    lowest = np.where(np.isnan(inside), np.inf, inside).argmin(axis=1)
    highest = np.where(np.isnan(inside), -np.inf, inside).argmax(axis=1)
    return np.unique([places[rows, lowest], places[rows, highest]])


def reduce(series: "pd.Series[float]", most: int = MOST_POINTS) -> "pd.Series[float]":
    """A series with at most `most` points that keeps the smallest and the largest of every bucket."""
    return series if len(series) <= most else series.iloc[kept(series.to_numpy(float), most)]


def plotly_text(text: str) -> str:
    """Text from a log inside a figure, where Plotly would read a subset of HTML."""
    return escape(text)


def add_line(
    fig: go.Figure,
    series: "pd.Series[float]",
    *,
    name: str,
    colour: str,
    dash: str = "solid",
    width: float = 1.8,
    legend: bool = True,
    number: str = ".3g",
    marks: bool = False,
    metric: str = "",
) -> None:
    """A line by step; gaps stay gaps.

    Args:
        marks: for series that were logged only now and then.
        metric: of the catalogue, what a click on the line asks about.
    """
    shown = reduce(series.dropna() if marks else series)
    fig.add_scatter(
        x=shown.index.to_numpy(np.int32),
        y=single(shown),
        name=name,
        mode="lines+markers" if marks or len(shown) == 1 else "lines",
        line={"color": colour, "width": width, "dash": dash},
        marker={"size": 5},
        showlegend=legend,
        hovertemplate="%{y:" + number + "}",
        connectgaps=False,
        meta=metric or None,
    )


def single(values: "Values | pd.Series[float]") -> NDArray[np.float32]:
    """As figures hold their numbers; what a single-precision number cannot hold is infinite there."""
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=float).astype(np.float32)


def add_band(fig: go.Figure, low: "pd.Series[float]", high: "pd.Series[float]", colour: str) -> None:
    """The 95 % interval as a band at 15 % opacity; where it is withheld there is none."""
    fig.add_scatter(**band(low.index.to_numpy(), low.to_numpy(float), high.to_numpy(float), colour))


def band(at: NDArray[Any], low: Values, high: Values, colour: str) -> dict[str, Any]:
    """A trace with a polygon for each stretch where both ends are known: a band must not span a gap."""
    shown = np.union1d(kept(low, MOST_POINTS // 5), kept(high, MOST_POINTS // 5))
    along, below, above = (single(part)[shown] for part in (at, low, high))
    known = np.isfinite(below) & np.isfinite(above)
    x, y = [_GAP], [_GAP]
    for stretch in np.split(np.arange(len(along)), np.flatnonzero(known[1:] != known[:-1]) + 1):
        if len(stretch) > 1 and known[stretch[0]]:
            x += [along[stretch], along[stretch[::-1]], _GAP]
            y += [above[stretch], below[stretch[::-1]], _GAP]
    return {
        "x": np.concatenate(x), "y": np.concatenate(y), "name": INTERVAL, "fill": "toself",
        "fillcolor": theme.rgba(colour, 0.15), "line": {"width": 0}, "mode": "lines", "hoverinfo": "skip",
        "showlegend": False,
    }  # fmt: skip


# The legend group of the marks of `add_untrusted`.
UNTRUSTED = "untrusted"
_STRIP = "unreliable steps: bar at the top"


def add_untrusted(
    fig: go.Figure, series: "pd.Series[float]", trusted: "pd.Series[bool]", mode: Mode, *, colour: str, row: int = 0
) -> None:
    """Open circles on unreliable values; where they are many, a strip on the upper edge in the line's colour.

    Args:
        row: how many strips are above it.
    """
    doubtful = series[~trusted & np.isfinite(series)]  # infinite ones have their own mark
    if not len(doubtful):
        return
    if len(doubtful) > _MOST_CIRCLES:
        x, y = _strip(doubtful.index.to_numpy(np.int32), series.index)
        fig.add_scatter(
            x=x, y=y - np.float32(0.03 * row), yaxis="y2", name=_STRIP, mode="lines",
            legendgroup=UNTRUSTED, line={"color": colour, "width": 4}, hoverinfo="skip", connectgaps=False,
            cliponaxis=False,
        )  # fmt: skip
        _edges(fig)
        return
    fig.add_scatter(
        x=doubtful.index.to_numpy(np.int32),
        y=single(doubtful),
        name="unreliable",
        legendgroup=UNTRUSTED,
        mode="markers",
        marker={"symbol": "circle-open", "size": 5, "color": mode.muted, "line": {"width": 1}},
        hoverinfo="skip",
    )


def _strip(steps: NDArray[np.int32], index: "pd.Index[int]") -> tuple[Values, Values]:
    """A line at 1 along these steps; two that are less than a pixel apart are one stretch."""
    pixel = max(1, -(-(int(index.max()) - int(index.min())) // (MOST_POINTS // 4)))
    starts = np.flatnonzero(np.diff(steps, prepend=np.int32(steps[0] - pixel - 1)) > pixel)
    ends = np.append(starts[1:], len(steps)) - 1
    x = np.stack([steps[starts] - 0.5, steps[ends] + 0.5, np.full(len(starts), np.nan)], axis=1).ravel()
    return single(x), single(np.where(np.isnan(x), np.nan, 1.0))


def _edges(fig: go.Figure) -> None:
    """An axis from the lower edge of the plot, 0, to the upper one, 1, for marks that are not values."""
    fig.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})


def add_infinite(fig: go.Figure, series: "pd.Series[float]", mode: Mode) -> None:
    """Infinite values as triangles on the upper edge, with their number in the legend."""
    infinite = series[np.isinf(series)]
    if len(infinite):
        shown = infinite.iloc[:: -(-len(infinite) // MOST_POINTS)]
        fig.add_scatter(
            x=shown.index.to_numpy(np.int32),
            y=np.ones(len(shown), np.float32),
            yaxis="y2",
            name=f"infinite in {len(infinite)} steps",
            mode="markers",
            marker={"symbol": "triangle-up", "size": 8, "color": mode.severity[max(mode.severity)]},
            hoverinfo="skip",
        )
        _edges(fig)


def add_marks(fig: go.Figure, marks: Iterable[tuple[int, str, str]], index: "pd.Index[int]") -> None:
    """A triangle on the step axis for each (step, words, colour) within the index; the words are in the tooltip."""
    inside = [mark for mark in marks if mark[0] in index]
    if not inside:
        return
    steps, words, colours = zip(*inside, strict=True)
    fig.add_scatter(
        x=np.asarray(steps, np.int32),
        y=np.zeros(len(inside), np.float32),
        yaxis="y2",
        name="",
        text=[plotly_text(said) for said in words],
        showlegend=False,
        mode="markers",
        marker={"symbol": "triangle-up", "size": 9, "color": list(colours)},
        cliponaxis=False,
        hovertemplate="%{text}",
    )
    _edges(fig)
    name_mark(fig, "▲: a finding begins")


def add_threshold(fig: go.Figure, value: float, name: str, mode: Mode, side: str = "middle") -> None:
    """A thin dashed line with its name at the right end.

    Args:
        side: "bottom": the name begins at the line and goes up, "top": it goes down; for lines that are close.
    """
    fig.add_hline(y=value, line={"color": mode.muted, "width": 1, "dash": "dash"})
    fig.update_layout(margin={"r": 84})
    fig.add_annotation(
        x=1,
        xref="paper",
        y=np.log10(value) if fig.layout.yaxis.type == "log" else value,
        text=name,
        showarrow=False,
        xanchor="left",
        xshift=6,
        yanchor=side,
        font={"size": 11, "color": mode.muted},
        align="left",
    )


def add_beyond(fig: go.Figure, names: Sequence[str], mode: Mode, side: str = "top") -> None:
    """Thresholds above the axis: an arrow at its upper end with their names, below each other; see `add_threshold`."""
    if names:
        fig.update_layout(margin={"r": 84})
        fig.add_annotation(
            x=1, xref="paper", y=1, yref="paper", text="<br>".join(f"↑ {name}" for name in names), showarrow=False,
            xanchor="left", xshift=6, yanchor=side, font={"size": 11, "color": mode.muted}, align="left",
        )  # fmt: skip


def add_sync_ticks(fig: go.Figure, steps: Iterable[int], mode: Mode) -> None:
    """A faint tick on the step axis where new weights reached the sampler."""
    places = np.asarray(list(steps), np.int32)
    if not len(places) or len(places) > 200:  # at every step a tick says nothing
        return
    fig.add_scatter(
        x=places,
        y=np.zeros(len(places), np.float32),
        yaxis="y3",
        showlegend=False,
        mode="markers",
        marker={"symbol": "line-ns", "size": 9, "line": {"width": 1.5, "color": mode.muted}},
        cliponaxis=False,
        hoverinfo="skip",
    )
    fig.update_layout(yaxis3={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
    name_mark(fig, "ticks: weight sync")


def name_mark(fig: go.Figure, words: str) -> None:
    """Say behind the title of the step axis what a mark in the chart means."""
    title, _, told = str(fig.layout.xaxis.title.text).removesuffix(")").partition(" (")
    fig.update_xaxes(title={"text": f"{title} ({'; '.join(filter(None, (told, words)))})"})


def set_steps(fig: go.Figure, steps: tuple[int | None, int | None], index: "pd.Index[int]") -> go.Figure:
    """Show the chosen steps, or all of them, on the x axis: the same range in every chart of a page."""
    first, last = steps
    if first is not None and last is not None:
        whole = {"dtick": 1} if last - first < _FEW_STEPS else {}
        return fig.update_xaxes(range=[first - 0.5, last + 0.5], **whole)
    if not len(index):
        return fig
    first, last = int(index.min()), int(index.max())
    pad = 0.5 + 0.01 * (last - first)
    return fig.update_xaxes(range=[first - pad, last + pad])


def domains(heights: Sequence[float], gap: float) -> list[tuple[float, float]]:
    """Lower and upper end of panels, the first one on top; a gap is above each.

    Args:
        heights: each in proportion to the others.
        gap: a part of the whole height.
    """
    found, top = [], 1.0
    for height in np.asarray(heights) / sum(heights) * (1 - len(heights) * gap):
        found.append((max(0.0, top - gap - height), top - gap))
        top -= gap + height
    return found


def stacked(
    figures: Sequence[go.Figure], mode: Mode, *, heights: Sequence[float], gap: float, height: int
) -> go.Figure:
    """Figures over the same steps as panels of one, the first one on top: one step axis, one cursor.

    There is no legend, and no ticks of syncs.

    Args:
        heights, gap: see `domains`.
    """
    whole = figure(mode, height=height)
    whole.layout.yaxis = None
    for row, (part, domain) in enumerate(zip(figures, domains(heights, gap), strict=True)):
        moved = partial(_moved_axis, by=len(_AXES) * row)
        for trace in part.data:
            if trace.yaxis != _TICKS:
                whole.add_trace(trace.update(yaxis=moved(trace.yaxis or "y"), showlegend=False))
        whole.layout.shapes += tuple(each.update(yref=moved(each.yref or "y")) for each in part.layout.shapes)
        whole.layout.annotations += tuple(each.update(yref=moved(each.yref or "y")) for each in part.layout.annotations)
        for name in _AXES:
            axis = part.layout[_axis_key(name)].to_plotly_json() if _axis_key(name) in part.layout else {}
            if axis:
                over = {"overlaying": moved(axis["overlaying"])} if "overlaying" in axis else {}
                whole.update_layout({_axis_key(moved(name)): axis | over | {"domain": domain, "anchor": "x"}})
    steps = figures[-1].layout.xaxis.to_plotly_json() | {"title": whole.layout.xaxis.title}
    whole.update_xaxes(steps | {"anchor": moved("y"), "showspikes": True, "spikemode": "across"})
    whole.update_layout(hoversubplots="axis", margin={"t": 4, "r": max(part.layout.margin.r for part in figures)})
    return whole


_AXES = ("y", "y2", "y3")
"""Of a figure: of values, of marks on the edges, of the ticks of syncs."""
_TICKS = "y3"


def _moved_axis(name: str, by: int) -> str:
    """The reference of a vertical axis so many numbers on, y3 by 3 is y6; other references as they are."""
    found = re.fullmatch(r"y(\d*)(.*)", name)
    if found is None:
        return name
    number = int(found[1] or 1) + by
    return f"y{number if number > 1 else ''}{found[2]}"


def _axis_key(reference: str) -> str:
    return f"yaxis{reference.removeprefix('y')}"


def log_axis(fig: go.Figure) -> None:
    """A logarithmic y axis with powers of ten at its ticks."""
    small = {"size": 10}  # powers are drawn larger than their font says
    fig.update_yaxes(type="log", exponentformat="power", nticks=7, minorloglabels="none", tickfont=small)
