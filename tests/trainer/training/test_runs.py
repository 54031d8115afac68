"""What a run of every algorithm writes down: replayed from its columns, by what-if too, and from its policies."""

from pathlib import Path

import pytest
import torch

from ratioscope import Manifest
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.what_if import apply, load_tokens, own_rule
from ratioscope.rules.filters import FILTERS
from ratioscope.run_format import schema
from ratioscope.trainer.algorithms.advantages import GROUP_ADVANTAGES
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.model.vocabulary import CharacterVocabulary
from ratioscope.trainer.sampling.schedule import behavior_version
from tests.making.loops import in_one_loop
from tests.making.training import same_tables, small, table, train
from tests.oracles.replay import (
    Run,
    distributions,
    logged_ratios,
    recomputed,
    recomputed_by_own_version,
    replayed_gate,
    replayed_gradient,
    sequences_of,
    steps_of,
    task_of,
)
from tests.oracles.what_if import logged
from tests.trainer.conftest import RESTLESS

every_algorithm = in_one_loop("algorithm", {name: name for name in sorted(ALGORITHMS)})
SCHEDULES: tuple[list[str], ...] = (
    [],
    ["sync_interval=3"],
    ["sync_offset=2"],
    ["sync_interval=2", "sync_offset=3"],
    ["offline=true"],
)
# What stops no token at all, or none that this run happens to sample.
LENIENT = {"none", "soft", "masked"}
# One algorithm of each kind of part that makes a run different: passes, levels, filters, selections, a critic.
KINDS = ("ppo", "gspo", "seq_is", "surrogate_pairs", "dapo", "decoupled_seq_tis", "trpo")
every_kind = in_one_loop("algorithm", {name: name for name in KINDS})


@every_algorithm
def test_a_run_has_all_required_columns_and_what_the_trainer_adds(recorded: Run, algorithm: str) -> None:
    run = recorded(algorithm)
    assert run.status == "finished"
    for name, declared in schema.TABLES.items():
        found = table(run.folder, name)
        assert {column.name for column in declared.required} - {"wall_time"} <= set(found.column_names)
        assert not any(
            found[column.name].null_count for column in declared.required if column.name in found.schema.names
        )
    added = {"logp_new", "entropy", "clipped", "clip_side", "gate", "gradient_weight"}
    exact = {"tv_current_behavior", "chi2_current_behavior", "kl_behavior_current", "tv_new_current"}
    tokens = table(run.folder, "tokens")
    assert not any(tokens[name].null_count for name in added | exact)
    assert ("logp_gate" in tokens.column_names) == (run.config.epochs > 1)


@every_algorithm
def test_every_number_of_a_run_is_finite(recorded: Run, algorithm: str) -> None:
    run = recorded(algorithm)
    for tokens in steps_of(run.folder):
        if algorithm == "overlong_filter" and not len(tokens["logp_current"]):
            return  # nothing was finished, and from here on there is no loss
        assert len(tokens["logp_current"])
        assert all(torch.isfinite(values).all() for values in tokens.values())
    steps = table(run.folder, "steps")
    for name in ("loss", "grad_norm"):
        assert torch.isfinite(torch.tensor(steps[name].to_numpy())).all()
    for column in table(run.folder, "sequences").select(["reward"]).columns:
        assert torch.isfinite(torch.tensor(column.to_numpy())).all()


@every_algorithm
def test_the_manifest_says_what_was_trained(recorded: Run, algorithm: str) -> None:
    run, declared = recorded(algorithm), ALGORITHMS[algorithm]
    manifest = Manifest.read(run.folder)
    assert (manifest.status, manifest.planned_updates, manifest.seed) == ("finished", run.config.updates, 0)
    assert manifest.algorithm["parts"] == declared.parts()
    passes = {"epochs": declared.epochs, "minibatches": 1}
    assert manifest.algorithm["parameters"] == {**declared.parameters, **passes}
    assert manifest.schedule == run.config.schedule.model_dump()
    assert manifest.model["parameters"] == sum(weight.numel() for weight in run.policies[0].parameters())


