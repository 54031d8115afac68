"""Settings at the end of their runs: a row each, best first, with seeds, mean and what each is judged by: how far it is
from the best."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import plotly.graph_objects as go

from ratioscope.analysis.compare.margins import margin, orientation
from ratioscope.analysis.compare.standing import Rank, SettingGroup, SettingRow
from ratioscope.analysis.compare.wording import margin_words
from ratioscope.analysis.summary.intervals import Interval
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.cut_names import LONGEST_NAME, cut_apart
from ratioscope.dashboard.formats import hover_number, interval, is_share, metric_value
from ratioscope.dashboard.theme import Mode

MOST_ROWS = 18
"""Rows of a dot plot that are seen at once, heads included."""
_ROW, _NARROW_ROW = 20, 40  # pixels; on a narrow screen names stand above their rows
_NARROW_NAME = 56  # signs
_IN_A_LINE = 4  # parts of an algorithm, where a row is touched
_WIDEST = 4.0
"""Times what those that may be the best need of an axis: what is worse and ends beyond it is a mark at the edge."""


def dot_plot(
    groups: Sequence[SettingGroup],
    metric: str,
    mode: Mode,
    *,
    called: Mapping[int, str] = MappingProxyType({}),
    made: Mapping[int, Sequence[str]] = MappingProxyType({}),
    colours: Mapping[int, str] = MappingProxyType({}),
    most: int = MOST_ROWS,
) -> go.Figure:
    """A row a setting, best first: seeds and mean, or a mark of its own for the only seed; a line at the best of each
    group, and from there on a bar over the interval of the difference. It leaves out the line where a setting is worse.

    Args:
        called: how settings stand to that best, by their places (`rank_words`); said in each row.
        made: what their algorithms are made of, by their places; said of a row that is touched.
        colours: of settings by their places, those of their curves; others are grey.
        most: rows in all; of each group the best are drawn, see `rows_drawn`.
    """
    named, places, bars = dict[int, tuple[str, bool]](), list[tuple[int, SettingRow]](), dict[int, Interval]()
    fig = base.figure(mode, x_title="")
    for group, rows in zip(groups, rows_drawn(groups, most), strict=True):
        first = len(named)
        if group.schedule:
            named[first] = group.schedule, True
        for row in rows:
            places.append((len(named), row))
            named[len(named)] = row.name, False
        bars |= {row.place: _bar(row, group, metric) for row in rows}
        if group.ranked and np.isfinite(best := group.rows[0].value):
            line = {"color": mode.muted, "width": 1, "dash": "solid"}
            rows_of = {"y0": first - 0.6, "y1": len(named) - 0.4}
            if group.rows[0].rank is Rank.BEST:
                tied = best - orientation(metric) * margin(metric, best)
                fig.add_shape(type="line", x0=tied, x1=tied, **rows_of, line=line | {"dash": "dot"})
            fig.add_shape(type="line", x0=best, x1=best, **rows_of, line=line)
    axis = _axis([row for _, row in places], bars, metric)
    for colour in dict.fromkeys(colours.get(row.place, mode.muted) for _, row in places):
        own = [each for each in places if colours.get(each[1].place, mode.muted) == colour]
        _add_rows(fig, own, bars, metric, colour, made, axis)
    ends = {
        at: (
            metric_value(metric, row.value),
            base.plotly_text(called.get(row.place, "")),
            mode.text if row.rank is Rank.BEST else mode.muted,
        )
        for at, row in places
    }
    fig.add_annotation(
        x=1, xref="paper", xanchor="right", y=1, yref="paper", yanchor="bottom", showarrow=False,
        font={"size": 12, "color": mode.muted}, text=_marks([row for _, row in places], bars, metric, called, axis),
    )  # fmt: skip
    fig.update_yaxes(
        tickvals=list(named), ticktext=_labels(named.values(), LONGEST_NAME), range=[len(named) - 0.4, -0.6],
        showgrid=False, zeroline=False, ticks="", ticklabelstandoff=6, tickfont={"color": mode.text, "size": 12},
        fixedrange=True, showline=False,
    )  # fmt: skip
    fig.update_xaxes(
        showgrid=True, gridcolor=mode.grid, range=list(axis) if np.isfinite(axis.low) else None, automargin=False,
    )  # fmt: skip
    if is_share(metric):
        fig.update_xaxes(tickformat=".0%")

    def at_end(at: int, text: str, colour: str) -> dict[str, Any]:
        return {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 8, "y": at, "showarrow": False, "text": text,
                "font": {"size": 12, "color": colour}}  # fmt: skip

    key = fig.layout.annotations[0].to_plotly_json()
    key["text"] = key["text"].replace("━", "<br>━")  # two lines
    above = [
        {"x": 0, "xref": "paper", "xanchor": "left", "y": at, "yshift": 0 if head else 12, "showarrow": False,
         "text": f"{text} · {ends[at][1]}" if at in ends and ends[at][1] else text,
         "font": {"size": 11, "color": mode.text}}
        for at, (text, (_, head)) in enumerate(zip(_labels(named.values(), _NARROW_NAME), named.values(), strict=True))
    ]  # fmt: skip
    narrow = {
        "annotations": [key, *(at_end(at, value, colour) for at, (value, _, colour) in ends.items()), *above],
        "height": _NARROW_ROW * len(named) + 80, "yaxis": {"showticklabels": False}, "xaxis": {"nticks": 4},
        "margin": {"r": 56, "t": 40},
    }  # fmt: skip
    told = {at: (f"{value}  {word}".strip(), colour) for at, (value, word, colour) in ends.items()}
    for at, (text, colour) in told.items():
        fig.add_annotation(**at_end(at, text, colour))
    fig.update_layout(
        height=_ROW * len(named) + 48, hovermode="closest", showlegend=False, dragmode="zoom", uirevision=metric,
        margin={"l": 8, "r": 16 + 7 * max((len(text) for text, _ in told.values()), default=0), "t": 24, "b": 24},
        hoverlabel={"align": "left"},
        meta={"rows": len(named), "narrow": narrow},
    )  # fmt: skip
    return fig


def _bar(row: SettingRow, group: SettingGroup, metric: str) -> Interval:
    """What is drawn of it: the difference from the best, from there on, as far as it is possible; of settings without a
    best the interval of each."""
    first = group.rows[0]
    if first.rank is not Rank.BEST:
        return row.interval
    return Interval(*map(float, np.clip(first.value + np.array(row.from_best), *CATALOGUE[metric].possible)))


def _marks(
    rows: Sequence[SettingRow], bars: Mapping[int, Interval], metric: str, called: Mapping[int, str], axis: Interval
) -> str:
    """What is drawn, mark by mark."""
    told = ["● mean", "○ seed"] if any(len(row.seeds) > 1 for row in rows) else []
    only = "◇ only seed" if told else "◇ seed"
    told += [only] if any(len(row.seeds) == 1 for row in rows) else []
    best = next((base.plotly_text(called[row.place]) for row in rows if row.rank is Rank.BEST and called), "")
    if any(np.isfinite(bar.low) for bar in bars.values()):
        told.append("━ 95% vs best" if best else "━ 95%")
    told += [f"│ {best}", f"┊ {margin_words(metric)} behind"] if best else []
    told += ["◀ below axis"] * any(row.value < axis.low for row in rows)
    told += ["▶ above axis"] * any(row.value > axis.high for row in rows)
    return "&nbsp;&nbsp; ".join(told)


def _labels(named: Collection[tuple[str, bool]], longest: int) -> list[str]:
    """Names at an axis, heads in bold; tables have all of long ones."""
    texts = map(base.plotly_text, cut_apart([name for name, _ in named], longest))
    return [f"<b>{text}</b>" if head else text for text, (_, head) in zip(texts, named, strict=True)]


def rows_drawn(groups: Sequence[SettingGroup], most: int = MOST_ROWS) -> list[tuple[SettingRow, ...]]:
    """Of each group the rows that are drawn: all, or where they are more in all the best of each."""
    room = most - len(groups) * (len(groups) > 1)
    if sum(len(group.rows) for group in groups) <= room:
        return [group.rows for group in groups]
    counts = [0] * len(groups)
    while sum(counts) < room:
        open_ones = [place for place, group in enumerate(groups) if counts[place] < len(group.rows)]
        counts[min(open_ones, key=counts.__getitem__)] += 1
    return [group.rows[:count] for group, count in zip(groups, counts, strict=True)]


def _add_rows(
    fig: go.Figure,
    places: Sequence[tuple[int, SettingRow]],
    bars: Mapping[int, Interval],
    metric: str,
    colour: str,
    made: Mapping[int, Sequence[str]],
    axis: Interval,
) -> None:
    """Intervals, seeds and means of these rows in one colour."""
    known = [(at, bar) for at, row in places if np.isfinite((bar := bars[row.place]).low)]
    gap = [np.nan]
    fig.add_scatter(
        x=np.concatenate([gap, *[[*bar, np.nan] for _, bar in known]]).astype(np.float32),
        y=np.concatenate([gap, *[[at, at, np.nan] for at, _ in known]]).astype(np.float32),
        mode="lines", line={"color": theme.rgba(colour, 0.45), "width": 5}, hoverinfo="skip", connectgaps=False,
    )  # fmt: skip
    seeds = [(at, name, float(end)) for at, row in places if len(row.seeds) > 1 for name, end in row.seeds.items()]
    fig.add_scatter(
        x=np.array([end for *_, end in seeds], np.float32), y=np.array([at for at, *_ in seeds], np.float32),
        mode="markers", marker={"symbol": "circle-open", "size": 8, "color": colour, "line": {"width": 1.2}},
        text=[base.plotly_text(str(name)) for _, name, _ in seeds],
        hovertemplate="%{text}: %{x:" + hover_number(metric) + "}<extra></extra>",
    )  # fmt: skip
    room = 0.012 * (axis.high - axis.low)  # what is on the very edge is not drawn
    inside = axis.low + room, axis.high - room
    of_symbol: dict[str, list[tuple[int, SettingRow]]] = {}
    for at, row in places:
        beyond = "triangle-left" if row.value < axis.low else "triangle-right" if row.value > axis.high else ""
        of_symbol.setdefault(beyond or ("diamond-open" if len(row.seeds) == 1 else "circle"), []).append((at, row))
    for symbol, drawn in of_symbol.items():
        told = [_lines(made.get(row.place, ())) for _, row in drawn]
        mark = {"symbol": symbol, "size": 8, "color": colour, "line": {"width": 2, "color": colour}}
        deepest = max(map(len, told), default=0)
        fig.add_scatter(
            x=np.clip([row.value for _, row in drawn], *inside).astype(np.float32),
            y=np.array([at for at, _ in drawn], np.float32), mode="markers", marker=mark, cliponaxis=False,
            text=[base.plotly_text(_in_a_line(row, metric)) for _, row in drawn],
            customdata=[[*lines, *[""] * (deepest - len(lines))] for lines in told],
            hovertemplate="<br>".join(["%{text}", *[f"%{{customdata[{line}]}}" for line in range(deepest)]])
            + "<extra></extra>",
        )  # fmt: skip


def _lines(parts: Sequence[str]) -> list[str]:
    return [
        base.plotly_text(", ".join(parts[first : first + _IN_A_LINE])) for first in range(0, len(parts), _IN_A_LINE)
    ]


def _in_a_line(row: SettingRow, metric: str) -> str:
    within = interval(metric, *row.interval) if np.isfinite(row.interval.low) else ""
    told = [metric_value(metric, row.value, *row.interval), f"95%: {within}" * bool(within)]
    return f"{row.name}: {', '.join(filter(None, told))}, {len(row.seeds)} seed{'s' * (len(row.seeds) != 1)}"


def _axis(rows: Sequence[SettingRow], bars: Mapping[int, Interval], metric: str) -> Interval:
    """The ends of the axis, not beyond what is possible but for half a mark: all that is drawn, or as much of it as
    lets those that may be the best be told apart; NaN without a value."""
    low, high = _extent(rows, bars)
    pad = 0.04 * (high - low) or 0.05 * abs(high) or 0.05
    least, highest = CATALOGUE[metric].possible
    low, high = max(low - pad, least - pad / 3), min(high + pad, highest + pad / 3)
    close = [row for row in rows if row.rank is not Rank.WORSE]
    first, last = _extent(close, bars)
    needed = _WIDEST * (last - first)
    if len(close) > 1 and 0 < needed < high - low:
        low, high = (high - needed, high) if orientation(metric) > 0 else (low, low + needed)
    return Interval(low, high)


def _extent(rows: Sequence[SettingRow], bars: Mapping[int, Interval]) -> tuple[float, float]:
    """The ends of what is drawn of these rows; NaN where nothing is finite."""
    values = np.concatenate([[np.nan], *[[row.value, *bars[row.place], *row.seeds] for row in rows]])
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else (np.nan, np.nan)
