"""prime-rl: the token export, the traces, and both as one run."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.detect import detect
from ratioscope.analysis.importers.formats import IMPORTERS, prime_rl
from ratioscope.analysis.importers.values import sampled_runs, segments
from ratioscope.analysis.importers.writing import Options, import_run, manifest_of
from tests.making.foreign.packed import unpack
from tests.making.foreign.reading import column, steps_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return unpack("prime_rl", tmp_path)


def exports(run: Path, step: int) -> list[dict[str, Any]]:
    """Lines of the export in the order of the importer: by rank, then by line."""
    files = sorted((run / "token_exports" / f"step_{step}").glob("rank_*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def change(file: Path, line: int, **values: Any) -> None:
    lines = file.read_text().splitlines()
    lines[line] = json.dumps(json.loads(lines[line]) | values)
    file.write_text("\n".join(lines) + "\n")


def test_nobody_else_claims_it(run: Path) -> None:
    for place in (run, run / "token_exports", run / "rollouts"):
        assert [importer.name for importer in IMPORTERS if importer.describe(place)] == ["prime-rl"]
    described = prime_rl.describe(run)
    assert described is not None and described.format == "token exports and traces" and described.steps == 3
    assert set(described.missing) == {"logp_new", "logp_behavior_train"}
    assert described.manifest["algorithm"]["parameters"]["dppo_mask_low"] == 0.02
    assert described.manifest["planned_updates"] == 3 and described.manifest["sampled_with"] == "processed"


def test_export_and_traces_are_joined_by_their_tokens(run: Path) -> None:
    steps = steps_of(prime_rl.IMPORTER, run)
    assert [step.number for step in steps] == [1, 2, 3]
    assert [step.scalars["policy_version"] for step in steps] == [0, 1, 2]
    assert steps[0].scalars["grad_norm"] == 0.1 and steps[0].scalars["wall_time"].year == 2025
    for step in steps:
        lines = exports(run, step.number)
        trained = [place for place, why in enumerate(step.sequences.get("dropped", [None] * 99)) if why is None]
        assert trained[: len(lines)] == list(range(len(lines)))
        for response, line in enumerate(lines):
            mask = np.array(line["loss_mask"])
            for name, stored in (("logp_behavior", "inference_logprobs"), ("logp_current", "trainer_logprobs")):
                np.testing.assert_array_equal(column(step, name, response), np.float32(line[stored])[mask])
            rewards = {1.1: 0.5, 0.1: -0.5}
            advantage = column(step, "advantage", response)
            if step.number == 3:
                assert advantage[0] == rewards[round(step.sequences["reward"][response], 3)]
    assert steps[0].sequences["prompt"][0].startswith("[system]\nSort words.")
    assert steps[0].messages is not None and steps[0].messages["role"][:3] == ["system", "user", "assistant"]


def test_placeholders_of_the_prompt_are_no_tokens(run: Path) -> None:
    """Trap 3: 0.0 stands as log-probability at every token of the prompt."""
    line = exports(run, 1)[0]
    naive = np.exp(line["inference_logprobs"]).mean()
    right = np.exp(column(steps_of(prime_rl.IMPORTER, run)[0], "logp_behavior", 0)).mean()
    assert naive > right + 0.2
    assert np.exp(line["trainer_logprobs"][0]) == pytest.approx(1 / 50)  # token 0: a uniform draw, not a prediction


def test_what_the_loss_masked_is_clipped_on_its_side(run: Path) -> None:
    step = steps_of(prime_rl.IMPORTER, run)[0]
    assert step.tokens is not None
    clipped, side, advantage = (np.asarray(step.tokens[name]) for name in ("clipped", "clip_side", "advantage"))
    assert clipped.any() and not clipped.all()
    assert set(side[clipped & (advantage > 0)]) == {1} and set(side[clipped & (advantage < 0)]) == {-1}
    assert set(side[~clipped]) == {0}
    change(run / "token_exports" / "step_1" / "rank_0.jsonl", 0, is_masked=[None] * 3)  # another loss exports nulls
    described = prime_rl.describe(run)
    assert described is not None and "another" in described.missing["clipped"]


def test_a_fork_counts_what_it_shares_once(run: Path) -> None:
    """Trap 11: both branches of a conversation hold its first sampled message."""
    trained = {len(line["token_ids"]): sum(line["loss_mask"]) for line in exports(run, 1)}
    shutil.rmtree(run / "token_exports")
    step = steps_of(prime_rl.IMPORTER, run)[0]
    episodes = (run / "rollouts/step_1/train/effective/traces.jsonl").read_text().splitlines()
    nodes = next(nodes for nodes in (json.loads(line)["traces"][0]["nodes"] for line in episodes) if len(nodes) > 3)
    paths = [[nodes[place] for place in path] for path in ((0, 1, 2, 3, 4), (0, 1, 2, 5, 6))]
    naive = [sum(sum(node["mask"]) for node in path) for path in paths]
    right = [place for place, prompt in enumerate(step.sequences["prompt_id"]) if prompt == 99]
    counted = [len(column(step, "logp_behavior", place)) for place in right]
    assert naive == [10, 10] and counted == [6, 10, 5]  # the first is another response to the same prompt
    for path, count in zip(paths, counted[1:], strict=True):
        assert trained[sum(len(node["token_ids"]) for node in path)] == count


def test_four_decimals_are_said_and_seen(run: Path) -> None:
    """Trap 12: the traces round; a difference to the full values is no mismatch of engines."""
    full = steps_of(prime_rl.IMPORTER, run)[2]
    shutil.rmtree(run / "token_exports")
    rounded = steps_of(prime_rl.IMPORTER, run)[2]
    described = prime_rl.describe(run)
    assert described is not None and described.manifest["log_probability_decimals"] == 4
    assert "token exports" in described.missing["logp_current"]
    assert full.tokens is not None and rounded.tokens is not None and "logp_current" not in rounded.tokens
    one, other = np.sort(full.tokens["logp_behavior"]), np.sort(rounded.tokens["logp_behavior"])
    assert 1e-6 < np.abs(one - other).max() <= 5.1e-5


def test_what_never_reached_the_loss_is_dropped_with_its_reason(run: Path) -> None:
    """Trap 6: `effective` alone knows nothing of them; a response that came early and was trained on later is none."""
    first, second, third = steps_of(prime_rl.IMPORTER, run)
    assert [why for why in first.sequences["dropped"] if why] == ["failed: error"]
    assert [why for why in second.sequences["dropped"] if why] == ["no signal: equal rewards in its group"] * 4
    assert not any(third.sequences.get("dropped", []))
    late = [place for place, prompt in enumerate(third.sequences["prompt_id"]) if prompt == 20]
    assert len(late) == 1 and third.sequences["behavior_version_min"][late[0]] == 0
    trained = [
        reward for reward, why in zip(second.sequences["reward"], second.sequences["dropped"], strict=True) if not why
    ]
    sampled = second.sequences["reward"]
    assert np.mean(sampled) > np.mean(trained) + 0.2  # the selection can be measured


def test_exports_alone(run: Path) -> None:
    shutil.rmtree(run / "rollouts")
    described = prime_rl.describe(run)
    assert described is not None and described.format == "token exports"
    assert {"reward", "group_id", "behavior_version", "response"} <= described.missing.keys()
    step = steps_of(prime_rl.IMPORTER, run)[0]
    assert step.tokens is not None and not {"group_id", "behavior_version"} & step.tokens.keys()
    assert "reward" not in step.sequences and step.messages is None


@pytest.mark.parametrize(
    ("mask", "messages", "sampled"),
    [("", [], 0), ("0", [0], 0), ("1", [1], 1), ("0011", [0, 0, 1, 1], 1), ("110100", [1, 1, 2, 3, 4, 4], 2)],
)
def test_runs_of_equal_mask_values_are_messages(mask: str, messages: list[int], sampled: int) -> None:
    told = np.array([one == "1" for one in mask], dtype=bool)
    assert segments(told).tolist() == messages and segments(told).dtype == np.int16
    assert sampled_runs(told) == sampled


def test_values_that_are_not_finite_stay(run: Path) -> None:
    """The export writes them as null, which elsewhere means that nothing was logged."""
    line = exports(run, 1)[0]
    sampled = line["loss_mask"].index(True)
    line["trainer_logprobs"][sampled] = None
    change(run / "token_exports/step_1/rank_0.jsonl", 0, trainer_logprobs=line["trainer_logprobs"])
    values = steps_of(prime_rl.IMPORTER, run)[0].tokens["logp_current"]  # type: ignore[index]
    assert np.isnan(values[0]) and np.isfinite(values[1:]).all() and not np.ma.isMaskedArray(values)


def test_tokens_of_weight_0_are_rejected(run: Path) -> None:
    """filter_zero_advantages takes a token out of the loss by its weight."""
    line = exports(run, 1)[0]
    weights = [float(trained) for trained in line["loss_mask"]]
    first = line["loss_mask"].index(True)
    weights[first], line["advantages"][first] = 0.0, 0.0
    change(run / "token_exports/step_1/rank_0.jsonl", 0, rl_weights=weights, advantages=line["advantages"])
    rejected = column(steps_of(prime_rl.IMPORTER, run)[0], "rejected", 0)
    assert list(rejected[:2]) == ["advantage 0", None]


def test_a_run_that_grows(run: Path) -> None:
    (run / "token_exports" / "step_3" / "STABLE").unlink()
    growing = list(prime_rl.read(run, Reading(growing=True)))
    assert [step.number for step in growing] == [1, 2]
    assert [step.number for step in prime_rl.read(run, Reading(after=2))] == [3]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"schema_version": 2}, "schema_version 2 of the token export is not known"),
        ({"trainer_logprobs": [0.0]}, "lists of different lengths"),
        ({"loss_mask": None}, "a sample without loss_mask"),
    ],
)
def test_bad_lines_are_named(run: Path, values: dict[str, Any], said: str) -> None:
    change(run / "token_exports/step_1/rank_1.jsonl", 1, **values)
    with pytest.raises(ImportProblem, match=rf"rank_1\.jsonl, line 2: .*{said}"):
        list(prime_rl.read(run, Reading()))
    reading = Reading(skip_bad=True)
    assert len(list(prime_rl.read(run, reading))) == 3 and len(reading.problems) == 1


@pytest.mark.parametrize("key", ["traces", "group", "run", "env", "nodes", "rewards", "calls", "message", "logprobs"])
def test_values_of_another_kind_are_bad_lines_and_no_crashes(run: Path, key: str) -> None:
    shutil.rmtree(run / "token_exports")
    file = run / "rollouts/step_2/train/effective/traces.jsonl"
    lines = file.read_text().splitlines()
    for value in (5, "x", [], {}, [None], {"a": 1}, True, 10**30):
        episode = json.loads(lines[0])
        trace = episode["traces"][0]
        holder = next(one for one in (episode, trace, trace["nodes"][-1]) if key in one)
        holder[key] = value
        file.write_text("\n".join([json.dumps(episode), *lines[1:]]) + "\n")
        reading = Reading(skip_bad=True)
        assert [step.number for step in prime_rl.read(run, reading)] == [1, 2, 3]
        assert all("traces.jsonl, line 1: " in problem for problem in reading.problems)


def test_packed_batches_for_the_trainer_are_not_read(tmp_path: Path) -> None:
    """Trap 15: rollout_transport.type = filesystem leaves binary batches at the same place."""
    (tmp_path / "rollouts" / "step_1").mkdir(parents=True)
    (tmp_path / "rollouts" / "step_1" / "rank_0.bin").write_bytes(b"\x93\x01\x02\x03")
    assert not [importer.name for importer in IMPORTERS if importer.describe(tmp_path)]


def test_a_followed_run_goes_on_when_dropped_responses_become_known(run: Path, tmp_path: Path) -> None:
    """While it grows nobody knows whether a response will still be trained on; its step is the same one later."""
    (found,) = detect(run)
    later = [(run / "rollouts/step_3"), (run / "token_exports/step_3")]
    for folder in later:
        folder.rename(tmp_path / f"later-{folder.parent.name}")
    growing = list(prime_rl.read(run, Reading(growing=True)))[-1]
    assert growing.number == 2 and "dropped" not in growing.sequences
    with RunRecorder(tmp_path / "runs" / "a", **manifest_of(found, "a")) as recorder:
        for step in prime_rl.read(run, Reading(growing=True)):
            recorder.record_step(step.number, sequences=step.sequences, tokens=step.tokens, scalars=step.scalars)
    for folder in later:
        (tmp_path / f"later-{folder.parent.name}").rename(folder)
    assert import_run(found, tmp_path / "runs" / "a", Options()).last_step == 3
