"""What decides which responses count and what they earn: dynamic sampling, shaping, drops, weights, reference KL."""

from pathlib import Path

import pytest
import torch

from ratioscope.rules.ratios import log_ratio, sequence_log_ratio
from ratioscope.trainer.algorithms.selection import overlong_penalty
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.training.loop import Trainer
from tests.making.training import Recorded, small, table, train
from tests.oracles.replay import Run, recomputed, replayed_gradient, sequences_of, steps_of, task_of
from tests.trainer.conftest import RESTLESS


def rewards(run: Recorded, step: int, column: str = "reward") -> torch.Tensor:
    """Of the groups of a step, (n_groups, 4)."""
    return torch.tensor(sequences_of(run.folder, step)[column].to_numpy()).view(-1, 4)


def rounds_of(config: TrainConfig, folder: Path) -> int:
    """How often the first batch of a DAPO run was sampled, counted in prompts that were drawn."""
    trainer = Trainer(config, folder)
    drawn: list[int] = []
    draw = trainer.task.draw
    trainer.task.draw = lambda generator, n: drawn.append(n) or draw(generator, n)  # type: ignore[method-assign]
    with trainer.recorder:
        trainer.collector.publish(0, trainer.model)
        batch = trainer.collector.collect(0)
    assert len(batch.prompt_ids) == config.sampler.prompts * config.sampler.samples_per_prompt
    assert set(drawn) == {config.sampler.prompts}
    return len(drawn)


def test_dynamic_sampling_takes_mixed_groups_first(recorded: Run) -> None:
    run = recorded("dapo")
    left_out = table(run.folder, "steps")["tokens_dropped_no_signal"].to_pylist()
    filled = 0
    for step in range(8):
        task = rewards(run, step, "reward_task")
        mixed = task.amin(dim=1) < task.amax(dim=1)
        assert sorted(mixed.tolist(), reverse=True) == mixed.tolist()
        assert left_out[step] >= 0
        filled += int(not mixed.all())
    assert filled < 8
    assert any(left_out)


def test_dynamic_sampling_ends_after_its_rounds(tmp_path: Path) -> None:
    """An untrained policy is never right: no group has any signal, however often one samples."""
    hopeless = small("algorithm=dapo", "warm_start.max_steps=0", "max_rounds=3", "updates=1")
    assert rounds_of(hopeless, tmp_path / "counted") == 3
    run = train(hopeless, tmp_path / "run")
    (left_out,) = table(run.folder, "steps")["tokens_dropped_no_signal"].to_pylist()
    kept = sum(sequences_of(run.folder, 0)["n_tokens"].to_pylist())
    assert kept + left_out <= 3 * 6 * 4 * 3
    assert left_out >= 2 * 6 * 4


def test_dynamic_sampling_stops_when_it_has_enough(tmp_path: Path) -> None:
    assert rounds_of(small("algorithm=dapo", "prompts=2", "max_rounds=40"), tmp_path / "run") < 40


def test_other_algorithms_leave_no_group_out(recorded: Run) -> None:
    steps = table(recorded("grpo").folder, "steps")
    assert "tokens_dropped_no_signal" not in steps.column_names or steps["tokens_dropped_no_signal"].null_count == 8


def test_the_parts_of_a_shaped_reward_add_up(recorded: Run) -> None:
    run = recorded("dapo")
    longest = task_of(run).response_length
    for step in range(8):
        sequences = sequences_of(run.folder, step)
        total, task, overlong = (rewards(run, step, name) for name in ("reward", "reward_task", "reward_overlong"))
        assert torch.equal(total, task + overlong)
        ended = torch.tensor([reason == "stop" for reason in sequences["finish_reason"].to_pylist()])
        length = torch.tensor(sequences["n_tokens"].to_numpy())
        assert torch.equal(overlong.flatten(), overlong_penalty(length, ended, longest, overlong_fraction=0.2))
        assert torch.equal(overlong.flatten() == -1, ~ended)


