"""rLLM's gateway and its episodes, as its own code wrote them (tests/making/foreign/rllm.py)."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading, Step
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import rllm_episodes, rllm_gateway
from ratioscope.analysis.importers.writing import (
    Imported,
    Options,
    follow_run,
    import_run,
    last_change,
    newest_change,
)
from ratioscope.errors import RatioscopeError
from tests.making.foreign import truth
from tests.making.foreign.packed import unpack
from tests.making.foreign.reading import assert_tokens, column, steps_of
from tests.making.foreign.rllm import calls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack("rllm", tmp_path)


@pytest.fixture
def database(folder: Path) -> Path:
    return folder / "gateway_traces.db"


def changed(database: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """What each call holds, as it is after `change`; what that returns is stored in its place."""
    with closing(sqlite3.connect(database)) as connection:
        for name, data in connection.execute("SELECT trace_id, data FROM traces").fetchall():
            call = json.loads(data)
            now = change(call)
            stored = json.dumps(call) if now is None else now
            connection.execute("UPDATE traces SET data = ? WHERE trace_id = ?", (stored, name))
        connection.commit()


def added(database: Path, name: str, **call: Any) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO traces VALUES (?, ?, 0)", (name, json.dumps({"trace_id": name, **call})))
        connection.commit()


def test_every_column_of_the_gateway_is_that_of_the_run(database: Path) -> None:
    known = truth.run(updates=3)
    steps = steps_of(rllm_gateway.IMPORTER, database.parent)
    assert [step.number for step in steps] == [1, 2, 3]
    for step, found in zip(steps, known, strict=True):
        assert_tokens(step, found, token_id="ids", logp_behavior="sampler")
        assert step.tokens is not None
        assert {"logp_current", "advantage", "segment_id", "entropy"}.isdisjoint(step.tokens)
        sequences = step.sequences
        assert sequences["group_id"] == [0, 0, 1, 1, 2, 2] and "reward" not in sequences
        assert sequences["prompt_tokens"] == [len(one.prompt_ids) for one in found]
        assert sequences["finish_reason"] == ["stop", "length", *["stop"] * 4]
        assert sequences["truncated"] == [False, True, *[False] * 4]
        assert sequences["n_turns"] == [2, *[1] * 5] and sequences["n_tool_calls"] == [1, *[0] * 5]
        assert sequences["temperature"] == [0.7] * 6 and sequences["top_k"] == [0] * 6
        assert sequences["seconds_generating"] == [0.5, *[0.25] * 5]
        for place, one in enumerate(found):
            versions = np.repeat([call["version"] for call in calls(one)], [len(call["ids"]) for call in calls(one)])
            assert column(step, "behavior_version", place).tolist() == versions.tolist()
            assert (sequences["behavior_version_min"][place], sequences["behavior_version_max"][place]) == (
                min(versions), max(versions),
            )  # fmt: skip
        assert "policy_version" not in step.scalars


def test_the_turns_of_a_session_are_its_messages(database: Path) -> None:
    one, step = truth.run(updates=1)[0][0], steps_of(rllm_gateway.IMPORTER, database)[0]
    assert column(step, "turn", 0).tolist() == [1] * 3 + [3] * (len(one.ids) - 5)
    assert step.messages is not None
    of_first = [place for place, seq_id in enumerate(step.messages["seq_id"]) if seq_id == 0]
    read = {name: [values[place] for place in of_first] for name, values in step.messages.items()}
    assert read["role"] == ["user", "assistant", "tool", "assistant"] and read["tool"][1] == "lookup"
    assert read["first_position"] == [None, 0, None, 3] and read["n_tokens"] == [None, 3, None, len(one.ids) - 5]
    assert (read["ended"][1] - read["started"][1]).total_seconds() == 0.25


def test_what_is_missing_and_assumed_is_what_is_there(database: Path) -> None:
    found = rllm_gateway.IMPORTER.describe(database)
    assert found is not None and "routing_agreement" in found.missing and "logp_behavior" not in found.missing
    assert "task:rollout" in found.assumed[1]

    def without(call: dict[str, Any]) -> None:
        call |= {"logprobs": None, "weight_version": None, "routing_matrices": None}
        call["session_id"] = call["session_id"].replace(":", "-")

    changed(database, without)
    found = rllm_gateway.IMPORTER.describe(database)
    assert found is not None and "routing_agreement" not in found.missing
    assert {"logp_behavior", "behavior_version"} <= found.missing.keys()
    assert "All responses are one step" in found.assumed[0] and "the same prompt" in found.assumed[1]
    (step,) = steps_of(rllm_gateway.IMPORTER, database)
    assert step.number == 0 and step.tokens is not None
    assert {"logp_behavior", "behavior_version"}.isdisjoint(step.tokens)
    assert len(set(step.sequences["group_id"])) == 9  # by their first prompts


CHAT = [{"role": "user", "content": "q"}]
LATER = [*CHAT, {"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}]


@pytest.mark.parametrize(
    ("second", "why", "segments"),
    [
        ({"prompt_token_ids": [1, 2, 3, 4, 9], "messages": LATER}, None, [0, 0, 0]),
        ({"prompt_token_ids": [1, 2, 30, 4, 9], "messages": LATER}, "re_rendering", [0, 0, 1]),
        ({"prompt_token_ids": [1, 2], "messages": CHAT}, "fork", [0, 0, 1]),
        ({"prompt_token_ids": [7], "messages": []}, "compaction", [0, 0, 1]),
        ({"prompt_token_ids": [7, 8, 9], "messages": [{"role": "user", "content": "other"}]}, None, [0, 0, 1]),
    ],
)
def test_why_a_history_is_not_continued(
    second: dict[str, Any], why: str | None, segments: list[int], database: Path
) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DELETE FROM traces")
        connection.commit()
    answer = {"role": "assistant", "content": "a"}
    call = {"session_id": "a:0", "weight_version": 1, "response_message": answer}
    added(database, "1", **call, prompt_token_ids=[1, 2], completion_token_ids=[3, 4], messages=CHAT, timestamp=1)
    added(database, "2", **call, **second, completion_token_ids=[5], timestamp=2)
    (step,) = steps_of(rllm_gateway.IMPORTER, database)
    assert step.tokens is not None and step.tokens["token_id"].tolist() == [3, 4, 5]
    assert step.sequences.get("history_break", [None]) == [why] and step.sequences["n_turns"] == [2]
    assert np.asarray(step.tokens.get("segment_id", [0, 0, 0])).tolist() == segments


def test_a_call_is_read_wherever_it_lies_and_only_newer_steps(database: Path) -> None:
    importer, path = rllm_gateway.IMPORTER, database
    assert [step.number for step in importer.read(path, Reading(growing=True))] == [1]
    assert [step.number for step in importer.read(path, Reading(after=2))] == [3]
    session = json.loads(_data(database, "0-0"))["session_id"]
    added(database, "late", session_id=session, weight_version=3, prompt_token_ids=[5], completion_token_ids=[6])
    steps = steps_of(importer, path)
    assert [len(step.sequences["seq_id"]) for step in steps] == [5, 6, 7]  # it is of its newest version now
    assert steps[2].sequences["behavior_version_min"][0] == 1


def test_calls_that_come_after_their_step_are_counted(tmp_path: Path, database: Path) -> None:
    """A session goes on, others begin, without a version or with an old one; one comes again with a newer version."""
    call = {"prompt_token_ids": [1, 2], "completion_token_ids": [5], "messages": CHAT}
    more: list[dict[str, Any]] = [
        {"session_id": "going:0", "weight_version": 3},
        {"session_id": "late:0", "weight_version": 1},
        {"session_id": "none:0", "weight_version": None},
        {"session_id": "task 0:0", "weight_version": 1},
        {"session_id": "task 0:1", "weight_version": 4},
    ]
    added(database, "more", session_id="going:0", weight_version=3, **call)

    def tell(so_far: Imported) -> None:
        for place, one in enumerate(more if so_far.last_step == 1 else ()):
            added(database, f"more{place}", **one, **call)
        if so_far.last_step == 1:
            more.clear()

    found, folder = the_source(database), tmp_path / "runs" / "a"
    done = follow_run(found, folder, Options(), every=0.01, quiet=0.5, tell=tell)
    assert not more and (done.steps, done.responses, done.last_step) == (4, 20, 4)
    (problem,) = done.problems
    assert "3 of the calls came too late for the step of their session, which was recorded already" in problem
    assert import_run(found, folder, Options()).problems == ()
    whole = import_run(found, tmp_path / "runs" / "b", Options())
    assert whole.problems == () and (whole.steps, whole.responses) == (5, 21)


def _data(database: Path, name: str) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return str(connection.execute("SELECT data FROM traces WHERE trace_id = ?", (name,)).fetchone()[0])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda call: "{", "row 1 of traces holds no call of a session"),
        (lambda call: "[" * 100_000, "row 1 of traces holds no call of a session"),
        (lambda call: call.pop("session_id") and None, "row 1 of traces holds no call of a session"),
        (lambda call: call.update(logprobs=[0.0]), "has 1 log-probabilities for"),
        (lambda call: call.update(completion_token_ids="abc"), "cannot be read"),
        (lambda call: call.update(messages=3), "cannot be read"),
        (lambda call: call.update(messages=[[]], prompt_token_ids=[2**40]), "cannot be read"),
        (lambda call: call.update(completion_token_ids=[1.7, 2]), "a token id is no whole number of 32 bits"),
        (lambda call: call.update(prompt_token_ids=[True, 2]), "a token id is no whole number of 32 bits"),
        (lambda call: call.update(raw_request="abc"), "cannot be read"),
    ],
)
def test_calls_of_another_shape_are_one_sentence(
    change: Callable[[dict[str, Any]], Any], what: str, database: Path
) -> None:
    changed(database, change)
    with pytest.raises(ImportProblem) as problem:
        steps_of(rllm_gateway.IMPORTER, database)
    assert what in str(problem.value) and "\n" not in str(problem.value) and str(problem.value).endswith(".")
    reading = Reading(skip_bad=True)
    assert list(rllm_gateway.IMPORTER.read(database, reading)) == [] and len(reading.problems) >= 18


def test_an_empty_database_and_one_that_lacks_a_table_say_so(database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DELETE FROM traces")
        connection.commit()
        assert list(rllm_gateway.IMPORTER.read(database, Reading())) == []
        connection.execute("DROP TABLE trace_sessions")
        connection.commit()
    with pytest.raises(RatioscopeError, match=r"by its name it is from rLLM gateway, but it has no trace_sessions"):
        the_source(database)


# Episodes -------------------------------------------------------------------------------------------------------------


def by_prompt(step: Step, name: str) -> dict[Any, Any]:
    return dict(zip(step.sequences["response"], step.sequences[name], strict=True))


def test_every_column_of_the_episodes_is_that_of_the_run(folder: Path) -> None:
    known = truth.run(updates=3)
    for path in (folder / "logs/project/experiment", folder / "logs/project/experiment/episodes"):
        steps = steps_of(rllm_episodes.IMPORTER, path)
        assert [step.number for step in steps] == [1, 2, 3]  # the validation of step 2 is none
    for step, found in zip(steps, known, strict=True):
        sequences = step.sequences
        assert step.tokens is None and len(sequences["seq_id"]) == 6
        assert by_prompt(step, "reward") == {**{_said(one): one.reward for one in found[:5]}, None: None}
        assert sorted(by_prompt(step, "finish_reason").values()) == [
            "env_done", "error", "max_response_length_exceeded", "timeout", "timeout", "timeout",
        ]  # fmt: skip
        assert by_prompt(step, "failure") == {
            **{
                _said(one): [None, "length", "timeout", "timeout", "timeout"][place]
                for place, one in enumerate(found[:5])
            },
            None: None,
        }
        assert by_prompt(step, "dropped") == {**{_said(one): None for one in found[:5]}, None: "no trajectory (error)"}
        assert by_prompt(step, "n_turns") == {**{_said(one): 1 + (one is found[0]) for one in found[:5]}, None: None}
        groups = by_prompt(step, "group_id") | {_said(found[5]): by_prompt(step, "group_id")[None]}
        assert [groups[_said(one)] == groups[_said(found[0])] for one in found] == [True, True, *[False] * 4]
        assert groups[_said(found[2])] == groups[_said(found[3])] != groups[_said(found[4])] == groups[_said(found[5])]
        assert step.messages is not None and step.messages["role"].count("tool") == 1


def _said(one: truth.Known) -> str:
    if one.mask.all():
        return one.response
    return "[assistant]\nlooking\nlookup({})\n\n[tool]\n42\n\n[assistant]\nit is 42"


def test_agents_of_an_episode_are_groups_of_their_own(tmp_path: Path) -> None:
    def step(text: str) -> dict[str, Any]:
        return {"model_response": text, "chat_completions": [{"role": "assistant", "content": text}]}

    place = tmp_path / "episodes/train_step_4_epoch_1"
    place.mkdir(parents=True)
    for rollout in range(2):
        both = [
            {"name": "solver", "reward": rollout, "steps": [step("a"), step("b")]},
            {"name": "judge", "reward": None, "steps": [step("c")]},
        ]
        episode = {"training_step": 4, "episode_id": f"t:{rollout}", "task_hash": "zz", "trajectories": both}
        (place / f"episode_{rollout}.json").write_text(json.dumps(episode))
    (read,) = steps_of(rllm_episodes.IMPORTER, tmp_path)
    assert read.sequences["source"] == ["solver", "judge"] * 2 and read.sequences["group_id"] == [0, 1, 0, 1]
    assert read.sequences["response"] == ["a\n\nb", "c"] * 2  # the second call does not go on with the first
    assert read.sequences["reward"] == [0, None, 1, None] and "prompt_id" not in read.sequences


def test_every_column_of_an_evaluation_is_that_of_the_run(folder: Path) -> None:
    place, known = folder / "eval_results/words_policy", truth.run(updates=1)[0]
    for path in (place, place / "episodes"):
        (step,) = steps_of(rllm_episodes.EVALUATION, path)
        assert_tokens(step, known[:5], token_id="ids", logp_behavior="sampler")
        sequences = step.sequences
        assert sequences["reward"] == [*(one.reward for one in known[:5]), None]
        assert sequences["reward_accuracy"] == sequences["reward"]
        assert sequences["group_id"] == [0, 0, 1, 1, 2, 2]  # the one that failed has its task alone
        assert sequences["dropped"] == [None] * 5 + ["no trajectory (error)"]
        assert sequences["behavior_version_max"] == [1] * 5 + [None] and sequences["n_turns"] == [2, 1, 1, 1, 1, None]
        assert sequences["response"][:5] == [*map(_said, known[:5])]
        assert step.messages is not None and step.messages["n_tokens"][:4] == [None, 3, None, 7]
    found = the_source(place)
    assert found.importer.name == "rllm-evaluation"
    assert not {"token_id", "logp_behavior", "behavior_version"} & found.description.missing.keys()

    for file in (place / "episodes").iterdir():
        episode = json.loads(file.read_text())
        for one in (one for trajectory in episode["trajectories"] for one in trajectory["steps"]):
            one |= {"response_ids": [], "prompt_ids": [], "logprobs": [], "weight_version": None}
        file.write_text(json.dumps(episode))
    (step,) = steps_of(rllm_episodes.EVALUATION, place)
    assert step.tokens is None and step.sequences["n_turns"] == [2, 1, 1, 1, 1, None]
    missing = the_source(place).description.missing
    assert "have no response_ids" in missing["token_id"] and "behavior_version" in missing


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON, or not whole"),
        ('{"training_step": 1}', "no episode_id and no task_hash and no trajectories"),
        ('{"trajectories": 3}', "trajectories is no list of objects"),
        (
            '{"training_step": 1, "episode_id": "", "task_hash": "a", "trajectories": [{"steps": [1]}]}',
            "a step of its trajectory is no object",
        ),
    ],
)
def test_an_episode_of_another_shape_is_one_sentence(text: str, what: str, folder: Path) -> None:
    place = folder / "logs/project/experiment/episodes/train_step_2_epoch_0"
    file = sorted(place.glob("episode_*"))[1]
    file.write_text(text)
    with pytest.raises(ImportProblem, match=what):
        steps_of(rllm_episodes.IMPORTER, folder / "logs/project/experiment")
    reading = Reading(skip_bad=True)
    steps = list(rllm_episodes.IMPORTER.read(folder / "logs/project/experiment", reading))
    assert [len(step.sequences["seq_id"]) for step in steps] == [6, 5, 6] and file.name in reading.problems[0]


def test_news_of_a_database_lie_in_its_log(database: Path) -> None:
    """Following would end while the gateway still writes: the file itself changes when the log is taken over."""
    before = newest_change(database), last_change(database)
    os.utime(database, (1, 1))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        os.utime(database, (1, 1))
        now = newest_change(database)
        connection.execute("INSERT INTO traces VALUES ('new', '{}', 0)")
        connection.commit()
        assert database.stat().st_mtime == 1 and newest_change(database) not in (now, before[0])
        assert last_change(database) >= before[1]
