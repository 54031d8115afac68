"""A metric tile: words and symbol, the median of the chosen steps, the worst one, a sparkline."""

import re
from collections.abc import Sequence
from math import inf

import pandas as pd
import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.words import few_groups
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state, theme
from ratioscope.dashboard.figures.base import reduce
from ratioscope.dashboard.formats import interval, metric_value
from ratioscope.dashboard.sections.subject import is_logged
from ratioscope.metric import MOST_RELIANCE, MOST_SPREAD, Grain, Moment
from ratioscope.notes import Kind, is_unreliable, text_of
from ratioscope.sources import linked

SPARKLINE_POINTS = 60
MOSTLY = 0.5
"""A median cannot be trusted where more of its steps cannot be."""
ACROSS = 4
_LAYOUT = re.compile(r"\\mathrm|[{}_|,\s]")
_WIDTH, _HEIGHT, _TALL = 200, 26, 44  # of sparklines, in their own units: they are as wide as their tile


def metric_row(opened: Opened, keys: Sequence[str]) -> None:
    """Tiles of the chosen steps of a run; none of a metric that is not logged: the page says what is not.

    Four stand beside each other, on a narrow screen two.
    """
    summary, live = opened.summary.up_to(*state.step_range()), opened.run.status == "running"
    shown = [key for key in keys if is_logged(summary, key)]
    for start in range(0, len(shown), ACROSS):
        with st.container(key=f"tiles-{start}"):
            across = min(max(len(shown), 3), ACROSS)  # three alone have no hole beside them
            for column, key in zip(st.columns(across), shown[start : start + ACROSS], strict=False):
                with column:
                    metric_tile(summary, key, live=live)


def metric_tile(summary: StepSummary, key: str, *, live: bool = False) -> None:
    """One bordered tile; says in place why a value is undefined or unreliable, and of a live run the last value."""
    metric = CATALOGUE[key]
    series = summary.values[key].dropna()
    # KL_{k3} says no more than "KL k3".
    says_more = not {*_LAYOUT.sub("", metric.symbol).casefold()} <= {*metric.label.casefold()}
    symbol = f" ${metric.symbol}$" if says_more and len(metric.label) + len(metric.symbol) < 30 else ""  # it is narrow
    if not len(series):
        value, beside = "–", text_of(summary.last_note(key))
    elif len(series) == 1:
        value, beside = _one_step(summary, key, int(series.index[0]))
    else:
        doubted = summary.unreliable(key).loc[series.index].mean() > MOSTLY
        value, beside = metric_value(key, float(series.median())), _course(key, series, live, doubted=doubted)
    with st.container(border=True, height="stretch", gap=None):
        st.metric(
            f"{metric.label}{symbol}", value, delta=beside, delta_color="off", delta_arrow="off",
            help=f"{_MEDIAN if len(series) > 1 else ''}{tooltip(key)}",
        )  # fmt: skip
        if len(series) > 1:
            st.image(sparkline(series, *CATALOGUE[key].possible), width="stretch", alt="")


_MEDIAN = "The median of the chosen steps, and below it the most extreme one.\n\n"


def _one_step(summary: StepSummary, key: str, step: int) -> tuple[str, str]:
    """The value of the only step that has one; its interval, or why there is none."""
    value, low, high = (float(frame[key].loc[step]) for frame in (summary.values, summary.low, summary.high))
    text, note = metric_value(key, value, low, high), summary.note(step, key)
    ends = interval(key, low, high)
    if note and note.kind is Kind.INFINITE:
        return text, note.text
    if not ends:
        return text, "unreliable: no interval" if is_unreliable(note) else f"step {step}"
    rests_on = (
        "" if CATALOGUE[key].grain is Grain.STEP else few_groups(float(summary.values["effective_groups"].loc[step]))
    )
    return text, f"{'unreliable' if is_unreliable(note) else '95%'}: {ends}" + (f", {rests_on}" if rests_on else "")


