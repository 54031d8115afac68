"""ART's trajectories, written by its own classes."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading, Step
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import art
from ratioscope.errors import RatioscopeError
from tests.making.foreign.reading import column, steps_of

STORED = Path(__file__).parents[2] / "making" / "foreign" / "stored" / "art"
MODEL = STORED / "words" / "models" / "words"
APIS = STORED / "words" / "models" / "apis"
POLICY = np.array(json.loads((STORED / "policy.json").read_text()))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL, tmp_path / "model"))


def train(model: Path, step: int) -> Path:
    return model / "trajectories" / "train" / f"{step:04d}.parquet"


def trajectories(step: int, model: Path = MODEL) -> list[dict[str, Any]]:
    found = pq.read_table(train(model, step))["trajectory_json"].to_pylist()
    return [json.loads(text) for text in found if text is not None]


def rewritten(file: Path, change: Any) -> None:
    rows = pq.read_table(file)
    changed = [change(number, row) for number, row in enumerate(rows.to_pylist())]
    pq.write_table(pa.Table.from_pylist(changed, schema=rows.schema), file)


def by_policy(step: Step, response: int, calls: list[tuple[int, int]]) -> None:
    """Hold a response's log-probabilities against the policy: calls by their size, and the token before each."""
    ids, logps = column(step, "token_id", response).astype(int), column(step, "logp_behavior", response)
    begin = 0
    for before, size in calls:
        states = [before, *ids[begin : begin + size]]
        expected = [POLICY[one, other] for one, other in pairwise(states)]
        np.testing.assert_allclose(logps[begin : begin + size], expected, rtol=1e-6)
        begin += size
    assert begin == len(ids)


def test_calls_with_token_ids() -> None:
    first, _ = steps_of(art.IMPORTER, MODEL)
    assert first.number == 1 and first.tokens is not None
    for response, trajectory in enumerate(trajectories(1)):
        calls = trajectory["exchanges"]["chat_completions"]
        choices = [call["response"]["choices"][0] for call in calls]
        ids = [choice["token_ids"] for choice in choices]
        assert column(first, "token_id", response).tolist() == [*ids[0], *ids[1]]
        by_policy(first, response, [(2, len(ids[0])), (4, len(ids[1]))])
        turns = column(first, "turn", response).tolist()
        assert turns == [2] * len(ids[0]) + [4] * len(ids[1])
        anew = response == 2  # its second prompt does not begin with what was there
        assert column(first, "segment_id", response).tolist() == [0] * len(ids[0]) + [int(anew)] * len(ids[1])
    rows = first.sequences
    assert rows["reward"] == [0.0, 1.0, 0.0, 1.0, None] and rows["group_id"] == [0, 0, 1, 1, 1]
    assert rows["prompt_tokens"][:4] == [2] * 4 and rows["n_turns"][:4] == [2] * 4
    assert rows["behavior_version_max"][:4] == [0] * 4 and rows["finish_reason"][:4] == ["length"] * 4
    assert rows["truncated"][:4] == [True] * 4 and rows["seconds_generating"][:4] == [4.0] * 4
    assert rows["temperature"][:4] == [0.9] * 4 and "top_p" not in rows
    assert (np.asarray(first.tokens["behavior_version"]) == 0).all()
    assert rows["prompt"][0] == "system: be brief\nuser: one?"


def test_episodes_that_failed_are_there() -> None:
    first, second = steps_of(art.IMPORTER, MODEL)
    assert first.sequences["failure"] == [None] * 4 + ["timeout"]
    assert first.sequences["dropped"] == [None] * 4 + ["exception (TimeoutError)"]
    assert second.sequences["failure"] == [None] * 3 + ["environment"]  # a group of which nothing is left
    assert second.sequences["group_id"] == [0, 0, 1, 2]


