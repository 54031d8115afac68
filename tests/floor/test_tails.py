"""Pareto k-hat: the fit of arviz-stats, known shapes, and the cases in which there is no tail to speak of.

arviz-stats 0.8 negates what `psislw` is given, and rounds the tail size down where Vehtari et al. round it up; at the
sizes below both are the same whole number, elsewhere its fit is called on the same tail points.
"""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ratioscope.notes import Kind
from ratioscope.tails import FEWEST_TAIL_POINTS, ROUNDING_NATS, kept_size, pareto_khat, tail_size, top_share

Array = NDArray[np.float64]

# min(n/5, 3 sqrt n) is a whole number here, so that rounding plays no part.
SIZES = (25, 100, 225, 400, 2_500, 40_000)
WEIGHTS = {
    "pareto, shape 0.2": lambda n, rng: rng.pareto(5.0, n) + 1,
    "pareto, shape 0.7": lambda n, rng: rng.pareto(1 / 0.7, n) + 1,
    "pareto, shape 1.5": lambda n, rng: rng.pareto(1 / 1.5, n) + 1,
    "lognormal, narrow": lambda n, rng: np.exp(0.05 * rng.standard_normal(n)),
    "lognormal, wide": lambda n, rng: np.exp(3.0 * rng.standard_normal(n)),
    "student t, 3": lambda n, rng: np.abs(rng.standard_t(3, n)) + 1e-3,
    "student t, 1": lambda n, rng: np.abs(rng.standard_t(1, n)) + 1e-3,
}


def khat(log_weights: Array) -> float | None:
    """As the summary calls it: from the kept top only."""
    n = len(log_weights)
    with np.errstate(over="ignore"):
        return pareto_khat(np.sort(log_weights)[::-1][: kept_size(n)], n)[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_khat_is_that_of_arviz(name: str, size: int) -> None:
    log_weights = np.log(WEIGHTS[name](size, np.random.default_rng(size)))
    assert size * 0.2 == tail_size(size) or 3 * np.sqrt(size) == tail_size(size)
    _, expected = array_stats.psislw(-log_weights)
    assert khat(log_weights) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("size", [31, 226, 999, 12_345])
def test_khat_is_the_fit_of_arviz_on_the_same_tail_where_the_sizes_are_rounded(size: int) -> None:
    log_weights = np.sort(1.5 * np.random.default_rng(size).standard_normal(size))
    weights = np.exp(log_weights - log_weights[-1])
    tail = tail_size(size)
    assert tail == np.ceil(min(size / 5, 3 * np.sqrt(size)))
    expected, _ = array_stats._gpdfit(weights[-tail:] - weights[-tail - 1])
    assert khat(log_weights) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("shape", [0.3, 0.5, 0.7, 1.0, 2.0])
def test_a_known_shape_is_recovered(shape: float) -> None:
    estimates = [khat(np.log(stats.genpareto.rvs(shape, size=20_000, random_state=seed) + 1e-9)) for seed in range(20)]
    standard_error = (1 + shape) / np.sqrt(tail_size(20_000))
    assert np.mean(estimates) == pytest.approx(shape, abs=standard_error)


def test_khat_is_the_same_in_any_unit_of_weight() -> None:
    log_weights = np.random.default_rng(1).standard_normal(1_000)
    assert khat(log_weights + 500) == pytest.approx(khat(log_weights), abs=1e-9)
    assert khat(log_weights - 900) == pytest.approx(khat(log_weights), abs=1e-9)


@pytest.mark.parametrize("n", [0, 1, 5, 19, 20])
def test_fewer_weights_than_needed_have_no_khat(n: int) -> None:
    value, note = pareto_khat(np.sort(np.random.default_rng(0).standard_normal(n))[::-1], n)
    assert value is None and note and note.kind is Kind.NOT_ESTIMABLE and f"only {n} weights" in note.reason


def test_the_fewest_weights_named_in_the_reason_are_enough() -> None:
    fewest = 5 * FEWEST_TAIL_POINTS - 4
    assert str(fewest) in str(pareto_khat(np.zeros(0), 3)[1])
    assert khat(np.random.default_rng(0).standard_normal(fewest)) is not None


@pytest.mark.parametrize("size", [25, 100, 400, 2_500])
def test_equal_weights_have_no_khat(size: int) -> None:
    value, note = pareto_khat(np.zeros(kept_size(size)), size)
    assert value is None and note and note.kind is Kind.NO_TAIL and "agree to within rounding" in note.reason


def test_rounding_noise_of_on_policy_data_has_no_khat() -> None:
    noise = 0.2 * ROUNDING_NATS * np.random.default_rng(0).uniform(-1, 1, 10_000)
    assert khat(noise) is None


@pytest.mark.parametrize("size", [100, 225, 400, 2_500])
def test_a_tail_tied_to_its_cut_off_in_the_lowest_quarter_has_no_khat(size: int) -> None:
    """Mostly exact ratios: a fit on the few that are not would return a falsely safe value."""
    tail = tail_size(size)
    for tied in range(tail + 1):
        log_weights = np.zeros(size)
        log_weights[: tail - tied] = np.linspace(1, 3, tail)[: tail - tied]
        value = khat(log_weights)
        if tied >= int(tail / 4 + 0.5):
            assert value is None
        else:
            assert value is not None and np.isfinite(value)


@given(st.lists(st.sampled_from([-np.inf, -800.0, -1.0, 0.0, 1e-5, 0.5, 2.0, 900.0]), min_size=21, max_size=120))
@settings(max_examples=300, deadline=None)
def test_khat_is_a_number_or_nothing_whatever_the_weights(log_weights: list[float]) -> None:
    value = khat(np.array(log_weights))
    assert value is None or not np.isnan(value)


def test_weights_that_differ_by_more_than_the_floating_point_range_have_the_worst_khat() -> None:
    """No fit can be had, but the one thing that must not happen is that the tail passes for unknown, hence safe."""
    for spread in (100.0, 300.0, 1_000.0, 1e5):
        value = khat(spread * np.random.default_rng(0).standard_normal(2_000))
        assert value is not None and value > 10


def test_the_share_of_the_top_percent_counts_squares() -> None:
    weights = np.array([10.0] + [1.0] * 199)
    logs = np.sort(np.log(weights))[::-1]
    share = top_share(logs[: kept_size(200)], 200, float(np.log((weights**2).sum())))
    assert share == pytest.approx((100 + 1) / (100 + 199))
    assert top_share(np.zeros(0), 0, -np.inf) is None
