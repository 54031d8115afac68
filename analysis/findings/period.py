"""Whether values repeat with a period, and which: the place in it against moving means of one period.

found = best_period(values, 8)       # of at most 8 values; the shortest of those that explain as much
found.period, found.swing            # 4, 0.33
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

_HARDLY_LESS = 0.6
"""Of the noise that a period leaves: what a multiple of it leaves by chance, having more places."""


class Period(NamedTuple):
    """How well a period describes some values."""

    period: int
    explained: float
    """Share of the variance about moving means that the place in the period explains."""
    chance: float
    """Of as much in values without a period."""
    swing: float
    noise: float
    """Variance of one value that it leaves."""


def best_period(values: NDArray[np.float64], longest: int) -> Period:
    """Of 2 to `longest` values the one that leaves least: before it goes one that it is a multiple of, and that leaves
    hardly more."""
    periods = [of_period(values, period) for period in range(2, longest + 1)]
    least = min(periods, key=lambda each: each.noise)
    return next(
        each for each in periods if least.period % each.period == 0 and _HARDLY_LESS * each.noise <= least.noise
    )


def of_period(values: NDArray[np.float64], period: int) -> Period:
    """How well one period describes finite values; there are more of them than three periods."""
    means = np.convolve(values, np.full(period, 1 / period), mode="valid")
    apart = values[period // 2 :][: len(means)] - means
    n, place = len(apart), np.arange(len(apart)) % period
    of_place = np.bincount(place, apart) / np.bincount(place)
    within, total = float(((apart - of_place[place]) ** 2).sum()), float(((apart - apart.mean()) ** 2).sum())
    if not total > 0:
        return Period(period, 0.0, 1.0, 0.0, np.inf)
    within = max(within, 1e-12 * total)
    ratio = (total - within) / (period - 1) / (within / (n - period))
    noise = within / (n - period) / (1 - 1 / period)  # a mean that holds the value takes a part of its noise away
    swing, chance = float(of_place.max() - of_place.min()), float(fdtrc(period - 1, n - period, ratio))
    return Period(period, 1 - within / total, chance, swing, noise)