def test_choices_that_name_tokens_and_histories() -> None:
    second = steps_of(art.IMPORTER, MODEL)[1]
    assert second.tokens is not None
    sizes = [
        [len(choice["logprobs"]["content"]) for choice in (history[1] for history in histories(one))]
        for one in trajectories(2)
    ]
    assert [len(one) for one in sizes] == [2, 1, 1]
    by_policy(second, 0, [(1, sizes[0][0]), (2, sizes[0][1])])
    by_policy(second, 1, [(1, sizes[1][0])])
    assert column(second, "segment_id", 0).tolist() == [0] * sizes[0][0] + [1] * sizes[0][1]
    assert np.isnan(column(second, "token_id", 2)).all()  # named by their text
    assert column(second, "logp_behavior", 2).tolist() == pytest.approx(
        [entry["logprob"] for entry in trajectories(2)[2]["messages_and_choices"][1]["logprobs"]["content"]]
    )
    assert second.sequences["behavior_version_min"][0] == 1 and second.sequences["behavior_version_max"][0] == 2
    assert "behavior_version" not in second.tokens and second.sequences["response"][1].startswith("said ")


def histories(trajectory: dict[str, Any]) -> list[Any]:
    others = trajectory.get("additional_histories") or []
    return [trajectory["messages_and_choices"], *(history["messages_and_choices"] for history in others)]


def test_scalars_of_rows_that_were_logged_with_trajectories_alone(model: Path) -> None:
    """What was logged after the update stands under the checkpoint's number, which is another step."""
    first, second = steps_of(art.IMPORTER, model)
    assert first.scalars["loss"] == 0.25 and first.scalars["grad_norm"] == 1.5
    assert "loss" not in second.scalars
    (model / "history.jsonl").unlink()
    assert "loss" not in steps_of(art.IMPORTER, model)[0].scalars


def test_what_is_missing_is_what_the_first_trajectory_lacks(model: Path) -> None:
    found = art.IMPORTER.describe(model)
    assert found is not None and found.steps == 2
    assert not {"token_id", "logp_behavior", "behavior_version"} & found.missing.keys()
    train(model, 1).unlink()
    found = art.IMPORTER.describe(model)
    assert found is not None and "token_id" not in found.missing

    def texts(_: int, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"group_json": None, "trajectory_json": None}

    rewritten(train(model, 2), texts)
    found = art.IMPORTER.describe(model)
    assert found is not None and "texts and rewards alone" in found.missing["token_id"]
    (step,) = steps_of(art.IMPORTER, model)
    assert step.tokens is None and step.sequences["reward"] == [1.0, 0.0, 1.0] and step.messages is not None
    assert step.sequences["n_turns"] == [1, 1, 1]


def test_calls_of_the_responses_and_of_the_messages_api(tmp_path: Path) -> None:
    (step,) = steps_of(art.IMPORTER, APIS)
    by_responses, by_messages = (one["exchanges"] for one in trajectories(1, APIS))
    made = [[token["token_id"] for token in generation(call)["output_tokens"]] for call in by_responses["responses"]]
    made_by_messages = [call["response"]["token_ids"] for call in by_messages["messages"]]
    for response, (first, second) in enumerate((made, made_by_messages)):
        assert column(step, "token_id", response).tolist() == [*first, *second]
        by_policy(step, response, [(2, len(first)), (4, len(second))])
        assert column(step, "turn", response).tolist() == [2] * len(first) + [4] * len(second)
        assert not column(step, "segment_id", response).any()
    rows, messages = step.sequences, step.messages
    assert messages is not None and messages["role"] == ["system", "user", "assistant", "tool", "assistant"] * 2
    assert messages["content"] == ["be brief", "list the files", "hm", "a.txt", "a.txt",
                                   "be brief", "list the files", "so:", "a.txt", "a.txt"]  # fmt: skip
    assert messages["tool"] == [None, None, "bash", "bash", None] * 2
    assert rows["finish_reason"] == ["max_output_tokens", "end_turn"] and rows["truncated"] == [True, False]
    assert rows["temperature"] == [0.7, None] and rows["seconds_generating"] == [6.0, 6.0]
    found = art.IMPORTER.describe(APIS)
    assert found is not None and not {"token_id", "logp_behavior"} & found.missing.keys()

    model = Path(shutil.copytree(APIS, tmp_path / "model"))
    rewritten(train(model, 1), without_generations)
    (step,) = steps_of(art.IMPORTER, model)
    assert step.sequences["n_tokens"] == [1, sum(map(len, made_by_messages))]  # a call of a tool has no tokens then
    assert column(step, "logp_behavior", 0).tolist() == [-0.5]


