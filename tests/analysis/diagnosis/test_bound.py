"""What an update cannot do, against every response of small policies: the bound holds, and is reached."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.diagnosis.bound import beyond_bound, move_bound
from ratioscope.analysis.findings.fall import Fall, fall_of
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE

Floats = np.ndarray[Any, Any]
State = tuple[int, ...]
WORDS, LONGEST, END = 3, 4, 0
"""Tokens; a response ends with token 0, or after so many."""
Policy = dict[State, Floats]


def states(state: State = ()) -> Iterator[State]:
    yield state
    for word in range(1, WORDS):
        if len(state) + 1 < LONGEST:
            yield from states((*state, word))


def random_policy(rng: np.random.Generator, sharpness: float) -> Policy:
    return {state: rng.dirichlet(np.full(WORDS, sharpness)) for state in states()}


def responses(policy: Policy, state: State = (), chance: float = 1.0) -> Iterator[tuple[State, float]]:
    """Every response with its probability, by enumeration."""
    for word in range(WORDS):
        response, p = (*state, word), chance * float(policy[state][word])
        if word == END or len(response) == LONGEST:
            yield response, p
        else:
            yield from responses(policy, response, p)


def value(policy: Policy, reward: dict[State, float]) -> float:
    return sum(p * reward[response] for response, p in responses(policy))


def length_and_distance(sampler: Policy, one: Policy, other: Policy) -> tuple[float, float]:
    """T and the mean over tokens of the state's total variation, in the states of the sampler."""
    length = sum(p * len(response) for response, p in responses(sampler))
    tv = {state: 0.5 * float(np.abs(one[state] - other[state]).sum()) for state in one}
    total = sum(p * sum(tv[response[:t]] for t in range(len(response))) for response, p in responses(sampler))
    return length, total / length


def summary_of(**series: Any) -> StepSummary:
    n = len(next(iter(series.values())))
    values = pd.DataFrame(np.nan, index=pd.Index(range(n), name="step"), columns=[*COUNTS, *CATALOGUE])
    values = values.assign(**series)
    return StepSummary(values, values - 0.01, values + 0.01, {}, pd.DataFrame())


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 5.0])
def test_no_policy_moves_the_reward_by_more(sharpness: float) -> None:
    """Every response of random policies, each the last one with some of another mixed in, and random rewards."""
    rng = np.random.default_rng(0)
    closest = 0.0
    for _ in range(40):
        policies = [random_policy(rng, sharpness)]
        for _ in range(4):
            share, other = rng.uniform(0, 0.4), random_policy(rng, sharpness)
            policies.append({state: (1 - share) * policies[-1][state] + share * other[state] for state in other})
        reward = {response: float(rng.random() < 0.5) for response, _ in responses(policies[0])}
        parts = [length_and_distance(old, old, new) for old, new in pairwise(policies)]
        lengths, distances = zip(*parts, strict=True)
        bound = move_bound(summary_of(response_length=lengths, u_k=distances), 0, 3)
        moved = abs(value(policies[-1], reward) - value(policies[0], reward))
        assert bound == pytest.approx(sum(t * u for t, u in parts)) and moved <= bound
        span = move_bound(summary_of(response_length=lengths, u_k=distances), 0, 3, span=2.0)
        assert 2 * moved <= span
        closest = max(closest, moved / bound)
    assert closest > 0.3


def test_it_is_reached_by_one_token_whose_gain_is_what_is_rewarded() -> None:
    old = {state: np.array([0.5, 0.3, 0.2]) for state in states()}
    new = old | {(): np.array([0.9, 0.1, 0.0])}
    reward = {response: float(response[0] == END) for response, _ in responses(old)}
    length, distance = length_and_distance(old, old, new)
    bound = move_bound(summary_of(response_length=[length], u_k=[distance]), 0, 0)
    assert value(new, reward) - value(old, reward) == pytest.approx(0.4) == pytest.approx(bound)


def test_the_training_reward_moves_with_its_sampler() -> None:
    """Its sampler is another policy than the one that is updated: the distance counts at both ends."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        old, new, *samplers = (random_policy(rng, 1.0) for _ in range(4))
        reward = {response: float(rng.random()) for response, _ in responses(old)}
        # The first step: policy old, updated to new. The second: policy new, not updated.
        length, update = length_and_distance(old, old, new)
        stale = [length_and_distance(m, m, pi) for m, pi in zip(samplers, (old, new), strict=True)]
        exact = length * update + sum(t * s for t, s in stale)
        assert abs(value(samplers[1], reward) - value(samplers[0], reward)) <= exact
        summary = summary_of(
            response_length=[t for t, _ in stale], u_k=[length * update / stale[0][0], 0.0],
            s_k_bounded=[s for _, s in stale],
        )  # fmt: skip
        assert move_bound(summary, 0, 1, sampled=True) == pytest.approx(exact)


def test_updates_that_are_not_measured_leave_it_unknown() -> None:
    summary = summary_of(response_length=np.full(8, 4.0), u_k=np.r_[0.1, np.full(7, np.nan)])
    assert np.isnan(move_bound(summary, 0, 7)) and np.isnan(move_bound(summary, 20, 30))
    few = summary_of(response_length=np.full(8, 4.0), u_k=np.r_[np.full(7, 0.1), np.nan])
    assert move_bound(few, 0, 7) == pytest.approx(3.2)  # the one that is missing counts as the largest


def fallen(**series: Any) -> tuple[StepSummary, Fall]:
    summary = summary_of(**series)
    fall = fall_of(summary, Limits())
    assert fall is not None
    return summary, fall


STEPS = 60
ACCURACY = np.where(np.arange(STEPS) < 35, 0.9, 0.02)


@pytest.mark.parametrize(("update", "beyond"), [(0.0, True), (0.001, True), (0.004, True), (0.2, False)])
def test_a_fall_beyond_it_is_dated_by_the_values_between_which_it_is(update: float, beyond: bool) -> None:
    summary, fall = fallen(eval_accuracy=ACCURACY, response_length=np.full(STEPS, 20.0), u_k=np.full(STEPS, update))
    drop = beyond_bound(summary, fall)
    assert drop is not None and (drop.first, drop.last) == (34, 35) and drop.size == pytest.approx(0.88)
    assert (drop.times > 2) is beyond
    assert drop.bound == pytest.approx(2 * 20 * update)  # evaluated before or after its update: both count


def test_the_training_reward_is_compared_by_means_of_several_steps() -> None:
    rng = np.random.default_rng(2)
    reward = ACCURACY + 0.03 * rng.standard_normal(STEPS)
    near = {"response_length": np.full(STEPS, 20.0), "s_k_bounded": np.full(STEPS, 0.001)}
    summary, fall = fallen(reward=reward, u_k=np.full(STEPS, 1e-4), **near)
    drop = beyond_bound(summary, fall)
    assert fall.metric == "reward" and drop is not None and drop.times > 2 and (drop.first, drop.last) == (34, 35)
    for others in ({"u_k": np.full(STEPS, 0.01)}, {"u_k": np.full(STEPS, 1e-4), "s_k_bounded": np.full(STEPS, 0.05)}):
        summary, fall = fallen(reward=reward, **(near | others))
        drop = beyond_bound(summary, fall)
        assert drop is not None and drop.times < 1
