"""What an update keeps beside the policy: a critic, an adaptive penalty, a trust region."""

from pathlib import Path

import pytest
import torch

from ratioscope.trainer.algorithms.advantages import gae
from ratioscope.trainer.model.policy import evaluate
from ratioscope.trainer.training.loop import Trainer
from tests.making.training import small, table, train
from tests.oracles.replay import Run, distributions, steps_of


def test_a_critic_learns_the_returns_of_a_fixed_batch(tmp_path: Path) -> None:
    # A clip without any room, so that it is the critic that moves.
    still = ("epsilon_low=0", "epsilon_high=0", "entropy_coefficient=0")
    config = small("algorithm=ppo", "learning_rate=0.003", "prompts=20", "value_coefficient=10", *still)
    trainer = Trainer(config, tmp_path / "run")
    with trainer.recorder:
        trainer.collector.publish(0, trainer.model)
        batch, critic = trainer.collector.collect(0), trainer.learner.critic
        assert critic is not None
        returns = batch.reward.unsqueeze(1).expand(batch.rollout.mask.shape)[batch.rollout.mask]

        def error() -> float:
            with torch.no_grad():
                value = evaluate(trainer.model, batch.rollout, critic=critic).value
            assert value is not None
            return float(((value - returns) ** 2).mean())

        before = error()
        assert before == pytest.approx(float((returns**2).mean()))  # a new critic says 0
        for step in range(25):
            trainer.learner.update(step, batch)
        assert error() < 0.6 * min(before, float(returns.var()))  # some prefixes end right and wrong


def test_an_advantage_is_what_the_critic_did_not_foresee(tmp_path: Path) -> None:
    trainer = Trainer(small("algorithm=ppo", "learning_rate=0.01"), tmp_path / "run")
    with trainer.recorder:
        for step in range(3):
            trainer.collector.publish(step, trainer.model)
            batch = trainer.collector.collect(step)
            with torch.no_grad():
                seen = evaluate(trainer.model, batch.rollout, critic=trainer.learner.critic).value
            assert seen is not None
            value = torch.zeros(batch.rollout.mask.shape)
            value[batch.rollout.mask] = seen
            expected = gae(batch.reward, batch.rollout.mask, value, gamma=1.0, gae_lambda=0.95)[batch.rollout.mask]
            outcome = trainer.learner.update(step, batch)
            assert outcome.prepared.tokens.advantage == pytest.approx(expected, abs=1e-5)
            assert outcome.prepared.target == pytest.approx(expected + seen, abs=1e-5)


def test_an_adaptive_penalty_is_doubled_halved_or_kept_by_its_rule(tmp_path: Path) -> None:
    used: dict[str, list[float]] = {}
    for target, seen in (("1e-9", "far"), ("10", "near"), ("0.003", "both")):
        config = small("algorithm=ppo_kl", f"kl_target={target}", "learning_rate=0.003", "sync_interval=2")
        run = train(config, tmp_path / seen)
        steps = table(run.folder, "steps")
        used[seen], kl = steps["extra_kl_penalty"].to_pylist(), steps["extra_kl_new_current"].to_pylist()
        assert used[seen][0] == 1
        for before, after, distance in zip(used[seen], used[seen][1:], kl, strict=False):
            factor = 2 if distance > 1.5 * float(target) else 0.5 if distance < float(target) / 1.5 else 1
            assert after == before * factor
        for step, tokens in enumerate(steps_of(run.folder)):
            current, new = (distributions(run, step, run.policies[version]) for version in (step, step + 1))
            exact = (current.exp() * (current - new)).sum(dim=1).mean()
            assert kl[step] == pytest.approx(float(exact), rel=0.02, abs=1e-6)
            assert len(tokens["advantage"])
    assert used["far"][-1] == 2**7
    assert used["near"][-1] == 0.5**7


def test_a_trust_region_step_stays_inside_or_is_not_taken(recorded: Run) -> None:
    run = recorded("trpo")
    steps, accepted = table(run.folder, "steps").to_pylist(), 0
    for step in steps:
        k = step["step"]
        current, new = (distributions(run, k, run.policies[version]) for version in (k, k + 1))
        kl = float((current.exp() * (current - new)).sum(dim=1).mean())
        assert step["extra_trust_region_kl"] == pytest.approx(kl, rel=0.02, abs=1e-6)
        assert 1 <= step["extra_trust_region_trials"] <= 15
        if step["extra_trust_region_step"] > 0:
            accepted += 1
            assert 0 < step["extra_trust_region_kl"] <= 0.01
            assert step["extra_trust_region_improvement"] >= 0
            share = 0.8 ** (step["extra_trust_region_trials"] - 1)
            assert step["extra_trust_region_step"] == pytest.approx(share)
        else:
            assert step["extra_trust_region_kl"] == 0
            assert all(map(torch.equal, run.policies[k].parameters(), run.policies[k + 1].parameters()))
    assert accepted > 4


def test_a_trust_region_can_only_be_as_large_as_it_is_allowed_to_be(tmp_path: Path) -> None:
    found = []
    for bound in ("0.0001", "0.1"):
        run = train(small("algorithm=trpo", f"max_kl={bound}", "updates=4"), tmp_path / bound)
        found.append(max(table(run.folder, "steps")["extra_trust_region_kl"].to_pylist()))
        assert 0.1 * float(bound) < found[-1] <= float(bound)


@pytest.mark.parametrize("coefficient", ["0", "3"])
def test_an_entropy_bonus_keeps_the_policy_undecided(tmp_path: Path, coefficient: str) -> None:
    run = train(
        small("algorithm=ppo", f"entropy_coefficient={coefficient}", "learning_rate=0.003", "updates=10"),
        tmp_path / "run",
    )
    first, last = (steps_of(run.folder)[place]["entropy"].mean() for place in (0, -1))
    assert (last > first + 0.3) == (coefficient == "3")
