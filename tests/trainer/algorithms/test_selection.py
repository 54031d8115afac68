"""Which responses count, and how much: RED-Drop, sample weights, and DAPO's punishment of long responses."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from ratioscope.trainer.algorithms.advantages import balanced_weights, group_mean
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.selection import SAMPLE_WEIGHTS, SELECTIONS, balanced, overlong_penalty, pair_sums

quick = settings(max_examples=40, deadline=None)
REWARDS = st.integers(2, 9).flatmap(
    lambda copies: st.lists(st.lists(st.integers(-2, 2), min_size=copies, max_size=copies), min_size=1, max_size=4)
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["all", "mixed_groups", "finished"])
def test_without_a_selection_every_response_counts(name: str) -> None:
    assert SELECTIONS[name](torch.rand(3, 4), generator()).all()


@quick
@given(REWARDS, st.integers(0, 1_000))
def test_red_drop_leaves_as_many_responses_below_the_mean_as_above(rewards: list[list[int]], seed: int) -> None:
    reward = torch.tensor(rewards, dtype=torch.float64)
    kept = balanced(reward, generator(seed))
    for row, chosen in zip(rewards, kept.tolist(), strict=True):
        mean = sum(row) / len(row)
        positives = [keep for value, keep in zip(row, chosen, strict=True) if value > mean]
        negatives = [keep for value, keep in zip(row, chosen, strict=True) if value < mean]
        average = [keep for value, keep in zip(row, chosen, strict=True) if value == mean]
        assert all(positives) and all(average)
        assert sum(negatives) == min(len(negatives), len(positives))


@pytest.mark.parametrize("right", [1, 2, 3])
def test_on_rewards_of_0_and_1_red_drop_scales_reinforce_and_turns_nothing(right: int) -> None:
    """In the mean over what is dropped the weights are those of REINFORCE, times 1 / (4 p (1 - p)) in S3 eq. 10 and
    1 / (2 (1 - p)), which is at most 1, in a mean over all tokens."""
    copies, draws = 8, 20_000
    reward = (torch.arange(copies) < right).double().expand(draws, copies)
    kept = balanced(reward, generator())
    advantage, p = kept * group_mean(reward, kept), right / copies
    of_group = (advantage / kept.sum(dim=1, keepdim=True)).mean(dim=0)
    assert torch.allclose(of_group, (reward[0] - p) / copies / (4 * p * (1 - p)), atol=4e-3)
    assert torch.allclose(advantage.mean(dim=0), (reward[0] - p) / (2 * (1 - p)), atol=1e-2)


@pytest.mark.parametrize(
    "row", [[0.0] * 6, [1.0] * 6, [0.1] * 7, [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0], [5.0, 0.0, 5.0]]
)
def test_red_drop_leaves_groups_without_excess_negatives_as_they_are(row: list[float]) -> None:
    for seed in range(5):
        assert balanced(torch.tensor([row]), generator(seed)).all()


def test_red_drop_draws_again_for_every_group() -> None:
    kept = balanced(torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]).repeat(50, 1), generator())
    assert kept.sum(dim=1).tolist() == [2] * 50
    assert len(set(kept[:, 1:].int().argmax(dim=1).tolist())) == 5


def test_red_drop_drops_every_negative_with_the_same_probability() -> None:
    """Two of five negatives survive; the seed is fixed, so this never fails by chance."""
    rows = torch.tensor([[0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]]).repeat(4_000, 1)
    survived = balanced(rows, generator(3))[:, [0, 2, 3, 5, 6]].sum(dim=0)
    assert int(survived.sum()) == 2 * 4_000
    # Pairs are drawn without replacement, which makes counts less spread than chi-square assumes.
    assert chisquare(survived.numpy()).pvalue > 0.01
    pairs = torch.unique(balanced(rows, generator(4))[:, [0, 2, 3, 5, 6]], dim=0, return_counts=True)[1]
    assert len(pairs) == math.comb(5, 2) and chisquare(pairs.numpy()).pvalue > 0.01


def test_red_drop_is_repeated_by_the_same_seed() -> None:
    reward = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]).repeat(20, 1)
    assert torch.equal(balanced(reward, generator(5)), balanced(reward, generator(5)))
    assert not torch.equal(balanced(reward, generator(5)), balanced(reward, generator(6)))


def test_what_red_drop_keeps_is_centred_on_its_own_mean() -> None:
    """r̄_S of S3 eq. 10."""
    reward = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    kept = balanced(reward, generator())
    advantage = group_mean(reward, kept)
    assert advantage[kept].sort().values.tolist() == [-0.5, 0.5] and not advantage[~kept].any()


# Weights ------------------------------------------------------------------------------------------------------------


def weighted(name: str, reward: Tensor, **parameters: float) -> list[float]:
    kept = torch.ones_like(reward, dtype=torch.bool)
    weigh = SAMPLE_WEIGHTS[name]
    chosen = taken_by(weigh, parameters)
    return weigh(reward, group_mean(reward, kept), kept, **chosen).flatten().tolist()


def test_the_sample_weights_are_those_of_the_sources() -> None:
    reward = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert weighted("equal", reward) == [1.0] * 4
    exponential = [math.exp(advantage / 0.5) for advantage in (0.75, -0.25, -0.25, -0.25)]
    assert weighted("exponential", reward, tau=0.5) == pytest.approx(exponential, rel=1e-12)
    assert weighted("consistency", reward, tau=0.5) == pytest.approx([2 * 0.5 / 1.5**2] * 4, rel=1e-12)
    right, wrong = 1 / math.sqrt(2), 1 / math.sqrt(6)
    total = right + 3 * wrong
    pairs = [total * right, total * wrong, total * wrong, total * wrong]
    assert weighted("pair_sums", reward) == pytest.approx(pairs, rel=1e-6)


@quick
@given(REWARDS)
def test_pair_sums_are_the_sums_of_a_response_s_pairs(rewards: list[list[int]]) -> None:
    """sum_j w_i w_j, of S3 4.3."""
    reward = torch.tensor(rewards, dtype=torch.float64)
    kept = torch.rand(reward.shape, generator=generator()) < 0.8
    weight = balanced_weights(reward, kept)
    expected = torch.einsum("gi,gj->gi", weight, weight)
    assert torch.allclose(pair_sums(reward, reward, kept), expected)


@pytest.mark.parametrize("name", sorted(SAMPLE_WEIGHTS))
def test_sample_weights_are_never_negative_and_groups_do_not_see_each_other(name: str) -> None:
    reward = torch.randint(0, 3, (6, 5), generator=generator()).double()
    together = weighted(name, reward, tau=0.7)
    assert min(together) > 0
    alone = [weight for row in reward for weight in weighted(name, row.unsqueeze(0), tau=0.7)]
    assert together == pytest.approx(alone, rel=1e-12)


# Long responses -----------------------------------------------------------------------------------------------------


def printed_penalty(length: int, longest: int, part: int) -> float:
    """DAPO eq. 13, with L_max = longest and L_cache = part."""
    if length <= longest - part:
        return 0.0
    if length <= longest:
        return ((longest - part) - length) / part
    return -1.0


@quick
@given(st.integers(1, 60), st.floats(0.01, 1.0))
def test_the_overlong_penalty_is_the_one_of_dapo(longest: int, fraction: float) -> None:
    """A response's length is that of its content; one that never ended has the whole length."""
    part = max(1, round(fraction * longest))
    length = torch.arange(1, longest + 1)
    unended = overlong_penalty(length, torch.zeros(longest, dtype=torch.bool), longest, overlong_fraction=fraction)
    ended = overlong_penalty(length, torch.ones(longest, dtype=torch.bool), longest, overlong_fraction=fraction)
    assert unended.tolist() == pytest.approx([printed_penalty(n, longest, part) for n in length.tolist()])
    assert ended.tolist() == pytest.approx([printed_penalty(n - 1, longest, part) for n in length.tolist()])


def test_only_the_last_part_of_the_length_is_punished() -> None:
    length, ended = torch.tensor([1, 8, 9, 10, 10]), torch.tensor([True, True, True, True, False])
    penalty = overlong_penalty(length, ended, 10, overlong_fraction=0.2)
    assert penalty.tolist() == pytest.approx([0.0, 0.0, 0.0, -0.5, -1.0])
    assert overlong_penalty(length, ended, 10, overlong_fraction=0.01).tolist() == pytest.approx([0, 0, 0, 0, -1])
