"""verifiers: traces that its own code wrote, and results of the older kind."""

import json
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import IMPORTERS, verifiers
from ratioscope.analysis.importers.formats.traces import branches
from ratioscope.analysis.importers.writing import Options, import_run
from tests.making.foreign.packed import unpack
from tests.making.foreign.reading import column, steps_of


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    return unpack("verifiers", tmp_path)


def test_an_evaluation_is_one_step(evaluation: Path) -> None:
    assert [importer.name for importer in IMPORTERS if importer.describe(evaluation)] == ["verifiers"]
    described = verifiers.describe(evaluation)
    assert described is not None and described.version == "0.4.0"
    assert described.manifest["model"] == {"path": "tiny"} and described.manifest["log_probability_decimals"] == 4
    assert "does not train" in described.missing["advantage"]
    (step,) = steps_of(verifiers.IMPORTER, evaluation)
    assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert step.sequences["reward"][5] is None  # failed: no reward, not 0
    assert step.sequences["reward_right"][:2] == [1.0, 0.0]
    assert step.tokens is not None and not {"logp_current", "advantage"} & step.tokens.keys()


def test_float_lists_cover_sampled_tokens_alone(evaluation: Path) -> None:
    """The lists of a message are shorter than its tokens: place i of one is not place i of the other."""
    first = json.loads((evaluation / "traces.jsonl").read_text().splitlines()[0])["traces"][0]
    answer = first["nodes"][2]
    assert len(answer["logprobs"]) == len(answer["token_ids"]) - 2 == sum(answer["mask"])
    step = steps_of(verifiers.IMPORTER, evaluation)[0]
    np.testing.assert_array_equal(column(step, "logp_behavior", 0), np.float32(answer["logprobs"]))
    np.testing.assert_array_equal(column(step, "token_id", 0), answer["token_ids"][2:])
    assert not np.array_equal(
        column(step, "token_id", 0), answer["token_ids"][: len(answer["logprobs"])]
    )  # the naive one


def test_a_fork_is_two_responses_that_share_no_token(evaluation: Path) -> None:
    """Trap 11."""
    trace = json.loads((evaluation / "traces.jsonl").read_text().splitlines()[-1])["traces"][0]
    first, second = branches(trace)
    assert first.path == (0, 1, 2, 3, 4) and second.path == (0, 1, 2, 5, 6)
    assert first.counted == {2, 4} and second.counted == {6}
    naive = sum(sum(trace["nodes"][place]["mask"]) for branch in (first, second) for place in branch.path)
    assert naive == 20 and first.mask.sum() + second.mask.sum() == 15
    step = steps_of(verifiers.IMPORTER, evaluation)[0]
    assert step.messages is not None
    mine = [place for place, seq_id in enumerate(step.messages["seq_id"]) if seq_id == 6]
    assert [step.messages["role"][place] for place in mine] == ["system", "user", "assistant", "tool", "assistant"]
    assert [step.messages["tool"][place] for place in mine][2:4] == ["look_up", "look_up"]
    assert [step.messages["first_position"][place] for place in mine] == [None, None, 0, None, 5]
    assert set(column(step, "turn", 6)) == {2, 4}


def test_messages_without_values_are_null_not_certain(evaluation: Path) -> None:
    """Trap 3: the reader of the package itself puts 0.0 where a message has no log-probabilities."""
    file = evaluation / "traces.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[-1]["traces"][0]["nodes"][4]["logprobs"] = []
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    values = column(steps_of(verifiers.IMPORTER, evaluation)[0], "logp_behavior", 6)
    assert np.isnan(values[5:]).all() and np.isfinite(values[:5]).all()


def test_what_failed_says_why_and_an_episode_without_a_trace_is_a_response(evaluation: Path) -> None:
    file = evaluation / "traces.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    errors = [{"type": "ToolError", "message": "an earlier attempt"}, {"type": "EnvError", "message": "no machine"}]
    lines.append({**lines[0], "id": "ff", "ok": False, "traces": [], "errors": errors})
    lines[0]["traces"][0] |= {"is_timeout": True, "ok": True}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    step = steps_of(verifiers.IMPORTER, evaluation)[0]
    assert [*step.sequences["failure"]] == ["timeout", *[None] * 4, "environment", None, None, "environment"]
    assert step.sequences["dropped"][-1] == "failed: EnvError" and step.sequences["group_id"][-1] == 0


def test_a_reward_that_is_missing_for_a_stated_failure_is_no_problem(evaluation: Path, tmp_path: Path) -> None:
    import_run(the_source(evaluation), tmp_path / "run", Options())
    (said,) = (remark.sentence for remark in open_folder(tmp_path / "run").remarks if remark.rule == "rewards")
    assert said.endswith("Failed without a reward: 1 environment.")


def test_a_list_of_the_wrong_length_is_named(evaluation: Path) -> None:
    file = evaluation / "traces.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1]["traces"][0]["nodes"][2]["logprobs"].pop()
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(
        ImportProblem, match=r"traces\.jsonl, line 2: a message has \d+ logprobs for \d+ sampled tokens"
    ):
        list(verifiers.read(evaluation, Reading()))


def imitated_results(folder: Path) -> None:
    """Imitated: `state_to_output` and `GenerateMetadata` of `verifiers/legacy` at verifiers a60a606e."""
    folder.mkdir()
    metadata = {
        "env_id": "words", "model": "tiny", "num_examples": 1, "rollouts_per_example": 2,
        "sampling_args": {"temperature": 0.7}, "version_info": {"vf_version": "0.3.1"},
    }  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(metadata))
    rows = [
        {
            "example_id": 4,
            "prompt": [{"role": "user", "content": "Sort: b a"}],
            "completion": [{"role": "assistant", "content": "a b", "tool_calls": []}],
            "reward": reward,
            "timing": {"generation": {"start": 10.0, "end": 12.5}},
            "is_completed": True,
            "is_truncated": False,
            "stop_condition": "stop",
            "metrics": {"right": reward, "turns taken": 1.0},
            "error": None,
        }
        for reward in (1.0, 0.0)
    ]
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_older_results_are_texts_and_scores(tmp_path: Path) -> None:
    imitated_results(tmp_path / "old")
    assert [importer.name for importer in IMPORTERS if importer.describe(tmp_path / "old")] == ["verifiers-results"]
    described = verifiers.RESULTS.describe(tmp_path / "old")
    assert (
        described is not None and described.version == "0.3.1" and "traces.jsonl" in described.missing["logp_behavior"]
    )
    (step,) = steps_of(verifiers.RESULTS, tmp_path / "old")
    assert step.tokens is None
    assert step.sequences["response"] == ["a b", "a b"] and step.sequences["prompt_id"] == [4, 4]
    assert step.sequences["reward_turns_taken"] == [1.0, 1.0] and step.sequences["seconds_generating"] == [2.5, 2.5]
    assert step.messages is not None and step.messages["role"] == ["user", "assistant"] * 2
