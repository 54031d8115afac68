"""What a run writes down, recomputed from the policies that it went through."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from ratioscope import Manifest, schema
from ratioscope.gates import GATES, Gate
from ratioscope.ratios import LogRatios, log_ratio
from tests.training.conftest import RESTLESS
from tests.training.small import Recorded, same_tables, small, table, train
from trainer.advantages import ADVANTAGES
from trainer.algorithms import ALGORITHMS
from trainer.losses import WEIGHTS
from trainer.policy import TokenLogProbs, token_log_probs
from trainer.sampling import pad_left
from trainer.schedule import behavior_version
from trainer.tasks.addition import Addition, CharacterVocabulary

Run = Callable[[str], Recorded]

SCHEDULES: tuple[list[str], ...] = (
    [],
    ["sync_interval=3"],
    ["sync_offset=2"],
    ["sync_interval=2", "sync_offset=3"],
    ["offline=true"],
)


def steps_of(folder: Path) -> list[dict[str, torch.Tensor]]:
    """The tokens table, a dictionary of tensors a step; null columns are left out."""
    tokens = table(folder, "tokens")
    columns = {
        name: torch.tensor(tokens[name].to_numpy()) for name in tokens.column_names if not tokens[name].null_count
    }
    return [
        {name: values[columns["step"] == step] for name, values in columns.items()}
        for step in sorted(set(columns["step"].tolist()))
    ]


def recomputed(run: Recorded, step: int, version: int) -> TokenLogProbs:
    """Log-probabilities of a step's tokens under a version of the policy, from the texts in the sequences table."""
    sequences = table(run.folder, "sequences").filter(pa.compute.field("step") == step)
    task = Addition(run.config.task.digits, run.config.task.evaluation_prompts)
    encode = CharacterVocabulary.encode
    prompts, prompt_mask = pad_left([encode(text) for text in sequences["prompt"].to_pylist()], task.prompt_length)
    responses = torch.full((len(prompts), task.response_length), CharacterVocabulary.pad_id)
    mask = torch.zeros(responses.shape, dtype=torch.bool)
    for row, text in enumerate(sequences["response"].to_pylist()):
        responses[row, : len(text)], mask[row, : len(text)] = torch.tensor(encode(text)), True
    with torch.no_grad():
        return token_log_probs(run.policies[version], prompts, prompt_mask, responses, mask, entropy=True)


def logged_ratios(tokens: dict[str, torch.Tensor]) -> LogRatios:
    """As the loss saw them at its last pass."""
    theta = tokens.get("logp_gate", tokens["logp_current"])
    return LogRatios(
        behavior=log_ratio(theta, tokens["logp_behavior"]),
        current=log_ratio(tokens["logp_current"], tokens["logp_behavior"]),
    )


def replayed_gate(algorithm: str, tokens: dict[str, torch.Tensor]) -> Gate:
    declared = ALGORITHMS[algorithm]
    return GATES[declared.gate](logged_ratios(tokens), tokens["advantage"], **declared.parameters)


def test_a_run_has_all_required_columns_and_what_the_trainer_adds(recorded: Run, algorithm: str) -> None:
    folder = recorded(algorithm).folder
    for name, declared in schema.TABLES.items():
        found = table(folder, name)
        assert {column.name for column in declared.required} - {"wall_time"} <= set(found.column_names)
        assert not any(
            found[column.name].null_count for column in declared.required if column.name in found.schema.names
        )
    added = {"logp_new", "entropy", "clipped", "clip_side", "gate", "gradient_weight"}
    tokens = table(folder, "tokens")
    assert not any(tokens[name].null_count for name in added)
    several_passes = ALGORITHMS[algorithm].passes > 1
    assert ("logp_gate" in tokens.column_names) == several_passes


def test_the_manifest_says_what_was_trained(recorded: Run, algorithm: str) -> None:
    run, declared = recorded(algorithm), ALGORITHMS[algorithm]
    manifest = Manifest.read(run.folder)
    assert (manifest.status, manifest.planned_updates, manifest.seed) == ("finished", 8, 0)
    assert manifest.algorithm["parts"] == declared.parts()
    assert manifest.algorithm["parameters"] == {**declared.parameters, "passes": declared.passes}
    assert manifest.schedule == {"sync_interval": 3, "sync_offset": 0, "offline": False}
    assert manifest.model["parameters"] == sum(weight.numel() for weight in run.policies[0].parameters())


