"""Sustained changes of a series' level: told from trend, learning, spikes and autocorrelation, and dated.

The largest step of a series is found by generalised least squares beside the curves that learning makes (a parabola,
and a start that settles) and a covariate, with noise that is an AR(1). Its size is compared with the largest steps of
simulated noise without one, which goes through the same procedure. Where all values are above 0 their logarithms must
show it as well: neither a scale nor a skew is a change. The date's interval holds the steps at which a change would
explain the series as well (likelihood ratio; B. Hansen, Econometrica 2000).

Over several series `significant` bounds the chance that any of them is named in error (Holm).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST = 20
"""So many values can be judged."""
FAMILY = 0.015
"""The chance of naming any series in error; measured, it is below .02 for white and autocorrelated noise."""
_LEAST_BEFORE, _SHARE_BEFORE, _LEAST_AFTER = 8, 0.25, 5
_MOST = 200
"""A longer series is judged by the medians of so many blocks at most."""
_DRAWS, _FIRST_DRAWS, _BY_CHANCE = 3999, 399, 0.1
"""Of a series whose step is that likely by the first draws no others are made: FAMILY is many standard errors away."""
_DATE_RATIO = 10.6
"""99 % of the likelihood ratio of a date (Hansen 2000, table 1), which covers 95 % where there are few values."""
_MOST_PERSISTENT = 0.95
_GRID = 20
"""Autocorrelations are rounded to 1 / so many."""
_SETTLES = 10.0
_SUSTAINED = 0.7
_FAR = 8.0
"""Robust standard deviations beyond which a value counts as one so far away: no single spike makes a step."""


@dataclass(frozen=True)
class Shift:
    """The largest step of a series' level."""

    first: int
    last: int
    """The new level begins in one of these steps, at 95 %."""
    before: float
    after: float
    """Medians of the values before and after the likeliest step."""
    p: float
    """The chance that a series without a change has a step as large."""


def find_shift(
    series: "pd.Series[float]", direction: int = 0, beside: "pd.Series[float] | None" = None
) -> Shift | None:
    """The clearest sustained step of a series; None where it has too few values, or never changes.

    Args:
        series: by step; what is not finite is left out.
        direction: +1 looks for a rise, -1 for a fall, 0 for either.
        beside: what may explain a step, by step of the series: the version lag.
    """
    blocks = _blocks(series.replace([np.inf, -np.inf], np.nan).dropna())
    values = np.asarray(blocks, dtype=np.float64)
    if len(values) < LEAST or np.ptp(values) == 0:
        return None
    frame = _frame(len(values), None if beside is None else tuple(beside.reindex(blocks.index).astype(float)))
    size, place, persistence = frame.largest(_without_spikes(values)[None], direction)
    p = frame.chance(size[0], persistence[0], direction)
    if p <= FAMILY and (values > 0).all():
        in_logs, _, of_logs = frame.largest(_without_spikes(np.log(values))[None], direction)
        p = max(p, frame.chance(in_logs[0], of_logs[0], direction))
    before, after = values[: place[0]], values[place[0] :]
    if not _is_sustained(before, after):
        p = 1.0
    dates = frame.dates(_without_spikes(values), persistence[0], place[0])
    # A block ends at its label: a change may lie anywhere behind the label before.
    return Shift(
        first=int(blocks.index[dates[0] - 1]) + 1,
        last=int(blocks.index[dates[-1]]),
        before=float(np.median(before)),
        after=float(np.median(after)),
        p=p,
    )


def significant(shifts: Mapping[str, Shift]) -> dict[str, Shift]:
    """Those that Holm's correction over all of them, which are all series that were looked at, leaves."""
    kept = {}
    for place, key in enumerate(sorted(shifts, key=lambda key: shifts[key].p)):
        if shifts[key].p > FAMILY / (len(shifts) - place):
            break
        kept[key] = shifts[key]
    return kept