def test_excess_negatives_are_listed_and_left_out(recorded: Run) -> None:
    run = recorded("red_drop")
    counted = table(run.folder, "steps")["tokens_dropped_excess_negative"].to_pylist()
    seen = 0
    for step, tokens in enumerate(steps_of(run.folder)):
        rows = sequences_of(run.folder, step).to_pylist()
        left_out = [row for row in rows if row["dropped"]]
        assert {row["dropped"] for row in left_out} <= {"excess negative"}
        assert set(tokens["seq_id"].tolist()) == {row["seq_id"] for row in rows if not row["dropped"]}
        assert (counted[step] or 0) == sum(row["n_tokens"] for row in left_out)
        for group in range(6):
            here = rows[4 * group : 4 * group + 4]
            mean = sum(row["reward"] for row in here) / 4
            above = sum(row["reward"] > mean for row in here)
            below = sum(row["reward"] < mean for row in here)
            kept = sum(row["reward"] < mean and not row["dropped"] for row in here)
            assert kept == (min(above, below) if above else below)
            assert all(row["reward"] < mean for row in here if row["dropped"])
        seen += len(left_out)
    assert seen > 0


@pytest.mark.parametrize("name", ["red_weight", "pairwise_reinforce", "surrogate_pairs"])
def test_weights_of_responses_are_logged(recorded: Run, name: str) -> None:
    run = recorded(name)
    for step in range(8):
        reward, weight = rewards(run, step), rewards(run, step, "sample_weight")
        advantage = reward - reward.mean(dim=1, keepdim=True)
        if name == "red_weight":
            assert weight == pytest.approx(advantage.exp(), rel=1e-5)
        elif name == "surrogate_pairs":
            assert weight == pytest.approx(torch.full_like(weight, 0.5))
        else:  # equal rewards weigh alike, and in a group of one outcome all weigh 1, as in REINFORCE
            even = (reward == reward[:, :1]).all(dim=1)
            assert weight[even] == pytest.approx(torch.ones_like(weight[even]))
            assert (weight[~even] > 0).all()


def test_equal_weights_are_not_logged(recorded: Run) -> None:
    assert "sample_weight" not in table(recorded("grpo").folder, "sequences").column_names


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_reference_is_the_initial_policy_and_its_penalty_is_in_the_gradient(tmp_path: Path, estimator: str) -> None:
    penalty = ("reference_kl=0.5", f"reference_kl_estimator={estimator}")
    run = train(small("algorithm=grpo", *RESTLESS, *penalty, "updates=5"), tmp_path / "run")
    for step, tokens in enumerate(steps_of(run.folder)):
        assert tokens["logp_reference"] == pytest.approx(recomputed(run, step, 0), abs=2e-5)
        assert tokens["gradient_weight"] == pytest.approx(replayed_gradient(run, step), rel=1e-5, abs=1e-9)


def test_a_reference_far_stronger_than_the_reward_holds_the_policy(tmp_path: Path) -> None:
    free, held = (
        train(small("algorithm=reinforce", "learning_rate=0.003", "updates=12", f"reference_kl={kl}"), tmp_path / kl)
        for kl in ("0", "30")
    )
    far = [table(run.folder, "steps")["kl_to_initial"].to_pylist()[-1] for run in (free, held)]
    assert far[1] < far[0] / 2


def test_a_penalty_in_the_reward_is_a_part_of_it(tmp_path: Path) -> None:
    penalty = ("reference_kl=0.2", "reference_kl_estimator=in_reward")
    run = train(small("algorithm=grpo", *RESTLESS, *penalty, "updates=5"), tmp_path / "run")
    task, sequences = task_of(run), table(run.folder, "sequences")
    for step, tokens in enumerate(steps_of(run.folder)):
        rows = sequences_of(run.folder, step).to_pylist()
        ratio = log_ratio(tokens["logp_current"], tokens["logp_reference"])
        distance = sequence_log_ratio(ratio, tokens["seq_id"], len(rows))
        for row, far in zip(rows, distance.tolist(), strict=True):
            earned = task.reward(row["prompt_id"], row["response"], ended=row["finish_reason"] == "stop")
            assert row["reward_kl"] == pytest.approx(-0.2 * far, abs=1e-5)
            assert row["reward"] == pytest.approx(earned - 0.2 * far, abs=1e-5)
        assert tokens["gradient_weight"] == pytest.approx(replayed_gradient(run, step), rel=1e-5, abs=1e-9)
    assert max(abs(value) for value in sequences["reward_kl"].to_pylist()) > 1e-3
