"""Bounds on what an update gains, from its distances: factors, penalties, the step they allow.

factors(advantage_bound=1, gamma=0.9)                           # of S0 Corollary 3.2
mean_distance_penalty(1, distances)                             # from the mean distance at every position
trust_region_exponent(lengths, distances)                       # do trust regions shrink as theory asks?

Every penalty bounds the error of the surrogate whose policy pair it takes: of the new policy against the sampler. Only
Corollary 3.2 compares with the policy before the update.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from ratioscope.analysis.summary.intervals import LEVEL
from ratioscope.tails import Array


class Factors(NamedTuple):
    """What multiplies U and S."""

    update: float
    staleness: float


def factors(advantage_bound: float, gamma: float) -> Factors:
    """C1 and C2 of S0 Corollary 3.2, with C at its bound |A|."""
    update = 2 * gamma * advantage_bound / (1 - gamma) ** 2
    return Factors(update, update + 2 * advantage_bound / (1 - gamma))


def finite_horizon_penalty(advantage_bound: float, horizon: float, largest_tv: float) -> float:
    """|A| T^2 D_TV^max: what the surrogate over T undiscounted tokens can be wrong by (S1 5.3).

    Args:
        largest_tv: largest TV(new, sampler) of a state.
    """
    return advantage_bound * horizon**2 * largest_tv


def discounted_penalty(advantage_bound: float, gamma: float, largest_tv: float) -> float:
    """4 gamma |A| (D_TV^max)^2 / (1 - gamma)^2: the same with discount (S1 5.3, item 4)."""
    return 4 * gamma * advantage_bound * largest_tv**2 / (1 - gamma) ** 2


def mean_distance_penalty(advantage_bound: float, distances: Array) -> float:
    """2 |A| sum_t min(1, sum_{j<t} D_j): the finite horizon from mean distances, which samples can estimate.

    The surrogate is wrong by sum_t sum_s (d_new,t - d_sampler,t)(s) E_new A(s). Each term has |E_new A| <= |A|, and the
    states at t are at most 2 min(1, sum_{j<t} D_j) apart in L1: replace the sampler by the new policy one position
    after the other.

    Args:
        distances: D_t, mean TV(new, sampler) of the sampler's states at position t, 0 for a finished response, (T,).
    """
    reached = np.minimum(1.0, np.concatenate([[0.0], np.cumsum(distances)[:-1]]))
    return float(2 * advantage_bound * reached.sum())


def coupled_penalty(advantage_bound: float, distances: Array, largest_tv: float) -> float:
    """`mean_distance_penalty` times min(1, 2 D_TV^max): what E_new A(s) can be where the policies are that near.

    Under the sampler A has mean 0 in every state, so |E_new A(s)| <= 2 TV(new, sampler; s) |A|.

    Args:
        largest_tv: largest TV(new, sampler) of a state.
    """
    return float(np.minimum(1.0, 2 * largest_tv) * mean_distance_penalty(advantage_bound, distances))


def allowed_distance(advantage_bound: float, horizon: float, largest_gap: float) -> float:
    """The largest distance of a state with which `finite_horizon_penalty` stays below the gap of returns: ~ 1/T^2."""
    return largest_gap / (advantage_bound * horizon**2)


def cpi_step(gain: float, advantage_bound: float, gamma: float) -> float:
    """Which share of the candidate policy conservative policy iteration mixes in (S4 eq. 61).

    The maximiser over [0, 1] of alpha g - 2 gamma epsilon alpha^2 / (1 - gamma)^2: without a gain nothing is mixed in.

    Args:
        gain: g, the candidate's surrogate improvement.
        advantage_bound: epsilon, the largest |E A| of a state under the candidate.
    """
    if gain <= 0:
        return 0.0
    curvature = 4 * gamma * advantage_bound
    return float(np.minimum(1.0, (1 - gamma) ** 2 * gain / curvature)) if curvature else 1.0  # NaN stays NaN


@dataclass(frozen=True)
class Exponent:
    """The power of the length that a distance follows, with a 95 % interval; NaN for `reason`."""

    value: float
    low: float
    high: float
    reason: str = ""


# Over a narrower range of lengths a power cannot be told from a constant.
_LEAST_LENGTH_RATIO = 1.5


def trust_region_exponent(length: Array, distance: Array) -> Exponent:
    """How a trust region goes with the length: theory asks for -2, a constant clip gives 0 (S1 5.4).

    The slope of log distance on log length. Steps of one run depend on each other, which the interval does not know.

    Args:
        length: horizon of each step or run, (n,), tokens.
        distance: largest total variation of a state, or update drift, of each, (n,).
    """
    used = np.isfinite(length) & np.isfinite(distance) & (length > 0) & (distance > 0)
    length, distance = length[used], distance[used]
    if len(length) < 3:
        return Exponent(np.nan, np.nan, np.nan, "fewer than three positive distances")
    if length.max() < _LEAST_LENGTH_RATIO * length.min():
        reason = f"lengths differ by less than a factor {_LEAST_LENGTH_RATIO:g}, so no power of them can be seen"
        return Exponent(np.nan, np.nan, np.nan, reason)
    (slope, _), covariance = np.polyfit(np.log(length), np.log(distance), 1, cov=True)
    half = stdtrit(len(length) - 2, (1 + LEVEL) / 2) * np.sqrt(covariance[0, 0])
    return Exponent(float(slope), float(slope - half), float(slope + half))
