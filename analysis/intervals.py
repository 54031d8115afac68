"""Uncertainty from prompt groups: the unit of dependence is the group, never the token.

Functions take one step's sums, one value a group.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

LEVEL = 0.95
BOOTSTRAP_DRAWS = 400


class Interval(NamedTuple):
    """A 95 % interval; NaN where there is none."""

    low: float
    high: float


NO_INTERVAL = Interval(float("nan"), float("nan"))


@cache
def _quantile_t(groups: int) -> float:
    return float(stats.t.ppf((1 + LEVEL) / 2, groups - 1))


def cluster_variance(numerator: Array, denominator: Array) -> float:
    """Variance of the ratio of sums over groups: G/(G-1) sum (X_g - theta N_g)^2 / (sum N_g)^2.

    Args:
        numerator, denominator: X_g and N_g, (n_groups,).
    """
    groups, total = len(numerator), denominator.sum()
    theta = numerator.sum() / total
    with np.errstate(over="ignore"):  # infinite: no interval
        return float(groups / (groups - 1) * ((numerator - theta * denominator) ** 2).sum() / total**2)


def cluster_interval(numerator: Array, denominator: Array) -> Interval:
    """95 % by t with G - 1 degrees of freedom; none for a single group or non-finite sums."""
    used = denominator > 0
    numerator, denominator = numerator[used], denominator[used]
    if len(numerator) < 2 or not np.isfinite(numerator).all():
        return NO_INTERVAL
    theta = numerator.sum() / denominator.sum()
    half = _quantile_t(len(numerator)) * cluster_variance(numerator, denominator) ** 0.5
    if not np.isfinite(half):
        return NO_INTERVAL
    return Interval(float(theta - half), float(theta + half))


def fraction_interval(successes: Array, trials: Array) -> Interval:
    """Wilson's interval at the effective number of trials, so that 0 of n is not known for certain.

    The effective number is p(1-p) over the cluster-robust variance, between the number of groups and that of trials;
    where p is 0 or 1 the groups tell nothing of their dependence, and the number of groups itself is taken.
    """
    used = trials > 0
    successes, trials = successes[used], trials[used]
    groups = len(trials)
    if groups < 2:
        return NO_INTERVAL
    p = successes.sum() / trials.sum()
    variance = cluster_variance(successes, trials)
    n = float(groups)
    if 0 < p < 1:
        n = float(np.clip(p * (1 - p) / variance, groups, trials.sum())) if variance > 0 else float(trials.sum())
    t = _quantile_t(groups)
    centre, half = p + t * t / (2 * n), t * np.sqrt(p * (1 - p) / n + t * t / (4 * n * n))
    scale = 1 + t * t / n
    return Interval(float(max(0.0, (centre - half) / scale)), float(min(1.0, (centre + half) / scale)))


@cache
def bootstrap_counts(groups: int) -> Array:
    """How often each group is drawn in each resample, (draws, n_groups); the same for every call: results repeat."""
    generator = np.random.default_rng(groups)
    return generator.multinomial(groups, np.full(groups, 1 / groups), size=BOOTSTRAP_DRAWS).astype(float)


def percentile_interval(draws: Array) -> Interval:
    """The middle 95 % of a statistic's resamples; none when some are not finite."""
    if len(draws) == 0 or not np.isfinite(draws).all():
        return NO_INTERVAL
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
