"""Several passes over a batch, and batches in parts: what is split for memory changes nothing, what is a step does."""

from pathlib import Path

import pytest
import torch

from ratioscope.trainer.training.loop import Trainer
from tests.making.training import Recorded, small, table, train
from tests.oracles.replay import recomputed, replayed_gate, sequences_of, steps_of

STALE = ("sync_interval=3", "learning_rate=0.003", "updates=5")


def trained(folder: Path, *overrides: str) -> Recorded:
    return train(small(*STALE, *overrides), folder)


@pytest.mark.parametrize(
    "algorithm",
    ["grpo", "gspo", "ppo", "opmd", "surrogate_pairs", "dr_grpo", "red_drop", "ppo_kl", "adaptive_clip"],
)
def test_batches_in_parts_train_as_whole_ones_do(tmp_path: Path, algorithm: str) -> None:
    """Two prompts in memory at once; only the order of a few sums is another one."""
    # AdamW makes steps of noise where a gradient is all but zero, so few and small ones tell best.
    few = (f"algorithm={algorithm}", "sync_interval=2", "learning_rate=0.001", "updates=3")
    whole, parts = trained(tmp_path / "whole", *few), trained(tmp_path / "parts", *few, "micro_batch=2")
    one, other = steps_of(whole.folder), steps_of(parts.folder)
    for step, (tokens, same) in enumerate(zip(one, other, strict=True)):
        for name in ("seq_id", "position", "token_id", "clipped", "clip_side"):
            assert torch.equal(tokens[name], same[name]), (step, name)
        for name in ("logp_current", "logp_new", "advantage", "gradient_weight", "gate", "entropy"):
            assert tokens[name] == pytest.approx(same[name], abs=1e-4), (step, name)
    for name in ("loss", "grad_norm"):
        columns = [table(run.folder, "steps")[name].to_numpy() for run in (whole, parts)]
        assert columns[0] == pytest.approx(columns[1], rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("overrides", [[], ["micro_batch=1"]], ids=["whole", "in parts"])
def test_minibatches_times_epochs_are_steps_of_the_optimiser(tmp_path: Path, overrides: list[str]) -> None:
    config = small("algorithm=grpo", "minibatches=3", "epochs=2", "updates=4", "learning_rate=0.01", *overrides)
    trainer = Trainer(config, tmp_path / "run")
    taken: list[int] = []
    trainer.learner.optimiser.register_step_post_hook(lambda *call: taken.append(trainer.next_update))
    trainer.run(lambda progress: None)
    assert taken == [update for update in range(4) for _ in range(6)]


@pytest.fixture(scope="module")
def in_minibatches(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Recorded:
    overrides = ("algorithm=grpo", "minibatches=3", "epochs=2")
    return trained(tmp_path_factory.mktemp("minibatches") / "run", *overrides)


def test_minibatches_log_every_token_once(in_minibatches: Recorded) -> None:
    for step, tokens in enumerate(steps_of(in_minibatches.folder)):
        lengths = sequences_of(in_minibatches.folder, step)["n_tokens"].to_pylist()
        expected = [(row, place) for row, length in enumerate(lengths) for place in range(length)]
        assert list(zip(tokens["seq_id"].tolist(), tokens["position"].tolist(), strict=True)) == expected


def test_the_gate_of_a_minibatch_is_the_one_of_its_last_pass(in_minibatches: Recorded) -> None:
    """Replayed from logp_gate; the last minibatch's is one step before the new policy, so each group moved alike."""
    for step, tokens in enumerate(steps_of(in_minibatches.folder)):
        gate = replayed_gate(in_minibatches, tokens)
        assert torch.equal(tokens["clip_side"], gate.side)
        assert torch.equal(tokens["gate"], gate.value.float())
        assert not torch.equal(tokens["logp_gate"], recomputed(in_minibatches, step, step))


def test_one_step_on_some_prompts_leaves_the_others_where_they_were_looked_at(tmp_path: Path) -> None:
    """With one epoch the first minibatch is evaluated under pi_k itself, the others after one and two steps."""
    run = trained(tmp_path / "run", "algorithm=reinforce", "minibatches=3", "learning_rate=0.01", "updates=3")
    for tokens in steps_of(run.folder):
        moved = (tokens["logp_gate"] - tokens["logp_current"]).abs()
        still = {group for group in range(6) if moved[tokens["group_id"] == group].max() < 1e-5}
        assert len(still) == 2


def test_the_learning_rate_grows_to_its_value(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "warmup_updates=4", "learning_rate=0.008")
    rates = table(run.folder, "steps")["learning_rate"].to_pylist()
    assert rates == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.008])


def moved(run: Recorded) -> float:
    """How far the first update went, the largest weight's change."""
    pairs = zip(run.policies[0].parameters(), run.policies[1].parameters(), strict=True)
    return max(float((before - after).detach().abs().max()) for before, after in pairs)


def test_a_warm_up_makes_the_first_step_smaller_in_proportion(tmp_path: Path) -> None:
    plain = ("algorithm=reinforce", "weight_decay=0", "updates=1", "learning_rate=0.001")
    full = trained(tmp_path / "full", *plain)
    quarter = trained(tmp_path / "quarter", *plain, "warmup_updates=4")
    assert moved(quarter) == pytest.approx(moved(full) / 4, rel=1e-2)


def test_gradient_clipping_bounds_what_the_optimiser_sees_and_not_what_is_logged(tmp_path: Path) -> None:
    """AdamW divides by the gradient's size, unless its epsilon is the larger of the two."""
    plain = ("algorithm=reinforce", "weight_decay=0", "updates=1", "learning_rate=0.01")
    free, bound = (trained(tmp_path / norm, *plain, f"max_grad_norm={norm}") for norm in ("1000", "1e-9"))
    norms = [table(run.folder, "steps")["grad_norm"].to_pylist() for run in (free, bound)]
    assert norms[0] == norms[1]
    assert norms[0][0] > 0.01
    assert moved(bound) < 0.1 * moved(free)


def test_weight_decay_pulls_the_weights_to_zero(tmp_path: Path) -> None:
    """A batch without signal has no gradient; what is left is the decay, a share of each weight."""
    silent = ("algorithm=reinforce", "updates=1", "learning_rate=0.1", "warm_start.max_steps=0", "weight_decay=0.5")
    run = trained(tmp_path / "run", *silent)
    assert not steps_of(run.folder)[0]["advantage"].any()
    for before, after in zip(run.policies[0].parameters(), run.policies[1].parameters(), strict=True):
        assert after.detach() == pytest.approx(before.detach() * (1 - 0.1 * 0.5), rel=1e-5, abs=1e-8)
