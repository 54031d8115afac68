"""Many seeds as one number: mean, interquartile mean, t intervals and stratified bootstrap bands.

Resampling seeds inside strata (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice"). The draws are the same in every call, so results repeat.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from ratioscope.analysis.summary.intervals import LEVEL
from ratioscope.tails import Array

DRAWS = 1_000
ROWS_AT_ONCE = 50  # their draws stay in the processor's cache
# Resampling 2 or 3 seeds gives back their range: all draws hit one seed in 1/4 and 1/27 of the cases, more than 2.5 %.
FEWEST_RESAMPLED = 4
TRIMMED = 0.25

StatisticName = Literal["mean", "iqm"]
Statistic = Callable[[Array], Array]
"""From how often each seed is taken, in ascending order of the seeds' values, to its weight: (n_draws, n_seeds)."""


def _mean(counts: Array) -> Array:
    return counts / counts.sum(axis=1, keepdims=True)


def _interquartile_mean(counts: Array) -> Array:
    """`scipy.stats.trim_mean` at 25 %: floor(n/4) values go on each side, so none goes with fewer than 4 seeds."""
    size = counts.sum(axis=1, keepdims=True)
    cut = np.floor(TRIMMED * size)
    upto = counts.cumsum(axis=1)
    kept = np.clip(np.minimum(upto, size - cut) - np.maximum(upto - counts, cut), 0, None)
    return kept / (size - 2 * cut)


STATISTICS: Mapping[StatisticName, Statistic] = {"mean": _mean, "iqm": _interquartile_mean}


@cache
def resamples(sizes: tuple[int, ...]) -> Array:
    """How often each seed is drawn: (DRAWS, sum of sizes), each stratum resampled on its own."""
    generator = np.random.default_rng(sizes)
    drawn = [generator.multinomial(size, np.full(size, 1 / size), size=DRAWS) for size in sizes]
    return np.concatenate(drawn, axis=1).astype(float)


def aggregate(frame: pd.DataFrame, statistic: StatisticName = "mean", *, band: bool = True) -> pd.DataFrame:
    """One statistic over the columns of a frame, row by row, with a pointwise 95 % band.

    Args:
        frame: one column a seed; NaN where a seed has no value.
        statistic: "mean", or "iqm", the mean of the middle half.
        band: False leaves the band out, which is what takes time.

    Returns:
        value, low, high and seeds (how many have a value) by row. low and high are the bootstrap's middle 95 %; with
        2 or 3 seeds the lowest and highest seed; NaN with one seed.
    """
    values = frame.to_numpy(dtype=float)
    present = ~np.isnan(values)
    result = np.full((len(values), 3), np.nan)
    # Rows that miss the same seeds are resampled together, over the seeds that they have.
    patterns, which = np.unique(present, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if pattern.any():
            rows = which.ravel() == number
            result[rows] = _with_band(values[np.ix_(rows, pattern)], STATISTICS[statistic], band=band)
    columns = pd.DataFrame(result, index=frame.index, columns=["value", "low", "high"])
    return columns.assign(seeds=present.sum(axis=1))


def _with_band(values: Array, statistic: Statistic, *, band: bool) -> Array:
    """value, low and high of each row, (n_rows, 3); no row has a missing value."""
    seeds = values.shape[1]
    ordered = np.sort(values, axis=1)
    weight = statistic(np.ones((1, seeds)))
    with np.errstate(invalid="ignore"):  # infinities of both signs; a trimmed one has no say
        value = np.where(weight > 0, weight * ordered, 0).sum(axis=1)
    low, high = np.full((2, len(values)), np.nan)
    if band and seeds >= FEWEST_RESAMPLED:
        finite = np.flatnonzero(np.isfinite(values).all(axis=1))
        # Drawing seeds or drawing ranks is the same: one set of weights does for all rows.
        weights = statistic(resamples((seeds,)))
        for rows in np.split(finite, range(ROWS_AT_ONCE, len(finite), ROWS_AT_ONCE)):
            # Not `@`: for products this small BLAS spends its time on waking threads.
            low[rows], high[rows] = _middle(np.einsum("rn,dn->rd", ordered[rows], weights))
    elif band and seeds > 1:
        low, high = ordered[:, 0], ordered[:, -1]
    return np.stack([value, low, high], axis=1)


def _middle(drawn: Array) -> tuple[Array, Array]:
    """The middle 95 % of each row, (n_rows,) twice, as `np.quantile` has it; sorts in place, which is faster."""
    drawn.sort(axis=1)
    place = (1 - LEVEL) / 2 * (drawn.shape[1] - 1)
    below, part = int(place), place - int(place)
    return (
        drawn[:, below] * (1 - part) + drawn[:, below + 1] * part,
        drawn[:, -1 - below] * (1 - part) + drawn[:, -2 - below] * part,
    )


def band_words(seeds: int) -> str:
    """What the band of `aggregate` is over this many seeds of one setting."""
    if seeds < 2:
        return "one seed, no band"
    if seeds < FEWEST_RESAMPLED:
        return f"from the lowest to the highest of {seeds} seeds"
    return f"95% bootstrap over {seeds} seeds"


def t_interval(values: Array) -> tuple[Array, Array, Array]:
    """Mean and 95 % t interval over the last axis; NaN is left out, the interval is NaN with fewer than two values."""
    return _within(*t_spread(np.asarray(values, dtype=float)))


def welch_interval(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Difference of means a - b over the last axis, and Welch's 95 % interval; NaN with fewer than two of either."""
    return _within(*welch_spread(a, b))


def t_spread(values: Array) -> tuple[Array, Array, Array]:
    """Mean over the last axis, its standard error and its degrees of freedom."""
    n, mean, variance = _moments(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return mean, np.sqrt(variance / n), n - 1


def welch_spread(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Difference of means a - b over the last axis, its standard error and Welch's degrees of freedom."""
    (n_a, mean_a, variance_a), (n_b, mean_b, variance_b) = _moments(a), _moments(b)
    with np.errstate(invalid="ignore", divide="ignore"):
        part_a, part_b = variance_a / n_a, variance_b / n_b
        freedom = (part_a + part_b) ** 2 / (part_a**2 / (n_a - 1) + part_b**2 / (n_b - 1))
        freedom = np.where((part_a == 0) & (part_b == 0), n_a + n_b - 2, freedom)
        return mean_a - mean_b, np.sqrt(part_a + part_b), freedom


def _within(value: Array, error: Array, freedom: Array) -> tuple[Array, Array, Array]:
    with np.errstate(invalid="ignore"):
        half = np.asarray(stdtrit(freedom, (1 + LEVEL) / 2)) * error
        return value, value - half, value + half


def _moments(values: Array) -> tuple[Array, Array, Array]:
    """Number, mean and unbiased variance over the last axis without its NaN; NaN where there are too few."""
    present = ~np.isnan(values)
    n = present.sum(axis=-1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(present, values, 0).sum(axis=-1) / n
        residual = np.where(present, values - mean[..., None], 0)
        variance = np.where(n > 1, (residual**2).sum(axis=-1) / (n - 1), np.nan)
    return n, mean, variance
