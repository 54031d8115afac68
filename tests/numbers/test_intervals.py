"""Intervals: they cover what they claim to cover, and where nothing can be said they say nothing.

The simulation: 1,000 data sets of 32 prompt groups whose log-ratio spread varies between groups (lognormal, .15).
Truths are closed forms for lognormal ratios of mean 1, averaged over the spread.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from analysis.intervals import (
    NO_INTERVAL,
    Interval,
    bootstrap_counts,
    cluster_interval,
    cluster_variance,
    fraction_interval,
    percentile_interval,
)

Array = NDArray[np.float64]

DATA_SETS, GROUPS, TOKENS = 1_000, 32, 96
GROUP_SPREAD, STALENESS, STEP, EPSILON = 0.15, 0.2, 0.1, 0.2


@dataclass(frozen=True)
class Sums:
    """Group sums of every metric, (data sets, groups), and what the means are in truth."""

    n: Array
    numerators: dict[str, Array]
    truth: dict[str, float]


def averaged_over_groups(term: Callable[[Array], Array]) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    return float(weights @ term(np.exp(GROUP_SPREAD * nodes)) / weights.sum())


def outside_the_band(scale: Array) -> Array:
    sigma = STALENESS * scale
    low = stats.norm.cdf((np.log(1 - EPSILON) + sigma**2 / 2) / sigma)
    return np.asarray(low + stats.norm.sf((np.log(1 + EPSILON) + sigma**2 / 2) / sigma))


@pytest.fixture(scope="module")
def sums() -> Sums:
    rng = np.random.default_rng(0)
    scale = np.exp(GROUP_SPREAD * rng.standard_normal((DATA_SETS, GROUPS, 1), dtype=np.float32))
    sizes = rng.integers(TOKENS // 2, TOKENS + 1, (DATA_SETS, GROUPS, 1))  # responses differ in length
    there = np.arange(TOKENS) < sizes

    def ratio(sigma: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.exp(sigma * rng.standard_normal(there.shape, dtype=np.float32) - sigma**2 / 2)

    rho, step = ratio(np.float32(STALENESS) * scale), ratio(np.float32(STEP) * scale)
    terms = {
        "u_k": rho * abs(step - 1) / 2,
        "s_k": abs(rho - 1) / 2,
        "clip_fraction": abs(rho - 1) > EPSILON,
        "chi2_token": (rho - 1) ** 2,
    }
    numerators = {key: (term * there).sum(axis=2, dtype=float) for key, term in terms.items()}
    truth = {
        "u_k": averaged_over_groups(lambda s: stats.norm.cdf(STEP * s / 2) - 0.5),
        "s_k": averaged_over_groups(lambda s: stats.norm.cdf(STALENESS * s / 2) - 0.5),
        "clip_fraction": averaged_over_groups(outside_the_band),
        "chi2_token": averaged_over_groups(lambda s: np.expm1((STALENESS * s) ** 2)),
    }
    truth |= {key: 2 * truth[key] for key in ("u_k", "s_k")}  # TV of a lognormal ratio: 2 Phi(sigma / 2) - 1
    return Sums(there.sum(axis=2).astype(float), numerators, truth)


def coverage(interval: Callable[[Array, Array], Interval], sums: Sums, key: str) -> float:
    def inside() -> Iterator[bool]:
        for numerator, n in zip(sums.numerators[key], sums.n, strict=True):
            low, high = interval(numerator, n)
            yield low <= sums.truth[key] <= high

    return float(np.mean(list(inside())))


@pytest.mark.parametrize("key", ["u_k", "s_k"])
def test_intervals_of_total_variations_cover_the_truth(sums: Sums, key: str) -> None:
    half = sums.numerators[key].sum() / sums.n.sum()
    assert half == pytest.approx(sums.truth[key], rel=5e-3)
    assert 0.92 <= coverage(cluster_interval, sums, key) <= 0.975


def test_intervals_of_clip_fractions_cover_the_truth(sums: Sums) -> None:
    assert 0.92 <= coverage(fraction_interval, sums, "clip_fraction") <= 0.975


def test_intervals_of_chi_square_cover_the_truth(sums: Sums) -> None:
    assert coverage(cluster_interval, sums, "chi2_token") >= 0.91


def test_the_variance_is_the_written_formula() -> None:
    x, n = np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0, 5.0])
    theta = 7 / 10
    squares = (1 - theta * 2) ** 2 + (2 - theta * 3) ** 2 + (4 - theta * 5) ** 2
    assert cluster_variance(x, n) == pytest.approx(3 / 2 * squares / 100)
    half = stats.t.ppf(0.975, 2) * np.sqrt(cluster_variance(x, n))
    assert cluster_interval(x, n) == pytest.approx((theta - half, theta + half))


def test_one_group_has_no_interval() -> None:
    one = np.array([3.0]), np.array([10.0])
    assert all(np.isnan(cluster_interval(*one))) and all(np.isnan(fraction_interval(*one)))
    with_an_empty_one = np.array([3.0, 0.0]), np.array([10.0, 0.0])
    assert all(np.isnan(cluster_interval(*with_an_empty_one)))
    assert all(np.isnan(fraction_interval(*with_an_empty_one)))


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("groups", [2, 8, 64])
def test_nothing_and_everything_are_not_known_for_certain(share: float, groups: int) -> None:
    trials = np.full(groups, 50.0)
    low, high = fraction_interval(share * trials, trials)
    assert 0 <= low <= share <= high <= 1
    assert high - low > 1 / (10 * groups)


def test_a_fraction_that_varies_between_groups_is_known_less_well() -> None:
    trials = np.full(20, 100.0)
    even, uneven = np.full(20, 30.0), np.tile([0.0, 60.0], 10)
    assert np.ptp(fraction_interval(uneven, trials)) > 2 * np.ptp(fraction_interval(even, trials))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sums_that_are_not_finite_have_no_interval(bad: float) -> None:
    assert all(np.isnan(cluster_interval(np.array([1.0, bad, 2.0]), np.ones(3))))
    assert all(np.isnan(percentile_interval(np.array([1.0, bad]))))
    assert all(np.isnan(percentile_interval(np.zeros(0))))


def test_sums_whose_squares_overflow_have_no_interval() -> None:
    assert all(np.isnan(cluster_interval(np.array([1e200, 1.0]), np.ones(2)))) and all(np.isnan(NO_INTERVAL))


def test_resamples_repeat_and_draw_every_group_as_often_as_any_other() -> None:
    counts = bootstrap_counts(12)
    assert (counts.sum(axis=1) == 12).all()
    assert counts.mean(axis=0) == pytest.approx(np.ones(12), abs=0.2)
    bootstrap_counts.cache_clear()
    assert (bootstrap_counts(12) == counts).all()
