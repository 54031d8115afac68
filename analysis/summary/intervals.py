"""Uncertainty from prompt groups: the unit of dependence is the group, never the token.

Functions in the singular take one step's sums, one value a group; those in the plural take many steps at once.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ratioscope.tails import Array

Index = NDArray[np.intp]

LEVEL = 0.95
BOOTSTRAP_DRAWS = 400
ONE_SIDED, TWO_SIDED = LEVEL, (1 + LEVEL) / 2
"""The quantile of t at each end."""
_ENDS = (1 - TWO_SIDED, TWO_SIDED)


class Interval(NamedTuple):
    """A 95 % interval; NaN where there is none."""

    low: float
    high: float

    @property
    def negative(self) -> "Interval":
        """That of the value with its sign turned."""
        return Interval(-self.high, -self.low)


NO_INTERVAL = Interval(float("nan"), float("nan"))


def quantile_t(denominator: Array, starts: Index, level: float = TWO_SIDED) -> Array:
    """A quantile of t, the 97.5 % one unless told, with the degrees of freedom that the groups give; see below."""
    return np.asarray(stdtrit(degrees_of_freedom(denominator, starts), level))


def of_share(share: Array, n: int) -> tuple[Array, Array]:
    """Low and high ends of Wilson's 95 % intervals of means of n values between 0 and 1; NaN for other means.

    Values that are neither 0 nor 1 have a smaller variance than right and wrong answers: then it is too wide.
    """
    share = np.where((share >= 0) & (share <= 1), share, np.nan)
    z = ndtri(_ENDS[1])
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # Rounding must not put the mean outside.
    return np.minimum(middle - half, share).clip(min=0), np.maximum(middle + half, share).clip(max=1)


def sums(values: Array, starts: Index) -> Array:
    """Sums of consecutive segments, each from its start to the next one."""
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0)


def effective_groups(denominator: Array, starts: Index) -> Array:
    """(sum N)^2 / sum N^2 of each step: how many groups of one size are worth as much."""
    n = np.maximum(denominator, 0.0)
    with np.errstate(all="ignore"):
        return np.asarray(sums(n, starts) ** 2 / sums(n * n, starts))


def degrees_of_freedom(denominator: Array, starts: Index) -> Array:
    """Of the jackknife variance of a ratio of sums over groups, of each step; NaN for fewer than two groups.

    G - 1 for groups of one size. Otherwise Satterthwaite's approximation depends on what differs: if tokens do, it is
    about the effective number of groups - 1; if groups do, whatever their size, it is Bell and McCaffrey's, which is
    lower. Nobody knows which of the two it is, and their geometric mean covers in both cases (docs/metrics.md).

    Args:
        denominator: N_g of all groups of all steps, (n_groups,).
        starts: where each step's groups start, (n_steps,).
    """
    sizes = np.diff(starts, append=len(denominator))
    w = np.maximum(denominator, 0.0)
    with np.errstate(all="ignore"):
        w = w / np.repeat(sums(w, starts), sizes)
        square = w * w
        total = sums(square, starts)  # 1 / effective number of groups
        own = 1 - 2 * w + np.repeat(total, sizes)
        scaled = square / own
        a0, a1, a2 = (sums(scaled * factor, starts) for factor in (1.0, w, square))
        # With A = diag(w^2 / own) and C the matrix that centres at the weighted mean: tr(C'AC)^2 / tr((C'AC)^2).
        apart = own - 1  # of two groups: total - w_i - w_j
        trace_of_square = (
            total**2 * a0**2 + 2 * a0 * a2 + 2 * a1**2 - 4 * total * a0 * a1
            + sums(scaled**2 * (own**2 - apart**2), starts)
        )  # fmt: skip
        return np.where(total < 1, np.maximum(np.sqrt((1 / total - 1) * total**2 / trace_of_square), 1.0), np.nan)


def cluster_variances(numerator: Array, denominator: Array, starts: Index) -> Array:
    """Variance of the ratio of sums over groups, of many steps at once, by the jackknife over groups.

    (G-1)/G sum ((X_g - theta N_g) / (N - N_g))^2 with N = sum N_g: a group that makes up much of the sum pulls theta
    towards itself, and its residual is too small. Groups with N_g = 0 do not count.

    Args:
        numerator, denominator: X_g and N_g of all groups of all steps, (n_groups,).
        starts: where each step's groups start, (n_steps,).
    """
    used = denominator > 0
    x, n = np.where(used, numerator, 0.0), np.where(used, denominator, 0.0)
    groups, total = sums(used.astype(float), starts), sums(n, starts)
    sizes = np.diff(starts, append=len(n))
    with np.errstate(all="ignore"):  # infinite or undefined: no interval
        residual = (x - np.repeat(sums(x, starts) / total, sizes) * n) / (np.repeat(total, sizes) - n)
        return np.where(groups > 1, (groups - 1) / groups * sums(residual**2, starts), np.nan)


def cluster_intervals(
    numerator: Array, denominator: Array, starts: Index, lowest: float = -np.inf, highest: float = np.inf
) -> tuple[Array, Array]:
    """Low and high ends of `cluster_interval` of many steps at once; see `cluster_variances`."""
    used = denominator > 0
    total = sums(np.where(used, denominator, 0.0), starts)
    with np.errstate(all="ignore"):
        theta = sums(np.where(used, numerator, 0.0), starts) / total
        half = quantile_t(denominator, starts) * np.sqrt(cluster_variances(numerator, denominator, starts))
        if np.isneginf(lowest):
            return _where_finite(theta - half, np.minimum(theta + half, highest))
        low, high = _above(theta - lowest, half)
    return _where_finite(low + lowest, np.minimum(high + lowest, highest))


def _above(theta: Array, half: Array) -> tuple[Array, Array]:
    """Both ends for a mean that cannot be negative: the two t at which (t - theta)^2 = half^2 t / theta.

    Wilson's interval of a rate: its variance grows with it. The product of the ends is theta^2, so no end is negative.
    """
    shift = np.where((half > 0) & (theta > 0), half**2 / (2 * theta), 0.0)
    reach = np.hypot(half, shift)
    high = theta + shift + reach
    return np.where(high > 0, theta * (theta / high), 0.0), high


def fraction_intervals(successes: Array, trials: Array, starts: Index) -> tuple[Array, Array]:
    """Low and high ends of `fraction_interval` of many steps at once; see `cluster_variances`."""
    used = trials > 0
    total = sums(np.where(used, trials, 0.0), starts)
    with np.errstate(all="ignore"):
        p = sums(np.where(used, successes, 0.0), starts) / total
        variance = cluster_variances(successes, trials, starts)
        effective = np.clip(np.where(variance > 0, p * (1 - p) / variance, total), 1.0, total)
        n = np.where((p > 0) & (p < 1), effective, effective_groups(trials, starts))
        t = quantile_t(trials, starts)
        centre, half = p + t * t / (2 * n), t * np.sqrt(p * (1 - p) / n + t * t / (4 * n * n))
        scale = 1 + t * t / n
        return _where_finite(np.maximum(0.0, (centre - half) / scale), np.minimum(1.0, (centre + half) / scale))


def _where_finite(low: Array, high: Array) -> tuple[Array, Array]:
    finite = np.isfinite(low) & np.isfinite(high)
    return np.where(finite, low, np.nan), np.where(finite, high, np.nan)


_ONE = np.zeros(1, dtype=np.intp)


def cluster_variance(numerator: Array, denominator: Array) -> float:
    """`cluster_variances` of a single step."""
    return float(cluster_variances(numerator, denominator, _ONE)[0])


def cluster_interval(
    numerator: Array, denominator: Array, lowest: float = -np.inf, highest: float = np.inf
) -> Interval:
    """95 % by t with the groups' degrees of freedom; none for a single group or non-finite sums.

    Args:
        numerator, denominator: X_g and N_g, (n_groups,).
        lowest, highest: what is possible. With a lowest value it is Wilson's interval of a rate (`_above`).
    """
    if not len(numerator):
        return NO_INTERVAL
    low, high = cluster_intervals(numerator, denominator, _ONE, lowest, highest)
    return Interval(float(low[0]), float(high[0]))


def fraction_interval(successes: Array, trials: Array) -> Interval:
    """Wilson's interval at the effective number of trials, so that 0 of n is not known for certain.

    The effective number is p(1-p) over the cluster-robust variance, at most the number of trials; where p is 0 or 1 the
    groups tell nothing of their dependence, and the number of groups of one size that are worth as much is taken.
    """
    if not len(trials):
        return NO_INTERVAL
    low, high = fraction_intervals(successes, trials, _ONE)
    return Interval(float(low[0]), float(high[0]))


# More groups than these are resampled in blocks of consecutive ones, which are as independent.
MOST_BLOCKS = 2_000


@cache
def bootstrap_counts(groups: int) -> Array:
    """How often each group is drawn in each resample, (draws, n_groups); the same for every call: results repeat."""
    generator = np.random.default_rng(groups)
    return generator.multinomial(groups, np.full(groups, 1 / groups), size=BOOTSTRAP_DRAWS).astype(float)


def resampled_sums(groups: Array) -> Array:
    """Sums over each resample of the groups, (draws, n_columns), of (n_groups, n_columns); of one group none."""
    if len(groups) < 2:
        return groups[:0]
    if len(groups) > MOST_BLOCKS:
        groups = np.add.reduceat(groups, np.linspace(0, len(groups), MOST_BLOCKS, endpoint=False, dtype=int))
    return bootstrap_counts(len(groups)) @ groups


def percentile_interval(draws: Array) -> Interval:
    """The middle 95 % of a statistic's resamples; none when some are not finite."""
    if len(draws) == 0 or not np.isfinite(draws).all():
        return NO_INTERVAL
    low, high = np.quantile(draws, _ENDS)
    return Interval(float(low), float(high))


