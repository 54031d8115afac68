"""Group-relative advantages against the statistics module."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.small import QUICK
from trainer.advantages import ADVANTAGES, VARIANCE_FLOOR

REWARDS = st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=16)


@QUICK
@given(REWARDS)
def test_the_group_mean_is_taken_off_every_reward(rewards: list[float]) -> None:
    advantage = ADVANTAGES["group_mean"](torch.tensor([rewards]))[0].tolist()
    assert advantage == pytest.approx([reward - statistics.fmean(rewards) for reward in rewards], abs=1e-5)


@QUICK
@given(REWARDS)
def test_normalised_advantages_are_in_units_of_the_population_deviation(rewards: list[float]) -> None:
    advantage = ADVANTAGES["group_normalised"](torch.tensor([rewards], dtype=torch.float64))[0].tolist()
    mean, variance = statistics.fmean(rewards), statistics.pvariance(rewards)
    expected = [(reward - mean) / (variance + VARIANCE_FLOOR) ** 0.5 for reward in rewards]
    assert advantage == pytest.approx(expected, abs=1e-6)


def test_one_right_answer_of_four_is_worth_the_square_root_of_three() -> None:
    reward = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    assert ADVANTAGES["group_mean"](reward)[0].tolist() == pytest.approx([0.75, -0.25, -0.25, -0.25])
    root = 3**0.5
    assert ADVANTAGES["group_normalised"](reward)[0].tolist() == pytest.approx([root, -1 / root, -1 / root, -1 / root])


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1])
def test_a_group_with_equal_rewards_has_no_advantage(name: str, reward: float) -> None:
    advantage = ADVANTAGES[name](torch.full((2, 8), reward))
    assert advantage.abs().max() < 1e-3


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_groups_do_not_see_each_other(name: str) -> None:
    rewards = torch.rand(5, 8, generator=torch.Generator().manual_seed(0))
    together = ADVANTAGES[name](rewards)
    assert all(torch.equal(together[i : i + 1], ADVANTAGES[name](rewards[i : i + 1])) for i in range(5))
