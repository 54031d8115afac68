"""The result of a query as a line, bar or scatter chart."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.dashboard.figures import base
from ratioscope.dashboard.theme import OKABE_ITO, Mode

Mark = Literal["line", "bar", "scatter"]
MARKS: tuple[Mark, ...] = ("line", "bar", "scatter")

# Dash or symbol tells series apart where colour does not.
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "diamond", "square", "cross", "x", "triangle-up", "star", "hexagon")
_MOST_SERIES = len(OKABE_ITO)
_OTHERS = "others"
_LONGEST_LABEL = 40


def query_figure(
    frame: pd.DataFrame,
    mode: Mode,
    *,
    mark: Mark,
    x: str,
    y: str,
    colour: str = "",
    logarithmic: tuple[bool, bool] = (False, False),
) -> go.Figure:
    """Draw y against x.

    Args:
        frame: one row a point; y is numeric, x anything that can be sorted.
        colour: a column whose values become series: the 8 most frequent ones, and the others together.
        logarithmic: the x axis, the y axis; values that it cannot show are left out (`undrawn` counts them).

    At most 2,000 points a series, smallest and largest kept; infinite y are marks on the upper or lower edge.
    """
    fig = base.figure(mode, height=420, x_title=base.plotly_text(x), y_title=base.plotly_text(y))
    kept = frame[~_undrawn(frame, x, y, logarithmic) & ~_infinite(frame, y)]
    for number, (name, points) in enumerate(_series(kept, colour)):
        _add(fig, points, mark, x, y, name, number)
    _add_infinite(fig, frame[_infinite(frame, y)], x, y, mode)
    if logarithmic[0]:
        fig.update_xaxes(type="log", exponentformat="power", minorloglabels="none")
    elif not _numeric(frame[x]) and not _temporal(frame[x]):
        fig.update_xaxes(type="category")
    if logarithmic[1]:
        base.log_axis(fig)
    fig.update_xaxes(showgrid=mark == "scatter", gridcolor=mode.grid)
    fig.update_layout(hovermode="closest", dragmode="zoom", showlegend=bool(colour) or bool(_infinite(frame, y).any()))
    return fig


def undrawn(frame: pd.DataFrame, x: str, y: str, logarithmic: tuple[bool, bool] = (False, False)) -> int:
    """How many rows no chart of these columns can show: null or NaN, or not positive on a logarithmic axis."""
    return int(_undrawn(frame, x, y, logarithmic).sum())


def _undrawn(frame: pd.DataFrame, x: str, y: str, logarithmic: tuple[bool, bool]) -> "pd.Series[bool]":
    lost = np.array(frame[x].isna() | frame[y].isna(), bool)
    for column, is_log in zip((x, y), logarithmic, strict=True):
        if is_log and _numeric(frame[column]):
            lost |= ~(frame[column].to_numpy(float, na_value=np.nan) > 0)
    if _numeric(frame[x]):
        lost |= ~np.isfinite(frame[x].to_numpy(float, na_value=np.nan))
    return pd.Series(lost.tolist(), index=frame.index, dtype=bool)


def _infinite(frame: pd.DataFrame, y: str) -> "pd.Series[bool]":
    infinite = np.isinf(frame[y].to_numpy(float, na_value=np.nan))
    return pd.Series(infinite.tolist(), index=frame.index, dtype=bool)


def _numeric(column: "pd.Series[Any]") -> bool:
    return bool(pd.api.types.is_numeric_dtype(column)) and not pd.api.types.is_bool_dtype(column)


def _temporal(column: "pd.Series[Any]") -> bool:
    return bool(pd.api.types.is_datetime64_any_dtype(column))


def _series(frame: pd.DataFrame, colour: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and rows of each series, in the order of the names where these are numbers."""
    if not colour:
        yield "", frame
        return
    values = frame[colour]
    frequent = list(values.value_counts(dropna=False).index[:_MOST_SERIES])
    if values.nunique(dropna=False) > _MOST_SERIES:
        frequent = frequent[:-1]
    taken = pd.Series(False, index=frame.index)
    for value in sorted(frequent, key=_place):
        rows = values.isna() if pd.isna(value) else values == value
        taken |= rows
        yield "null" if pd.isna(value) else str(value), frame[rows]
    if not taken.all():
        yield _OTHERS, frame[~taken]


