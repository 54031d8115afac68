"""Advantages against the statistics module and against sums written out as the sources print them."""

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ratioscope.trainer.algorithms.advantages import (
    GROUP_ADVANTAGES,
    TOKEN_ADVANTAGES,
    VARIANCE_FLOOR,
    balanced_weights,
    gae,
    group_mean,
    group_normalised,
    leave_one_out,
    pairwise,
    reward_to_go,
    shifted,
)
from ratioscope.trainer.algorithms.parameters import taken_by

quick = settings(max_examples=30, deadline=None)
# Rewards of one group, each with whether it counts.
GROUPS = st.lists(st.tuples(st.floats(-10, 10, width=32), st.booleans()), min_size=2, max_size=16)
SETTINGS = {"baseline_shift": 0.1, "tau": 0.5}
every_group_advantage = pytest.mark.parametrize("name", sorted(GROUP_ADVANTAGES))


def of_group(name: str, reward: Tensor, kept: Tensor) -> Tensor:
    part = GROUP_ADVANTAGES[name]
    return part(reward, kept, **taken_by(part, SETTINGS))


def columns(group: list[tuple[float, bool]]) -> tuple[Tensor, Tensor, list[float]]:
    """Rewards and mask, (1, K), and the rewards that count."""
    reward, kept = zip(*group, strict=True)
    counted = [value for value, keep in group if keep]
    return torch.tensor([reward], dtype=torch.float64), torch.tensor([kept]), counted


@quick
@given(GROUPS)
def test_the_group_mean_is_taken_off_every_reward(group: list[tuple[float, bool]]) -> None:
    reward, kept, counted = columns(group)
    expected = [value - statistics.fmean(counted) if keep else 0 for value, keep in group]
    assert group_mean(reward, kept)[0].tolist() == pytest.approx(expected, abs=1e-9)
    baseline = [value - (statistics.fmean(counted) - 0.1) if keep else 0 for value, keep in group]
    assert shifted(reward, kept, baseline_shift=0.1)[0].tolist() == pytest.approx(baseline, abs=1e-9)


@quick
@given(GROUPS)
def test_normalised_advantages_are_in_units_of_the_population_deviation(group: list[tuple[float, bool]]) -> None:
    reward, kept, counted = columns(group)
    deviation = math.sqrt(statistics.pvariance(counted) + VARIANCE_FLOOR) if counted else 1.0
    expected = [(value - statistics.fmean(counted)) / deviation if keep else 0 for value, keep in group]
    assert group_normalised(reward, kept)[0].tolist() == pytest.approx(expected, abs=1e-6)


@quick
@given(GROUPS)
def test_leave_one_out_compares_with_the_mean_of_the_others(group: list[tuple[float, bool]]) -> None:
    reward, kept, _ = columns(group)
    expected = []
    for place, (value, keep) in enumerate(group):
        others = [other for where, (other, counts) in enumerate(group) if counts and where != place]
        expected.append(value - statistics.fmean(others) if keep and others else 0)
    assert leave_one_out(reward, kept)[0].tolist() == pytest.approx(expected, abs=1e-9)


@quick
@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=2, max_size=12))
def test_pairwise_advantages_are_against_the_weighted_mean(group: list[tuple[int, bool]]) -> None:
    """r̄_w of S3 eq. 9: as every reward value weighs sqrt(count), not count."""
    reward, kept, counted = columns(group)
    weight = {value: 1 / math.sqrt(counted.count(value) * len(set(counted))) for value in counted}
    expected = [0.0] * len(group)
    if counted:
        mean = sum(weight[value] * value for value in counted) / sum(weight[value] for value in counted)
        expected = [value - mean if keep else 0 for value, keep in group]
    assert pairwise(reward, kept)[0].tolist() == pytest.approx(expected, abs=1e-6)


