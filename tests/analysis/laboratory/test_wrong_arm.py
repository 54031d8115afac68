"""Three arms against the trainer's own advantages, weights and loss, and 1,000 random bandits (S3 section 3)."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from ratioscope.analysis.laboratory import wrong_arm as lab
from ratioscope.trainer.algorithms.advantages import GROUP_ADVANTAGES
from ratioscope.trainer.algorithms.losses import Size, TokenBatch, policy_loss
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.algorithms.selection import SAMPLE_WEIGHTS, SELECTIONS


def _of_the_trainer(
    name: str, counts: list[int], rewards: list[float], log_policy: list[float], **given: float
) -> list[float]:
    """The gradient of the logits, of one group of one-token responses in which each arm is so often."""
    of = ALGORITHMS[name]
    settings = {**of.parameters, **given}
    arms = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    reward = torch.tensor(rewards, dtype=torch.float64)[arms].unsqueeze(0)
    kept = SELECTIONS[of.selection](reward, torch.Generator().manual_seed(1))
    make, weigh = GROUP_ADVANTAGES[of.advantage], SAMPLE_WEIGHTS[of.sample_weight]
    advantage = make(reward, kept, **taken_by(make, settings))
    weight = torch.where(kept, weigh(reward, advantage, kept, **taken_by(weigh, settings)), 0.0).flatten()
    logits = torch.tensor(log_policy, dtype=torch.float64, requires_grad=True)
    data = (torch.tensor(counts, dtype=torch.float64) / sum(counts)).log()[arms]
    n = len(arms)
    batch = TokenBatch(data, data, advantage.flatten(), torch.arange(n), torch.zeros(n, dtype=torch.long), weight)
    size = Size(int(kept.sum()), int(kept.sum()), 1)
    policy_loss(of, settings, torch.log_softmax(logits, 0)[arms], batch, size).loss.backward()
    assert logits.grad is not None
    return [float(part) for part in -logits.grad]


@pytest.mark.parametrize(("place", "name"), list(enumerate(lab.ALGORITHMS)))
def test_the_gradient_is_the_trainers(place: int, name: str) -> None:
    given = {"epsilon_low": 0.6, "epsilon_high": 2.0} if place == 2 else {}
    random = np.random.default_rng(place)
    for counts in ([3, 6, 1], [1, 8, 1], [8, 1, 1], [2, 2, 6], [6, 2, 2]):
        for r2 in (0.8, 0.3):
            log_policy = lab.log_softmax([float(logit) for logit in random.normal(0, 1, 3)])
            here = lab.gradient(place, [count / 10 for count in counts], log_policy, [0.0, r2, 1.0])
            # RED-Drop draws which responses of two arms it drops: a large group is near the limit.
            drawn = name == "red_drop" and (counts, r2) == ([1, 8, 1], 0.3)
            there = _of_the_trainer(
                name, [count * (5000 if drawn else 1) for count in counts], [0.0, r2, 1.0], log_policy, **given
            )
            assert here == pytest.approx(there, abs=0.005 if drawn else 1e-9), f"{name}: {counts}, {r2}"


def test_numbers_of_the_seed() -> None:
    data, rewards = [Fraction(3, 10), Fraction(6, 10), Fraction(1, 10)], [Fraction(0), Fraction(8, 10), Fraction(1)]
    average = sum(b * r for b, r in zip(data, rewards, strict=True))
    pushes = [b * (r - average) for b, r in zip(data, rewards, strict=True)]
    found = lab.EXPERIMENT.at()
    assert found["mean"] == pytest.approx(float(average)) == pytest.approx(0.58)
    assert [found["g1"], found["g2"], found["g3"]] == pytest.approx([float(push) for push in pushes])
    assert [float(push) for push in pushes] == pytest.approx([-0.174, 0.132, 0.042])


def test_the_question_and_what_new_data_do() -> None:
    assert lab.EXPERIMENT.question.right == 1
    assert lab.EXPERIMENT.at()["end"][1] > 0.999
    for m in (1, 10, 30):
        assert lab.EXPERIMENT.at(m=m)["end"][2] > 0.99
    assert lab.EXPERIMENT.at(m=100)["end"][1] > 0.999  # too late: arm 3 has died out of the data
    clipped = lab.EXPERIMENT.at(m=100, algorithm=1)["end"]
    assert clipped[2] > 0.7 > clipped[1]
    stays = np.array(lab.EXPERIMENT.at(algorithm=1)["end"]) / [0.3, 0.6, 0.1]
    assert (np.abs(np.log(stays)) < 0.7).all()


def _bandits(seed: int, count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """(data, rewards), (count, 3) each."""
    random = np.random.default_rng(seed)
    return random.dirichlet(np.ones(3), size=count), random.uniform(size=(count, 3))


def test_reinforce_ends_at_the_arm_of_the_largest_push_in_1000_bandits() -> None:
    """The gradient is the same at every policy, so logits are straight lines; one in six leads to a wrong arm."""
    data, rewards = _bandits(1)
    pushes = data * (rewards - (data * rewards).sum(axis=1, keepdims=True))
    logits = np.log(data)
    for _ in range(500):  # the trainer's gradient with its second term, which vanishes
        policy = np.exp(logits - logits.max(axis=1, keepdims=True))
        policy /= policy.sum(axis=1, keepdims=True)
        logits = logits + 400 * (pushes - pushes.sum(axis=1, keepdims=True) * policy)
    reached = logits.argmax(axis=1)
    gap = np.sort(pushes, axis=1)[:, 2] - np.sort(pushes, axis=1)[:, 1]
    decided = gap > 1e-3
    assert decided.mean() > 0.95
    assert (reached == pushes.argmax(axis=1))[decided].all()
    assert (reached != rewards.argmax(axis=1)).mean() == pytest.approx(1 / 6, abs=0.02)


def test_new_data_in_every_step_never_lower_the_mean_reward_in_1000_bandits() -> None:
    data, rewards = _bandits(2)
    logits, before = np.log(data), (data * rewards).sum(axis=1)
    for _ in range(300):
        policy = np.exp(logits - logits.max(axis=1, keepdims=True))
        policy /= policy.sum(axis=1, keepdims=True)
        earned = (policy * rewards).sum(axis=1)
        assert (earned >= before - 1e-12).all()
        before = earned
        logits = logits + 0.4 * policy * (rewards - earned[:, None])


@pytest.mark.parametrize("place", range(len(lab.ALGORITHMS)))
def test_arrows_point_along_the_gradient(place: int) -> None:
    data, rewards, h = [0.3, 0.6, 0.1], [0.0, 0.8, 1.0], 1e-6
    found = np.array(lab.arrows(place, data, rewards))
    for begin, end in zip(found[::2], found[1::2], strict=True):
        slope = np.array(lab.gradient(place, data, np.log(begin).tolist(), rewards))
        moved = np.exp(np.log(begin) + h * slope)
        moved = moved / moved.sum() - begin
        assert np.dot(moved, end - begin) / np.linalg.norm(moved) / np.linalg.norm(end - begin) > 0.999
