"""NeMo-Gym's rollouts, written by its own collector and converter."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import nemo_gym
from ratioscope.errors import RatioscopeError
from tests.making.foreign.reading import column, steps_of

STORED = Path(__file__).parents[2] / "making" / "foreign" / "stored" / "nemo_gym"
POLICY = np.array(json.loads((STORED / "policy.json").read_text()))


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (STORED / "results" / f"{name}.jsonl").read_text().splitlines()]


DONE, FAILED = rows("rollouts"), rows("rollouts_failures")


def spoken(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in row["response"]["output"] if "generation_token_ids" in item]


def write(file: Path, *found: dict[str, Any]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in found))


def test_what_each_call_sampled() -> None:
    (step,) = steps_of(nemo_gym.IMPORTER, STORED / "results")
    assert step.tokens is not None and len(DONE) == 6 and len(FAILED) == 1
    for response, row in enumerate([*DONE, *FAILED]):
        calls, expected, ids = spoken(row), [], []
        for call in calls:
            made = call["generation_token_ids"]
            expected += [POLICY[one, other] for one, other in pairwise([call["prompt_token_ids"][-1], *made])]
            ids += made
        assert column(step, "token_id", response).tolist() == ids
        np.testing.assert_allclose(column(step, "logp_behavior", response), expected, rtol=1e-6)
    assert step.sequences["n_turns"] == [2, 1, 2, 1, 1, 1, 1] and step.sequences["prompt_tokens"] == [3] * 7


def test_a_history_that_is_rendered_anew_is_another_segment() -> None:
    (step,) = steps_of(nemo_gym.IMPORTER, STORED / "results")
    for response, breaks in ((0, False), (2, True)):
        first, second = (len(call["generation_token_ids"]) for call in spoken(DONE[response]))
        assert column(step, "segment_id", response).tolist() == [0] * first + [int(breaks)] * second
        assert column(step, "turn", response).tolist() == [1] * first + [3] * second


def test_rewards_groups_ends_and_failures() -> None:
    (step,) = steps_of(nemo_gym.IMPORTER, STORED / "results")
    assert step.sequences["reward"] == [row["reward"] for row in DONE] + [None]
    assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2, 2] and step.sequences["prompt_id"] == [0, 0, 1, 1, 2, 2, 2]
    assert step.sequences["failure"] == [None] * 4 + ["parse", None, "judge"]
    assert step.sequences["dropped"] == [None] * 6 + ["failed attempt (judge_failed)"]
    assert step.sequences["finish_reason"] == [None] * 3 + ["max_output_tokens"] + [None] * 3
    assert step.sequences["truncated"] == [None] * 3 + [True] + [None] * 3
    assert {*step.sequences["environment"]} == {"simple_agent"} and {*step.sequences["temperature"]} == {0.7}


def test_thought_text_and_call_of_one_answer_are_one_message() -> None:
    (step,) = steps_of(nemo_gym.IMPORTER, STORED / "results")
    assert step.messages is not None
    mine = [place for place, seq in enumerate(step.messages["seq_id"]) if seq == 0]
    assert [step.messages["role"][place] for place in mine] == ["user", "assistant", "tool", "assistant"]
    assert [step.messages["tool"][place] for place in mine] == [None, "adder", "adder", None]
    said = step.messages["content"][mine[1]]
    assert "I ask." in said and "Wait." in said and 'adder({"a": 1})' in said
    assert step.sequences["n_tool_calls"][:2] == [1, None] and step.sequences["prompt"][0] == "add 1 and 2"


@pytest.mark.parametrize(
    ("reason", "failure"),
    [
        *((wrong, None) for wrong in ("none", None, "target_mismatch", "judge_not_equivalent", 3, ["x"])),
        ("no_sql_extracted", "parse"),
        ("judge_swap_parsing_failed", "judge"),
        ("expected_answer_invalid", "environment"),
    ],
)
def test_an_answer_that_is_wrong_has_not_failed(reason: Any, failure: str | None, tmp_path: Path) -> None:
    write(tmp_path / "rollouts.jsonl", DONE[0] | {"failure_reason": reason})
    (step,) = steps_of(nemo_gym.IMPORTER, tmp_path)
    assert step.sequences.get("failure") == (None if failure is None else [failure])
    assert step.sequences["reward"] == [0.0]


def test_what_is_missing_is_what_the_rollouts_lack(tmp_path: Path) -> None:
    found = nemo_gym.IMPORTER.describe(STORED / "results")
    assert found is not None and not {"token_id", "logp_behavior"} & found.missing.keys()
    texts = json.loads(json.dumps(DONE[0]))
    for item in texts["response"]["output"]:
        for key in ("prompt_token_ids", "generation_token_ids", "generation_log_probs"):
            item.pop(key, None)
    texts["response"]["status"] = "completed"
    del texts["_ng_task_index"]
    write(tmp_path / "rollouts.jsonl", texts)
    found = nemo_gym.IMPORTER.describe(tmp_path)
    assert found is not None and "return_token_id_information" in found.missing["token_id"]
    assert "finish_reason" not in found.missing and "number no tasks" in found.assumed[1]
    (step,) = steps_of(nemo_gym.IMPORTER, tmp_path)
    assert step.tokens is None and step.messages is not None and step.sequences["finish_reason"] == ["completed"]
    assert step.sequences["n_turns"] == [2] and "prompt_tokens" not in step.sequences


def test_a_rollout_that_the_loss_must_not_see_is_dropped(tmp_path: Path) -> None:
    write(tmp_path / "rollouts.jsonl", DONE[0], DONE[1] | {"mask_sample": True})
    (step,) = steps_of(nemo_gym.IMPORTER, tmp_path)
    assert step.sequences["dropped"] == [None, "mask_sample"] and step.sequences["reward"] == [0.0, 1.0]


def test_one_task_of_two_runs_is_two_groups(tmp_path: Path) -> None:
    """Each run counts its tasks from 0."""
    other = json.loads(json.dumps(DONE[0]))
    other["responses_create_params"]["input"] = "another question"
    write(tmp_path / "a.jsonl", DONE[0], DONE[1])
    write(tmp_path / "b.jsonl", other)
    (step,) = steps_of(nemo_gym.IMPORTER, tmp_path)
    assert step.sequences["group_id"] == [0, 0, 1] and step.sequences["prompt"][2] == "another question"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda row: row.pop("reward"), "no reward"),
        (lambda row: spoken(row)[0].update(prompt_token_ids=[None]), "a token id is no whole number of 32 bits"),
        (lambda row: spoken(row)[0]["generation_log_probs"].pop(), r"a call has \d+ log-probabilities for \d+ tokens"),
        (
            lambda row: spoken(row)[0].update(generation_token_ids=3),
            "something in it is of another kind than the format has",
        ),
    ],
)
def test_lines_that_are_not_right_are_named(change: Any, what: str, tmp_path: Path) -> None:
    bad = json.loads(json.dumps(DONE[1]))
    change(bad)
    write(tmp_path / "rollouts.jsonl", DONE[0], bad)
    with pytest.raises(ImportProblem, match=rf"rollouts\.jsonl, line 2: .*{what}\.$"):
        list(nemo_gym.IMPORTER.read(tmp_path, Reading()))
    reading = Reading(skip_bad=True)
    (step,) = nemo_gym.IMPORTER.read(tmp_path, reading)
    assert len(step.sequences["reward"]) == 1 and len(reading.problems) == 1


@pytest.mark.parametrize(
    "change", [{"response": None}, {"response": []}, {"responses_create_params": 3}, {"agent_ref": "x"}]
)
def test_a_rollout_with_odd_parts_keeps_its_reward(change: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "rollouts.jsonl", DONE[1], DONE[1] | change)
    (step,) = steps_of(nemo_gym.IMPORTER, tmp_path)
    assert step.sequences["reward"] == [1.0, 1.0]


def test_a_file_that_is_still_written_and_one_that_is_cut(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(STORED / "results", tmp_path / "results"))
    assert list(nemo_gym.IMPORTER.read(folder, Reading(growing=True))) == []
    file = folder / "rollouts.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ImportProblem, match=r"line 6: the file ends within this line\.$"):
        list(nemo_gym.IMPORTER.read(folder, Reading()))


def test_a_file_that_lacks_a_key_is_told_whose_it_is(tmp_path: Path) -> None:
    write(tmp_path / "my_rollouts.jsonl", {"response": {}, "responses_create_params": {}})
    with pytest.raises(RatioscopeError, match="by its name it is from NeMo-Gym rollouts, but it has no reward"):
        the_source(tmp_path)
