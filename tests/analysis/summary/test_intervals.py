"""Intervals: closed forms, and where nothing can be said they say nothing; `test_coverage` has what they cover."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.intervals import (
    NO_INTERVAL,
    bootstrap_counts,
    cluster_interval,
    cluster_variance,
    degrees_of_freedom,
    effective_groups,
    fraction_interval,
    percentile_interval,
    share_intervals,
)
from ratioscope.analysis.summary.summary import summarise
from tests.making.runs import random_step, write_run


@pytest.mark.parametrize(
    ("lowest", "highest", "beyond"),
    [(0.0, 1.0, False), (0.0, 1.5, True), (-1.0, 1.0, False)],
)
def test_the_interval_of_a_reward_stays_where_rewards_are(
    tmp_path: Path, lowest: float, highest: float, beyond: bool
) -> None:
    """Few groups of partly right answers: t would reach far beyond."""
    step = random_step(np.random.default_rng(0), 0)
    rewards = np.linspace(lowest, highest, len(step.sequences["reward"])).astype(np.float32)
    step = replace(step, sequences=step.sequences | {"reward": rewards})
    found = summarise(open_run(write_run(tmp_path / "run", [step])))
    low, high = found.low["reward"].loc[0], found.high["reward"].loc[0]
    assert low < found.values["reward"].loc[0] < high
    assert low >= lowest
    assert (high > 1) == beyond


def test_the_variance_is_the_written_formula() -> None:
    x, n = np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0, 5.0])
    theta = 7 / 10
    without = np.array([6 / 8, 5 / 7, 3 / 5])  # one group each
    assert cluster_variance(x, n) == pytest.approx(2 / 3 * ((without - theta) ** 2).sum())
    half = stats.t.ppf(0.975, degrees_of_freedom(n, np.zeros(1, dtype=int))[0]) * np.sqrt(cluster_variance(x, n))
    assert cluster_interval(x, n) == pytest.approx((theta - half, theta + half))


@pytest.mark.parametrize("groups", [2, 3, 8, 64])
def test_groups_of_one_size_have_the_usual_degrees_of_freedom(groups: int) -> None:
    sizes, one = np.full(groups, 7.0), np.zeros(1, dtype=int)
    assert degrees_of_freedom(sizes, one) == pytest.approx(groups - 1)
    assert effective_groups(sizes, one) == pytest.approx(groups)
    x = np.arange(groups) + 1.0
    assert cluster_variance(x, sizes) == pytest.approx(x.var(ddof=1) / groups / 49)


def test_unequal_groups_count_for_less() -> None:
    sizes, one = np.array([1.0] * 31 + [30.0]), np.zeros(1, dtype=int)
    effective = effective_groups(sizes, one)[0]
    assert effective == pytest.approx(61**2 / 931)
    assert 1 <= degrees_of_freedom(sizes, one)[0] < effective - 1


def test_no_interval_leaves_what_is_possible() -> None:
    """Of a mean that cannot be negative the product of the ends is its square."""
    x, n = np.array([0.0, 0.0, 0.0, 4.0]), np.full(4, 2.0)
    low, high = cluster_interval(x, n, lowest=0.0)
    assert 0 < low < 0.5 < high and low * high == pytest.approx(0.25)
    assert cluster_interval(x, n).low < 0
    assert cluster_interval(x, n, 0.0, 1.0).high <= 1
    shifted = cluster_interval(x - 3 * n, n, lowest=-3.0)
    assert shifted == pytest.approx((low - 3, high - 3))
    assert cluster_interval(np.zeros(4), n, lowest=0.0) == (0, 0)


def test_a_share_of_squares_never_leaves_0_to_1() -> None:
    w = np.array([1.0, 1.0, 1.0, 1.2, 5.0])
    low, high = share_intervals([(w, 2), (w**2, -1), (np.ones(5), -1)], np.zeros(1, dtype=int))
    assert 0 < low[0] < w.sum() ** 2 / (5 * (w**2).sum()) < high[0] < 1


def test_one_group_has_no_interval() -> None:
    one = np.array([3.0]), np.array([10.0])
    assert all(np.isnan(cluster_interval(*one))) and all(np.isnan(fraction_interval(*one)))
    assert cluster_interval(np.array([3.0, 5.0, 1.0]), np.array([10.0, 8.0, 0.0])) == pytest.approx(
        cluster_interval(np.array([3.0, 5.0]), np.array([10.0, 8.0]))
    )
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