@pytest.mark.parametrize("overrides", SCHEDULES, ids=" ".join)
def test_every_logged_log_prob_is_that_of_its_version(tmp_path: Path, overrides: list[str]) -> None:
    run = train(small("learning_rate=0.01", *overrides), tmp_path / "run")
    for step, tokens in enumerate(steps_of(run.folder)):
        version = behavior_version(run.config.schedule, step)
        assert set(tokens["behavior_version"].tolist()) == {version}
        for column, policy in (("logp_behavior", version), ("logp_current", step), ("logp_new", step + 1)):
            assert tokens[column] == pytest.approx(recomputed(run, step, policy).logp, abs=1e-5), column
        assert tokens["entropy"] == pytest.approx(recomputed(run, step, step).entropy, abs=1e-5)
        if version == step:
            assert tokens["logp_behavior"] == pytest.approx(tokens["logp_current"], abs=1e-5)
        else:
            assert (tokens["logp_behavior"] - tokens["logp_current"]).abs().max() > 0.01


def test_the_logged_gate_is_the_one_replayed_from_the_logged_columns(recorded: Run, algorithm: str) -> None:
    stopped = 0
    for tokens in steps_of(recorded(algorithm).folder):
        gate = replayed_gate(algorithm, tokens)
        assert torch.equal(tokens["clipped"], gate.clipped)
        assert torch.equal(tokens["clip_side"], gate.side)
        assert torch.equal(tokens["gate"], gate.value.float())
        stopped += int(gate.clipped.sum())
    assert (stopped > 0) == (ALGORITHMS[algorithm].gate != "none")


def test_the_gradient_weight_is_advantage_times_weight_times_gate(recorded: Run, algorithm: str) -> None:
    for tokens in steps_of(recorded(algorithm).folder):
        weight = WEIGHTS[ALGORITHMS[algorithm].weight](logged_ratios(tokens))
        expected = tokens["advantage"].double() * weight * tokens["gate"].double() / len(weight)
        assert tokens["gradient_weight"].double() == pytest.approx(expected, rel=1e-5, abs=1e-9)
        stopped = tokens["clipped"] | (tokens["advantage"] == 0)
        assert torch.equal(tokens["gradient_weight"] == 0, stopped)


def test_the_gate_of_several_passes_is_evaluated_after_the_policy_moved(recorded: Run) -> None:
    """Between the start of the update and its end; were it at the start, Method Two could never stop a token."""
    for tokens in steps_of(recorded("incremental_clip").folder):
        if tokens["advantage"].any():
            assert not torch.equal(tokens["logp_gate"], tokens["logp_current"])
            assert not torch.equal(tokens["logp_gate"], tokens["logp_new"])


def test_advantages_are_those_of_the_logged_rewards(recorded: Run, algorithm: str) -> None:
    folder = recorded(algorithm).folder
    sequences = table(folder, "sequences")
    for step, tokens in enumerate(steps_of(folder)):
        reward = torch.tensor(sequences.filter(pa.compute.field("step") == step)["reward"].to_numpy())
        advantage = ADVANTAGES[ALGORITHMS[algorithm].advantage](reward.view(-1, 4)).flatten()
        assert torch.equal(tokens["advantage"], advantage[tokens["seq_id"]])
        assert torch.equal(tokens["group_id"], tokens["seq_id"] // 4)


def test_sequences_and_tokens_tell_the_same_story(recorded: Run) -> None:
    run = recorded("grpo")
    task, rows = Addition(1, 20), table(run.folder, "sequences").to_pylist()
    words: dict[tuple[int, int], list[int]] = {}
    for token in table(run.folder, "tokens").select(["step", "seq_id", "position", "token_id"]).to_pylist():
        spelled = words.setdefault((token["step"], token["seq_id"]), [])
        assert token["position"] == len(spelled)
        spelled.append(token["token_id"])
    assert len(rows) == len(words) == 8 * 6 * 4
    for row in rows:
        assert CharacterVocabulary.decode(words[row["step"], row["seq_id"]]) == row["response"]
        assert row["n_tokens"] == len(row["response"])
        assert row["prompt"] == task.prompt(row["prompt_id"])
        assert row["reward"] == task.reward(row["prompt_id"], row["response"])
        assert row["finish_reason"] == ("stop" if row["response"].endswith("\n") else "length")
        assert row["behavior_version_min"] == row["behavior_version_max"] == row["step"] // 3 * 3


def test_accuracy_is_measured_when_it_is_due_and_at_the_end(recorded: Run) -> None:
    steps = table(recorded("grpo").folder, "steps")
    measured = [step for step, accuracy in enumerate(steps["eval_accuracy"].to_pylist()) if accuracy is not None]
    assert measured == [0, 4, 7]
    assert steps["policy_version"].to_pylist() == [*range(8)]
    assert all(kl is None or kl >= 0 for kl in steps["kl_to_initial"].to_pylist())


def test_the_same_seed_gives_the_same_run_and_another_one_does_not(recorded: Run, tmp_path: Path) -> None:
    again = train(small("algorithm=grpo", *RESTLESS), tmp_path / "again").folder
    other = train(small("algorithm=grpo", *RESTLESS, "seed=1"), tmp_path / "other").folder
    first = recorded("grpo").folder
    assert same_tables(first, again)
    for name in ("tokens", "sequences"):
        assert not table(first, name).equals(table(other, name))