# Below so many groups the linearised logarithm of a product of sums does not cover.
FEWEST_LINEARISED = 4


def log_intervals(powers: Sequence[tuple[Array, int]], starts: Index, level: float = TWO_SIDED) -> tuple[Array, Array]:
    """Low and high ends of the logarithm of a product of powers of sums over groups, of many steps at once.

    By linearisation in the groups (delta method), with the variance and the degrees of freedom of `cluster_variances`:
    with few groups it covers better than a bootstrap over them. NaN below `FEWEST_LINEARISED` groups.

    Args:
        powers: for each factor its terms, (n_groups,), and its exponent; the last one's are the groups' sizes. A group
            whose terms are all 0 does not count.
        starts: where each step's groups start, (n_steps,).
        level: the quantile of t; with 0.95 each end is a one-sided bound.
    """
    used = np.logical_or.reduce([terms != 0 for terms, _ in powers])
    groups, sizes = sums(used.astype(float), starts), np.diff(starts, append=len(used))
    log, influence, n = np.zeros(len(starts)), np.zeros(len(used)), powers[-1][0]
    with np.errstate(all="ignore"):
        for terms, exponent in powers:
            total = sums(terms, starts)
            log += exponent * np.log(total)
            influence += exponent * terms / np.repeat(total, sizes)
        influence /= 1 - n / np.repeat(sums(n, starts), sizes)
        half = quantile_t(n, starts, level) * np.sqrt((groups - 1) / groups * sums(influence**2, starts))
    few = groups < FEWEST_LINEARISED
    return _where_finite(np.where(few, np.nan, log - half), np.where(few, np.nan, log + half))


def share_intervals(
    powers: Sequence[tuple[Array, int]], starts: Index, level: float = TWO_SIDED, shift: float = 0.0
) -> tuple[Array, Array]:
    """Low and high ends of e^shift times a product of powers of sums, at most 1, as of an effective sample size.

    Its logarithm cannot be positive, and spreads the more the further it is from 0; see `log_intervals`.
    """
    low, high = log_intervals(powers, starts, level)
    with np.errstate(all="ignore"):
        nearest, farthest = _above(np.maximum(-(low + high) / 2 - shift, 0.0), (high - low) / 2)
        return _where_finite(np.exp(-farthest), np.exp(-nearest))