def generation(call: dict[str, Any]) -> Any:
    return call["response"]["token_generations"][0]


def without_generations(_: int, row: dict[str, Any]) -> dict[str, Any]:
    """As a server answers that says no more than OpenAI's API has: log-probabilities of texts."""
    trajectory = json.loads(row["trajectory_json"])
    for call in trajectory["exchanges"].get("responses", ()):
        del call["response"]["token_generations"]
        for item in call["response"]["output"]:
            for content in item.get("content", ()):
                content["logprobs"] = [{"token": "token_id:7", "logprob": -0.5, "bytes": [], "top_logprobs": []}]
    return row | {"trajectory_json": json.dumps(trajectory)}


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("trajectory_json", "[1]", r"row 2: its JSON is not that of a trajectory \(it is no object\)"),
        ("trajectory_json", "{", "row 2: its JSON is not that of a trajectory"),
        ("group_json", "3", "row 2: its JSON is not that of a trajectory"),
        (
            "trajectory_json",
            '{"exchanges": {"chat_completions": [{}]}}',
            "line 2: the response cannot be read: it has no r",
        ),
        ("trajectory_json", '{"messages_and_choices": [3]}', "line 2: the response cannot be read"),
    ],
)
def test_rows_that_are_not_right_are_named(key: str, value: str, what: str, model: Path) -> None:
    rewritten(train(model, 1), lambda number, row: row | ({key: value} if number == 1 else {}))
    with pytest.raises(ImportProblem, match=rf"0001\.parquet(, |: ){what}.*\.$"):
        list(art.IMPORTER.read(model, Reading()))
    reading = Reading(skip_bad=True)
    first, _ = art.IMPORTER.read(model, reading)
    assert len(reading.problems) == 1 and len(first.sequences["reward"]) == 4


def test_a_call_with_too_few_log_probabilities_is_named(model: Path) -> None:
    def cut(number: int, row: dict[str, Any]) -> dict[str, Any]:
        trajectory = json.loads(row["trajectory_json"])
        trajectory["exchanges"]["chat_completions"][0]["response"]["choices"][0]["logprobs"]["content"].pop()
        return row | ({"trajectory_json": json.dumps(trajectory)} if number == 0 else {})

    rewritten(train(model, 1), cut)
    with pytest.raises(ImportProblem, match=r"a call has \d log-probabilities for \d tokens\.$"):
        list(art.IMPORTER.read(model, Reading()))


def test_a_run_is_followed(model: Path) -> None:
    assert [step.number for step in art.IMPORTER.read(model, Reading(growing=True))] == [1]
    assert [step.number for step in art.IMPORTER.read(model, Reading(after=1))] == [2]
    train(model, 3).write_bytes(train(model, 2).read_bytes()[:300])  # cut
    assert [step.number for step in art.IMPORTER.read(model, Reading(after=1, growing=True))] == [2]
    with pytest.raises(ImportProblem, match=r"0003\.parquet: no Parquet file, or not whole"):
        list(art.IMPORTER.read(model, Reading()))


def test_a_file_that_lacks_a_column_is_told_whose_it_is(model: Path) -> None:
    for step in (1, 2):
        pq.write_table(pq.read_table(train(model, step)).drop_columns(["reward"]), train(model, step))
    with pytest.raises(RatioscopeError, match="by its name it is from ART trajectories, but it has no reward"):
        the_source(model)
