"""Harbor's trials, written by its own models of results and trajectories."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.formats import harbor
from ratioscope.errors import RatioscopeError
from tests.making.foreign.reading import column, steps_of

STORED = Path(__file__).parents[2] / "making" / "foreign" / "stored" / "harbor"
JOB = STORED / "job"
POLICY = np.array(json.loads((STORED / "policy.json").read_text()))
TRIALS = ("files__a", "files__b", "math__a", "math__b", "slow__a", "slow__b")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return Path(shutil.copytree(JOB, tmp_path / "job"))


def changed(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    contents = json.loads(file.read_text())
    change(contents)
    file.write_text(json.dumps(contents))


def calls(trial: str) -> list[dict[str, Any]]:
    """What each call of a trial was given and sampled, from wherever it stands."""
    files = sorted((JOB / trial / "agent").glob("*.json"), key=lambda file: file.name != "trajectory.json")
    steps = [step for file in files for step in json.loads(file.read_text())["steps"]]
    found = [step["metrics"] for step in steps if "completion_token_ids" in step.get("metrics", {})]
    details = (json.loads((JOB / trial / "result.json").read_text())["agent_result"] or {}).get("rollout_details")
    return found or [
        {name: values[place] for name, values in detail.items() if name != "extra"}
        for detail in details or ()
        for place in range(len(detail["logprobs"]))
    ]


def test_what_each_call_sampled() -> None:
    (step,) = steps_of(harbor.IMPORTER, JOB)
    assert step.tokens is not None and [len(calls(trial)) for trial in TRIALS] == [2, 2, 2, 0, 1, 0]
    for response, trial in enumerate(TRIALS):
        ids, expected = [], []
        for call in calls(trial):
            made = call["completion_token_ids"]
            ids += made
            expected += [POLICY[one, other] for one, other in pairwise([call["prompt_token_ids"][-1], *made])]
        assert column(step, "token_id", response).tolist() == ids
        np.testing.assert_allclose(column(step, "logp_behavior", response), expected, rtol=1e-6)


def test_turns_segments_and_a_history_that_was_summarised() -> None:
    (step,) = steps_of(harbor.IMPORTER, JOB)
    for response, later in ((0, 0), (1, 1), (2, 1)):
        first, second = (len(call["completion_token_ids"]) for call in calls(TRIALS[response]))
        assert column(step, "segment_id", response).tolist() == [0] * first + [later] * second
        assert column(step, "turn", response).tolist() == [1] * first + [3] * second
    assert step.sequences["history_break"] == [None, "compaction", None, None, None, None]
    assert step.messages is not None
    roles = [role for role, seq in zip(step.messages["role"], step.messages["seq_id"], strict=True) if seq == 1]
    assert roles == ["user", "assistant", "tool", "assistant"]  # what was copied is there once
    assert step.messages["tool"][1:3] == ["bash", "bash"] and 'bash({"command": "ls"})' in step.messages["content"][1]


def test_rewards_groups_and_trials_that_failed() -> None:
    (step,) = steps_of(harbor.IMPORTER, JOB)
    assert step.sequences["reward"] == [1.0, 0.0, 0.25, 1.0, None, None]
    assert step.sequences["reward_style"] == [None, 0.5, None, None, None, None]
    assert step.sequences["group_id"] == [0, 0, 1, 1, 2, 2] and {*step.sequences["environment"]} == {"words"}
    assert step.sequences["failure"] == [None] * 4 + ["timeout", "environment"]
    assert step.sequences["n_turns"] == [2, 2, 2, 2, 1, None]


def test_without_token_ids_there_are_counts() -> None:
    (step,) = steps_of(harbor.IMPORTER, JOB)
    assert step.sequences["n_tokens"][3] == 10 and step.sequences["prompt_tokens"] == [3, 3, 2, 12, 1, None]
    assert step.messages is not None
    mine = [n for n, seq in zip(step.messages["n_tokens"], step.messages["seq_id"], strict=True) if seq == 3]
    assert mine == [None, None, None]


def test_what_is_missing_is_what_the_first_trial_lacks(job: Path) -> None:
    found = harbor.IMPORTER.describe(job)
    assert found is not None and not {"token_id", "logp_behavior"} & found.missing.keys()
    for trial in ("files__a", "files__b"):
        shutil.rmtree(job / trial)
    found = harbor.IMPORTER.describe(job)  # in its result
    assert found is not None and not {"token_id", "logp_behavior"} & found.missing.keys()
    shutil.rmtree(job / "math__a")
    found = harbor.IMPORTER.describe(job)
    assert found is not None and "collect_rollout_details" in found.missing["token_id"]
    for trial in ("math__b", "slow__a"):
        shutil.rmtree(job / trial)
    found = harbor.IMPORTER.describe(job)
    assert found is not None and "no agent/trajectory.json" in found.missing["logp_behavior"]
    (step,) = steps_of(harbor.IMPORTER, job)
    assert step.tokens is None and step.sequences["failure"] == ["environment"]


@pytest.mark.parametrize(
    ("kind", "failure"),
    [("VerifierTimeoutError", "timeout"), ("VerifierOutputParseError", "judge"), ("RewardFileNotFoundError", "judge"),
     ("ContextLengthExceededError", "length"), ("NonZeroAgentExitCodeError", "environment"),
     ("CancelledError", "aborted"), ("KeyError", "KeyError")],
)  # fmt: skip
def test_exceptions(kind: str, failure: str, job: Path) -> None:
    changed(job / "slow__a" / "result.json", lambda result: result["exception_info"].update(exception_type=kind))
    (step,) = steps_of(harbor.IMPORTER, job)
    assert step.sequences["failure"][4] == failure


def test_a_reward_that_an_exception_made_invalid_is_none(job: Path) -> None:
    def graded(result: dict[str, Any]) -> None:
        result["verifier_result"] = {"rewards": {"reward": 0.5}}

    changed(job / "slow__a" / "result.json", graded)
    assert steps_of(harbor.IMPORTER, job)[0].sequences["reward"][4] is None
    changed(job / "slow__a" / "result.json", lambda result: result.update(reward_valid=True))
    assert steps_of(harbor.IMPORTER, job)[0].sequences["reward"][4] == 0.5


def test_what_failed_with_neither_reward_nor_tokens_is_no_response_whose_rows_are_lacking(job: Path) -> None:
    """The agent counted tokens that are not in its files, as one does that was stopped."""

    def counted(trajectory: dict[str, Any]) -> None:
        for name in ("completion_token_ids", "logprobs"):
            del trajectory["steps"][1]["metrics"][name]

    changed(job / "slow__a" / "agent" / "trajectory.json", counted)
    (step,) = steps_of(harbor.IMPORTER, job)
    assert step.sequences["n_tokens"][4] == 5
    assert step.sequences["dropped"] == [None] * 4 + [
        "failed: AgentTimeoutError",
        "failed: EnvironmentStartTimeoutError",
    ]
    changed(job / "slow__a" / "result.json", lambda one: one.update(reward_valid=True))
    changed(job / "slow__a" / "result.json", lambda one: one.update(verifier_result={"rewards": {"reward": 0.5}}))
    assert steps_of(harbor.IMPORTER, job)[0].sequences["dropped"][4] is None


def test_references_stay_in_the_folder_and_end(job: Path) -> None:
    file = job / "files__a" / "agent" / "trajectory.json"
    for reference in ("trajectory.json", "../../files__b/agent/trajectory.json", "/etc/passwd", "none.json", 3):
        changed(file, lambda one, reference=reference: one.update(continued_trajectory_ref=reference))
        assert steps_of(harbor.IMPORTER, job)[0].sequences["n_turns"][0] == 2


def test_steps_of_a_trial_are_one_conversation(job: Path) -> None:
    trial = job / "files__a"
    for name, of in (("one", "files__a"), ("two", "math__b")):
        shutil.copytree(JOB / of / "agent", trial / "steps" / name / "agent")
    shutil.rmtree(trial / "agent")
    steps = [{"step_name": name, "exception_info": None} for name in ("one", "two")]
    changed(trial / "result.json", lambda result: result.update(step_results=steps))
    (step,) = steps_of(harbor.IMPORTER, job)
    assert step.sequences["n_turns"][0] == 4 and step.sequences["reward"][0] == 1.0
    assert step.sequences["history_break"][:2] == [None, "compaction"]
    assert column(step, "segment_id", 1).max() == 1


@pytest.mark.parametrize(
    ("file", "change", "what"),
    [
        ("files__a/result.json", lambda it: it.pop("task_name"), "no task_name"),
        ("files__a/agent/trajectory.json", lambda it: it["steps"][1]["metrics"]["logprobs"].pop(), "a call has"),
        ("files__a/agent/trajectory.json", lambda it: it.update(steps=[3]), "something in it is of another kind"),
        ("files__a/agent/trajectory.json", lambda it: it["steps"][1].update(tool_calls=[1]), "something in it is of"),
    ],
)
def test_files_that_are_not_right_are_named(file: str, change: Any, what: str, job: Path) -> None:
    changed(job / file, change)
    with pytest.raises(ImportProblem, match=rf"files__a/result\.json, line 1: .*{what}.*\.$"):
        list(harbor.IMPORTER.read(job, Reading()))
    reading = Reading(skip_bad=True)
    (step,) = harbor.IMPORTER.read(job, reading)
    assert len(step.sequences["reward"]) == 5 and len(reading.problems) == 1


def test_a_cut_file_is_named(job: Path) -> None:
    file = job / "files__b" / "agent" / "trajectory.json"
    file.write_text(file.read_text()[:-30])
    with pytest.raises(ImportProblem, match=r"files__b/agent/trajectory\.json: not JSON, or not whole"):
        list(harbor.IMPORTER.read(job, Reading()))
    reading = Reading(skip_bad=True)
    (step,) = harbor.IMPORTER.read(job, reading)  # its reward is there all the same
    assert step.sequences["reward"][:2] == [1.0, 0.0] and len(reading.problems) == 1


def test_a_job_that_runs_waits(job: Path) -> None:
    assert list(harbor.IMPORTER.read(job, Reading(growing=True))) == []
    (job / "files__a" / "result.json").unlink()  # not finished
    assert steps_of(harbor.IMPORTER, job)[0].sequences["reward"] == [0.0, 0.25, 1.0, None, None]


def test_a_result_that_lacks_a_key_is_told_whose_it_is(job: Path) -> None:
    for trial in TRIALS:
        changed(job / trial / "result.json", lambda result: result.pop("trial_name"))
    with pytest.raises(RatioscopeError, match="by its name it is from Harbor trials, but it has no trial_name"):
        the_source(job)


def test_trials_that_have_no_result_yet_are_told_whose_they_are(job: Path) -> None:
    for file in job.rglob("result.json"):
        file.unlink()
    with pytest.raises(RatioscopeError, match=r"by its name it is from Harbor trials, but it has no result\.json"):
        the_source(job)


def test_what_subagents_sampled_comes_behind(tmp_path: Path) -> None:
    """Two in the file, one of them called by the other, and one in a file of its own; not that of another model."""
    (step,) = steps_of(harbor.IMPORTER, STORED / "delegated")
    agent = STORED / "delegated" / "files__c" / "agent"
    main, summary = (json.loads((agent / f"trajectory{name}.json").read_text()) for name in ("", ".cont-1"))
    inner = main["subagent_trajectories"][0]
    steps = [main["steps"][1], main["steps"][3], inner["steps"][1], inner["subagent_trajectories"][0]["steps"][1]]
    made = [one["metrics"]["completion_token_ids"] for one in (*steps, summary["steps"][2])]
    assert column(step, "token_id", 0).tolist() == [token for ids in made for token in ids]
    sizes = [*map(len, made)]
    assert column(step, "segment_id", 0).tolist() == np.repeat(np.arange(5), sizes).tolist()
    assert column(step, "turn", 0).tolist() == np.repeat([1, 3, 5, 7, 8], sizes).tolist()
    assert step.sequences["history_break"] == ["compaction"] and step.sequences["n_turns"] == [5]
    assert step.messages is not None
    roles = ["user", "assistant", "system", "assistant", "user", "assistant", "user", "assistant", "assistant"]
    assert step.messages["role"] == roles  # what a subagent copied is there once

    job = Path(shutil.copytree(STORED / "delegated", tmp_path / "job"))

    def elsewhere(one: dict[str, Any]) -> None:
        (reference, _) = one["steps"][2]["observation"]["results"][0]["subagent_trajectory_ref"]
        reference["trajectory_path"] = "trajectory.json"  # itself

    changed(job / "files__c" / "agent" / "trajectory.json", elsewhere)
    assert steps_of(harbor.IMPORTER, job)[0].sequences["n_turns"] == [4]

    def nowhere(one: dict[str, Any]) -> None:
        one["steps"][2]["observation"]["results"][0]["subagent_trajectory_ref"] = ["a text", 3, None]

    changed(job / "files__c" / "agent" / "trajectory.json", nowhere)  # what names no file hides nothing else
    assert steps_of(harbor.IMPORTER, job)[0].sequences["n_turns"] == [4]
