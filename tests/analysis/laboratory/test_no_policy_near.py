"""The room between trust regions against linear programs, and the share of it against a grid (S0 Observation 3.1)."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from ratioscope.analysis.drift.feasibility import feasibility
from ratioscope.analysis.laboratory.no_policy_near import EXPERIMENT, area, near_all, smallest_delta
from tests.making.samples import run_of


def _program(versions: NDArray[np.float64]) -> float:
    """The least d of a policy q with sum(|q - p|) / 2 <= d for each row p: q, then the excess above each p, then d."""
    n, tokens = versions.shape
    size = tokens + n * tokens + 1
    above, bounds = [], []
    for place, version in enumerate(versions):
        first = tokens * (1 + place)
        for token in range(tokens):  # q - excess <= p
            row = np.zeros(size)
            row[token], row[first + token] = 1, -1
            above.append(row)
            bounds.append(version[token])
        row = np.zeros(size)  # as both sum to 1, TV is the sum of the excess
        row[first : first + tokens], row[-1] = 1, -1
        above.append(row)
        bounds.append(0.0)
    cost, sums = np.eye(size)[-1], np.array([[1.0] * tokens + [0.0] * (size - tokens)])
    return float(linprog(cost, np.array(above), bounds, sums, [1.0], bounds=(0, None)).fun)


def _largest(versions: NDArray[np.float64]) -> float:
    return float(max(np.abs(p - q).sum() / 2 for p in versions for q in versions))


def test_beyond_twice_delta_no_policy_is_near_both_and_up_to_it_there_is_one() -> None:
    random = np.random.default_rng(6)
    for _ in range(300):
        versions = random.dirichlet(np.full(int(random.integers(2, 7)), 0.5), size=2)
        assert _program(versions) == pytest.approx(_largest(versions) / 2, abs=1e-7)


def test_n_versions_need_up_to_all_but_an_nth_of_their_largest_distance() -> None:
    """Half of it is not enough beyond two; (n - 1)/n always is, and point masses take it."""
    random = np.random.default_rng(7)
    shares = []
    for _ in range(700):
        n, tokens = int(random.integers(3, 6)), int(random.integers(3, 7))
        versions = random.dirichlet(np.full(tokens, 0.3), size=n)
        needed, largest = _program(versions), _largest(versions)
        assert largest / 2 - 1e-7 <= needed <= (n - 1) / n * largest + 1e-7
        shares.append(needed / largest)
    assert max(shares) > 0.6
    for n in (2, 3, 4, 5):
        assert _program(np.eye(n)) == pytest.approx((n - 1) / n, abs=1e-7)


def test_the_smallest_delta_of_three_tokens_is_that_of_the_program() -> None:
    random = np.random.default_rng(8)
    for _ in range(300):
        versions = random.dirichlet(np.full(3, 0.5), size=int(random.integers(2, 4)))
        assert smallest_delta(versions.tolist()) == pytest.approx(_program(versions), abs=1e-7)


def test_the_area_is_that_of_a_grid() -> None:
    random = np.random.default_rng(9)
    side = 300
    grid = np.array([(b, c) for b in range(side) for c in range(side - b)]) / side + 1 / (3 * side)
    points = np.column_stack([1 - grid.sum(axis=1), grid])
    for _ in range(40):
        versions, delta = random.dirichlet(np.ones(3), size=2), float(random.uniform(0.05, 0.8))
        near = np.all([np.abs(points - version).sum(axis=1) / 2 <= delta for version in versions], axis=0)
        assert area(near_all(versions.tolist(), delta)) == pytest.approx(near.mean(), abs=0.01)


def test_the_question() -> None:
    found = EXPERIMENT.at(**EXPERIMENT.tries["three, each two in reach"])
    assert EXPERIMENT.question.right == 1
    assert found["largest"] == pytest.approx(0.7)
    assert found["needed"] == pytest.approx(0.7 * 2 / 3)
    assert found["needed"] == pytest.approx(_program(np.full((3, 3), 0.1) + 0.7 * np.eye(3)), abs=1e-7)


def test_about_one_state_in_twenty_of_the_run_below_is_such_a_state() -> None:
    found = feasibility(run_of("sync_interval5_mixture4-rec_oneside_is-seed0"))
    states = found["n_states"].astype(float)
    share = (found["infeasible_share"].astype(float) * states).sum() / states.sum()
    assert 0.05 < share < 0.06
