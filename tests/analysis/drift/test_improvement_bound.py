"""The improvement bound from exact expectations: enumeration of small decision problems, a known answer."""

import numpy as np
import pytest

from ratioscope.analysis.drift.bounds import (
    coupled_penalty,
    discounted_penalty,
    finite_horizon_penalty,
    mean_distance_penalty,
)
from tests.oracles.decision_process import (
    FINAL,
    LONGEST,
    OPEN,
    STATES,
    Array,
    Policy,
    Problem,
    completed,
    exact_terms,
    improvement_bound,
    random_policy,
    reach,
    tv,
)


def test_the_bound_from_exact_expectations_never_exceeds_the_true_improvement() -> None:
    """Any rewards with their own advantages, and the certificate's reading of final rewards with the reward range."""
    rng = np.random.default_rng(0)
    slack = []
    for trial in range(60):
        gamma, step = rng.uniform(0, 0.95), rng.choice([0.01, 0.1, 0.5, 2.0])
        current = random_policy(rng)
        versions = [random_policy(rng, current, step * rng.choice([0, 1])) for _ in range(2)]
        new = random_policy(rng, current, step)
        if trial % 2:
            problems = [Problem({state: rng.standard_normal() for state in STATES}, gamma)] * 2
            exact = exact_terms(problems, versions, current, new)
            largest = exact.largest_advantage
        else:
            rewards = {state: rng.uniform() for state in FINAL}
            problems = [completed(rewards, version, gamma) for version in versions]
            exact = exact_terms(problems, versions, current, new)
            largest = 1.0
            assert exact.largest_advantage <= largest
        bound = improvement_bound(exact.surrogate, exact.drift, exact.staleness, largest, gamma)
        assert bound <= exact.gain + 1e-12
        slack.append(exact.gain - bound)
    assert min(slack) < 0.01  # some bounds are near what they bound


def test_penalties_of_the_surrogate_bound_its_error() -> None:
    """S1 5.3, both forms, and mean distances, for a single sampler: J(new) >= J(sampler) + L - penalty."""
    rng = np.random.default_rng(1)
    blind, slack = 0, []
    for _ in range(150):
        sampler = random_policy(rng)
        new = random_policy(rng, sampler, rng.choice([0.05, 0.5, 2.0]))
        reward = {state: rng.standard_normal() for state in STATES}
        largest_tv = max(tv(new, sampler, state) for state in OPEN)
        for gamma in (1.0, 0.8):
            problem = Problem(reward, gamma)
            largest = max(np.abs(problem.advantage(sampler, state)).max() for state in OPEN)
            promised = exact_terms([problem], [sampler], sampler, new).surrogate
            gain = problem.value(new) - problem.value(sampler)
            penalty = (
                finite_horizon_penalty(largest, LONGEST, largest_tv)
                if gamma == 1
                else discounted_penalty(largest, gamma, largest_tv)
            )
            assert abs(gain - promised) <= penalty + 1e-12
            if gamma == 1:
                by_mean = mean_distance_penalty(largest, mean_distances(new, sampler))
                assert abs(gain - promised) <= by_mean + 1e-12 and by_mean <= 2 * largest * LONGEST
                added = 2 * largest * mean_distances(new, sampler) @ np.arange(LONGEST)[::-1]
                assert by_mean <= added + 1e-12  # the form whose interval is that of a mean
                coupled = coupled_penalty(largest, mean_distances(new, sampler), largest_tv)
                assert abs(gain - promised) <= coupled + 1e-12 and coupled <= by_mean
                slack.append(by_mean / penalty)
                # The distance of the policy before the update, which on-policy is the sampler, bounds nothing.
                blind += abs(gain - promised) > finite_horizon_penalty(largest, LONGEST, tv(sampler, sampler, ()))
    assert blind == 150 and max(slack) < 1


def mean_distances(p: Policy, q: Policy) -> Array:
    """Mean TV(p, q) of the states of q at each position, (LONGEST,)."""
    return np.array([sum(reach(q, s) * tv(p, q, s) for s in OPEN if len(s) == t) for t in range(LONGEST)])


def test_a_plain_token_mean_is_not_a_bound() -> None:
    """The terms as means over all tokens alike: enumeration finds promises that are not kept."""
    rng = np.random.default_rng(2)
    broken, gamma = 0, 0.1
    for _ in range(100):
        current = random_policy(rng)
        new = random_policy(rng, current, 0.02)
        problem = Problem({state: rng.standard_normal() for state in STATES}, gamma)
        exact = exact_terms([problem], [current], current, new)
        visits = np.array([reach(current, state) for state in OPEN])
        gains = np.array([new[state] @ problem.advantage(current, state) for state in OPEN])
        drifts = np.array([tv(new, current, state) for state in OPEN])
        surrogate, drift = (visits @ terms / visits.sum() for terms in (gains, drifts))
        broken += improvement_bound(surrogate / (1 - gamma), drift, 0, exact.largest_advantage, gamma) > exact.gain
        assert improvement_bound(exact.surrogate, exact.drift, 0, exact.largest_advantage, gamma) <= exact.gain
    assert broken >= 5


def test_known_answers() -> None:
    """S4 4.1.1: the surrogate promises .8, the truth is -90; the bound's penalty covers the difference."""
    gamma, m, eta_2, eta = 0.9, 100, 1e-3, 1e-4
    one = np.array([1.0, 0, 0])
    # Action 0 ends: at once (a_0), or with reward 1 (g) after action 1; action 1 after it is b, action 2 never happens.
    paid = {(1, 0): 1.0, (1, 1): -m, (1, 1, 0): 0.0}
    old = dict.fromkeys(OPEN, one) | {(): np.array([1 - eta, eta, 0]), (1,): np.array([1 - eta_2, eta_2, 0])}
    new = dict.fromkeys(OPEN, one) | {(): np.array([0, 1.0, 0]), (1,): np.array([0, 1.0, 0])}
    problem = Problem({s: paid.get(s, 0.0) for s in STATES}, gamma)
    exact = exact_terms([problem], [old], old, new)
    assert problem.value(old) == pytest.approx(8.091e-5, abs=1e-12)
    assert problem.value(new) == pytest.approx(-90)
    assert exact.surrogate == pytest.approx(0.79993818, abs=1e-8)
    assert exact.gain - exact.surrogate == pytest.approx(-90.80001909, abs=1e-8)
    assert improvement_bound(exact.surrogate, exact.drift, 0, exact.largest_advantage, gamma) <= exact.gain