@quick
@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=12))
def test_balanced_weights_give_every_outcome_the_same_sum_of_squares(group: list[tuple[int, bool]]) -> None:
    reward, kept, counted = columns(group)
    weight = balanced_weights(reward, kept)[0].tolist()
    assert all(w > 0 if keep else w == 0 for w, (_, keep) in zip(weight, group, strict=True))
    for outcome in set(counted):
        squares = [w**2 for w, (value, keep) in zip(weight, group, strict=True) if keep and value == outcome]
        assert sum(squares) == pytest.approx(1 / len(set(counted)), rel=1e-6)
    assert sum(w**2 for w in weight) == pytest.approx(1 if counted else 0, rel=1e-6)


def test_balanced_weights_are_as_exact_as_the_rewards() -> None:
    kept = torch.ones(1, 3, dtype=torch.bool)
    weight = balanced_weights(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), kept)
    assert weight[0].tolist() == pytest.approx([math.sqrt(0.5), 0.5, 0.5], rel=1e-12)


def test_equally_frequent_outcomes_weigh_as_in_reinforce() -> None:
    """w_i = 1 / sqrt(K): (sum_j w_j) w_i is 1."""
    reward = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    assert balanced_weights(reward, torch.ones(1, 4, dtype=torch.bool))[0].tolist() == pytest.approx([0.5] * 4)


def test_one_right_answer_of_four_is_worth_the_square_root_of_three() -> None:
    reward, kept = torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.ones(1, 4, dtype=torch.bool)
    assert group_mean(reward, kept)[0].tolist() == pytest.approx([0.75, -0.25, -0.25, -0.25])
    root = 3**0.5
    assert group_normalised(reward, kept)[0].tolist() == pytest.approx([root, -1 / root, -1 / root, -1 / root])
    assert leave_one_out(reward, kept)[0].tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])


@every_group_advantage
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1])
def test_a_group_with_equal_rewards_has_no_advantage_but_the_shift(name: str, reward: float) -> None:
    shift = SETTINGS["baseline_shift"] if name == "shifted" else 0.0
    advantage = of_group(name, torch.full((2, 8), reward), torch.ones(2, 8, dtype=torch.bool))
    assert (advantage - shift).abs().max() < 1e-3


@every_group_advantage
def test_groups_do_not_see_each_other(name: str) -> None:
    if name == "signal_rescaled":  # counts the groups with a signal
        return
    generator = torch.Generator().manual_seed(0)
    reward, kept = torch.rand(5, 8, generator=generator), torch.rand(5, 8, generator=generator) < 0.7
    together = of_group(name, reward, kept)
    assert all(torch.equal(together[i : i + 1], of_group(name, reward[i : i + 1], kept[i : i + 1])) for i in range(5))


@every_group_advantage
def test_what_does_not_count_is_not_seen(name: str) -> None:
    """A response that was left out has no advantage, and its reward changes nobody else's."""
    generator = torch.Generator().manual_seed(1)
    reward, kept = torch.rand(5, 8, generator=generator), torch.rand(5, 8, generator=generator) < 0.6
    advantage = of_group(name, reward, kept)
    assert not advantage[~kept].any()
    assert torch.equal(advantage, of_group(name, torch.where(kept, reward, 100.0), kept))


@every_group_advantage
def test_a_group_of_which_nothing_counts_has_no_advantages(name: str) -> None:
    advantage = of_group(name, torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2, dtype=torch.bool))
    assert advantage.tolist() == [[0.0, 0.0]]


# Of tokens ----------------------------------------------------------------------------------------------------------

RESPONSES = st.lists(
    st.tuples(st.floats(-2, 2), st.lists(st.floats(-2, 2), min_size=1, max_size=6)), min_size=1, max_size=5
)


def padded(responses: list[tuple[float, list[float]]], padding: float = 9.0) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards (n,), mask and values (n, T); what lies after a response's end must not matter."""
    longest = max(len(values) for _, values in responses)
    reward = torch.tensor([reward for reward, _ in responses], dtype=torch.float64)
    mask = torch.tensor([[place < len(values) for place in range(longest)] for _, values in responses])
    value = [values + [padding] * (longest - len(values)) for _, values in responses]
    return reward, mask, torch.tensor(value, dtype=torch.float64)


