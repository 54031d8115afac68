"""What a metric did over the steps: a sentence for each, when weights were synced, and whether it changed."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE


def course(summary: StepSummary, *keys: str) -> str:
    """What some metrics did over the steps, a sentence each: first and last value, and the extreme in between."""
    return " ".join(_course(summary, key) for key in keys)


def _course(summary: StepSummary, key: str) -> str:
    title, series = CATALOGUE[key].title, summary.values[key].dropna()
    if not len(series):
        return f"{title} is not logged."
    first, last = series.index[0], series.index[-1]
    text = f"{title} is {number(series.iloc[0])} in step {first}"
    if first == last:
        return f"{text}."
    text += f" and {number(series.iloc[-1])} in step {last}"
    low, high = series.min(), series.max()
    if low == high:
        return f"{text}, always the same."
    return f"{text}; lowest {number(low)} in step {series.idxmin()}, highest {number(high)} in step {series.idxmax()}."


def sync_steps(lag: "pd.Series[float]") -> list[int]:
    """Steps at which fresh weights had reached the sampler: the lag fell."""
    return [int(step) for step in lag.index[1:][np.diff(lag.to_numpy()) < -0.5]]


def sync_period(lag: "pd.Series[float]") -> int | None:
    """Steps between weight syncs, where the version lag rises and falls back regularly."""
    values = lag.to_numpy()
    falls = np.flatnonzero(np.diff(values) < -0.5) + 1
    if len(falls) < 2 or len(set(np.diff(falls))) != 1:
        return None
    return int(np.diff(falls)[0])


def change(series: "pd.Series[float]", what: str, times: str, least: float = 0.0) -> str:
    """Whether the last values differ from the first ones by more than `least`, and than they do among themselves.

    Args:
        what: the subject of the sentence.
        times: what there is a value of, in the plural.
    """
    if len(series) < (2 if least else 4):
        return ""
    few = max(1, min(5, len(series) // 2))
    start, end = series.iloc[:few], series.iloc[-few:]
    moved, spread = end.mean() - start.mean(), np.sqrt((start.var() + end.var()) / few) if few > 1 else 0.0
    clear = abs(moved) > max(least, 2 * spread)
    verb = ("rose" if moved > 0 else "fell") if clear else "shows no clear trend"
    ends = f"{number(start.mean())} to {number(end.mean())}"
    means = f" (means of the first and last {few} {times})" if few > 1 else ""
    return f"{what} {verb} from {ends}{means}." if clear else f"{what} {verb}: {ends}{means}."
