"""Intervals: closed forms, and where nothing can be said they say nothing; `test_coverage` has what they cover."""

import numpy as np
import pytest
from scipy import stats

from ratioscope.analysis.summary.intervals import (
    NO_INTERVAL,
    bootstrap_counts,
    cluster_interval,
    cluster_variance,
    fraction_interval,
    percentile_interval,
)


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