@every_kind
def test_every_policy_of_a_run_is_the_one_that_its_columns_say(recorded: Run, algorithm: str) -> None:
    run = recorded(algorithm)
    for step, tokens in enumerate(steps_of(run.folder)):
        assert set(tokens["behavior_version"].tolist()) == {step // 3 * 3}
        assert tokens["logp_behavior"] == pytest.approx(recomputed_by_own_version(run, step), abs=2e-5)
        assert tokens["logp_current"] == pytest.approx(recomputed(run, step, step), abs=2e-5)
        assert tokens["logp_new"] == pytest.approx(recomputed(run, step, step + 1), abs=2e-5)


@pytest.mark.parametrize("overrides", SCHEDULES, ids=" ".join)
def test_every_logged_log_prob_is_that_of_its_version(tmp_path: Path, overrides: list[str]) -> None:
    run = train(small("learning_rate=0.01", *overrides), tmp_path / "run")
    for step, tokens in enumerate(steps_of(run.folder)):
        version = behavior_version(run.config.schedule, step)
        assert set(tokens["behavior_version"].tolist()) == {version}
        for column, policy in (("logp_behavior", version), ("logp_current", step), ("logp_new", step + 1)):
            assert tokens[column] == pytest.approx(recomputed(run, step, policy), abs=2e-5), column
        full = distributions(run, step, run.policies[step])
        assert tokens["entropy"] == pytest.approx(-(full.exp() * full).sum(dim=-1), abs=1e-5)
        if version == step:
            assert tokens["logp_behavior"] == pytest.approx(tokens["logp_current"], abs=1e-5)
        else:
            assert (tokens["logp_behavior"] - tokens["logp_current"]).abs().max() > 0.01


@every_algorithm
def test_the_logged_gate_is_the_one_replayed_from_the_logged_columns(recorded: Run, algorithm: str) -> None:
    run, stopped = recorded(algorithm), 0
    for tokens in steps_of(run.folder):
        gate = replayed_gate(run, tokens)
        assert torch.equal(tokens["clipped"], gate.clipped)
        assert torch.equal(tokens["clip_side"], gate.side)
        assert torch.equal(tokens["gate"], gate.value.float())
        stopped += int(gate.clipped.sum())
    declared = ALGORITHMS[algorithm]
    assert stopped > 0 or declared.gate in LENIENT
    assert stopped == 0 or declared.gate not in ("none", "soft") or declared.filter != "none"


@every_algorithm
def test_the_gradient_weight_is_what_the_loss_gives_to_the_logged_columns(recorded: Run, algorithm: str) -> None:
    run = recorded(algorithm)
    for step, tokens in enumerate(steps_of(run.folder)):
        assert tokens["gradient_weight"] == pytest.approx(replayed_gradient(run, step), rel=1e-5, abs=1e-9)
        assert not tokens["gradient_weight"][tokens["clipped"]].any() or ALGORITHMS[algorithm].regulariser != "none"


@every_kind
def test_the_gate_of_several_passes_is_evaluated_after_the_policy_moved(recorded: Run, algorithm: str) -> None:
    """Between the start of the update and its end; were it at the start, Method Two could never stop a token."""
    run = recorded(algorithm)
    for tokens in steps_of(run.folder):
        if run.config.epochs > 1 and tokens["gradient_weight"].any():
            assert not torch.equal(tokens["logp_gate"], tokens["logp_current"])
            assert not torch.equal(tokens["logp_gate"], tokens["logp_new"])


@every_algorithm
def test_group_advantages_are_those_of_the_logged_rewards(recorded: Run, algorithm: str) -> None:
    run, advantage = recorded(algorithm), GROUP_ADVANTAGES.get(ALGORITHMS[algorithm].advantage)
    for step, tokens in enumerate(steps_of(run.folder)):
        assert torch.equal(tokens["group_id"], tokens["seq_id"] // 4)
        sequences = sequences_of(run.folder, step)
        if algorithm == "remax":
            reward, greedy = (torch.tensor(sequences[name].to_numpy()) for name in ("reward", "extra_greedy_reward"))
            assert torch.equal(tokens["advantage"], (reward - greedy)[tokens["seq_id"]])
        if advantage is None:
            continue
        kept = torch.ones(len(sequences), dtype=torch.bool)
        if "dropped" in sequences.column_names:
            kept = torch.tensor([reason in (None, "overlong") for reason in sequences["dropped"].to_pylist()])
        reward = torch.tensor(sequences["reward"].to_numpy())
        expected = advantage(reward.view(-1, 4), kept.view(-1, 4), **taken_by(advantage, run.config.parameters))
        assert torch.equal(tokens["advantage"], expected.flatten()[tokens["seq_id"]])


def test_sequences_and_tokens_tell_the_same_story(recorded: Run) -> None:
    run = recorded("grpo")
    task, rows = task_of(run), table(run.folder, "sequences").to_pylist()
    decode = CharacterVocabulary(task.characters).decode
    words: dict[tuple[int, int], list[int]] = {}
    for token in table(run.folder, "tokens").select(["step", "seq_id", "position", "token_id"]).to_pylist():
        spelled = words.setdefault((token["step"], token["seq_id"]), [])
        assert token["position"] == len(spelled)
        spelled.append(token["token_id"])
    assert len(rows) == len(words) == 8 * 6 * 4
    for row in rows:
        assert decode(words[row["step"], row["seq_id"]]) == row["response"]
        assert row["n_tokens"] == len(row["response"])
        assert row["prompt"] == task.prompt(row["prompt_id"])
        ended = row["response"].endswith("\n")
        assert row["reward"] == task.reward(row["prompt_id"], row["response"], ended=ended)
        assert row["finish_reason"] == ("stop" if ended else "length")
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


@every_algorithm
def test_the_own_rule_of_an_algorithm_gives_its_logged_clipping(recorded: Run, algorithm: str) -> None:
    run = open_run(recorded(algorithm).folder)
    own, tokens = own_rule(run), load_tokens(run)
    declared = ALGORITHMS[algorithm]
    if declared.filter != "none" and (declared.gate != "none" or FILTERS[declared.filter].updates):
        assert own.rule is None and declared.filter in own.reason
        return
    assert own.rule is not None and not own.reason
    stop = declared.filter if declared.filter != "none" else declared.gate
    assert (own.rule.gate, own.rule.weight) == (stop, declared.weight)
    assert own.rule.weight_level == declared.level and own.rule.gate_level in (declared.level, "token")
    decision = apply(own.rule, tokens).decision
    rows = logged(run, tokens)
    assert decision.clipped.tolist() == rows["clipped"].tolist()
    assert decision.side.tolist() == rows["clip_side"].tolist()
    assert decision.value.tolist() == pytest.approx(rows["gate"].tolist(), rel=1e-6, abs=0)


@every_kind
def test_ratios_are_those_of_the_loss(recorded: Run, algorithm: str) -> None:
    run = recorded(algorithm)
    tokens = load_tokens(open_run(run.folder), 2, 2)
    expected = logged_ratios(run, steps_of(run.folder)[2])
    level = tokens.level(ALGORITHMS[algorithm].level).ratios
    for found, used in zip(level, expected, strict=True):
        assert sorted(found.tolist()) == pytest.approx(sorted(used.tolist()), rel=1e-12)