def _course(key: str, series: "pd.Series[float]", live: bool, *, doubted: bool) -> str:
    """The most extreme step, on the side that is worse, and while more come the last one; and whether most steps'
    values cannot be trusted."""
    if series.nunique() == 1:
        return "in every step"
    better = CATALOGUE[key].better
    wanted = float(better) if better.isdigit() else None  # else the worst is at one end
    falls = better == "higher" if wanted is None else wanted - series.min() > series.max() - wanted
    place = int(series.argmin() if falls else series.argmax())
    worst = metric_value(key, float(series.iloc[place]))
    last = f", last {metric_value(key, float(series.iloc[-1]))}" if live else ""
    median = "median, unreliable" if doubted else "median"
    return f"{median}; {'min' if falls else 'max'} {worst} (step {series.index[place]}){last}"


def sparkline(series: "pd.Series[float]", lowest: float, highest: float) -> str:
    """The course as an SVG without axes; from what is lowest possible, where that is known: noise stays small."""
    drawn = reduce(series[series.abs() != inf], SPARKLINE_POINTS)
    if not len(drawn):
        return _svg(_HEIGHT)
    low = lowest if lowest > -inf else float(drawn.min())
    high = max(float(drawn.max()), low + 1e-12)
    if low == drawn.min() == drawn.max():
        high = low + 1
    room = high - low if lowest > -inf else max(high - low, 0.1 * abs(high))
    return _svg(_HEIGHT, _line(drawn, low, low + room, _HEIGHT, 1.0, state.mode().muted))


def small_multiple(
    series: Sequence[float], beside: Sequence[float], low: float, high: float, *, steps: tuple[int, int], metric: str
) -> str:
    """A course and a pale one behind it, as an SVG without axes; one scale for all of a row.

    Args:
        beside: the pale one.
        low, high: the scale's ends.
        steps: how many each of them has; the longer one is as wide as the tile.
        metric: in whose colour it is drawn.
    """
    lines = ((beside, steps[1], theme.rgba(state.mode().muted, 0.5)), (series, steps[0], theme.metric_colour(metric)))
    return _svg(
        _TALL, *(_line(pd.Series(each), low, high, _TALL, n / max(steps), colour) for each, n, colour in lines if each)
    )


def _line(drawn: "pd.Series[float]", low: float, high: float, height: int, width: float, colour: str) -> str:
    x = (drawn.index - drawn.index[0]) / max(1, drawn.index[-1] - drawn.index[0]) * _WIDTH * width
    y = height - 2 - (drawn.to_numpy(float) - low) / max(high - low, 1e-12) * (height - 4)
    points = " ".join(f"{across:.1f},{down:.1f}" for across, down in zip(x, y, strict=True))
    return (
        f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.3' "
        "vector-effect='non-scaling-stroke'/>"
    )


def _svg(height: int, *lines: str) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{height}' viewBox='0 0 {_WIDTH} {height}' "
        f"preserveAspectRatio='none'>{''.join(lines)}</svg>"
    )


def tooltip(key: str) -> str:
    """The catalogue entry as Markdown with formula; it holds no text from any log."""
    metric = CATALOGUE[key]
    lines = [f"**{metric.title}.** {metric.definition}", f"$${metric.formula}$$", f"**Read:** {metric.reading}"]
    if metric.remedy:
        lines.append(f"**Do:** {metric.remedy}")
    if metric.moment is Moment.SECOND:
        lines.append(
            f"**Trust:** unreliable when its {CATALOGUE[metric.reliance].title.lower()} is above {MOST_RELIANCE:g}."
        )
    if metric.spread:
        spread = CATALOGUE[metric.spread].title
        lines.append(
            f"**Over the run:** unreliable when its {spread[0].lower()}{spread[1:]} is often above {MOST_SPREAD:g}."
        )
    unit = f" Unit: {metric.unit}." if metric.unit else ""
    lines.append(f"*Source: {linked(metric.source)}.{unit}*")
    return "\n\n".join(lines)
