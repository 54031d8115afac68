"""Tails of importance weights: Pareto k-hat from the kept top of the log-weights."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, isfinite, log, sqrt

import numpy as np
from numpy.typing import NDArray

from ratioscope.metric import HARMLESS_RATIO
from ratioscope.notes import Kind, Note

Array = NDArray[np.float64]

# Fewer tail points than this say nothing about a tail.
FEWEST_TAIL_POINTS = 5

# Log-probabilities are float32 and come from float32 forward passes: below this spread the "tail" is rounding.
ROUNDING_NATS = 1e-4


# A tail that spans more than this many nats has weights that are 0 beside its largest one in floating point.
SPAN_NATS = 700.0


# The quantiles of the ratio that the step summary has.
QUANTILES = {"ratio_p01": 0.01, "ratio_p50": 0.5, "ratio_p90": 0.9, "ratio_p99": 0.99, "ratio_p999": 0.999}


def interpolated(value_at: Callable[[int], float], n: int, q: float) -> float:
    """A quantile of n logs by linear interpolation; a neighbour at -inf is only reached where there is nothing between.

    Args:
        value_at: the log at a place of the ascending order.
        n: at least 1.
    """
    place, fraction = divmod(q * (n - 1), 1)
    low, high = value_at(int(place)), value_at(min(int(place) + 1, n - 1))
    return low if low == high or fraction == 0 or low == -inf else low + fraction * (high - low)


def log_sum_squares(logs: Array, counts: Array | float = 1.0) -> float:
    """Log of the sum of squares of numbers, from their logs, ascending, not empty, and how often each is there."""
    peak = float(logs[-1])
    return 2 * peak + log((counts * np.exp(2 * (logs - peak))).sum()) if isfinite(peak) else peak


def tail_size(n: int) -> int:
    """How many of the n largest weights make the tail: min(n/5, 3 sqrt n), rounded up (Vehtari et al., section 3)."""
    return ceil(min(n / 5, 3 * sqrt(n)))


def kept_size(n: int) -> int:
    """How many of the largest weights a partial has to keep: the tail and its cut-off, or the top 1 %."""
    return max(tail_size(n) + 1, ceil(n / 100))


@dataclass(frozen=True)
class Tail:
    """A generalised Pareto fit to the largest of n weights; `khat` None: `note` says why."""

    khat: float | None
    note: Note | None = None
    cut_off: float = 0.0
    """The weight above which the tail lies."""
    scale: float = 0.0
    share: float = 0.0
    """Share of the weights that are above the cut-off."""

    def survival(self, weight: Array) -> Array:
        """P(w > x) by the fit, for x above the cut-off."""
        if self.khat is None:
            return np.full_like(weight, np.nan)
        excess = (weight - self.cut_off) / self.scale
        if abs(self.khat) < 1e-9:
            return self.share * np.exp(-excess)
        return self.share * np.maximum(1 + self.khat * excess, 0) ** (-1 / self.khat)


def fit_tail(top: Array, n: int) -> Tail:
    """The tail of n weights from the logs of the largest ones.

    Args:
        top: at least `tail_size(n) + 1` largest log-weights, descending.
        n: number of weights.
    """
    size = tail_size(n)
    if size < FEWEST_TAIL_POINTS or len(top) <= size:
        return _no_fit(f"only {n} weights, at least {FEWEST_TAIL_POINTS * 5 - 4} are needed for a tail")
    cut_off, tail = top[size], np.sort(top[:size])
    if not np.isfinite(tail[-1]):
        return _no_fit("the largest weight is not finite")
    if tail[-1] - cut_off < ROUNDING_NATS:
        return _no_fit("the largest weights agree to within rounding", Kind.NO_TAIL)
    lower_quartile = tail[_quartile(size)]
    if not lower_quartile > cut_off:
        return _no_fit("the tail is tied: its lower quartile equals the cut-off")
    # Fitted relative to the largest weight, which cannot overflow.
    excess = np.exp(tail - tail[-1]) - np.exp(cut_off - tail[-1])
    if not excess[_quartile(size)] > 0:
        if tail[-1] - lower_quartile < SPAN_NATS:
            return _no_fit("the tail is tied: its lower quartile equals the cut-off to within rounding")
        return Tail(float("inf"))  # no fit to be had, but anything less than the worst would pass for safe
    shape, scale = _fit_generalised_pareto(excess)
    largest = float(np.exp(tail[-1]))
    return Tail(shape, cut_off=float(np.exp(cut_off)), scale=scale * largest, share=size / n)


def _no_fit(reason: str, kind: Kind = Kind.NOT_ESTIMABLE) -> Tail:
    return Tail(None, Note(kind, f"not estimable: {reason}"))


def pareto_khat(top: Array, n: int) -> tuple[float | None, Note | None]:
    """k-hat of n weights from the logs of the largest ones, or None and why it cannot be estimated; see `fit_tail`."""
    tail = fit_tail(top, n)
    return tail.khat, tail.note


def largest_last(logs: Array) -> Array:
    """Logs in any order, without NaN, the `kept_size` largest of them last and ascending."""
    kept = min(kept_size(len(logs)), len(logs))
    if not kept:
        return logs
    parted = np.partition(logs, len(logs) - kept)
    parted[len(logs) - kept :].sort()
    return parted


def reliance_of(log_weights: Array) -> float:
    """What the largest of some independent weights adds to the mean of (w - 1)^2, in its standard errors, for `doubt`.

    The largest ones are enough: of the sum of fourth powers, which makes the standard error, the others are little.
    """
    if not len(log_weights) or log_weights.max() <= log(HARMLESS_RATIO):
        return 0.0
    with np.errstate(all="ignore"):  # log 0 where a weight is 1
        logs = 2 * np.where(log_weights > 30, log_weights, np.log(np.abs(np.expm1(log_weights))))
    largest = logs[log_weights.argmax()]
    return float(1 / np.sqrt(np.exp(2 * (logs - largest)).sum()))


def _fit_generalised_pareto(excess: Array) -> tuple[float, float]:
    """Shape (positive for heavy tails) and scale of a generalised Pareto distribution.

    The profile-likelihood posterior mean of Zhang and Stephens (2009) on a grid of the inverse scale, with the weak
    prior on the shape (10 observations at 0.5) that Pareto-smoothed importance sampling adds.

    Args:
        excess: values above the cut-off, ascending, more than 0 from the lower quartile on.
    """
    n = len(excess)
    grid_size = 30 + int(sqrt(n))
    quartile, largest = excess[_quartile(n)], excess[-1]
    grid = 1 / largest + (1 - np.sqrt(grid_size / (np.arange(grid_size) + 0.5))) / (3 * quartile)  # (grid,)
    shape = _mean_log(1 - grid[:, None] * excess)
    log_likelihood = n * (np.log(-grid / shape) - shape - 1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    inverse_scale = (grid * weight).sum() / weight.sum()
    shape_there = float(np.log1p(-inverse_scale * excess).mean())
    return (n * shape_there + 10 * 0.5) / (n + 10), -shape_there / float(inverse_scale)


def _mean_log(values: Array) -> Array:
    """Mean logarithm of each row of positive numbers, by the logarithms of products of eight: they are what costs."""
    rows, n = values.shape
    if values.max() > 1e38 or values.min() < 1e-38:  # eight of them might leave the floating-point range
        return np.log(values).mean(axis=1)
    whole = n - n % 8
    products = values[:, :whole].reshape(rows, 8, -1).prod(axis=1)
    return (np.log(products).sum(axis=1) + np.log(values[:, whole:]).sum(axis=1)) / n


def _quartile(n: int) -> int:
    """Where the lower quartile of n ascending values is, as Zhang and Stephens count."""
    return int(n / 4 + 0.5) - 1


def top_share(top: Array, n: int, log_sum_squares: float) -> float | None:
    """Share of the sum of squared weights that the largest 1 % carry; None when nothing is there."""
    if n == 0 or not np.isfinite(log_sum_squares):
        return None
    return float(np.exp(2 * top[: max(1, ceil(n / 100))] - log_sum_squares).sum())
