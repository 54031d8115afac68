"""Conservative policy iteration against series, enumeration and its own bound (S4 4.1-4.5)."""

from itertools import islice, product

import numpy as np
import pytest

from ratioscope.analysis.laboratory.tabular import (
    bound,
    conservative_policy_iteration,
    greedy,
    main,
    random_problem,
    shifted_states,
    two_ways,
)

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_values_and_occupancy_are_the_sums_over_time_that_define_them(seed: int) -> None:
    problem, rng = random_problem(seed), np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(3), size=6)
    step = (policy[:, :, None] * problem.transition).sum(axis=1)
    there, total, occupancy = problem.start, 0.0, np.zeros(6)
    for t in range(400):
        total += problem.gamma**t * float(there @ (policy * problem.reward).sum(axis=1))
        occupancy += (1 - problem.gamma) * problem.gamma**t * there
        there = there @ step
    assert problem.performance(policy) == pytest.approx(total, abs=1e-9)
    assert problem.occupancy(policy) == pytest.approx(occupancy, abs=1e-9)
    assert (policy * problem.advantage(policy)).sum(axis=1) == pytest.approx(np.zeros(6), abs=1e-12)
    other = rng.dirichlet(np.ones(3), size=6)  # the performance difference lemma, eq. 48
    gain = problem.occupancy(other) @ (other * problem.advantage(policy)).sum(axis=1) / (1 - problem.gamma)
    assert problem.performance(other) - problem.performance(policy) == pytest.approx(gain, abs=1e-9)


def test_the_numbers_of_the_papers_example() -> None:
    """S4 4.1.1 in closed form: J = eta gamma (1 - eta2 (1 + M)), d(s1) = (1 - gamma) gamma eta."""
    for eta, eta2, loss, gamma in ((1e-4, 1e-3, 100.0, 0.9), (0.3, 0.1, 5.0, 0.9)):
        problem, policy = shifted_states(gamma, loss), two_ways(eta, eta2)
        value = 1 - eta2 * (1 + loss)
        assert problem.performance(policy) == pytest.approx(eta * gamma * value)
        assert problem.advantage(policy)[0, 1] == pytest.approx((1 - eta) * gamma * value)
        assert problem.advantage(policy)[1, 1] == pytest.approx(-(1 + loss) * (1 - eta2))
        assert problem.occupancy(policy)[1] == pytest.approx((1 - gamma) * gamma * eta)
        assert problem.performance(two_ways(1, 1)) == pytest.approx(-gamma * loss)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_holds_for_every_candidate_and_every_share_of_it(seed: int) -> None:
    """S4 eq. 60, for candidates that are far from greedy, too; and eq. 61 is where it is largest."""
    problem, rng = random_problem(seed), np.random.default_rng(seed)
    policy, shares = rng.dirichlet(np.ones(3), size=6), np.linspace(0, 1, 101)
    for candidate in (greedy(problem.advantage(policy)), *(rng.dirichlet(np.full(3, 0.2), size=(5, 6)))):
        promised = [bound(problem, policy, candidate, share) for share in shares]
        for share, least in zip(shares, promised, strict=True):
            mixed = (1 - share) * policy + share * candidate
            assert problem.performance(mixed) - problem.performance(policy) >= least - 1e-9
    step = next(conservative_policy_iteration(problem, policy))
    promised = [bound(problem, policy, greedy(problem.advantage(policy)), share) for share in shares]
    assert step.promised >= max(promised) - 1e-12 and step.gained >= step.promised > 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_never_gets_worse_and_ends_at_the_best_of_all_policies(seed: int) -> None:
    problem = random_problem(seed, states=4, actions=2, gamma=0.5)
    steps = list(islice(conservative_policy_iteration(problem, np.full((4, 2), 0.5)), 5_000))
    assert all(step.gained >= step.promised for step in steps)
    best = max(problem.performance(np.eye(2)[list(actions)]) for actions in product(range(2), repeat=4))
    assert problem.performance(steps[-1].policy) == pytest.approx(best, abs=1e-4)


def test_a_candidate_that_loses_everything_gains_where_little_of_it_is_taken() -> None:
    """S4 4.1.1: the surrogate promises a gain of a policy that goes to the second state and loses there."""
    problem, candidate = shifted_states(loss=5.0), two_ways(1, 1)
    step = next(conservative_policy_iteration(problem, two_ways(0.05, 0.01), lambda advantage: candidate))
    assert step.improvement == pytest.approx(0.9 * (0.95 * 0.94 - 0.05 * 6 * 0.99))
    assert step.gained >= step.promised > 0 > problem.performance(candidate) - problem.performance(two_ways(0.05, 0.01))


def test_it_prints_the_sources_numbers_and_two_courses(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    for number in ("8.091e-05", "-90", "+0.79993818", "-90.80001909", "100.9", "2.2e-05"):
        assert number in printed
    assert printed.count("promised") == 2 and len(printed.splitlines()) > 20