def _blocks(series: "pd.Series[float]") -> "pd.Series[float]":
    """The medians of blocks of consecutive values, each at the last step of its block."""
    size = -(-len(series) // _MOST)
    if size <= 1:
        return series
    block = np.arange(len(series)) // size
    ends = pd.Series(series.index, dtype=int).groupby(block).max()
    return pd.Series(series.groupby(block).median().to_numpy(), index=pd.Index(ends))


def _without_spikes(values: Floats) -> Floats:
    middle = np.median(values)
    width = _FAR * 1.4826 * np.median(np.abs(values - middle))
    return np.clip(values, middle - width, middle + width) if width > 0 else values


def _is_sustained(before: Floats, after: Floats) -> bool:
    """Most of the later values are on the new level's side of the earlier ones, beyond their spread: no bump."""
    middle = np.median(before)
    moved = np.median(after) - middle
    spread = 1.4826 * np.median(np.abs(before - middle))
    return bool(((after - middle) * np.sign(moved) > spread).mean() >= _SUSTAINED)


@lru_cache(maxsize=4)
def _frame(n: int, beside: tuple[float, ...] | None) -> "_Frame":
    """Series of a run are of few lengths. Each frame takes megabytes, and the next state of a live run needs others."""
    return _Frame(n, beside)


class _Frame:
    """What is fitted to series of one length; rows are series, columns their values."""

    def __init__(self, n: int, beside: tuple[float, ...] | None) -> None:
        time = np.arange(n) / n
        columns = [np.ones(n), time, time**2, np.exp(-_SETTLES * time)]
        if beside is not None and np.isfinite(beside).all() and np.ptp(beside) > 0:
            columns.append((np.array(beside) - np.mean(beside)) / np.std(beside))
        self.n, self._curves = n, np.stack(columns, axis=1)
        # What the level is at first is learning: no change is looked for there.
        self._places = np.arange(max(_LEAST_BEFORE, int(_SHARE_BEFORE * n)), n - _LEAST_AFTER + 1)
        self._steps = (np.arange(n)[:, None] >= self._places).astype(float)
        self._fitted: dict[float, tuple[Floats, Floats]] = {}
        self._drawn: dict[tuple[float, int, int], Floats] = {}

    def largest(self, rows: Floats, direction: int) -> "tuple[Floats, NDArray[np.int64], Floats]":
        """Each row's largest step: its t statistic (up to a factor), place in the row, and the autocorrelation."""
        persistence = self._persistence(rows, direction)
        size, place = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
        for value in np.unique(persistence):
            some = persistence == value
            fits, _ = self._fits(rows[some], value)
            best = _best(fits, direction)
            signed = np.take_along_axis(_signed(fits, direction), best[:, None], axis=1)[:, 0]
            size[some] = signed / np.sqrt(np.maximum(1 - signed**2, 1e-12))
            place[some] = self._places[best]
        return size, place, persistence

    def chance(self, size: float, persistence: float, direction: int) -> float:
        """How likely noise without a step, a standard error more persistent than found, has one of that size."""
        for draws in (_FIRST_DRAWS, _DRAWS):
            drawn = self._by_chance(persistence, direction, draws)
            p = float(1 + (drawn >= size).sum()) / (1 + draws)
            if p > _BY_CHANCE:
                break
        return p

    def _by_chance(self, persistence: float, direction: int, draws: int) -> Floats:
        """The largest steps of so many series of noise."""
        key = persistence, direction, draws
        if key not in self._drawn:
            bold = min(persistence + np.sqrt((1 - persistence**2) / self.n), 0.97)
            noise = np.random.default_rng(0).standard_normal((draws, self.n))
            noise[:, 1:] *= np.sqrt(1 - bold**2)
            for step in range(1, self.n):
                noise[:, step] += bold * noise[:, step - 1]
            self._drawn[key], *_ = self.largest(noise, direction)
        return self._drawn[key]

    def dates(self, values: Floats, persistence: float, place: int) -> "NDArray[np.int64]":
        """The places at which a step of the same sign explains the series as well as at this one, up to chance."""
        fits = self._fits(values[None], persistence)[0][0]
        best = fits[place - self._places[0]]
        left = 1 - np.where(fits * best > 0, fits, 0) ** 2
        return self._places[self.n * (left / max(1 - best**2, 1e-12) - 1) <= _DATE_RATIO]

    def _persistence(self, rows: Floats, direction: int) -> Floats:
        """Autocorrelation of what the largest step leaves, a standard error up and rounded; fitting made it too small
        by about the number of fitted columns over n."""
        fits, rest = self._fits(rows, 0.0)
        best = _best(fits, direction)
        size = np.take_along_axis(fits, best[:, None], axis=1) * np.linalg.norm(rest, axis=1, keepdims=True)
        rest = rest - size * self._at(0.0)[1][:, best].T
        found = (rest[:, 1:] * rest[:, :-1]).sum(axis=1) / np.maximum((rest**2).sum(axis=1), 1e-12)
        fitted = self._curves.shape[1] + 2
        found = (self.n * found + fitted) / (self.n - fitted - 2)
        found += np.sqrt(np.clip(1 - found**2, 0.01, 1) / self.n)
        return np.asarray(np.round(np.clip(found, 0, _MOST_PERSISTENT) * _GRID) / _GRID)

    def _fits(self, rows: Floats, persistence: float) -> tuple[Floats, Floats]:
        """Correlation of each whitened row with each whitened step, both beside the curves; and those rows."""
        curves, steps = self._at(persistence)
        rows = _whitened(rows.T, persistence)
        rows = rows - curves @ (curves.T @ rows)
        length = np.maximum(np.linalg.norm(rows, axis=0), 1e-12)
        return (rows.T @ steps) / length[:, None], rows.T

    def _at(self, persistence: float) -> tuple[Floats, Floats]:
        """An orthonormal basis of the whitened curves, and the whitened steps outside of it."""
        if persistence not in self._fitted:
            left, sizes, _ = np.linalg.svd(_whitened(self._curves, persistence), full_matrices=False)
            curves = left[:, sizes > 1e-8 * sizes[0]]
            steps = _whitened(self._steps, persistence)
            steps = steps - curves @ (curves.T @ steps)
            self._fitted[persistence] = curves, steps / np.maximum(np.linalg.norm(steps, axis=0), 1e-12)
        return self._fitted[persistence]


def _signed(fits: Floats, direction: int) -> Floats:
    return fits * direction if direction else np.abs(fits)


def _best(fits: Floats, direction: int) -> "NDArray[np.int64]":
    return _signed(fits, direction).argmax(axis=1)


def _whitened(columns: Floats, persistence: float) -> Floats:
    """Columns over time without the autocorrelation of an AR(1)."""
    made = np.array(columns)
    made[1:] -= persistence * columns[:-1]
    made[0] *= np.sqrt(1 - persistence**2)
    return made