@quick
@given(RESPONSES, st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_discounted_sum_of_residuals(
    responses: list[tuple[float, list[float]]], gamma: float, gae_lambda: float
) -> None:
    """S4 eq. 80; nothing follows the last token, so the value after it is 0."""
    found = gae(*padded(responses), gamma=gamma, gae_lambda=gae_lambda).tolist()
    for row, (reward, values) in zip(found, responses, strict=True):
        last = len(values) - 1
        residual = [
            (reward if t == last else 0.0) + gamma * (0.0 if t == last else values[t + 1]) - values[t]
            for t in range(len(values))
        ]
        expected = [
            sum((gamma * gae_lambda) ** (j - t) * residual[j] for j in range(t, len(values)))
            for t in range(len(values))
        ]
        assert row[: len(values)] == pytest.approx(expected, abs=1e-9)
        assert row[len(values) :] == [0.0] * (len(row) - len(values))


@quick
@given(RESPONSES)
def test_gae_without_discounts_is_the_return_minus_the_value(responses: list[tuple[float, list[float]]]) -> None:
    """S4 eq. 46."""
    found = gae(*padded(responses), gamma=1.0, gae_lambda=1.0).tolist()
    for row, (reward, values) in zip(found, responses, strict=True):
        assert row[: len(values)] == pytest.approx([reward - value for value in values], abs=1e-9)


@quick
@given(RESPONSES, st.floats(0, 1))
def test_gae_that_looks_one_step_ahead_is_the_temporal_difference(
    responses: list[tuple[float, list[float]]], gamma: float
) -> None:
    """S4 eq. 44."""
    found = gae(*padded(responses), gamma=gamma, gae_lambda=0.0).tolist()
    for row, (reward, values) in zip(found, responses, strict=True):
        follows = [gamma * value for value in values[1:]] + [reward]
        expected = [after - value for after, value in zip(follows, values, strict=True)]
        assert row[: len(values)] == pytest.approx(expected, abs=1e-9)


@quick
@given(RESPONSES, st.floats(0, 1))
def test_the_reward_to_go_is_the_discounted_sum_of_what_is_still_to_come(
    responses: list[tuple[float, list[float]]], gamma: float
) -> None:
    """S4 eq. 38: every token but the last earns nothing itself; the critic is not asked."""
    found = reward_to_go(*padded(responses), gamma=gamma).tolist()
    for row, (reward, values) in zip(found, responses, strict=True):
        earned = [0.0] * (len(values) - 1) + [reward]
        expected = [sum(gamma ** (j - t) * earned[j] for j in range(t, len(values))) for t in range(len(values))]
        assert row[: len(values)] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", sorted(TOKEN_ADVANTAGES))
def test_what_lies_after_a_response_does_not_matter(name: str) -> None:
    part, responses = TOKEN_ADVANTAGES[name], [(1.0, [0.5, 0.25]), (0.0, [1.0, -1.0, 2.0]), (1.0, [0.1])]
    chosen = taken_by(part, {"gamma": 0.9, "gae_lambda": 0.8})
    found = []
    for padding in (0.0, 1e6):
        reward, mask, value = padded(responses, padding)
        found.append(part(reward.unsqueeze(0), mask, value.abs(), **chosen))
    one, other = found
    assert torch.equal(one, other) and not one[~padded(responses)[1]].any()


@pytest.mark.parametrize("name", sorted(TOKEN_ADVANTAGES))
def test_a_response_without_tokens_has_no_advantages(name: str) -> None:
    part = TOKEN_ADVANTAGES[name]
    reward, mask = torch.tensor([1.0, 1.0]), torch.tensor([[False, False], [True, False]])
    chosen = taken_by(part, {"gamma": 1.0, "gae_lambda": 1.0})
    found = part(reward.unsqueeze(0), mask, torch.zeros(2, 2), **chosen)
    assert found.tolist() == [[0.0, 0.0], [float(name != "whitened"), 0.0]]