def _place(value: object) -> tuple[bool, float, str]:
    """Numbers in their order, then texts in theirs."""
    number = isinstance(value, int | float) and value == value
    return not number, float(value) if number else 0.0, str(value)  # type: ignore[arg-type]


def _add(fig: go.Figure, points: pd.DataFrame, mark: Mark, x: str, y: str, name: str, number: int) -> None:
    ordered = points.sort_values(x, kind="stable") if mark == "line" else points
    series = base.reduce(pd.Series(ordered[y].to_numpy(float), index=np.arange(len(ordered))))
    places = ordered[x].iloc[series.index]
    drawn = {
        "x": _axis_values(places),
        "y": series.to_numpy(np.float32),
        "name": _label(name),
        "hovertemplate": "%{x}: %{y:.4g}<extra>" + (_label(name) if name else "") + "</extra>",
    }
    colour = OKABE_ITO[number % len(OKABE_ITO)]
    if mark == "bar":
        fig.add_bar(**drawn, marker={"color": colour, "line": {"width": 0}})
    elif mark == "line":
        line = {"color": colour, "width": 2, "dash": _DASHES[number % len(_DASHES)]}
        fig.add_scatter(**drawn, mode="lines" if len(series) > 60 else "lines+markers", line=line, marker={"size": 5})
    else:
        symbol = _SYMBOLS[number % len(_SYMBOLS)]
        fig.add_scatter(**drawn, mode="markers", marker={"color": colour, "size": 6, "symbol": symbol, "opacity": 0.75})


def _axis_values(places: "pd.Series[Any]") -> object:
    if _temporal(places):
        return places
    if _numeric(places):
        return places.to_numpy(np.int32 if pd.api.types.is_integer_dtype(places) and _small(places) else np.float64)
    return _labels(places)


def _label(value: object) -> str:
    """A value from a log as a short text in a figure; white space is written out."""
    text = str(value)
    shown = text if text.strip() else repr(text)
    short = shown if len(shown) <= _LONGEST_LABEL else shown[: _LONGEST_LABEL - 1] + "…"
    return base.plotly_text(short).replace("&quot;", '"').replace("&#x27;", "'")  # which Plotly does not read as signs


def _labels(places: "pd.Series[Any]") -> list[str]:
    """A label for each value, another one for each other value."""
    labels: dict[str, str] = {}
    taken: set[str] = set()
    for place in dict.fromkeys(places.map(str)):
        label, number = _label(place), 1
        while label in taken:
            number += 1
            label = f"{_label(place)} ({number})"
        labels[place] = label
        taken.add(label)
    return [labels[str(place)] for place in places]


def _small(places: "pd.Series[Any]") -> bool:
    return not len(places) or int(places.abs().max()) < 2**31


def _add_infinite(fig: go.Figure, rows: pd.DataFrame, x: str, y: str, mode: Mode) -> None:
    """Infinite values as triangles on the edge that they lie beyond, with their number in the legend."""
    for sign, edge, symbol, words in ((1, 1.0, "triangle-up", "+∞"), (-1, 0.0, "triangle-down", "-∞")):
        beyond = rows[np.sign(rows[y].astype(float)) == sign].dropna(subset=[x])
        if not len(beyond):
            continue
        shown = beyond.iloc[:: -(-len(beyond) // base.MOST_POINTS)]
        fig.add_scatter(
            x=_axis_values(shown[x]),
            y=np.full(len(shown), edge, np.float32),
            yaxis="y2",
            name=f"{words} in {len(beyond):,} rows",
            mode="markers",
            marker={"symbol": symbol, "size": 9, "color": mode.severity[max(mode.severity)]},
            hovertemplate=f"%{{x}}: {words}<extra></extra>",
        )
        fig.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
