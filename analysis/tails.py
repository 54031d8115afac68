"""Tails of importance weights: Pareto k-hat from the kept top of the log-weights."""

from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Fewer tail points than this say nothing about a tail.
FEWEST_TAIL_POINTS = 5

# Log-probabilities are float32 and come from float32 forward passes: below this spread the "tail" is rounding.
ROUNDING_NATS = 1e-4


def tail_size(n: int) -> int:
    """How many of the n largest weights make the tail: min(n/5, 3 sqrt n), rounded up (Vehtari et al., section 3)."""
    return ceil(min(n / 5, 3 * sqrt(n)))


def kept_size(n: int) -> int:
    """How many of the largest weights a partial has to keep: the tail and its cut-off, or the top 1 %."""
    return max(tail_size(n) + 1, ceil(n / 100))


def pareto_khat(top: Array, n: int) -> tuple[float | None, str]:
    """Tail index of n weights from the logs of the largest ones.

    Args:
        top: at least `tail_size(n) + 1` largest log-weights, descending.
        n: number of weights.

    Returns:
        k-hat and an empty text, or None and why it cannot be estimated.
    """
    size = tail_size(n)
    if size < FEWEST_TAIL_POINTS or len(top) <= size:
        return None, f"only {n} weights, at least {FEWEST_TAIL_POINTS * 5 - 4} are needed for a tail"
    cut_off, tail = top[size], np.sort(top[:size])
    if not np.isfinite(tail[-1]):
        return None, "the largest weight is not finite"
    if tail[-1] - cut_off < ROUNDING_NATS:
        return None, "the largest weights agree to within rounding"
    if not tail[len(tail) // 4] > cut_off:
        return None, "the tail is tied: its lower quartile equals the cut-off"
    excess = np.exp(tail - tail[-1]) - np.exp(cut_off - tail[-1])
    return _fit_generalised_pareto(excess), ""


def _fit_generalised_pareto(excess: Array) -> float:
    """Shape of a generalised Pareto distribution, positive for heavy tails.

    The profile-likelihood posterior mean of Zhang and Stephens (2009) on a grid of the inverse scale, with the weak
    prior on the shape (10 observations at 0.5) that Pareto-smoothed importance sampling adds.

    Args:
        excess: values above the cut-off, ascending, not all zero.
    """
    n = len(excess)
    grid_size = 30 + int(sqrt(n))
    quartile, largest = excess[int(n / 4 + 0.5) - 1], excess[-1]
    grid = 1 / largest + (1 - np.sqrt(grid_size / (np.arange(grid_size) + 0.5))) / (3 * quartile)  # (grid,)
    shape = np.log1p(-grid[:, None] * excess).mean(axis=1)
    log_likelihood = n * (np.log(-grid / shape) - shape - 1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    inverse_scale = (grid * weight).sum() / weight.sum()
    return float((n * np.log1p(-inverse_scale * excess).mean() + 10 * 0.5) / (n + 10))


def top_share(top: Array, n: int, log_sum_squares: float) -> float | None:
    """Share of the sum of squared weights that the largest 1 % carry; None when nothing is there."""
    if n == 0 or not np.isfinite(log_sum_squares):
        return None
    return float(np.exp(2 * top[: max(1, ceil(n / 100))] - log_sum_squares).sum())
