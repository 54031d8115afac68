"""tinker-cookbook: a run's folder, its capture, and the capture store, all written by the package."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.formats import IMPORTERS, tinker_capture, tinker_cookbook
from tests.making.foreign.packed import unpack
from tests.making.foreign.reading import column, steps_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return unpack("tinker_cookbook", tmp_path)


def calls(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "capture" / "sample.jsonl").read_text().splitlines()]


def rewrite(run: Path, records: list[dict[str, Any]]) -> None:
    (run / "capture" / "sample.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def test_the_folder_and_its_capture_are_one_run(run: Path) -> None:
    assert [importer.name for importer in IMPORTERS if importer.describe(run)] == ["tinker-cookbook"]
    assert [importer.name for importer in IMPORTERS if importer.describe(run / "capture")] == ["tinker-capture"]
    described = tinker_cookbook.describe(run)
    assert described is not None and described.format == "run folder and capture" and described.steps == 3
    assert described.manifest["algorithm"]["name"] == "importance_sampling"
    steps = steps_of(tinker_cookbook.IMPORTER, run)
    assert [step.number for step in steps] == [0, 1, 2]
    for step in steps:
        assert step.sequences["group_id"] == [0, 0, 1, 1]
        assert step.sequences["n_turns"] == [1, 2, 1, 2]
        assert step.sequences["prompt_tokens"] == [2] * 4
        for response, (group, place) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
            turns = [
                one
                for one in calls(run)
                if [one["scope"].get(key) for key in ("iteration", "group_idx", "traj_idx")]
                == [step.number, group, place]
            ]
            distinct = {one["seq_id"]: one["samples"][0] for one in turns}.values()
            wanted = np.float32([value for one in distinct for value in one["logprobs"]])
            np.testing.assert_array_equal(column(step, "logp_behavior", response), wanted)
            assert len(wanted) == step.sequences["n_tokens"][response]
    assert steps[2].sequences["behavior_version_max"] == [1] * 4 and steps[2].scalars["policy_version"] == 2
    assert set(column(steps[2], "behavior_version", 0)) == {1} and set(column(steps[2], "turn", 1)) == {1, 3}
    assert steps[0].scalars["learning_rate"] == 1e-4 and steps[0].scalars["wall_time"].year == 2025


def test_summaries_of_version_2_are_read_as_those_of_1(run: Path) -> None:
    """As programs on Baseten Loops write them (imitated after basetenlabs/tinker-cookbook 39351e00)."""

    def told() -> list[str]:
        steps = steps_of(tinker_cookbook.IMPORTER, run)
        return [str({name: list(values) for name, values in step.sequences.items()}) for step in steps]

    before = told()
    for file in run.glob("iteration_*/train_rollout_summaries.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        more = {"episode_done": True, "policy_version": 4, "sample_retries": 0, "sample_retry_wait_s": 0.0, "logs": {}}
        rows = [row | {"schema_version": 2, "steps": [step | more for step in row["steps"]]} for row in rows]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert told() == before


def test_groups_without_a_signal_were_dropped(run: Path) -> None:
    """Summaries are written before remove_constant_reward_groups takes them out."""
    first, second, _ = steps_of(tinker_cookbook.IMPORTER, run)
    assert "dropped" not in first.sequences
    assert second.sequences["dropped"] == ["no signal: equal rewards in its group"] * 2 + [None] * 2
    assert set(column(second, "rejected", 0)) == {"no signal: equal rewards in its group"}
    assert set(column(second, "rejected", 2)) == {None}


def test_scoring_calls_and_copies_are_no_responses(run: Path) -> None:
    """compute_post_kl samples one token of a text that it scores; a batch that was sent twice is in the file twice."""
    records = calls(run)
    naive = sum(len(one["samples"]) for one in records if one["scope"]["iteration"] == 0)
    step = steps_of(tinker_capture.IMPORTER, run / "capture")[0]
    assert naive == 8 and sum(step.sequences["n_turns"]) == 6
    assert len(step.sequences["seq_id"]) == 4


def test_the_store_holds_the_same(run: Path, tmp_path: Path) -> None:
    store = unpack("tinker_store", tmp_path)
    assert [importer.name for importer in IMPORTERS if importer.describe(store)] == ["tinker-capture"]
    for lines, rows in zip(
        steps_of(tinker_capture.IMPORTER, run / "capture"), steps_of(tinker_capture.IMPORTER, store), strict=True
    ):
        assert lines.tokens is not None and rows.tokens is not None
        for name in ("token_id", "logp_behavior", "turn", "seq_id", "group_id"):
            np.testing.assert_array_equal(lines.tokens[name], rows.tokens[name])
        assert lines.sequences["adapter"] == rows.sequences["adapter"]


def test_names_of_weights_are_no_versions(run: Path) -> None:
    """Trap 13: a path with a number in it may be a name of anything, and as text ".../9" is newer than ".../10"."""
    step = steps_of(tinker_capture.IMPORTER, run / "capture")[2]
    described = tinker_capture.describe(run / "capture")
    assert described is not None and "adapter" in described.missing["behavior_version"]
    assert set(step.sequences["adapter"]) == {"tinker://tiny/sampler_weights/000001"}
    assert step.tokens is not None and "behavior_version" not in step.tokens


def test_calls_without_coordinates_are_told_apart_by_the_updates(run: Path) -> None:
    """The recipes set no coordinates: what was sampled between two optimiser steps is a step."""
    records = [one | {"scope": {"run_id": "tiny"}} for one in calls(run)]
    rewrite(run, records)
    described = tinker_capture.describe(run / "capture")
    assert described is not None and any("iteration" in sentence for sentence in described.assumed)
    steps = steps_of(tinker_capture.IMPORTER, run / "capture")
    assert [step.number for step in steps] == [0, 1, 2]
    assert [len(step.sequences["seq_id"]) for step in steps] == [6, 6, 6]  # without trajectories a call is a response


def test_a_folder_without_capture_has_rewards_alone(run: Path) -> None:
    shutil.rmtree(run / "capture")
    described = tinker_cookbook.describe(run)
    assert described is not None and "capture" in described.missing["logp_behavior"]
    steps = steps_of(tinker_cookbook.IMPORTER, run)
    assert steps[0].tokens is None and steps[0].sequences["reward"] == [1.0, 0.0, 1.0, 0.0]


def test_bad_lines_are_named(run: Path) -> None:
    records = calls(run)
    records[1]["samples"][0]["logprobs"].pop()
    rewrite(run, records)
    with pytest.raises(ImportProblem, match=r"sample\.jsonl, line 2: \d+ sampled tokens and \d+ log-probabilities"):
        list(tinker_capture.read(run, Reading()))
