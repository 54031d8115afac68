"""A metric tile: words and symbol, the last value with its interval, the change, a sparkline, whether to trust it."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from ratioscope.analysis.findings.words import few_groups
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures.base import reduce
from ratioscope.dashboard.formats import interval, number
from ratioscope.dashboard.sections.subject import is_logged
from ratioscope.metric import MOST_RELIANCE, Grain, Moment
from ratioscope.notes import Kind, is_unreliable, text_of
from ratioscope.sources import linked

SPARKLINE_POINTS = 60


def metric_row(summary: StepSummary, keys: Sequence[str], across: int = 0) -> None:
    """Tiles of equal width beside each other; none of a metric that is not logged: the page says what is not.

    Args:
        across: how many stand in a row; default: all.
    """
    shown, across = [key for key in keys if is_logged(summary, key)], across or max(1, len(keys))
    for start in range(0, len(shown), across):
        for column, key in zip(st.columns(across), shown[start : start + across], strict=False):
            with column:
                metric_tile(summary, key)


def metric_tile(summary: StepSummary, key: str) -> None:
    """One bordered tile; says in place why a value is undefined or unreliable."""
    metric = CATALOGUE[key]
    series = summary.values[key].dropna()
    if not len(series):
        reason = text_of(summary.last_note(key))
        st.metric(
            f"{metric.label} ${metric.symbol}$",
            "–",
            delta=reason,
            delta_color="off",
            delta_arrow="off",
            help=tooltip(key),
            border=True,
            height="stretch",
        )
        return
    step = int(series.index[-1])
    symbol = f" ${metric.symbol}$" if len(metric.label) + len(metric.symbol) < 30 else ""  # a tile is narrow
    value, low, high = (float(frame[key].loc[step]) for frame in (summary.values, summary.low, summary.high))
    st.metric(
        f"{metric.label}{symbol}",
        number(key, value, low, high),
        delta=_beside(summary, key, step),
        delta_color="off",
        delta_arrow="off",
        help=tooltip(key),
        border=True,
        height="stretch",
        chart_data=_sparkline(series),
    )


def _beside(summary: StepSummary, key: str, step: int) -> str:
    """The interval, or why there is none."""
    low, high, note = float(summary.low[key].loc[step]), float(summary.high[key].loc[step]), summary.note(step, key)
    ends = interval(key, low, high)
    if note and note.kind is Kind.INFINITE:
        return note.text
    if not ends:
        return "unreliable: no interval" if is_unreliable(note) else f"step {step}"
    rests_on = (
        "" if CATALOGUE[key].grain is Grain.STEP else few_groups(float(summary.values["effective_groups"].loc[step]))
    )
    return f"{'unreliable' if is_unreliable(note) else '95%'}: {ends}" + (f", {rests_on}" if rests_on else "")


def _sparkline(series: "pd.Series[float]") -> list[float]:
    finite = series[series.abs() != float("inf")]
    return [float(f"{value:.4g}") for value in reduce(finite, SPARKLINE_POINTS)]


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
    unit = f" Unit: {metric.unit}." if metric.unit else ""
    lines.append(f"*Source: {linked(metric.source)}.{unit}*")
    return "\n\n".join(lines)
