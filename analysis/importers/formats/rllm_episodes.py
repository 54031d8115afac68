"""rLLM's episodes, an episode a file: those of a training, texts and rewards, and the store of an evaluation.

Read against rLLM 9beb6e0f: rllm/utils/episode_logger.py (EpisodeLogger: episodes/train_step_{N}_epoch_{E}),
rllm/eval/episode_store.py (EvalEpisodeStore) and rllm/cli/eval.py, rllm/types.py, rllm/workflows/workflow.py
(TerminationReason) and rllm/trainer/algorithms/transform.py (which trajectories are a group).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import plain, responses
from ratioscope.analysis.importers.calls import Call, put_calls
from ratioscope.analysis.importers.paths import Record, at_path
from ratioscope.analysis.importers.plain import Plain, of_text
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import BadLine, Reading, Sign
from ratioscope.analysis.importers.values import as_number, calls_of, transcript, words_of

_KEYS = ("training_step", "episode_id", "task_hash", "trajectories")
_KEYS_OF_EVALUATION = ("eval_idx", "id", "task", "trajectories")
_FAILURES = {
    "max_prompt_length_exceeded": "length",
    "max_response_length_exceeded": "length",
    "max_turns_exceeded": "length",
    "timeout": "timeout",
}
_UNNAMED = ("default", "default_traj_name", "None")


def _trajectories(file: Path, reading: Reading) -> Iterator[tuple[int, Record]]:
    """A record for each trajectory of an episode, or one for an episode that has none."""
    for number, episode in plain.records(file, reading):
        found = episode.get("trajectories")
        if isinstance(found, list) and all(isinstance(one, Mapping) for one in found):
            for one in found or [None]:
                yield number, {**episode, "trajectory": one, "siblings": len(found)}
        elif "trajectories" in episode:
            reading.bad(file, "trajectories is no list of objects", number)
        else:
            yield number, episode  # said with all that it lacks


def _group(record: Record) -> Any:
    """Task and agent: the responses that rLLM compares with each other; without a trajectory, not yet known."""
    if record.get("trajectory") is None:
        return None
    task = str(at_path(record, "episode_id|id")).rpartition(":")[0] or record.get("task_hash")
    return task, at_path(record, "trajectory.name")


def _rest(record: Record, response: Response) -> None:
    trajectory, ended = record.get("trajectory"), words_of(record.get("termination_reason"))
    response.row["truncated"] = ended.endswith("_length_exceeded") if ended else None
    if trajectory is None:
        response.row["dropped"] = f"no trajectory ({ended or 'no reason'})"
        return
    name, steps = str(trajectory.get("name")), trajectory.get("steps") or []
    response.row |= responses.parts(trajectory.get("signals"))
    response.row |= {
        "source": name if name not in _UNNAMED else None,
        "n_turns": len(steps) or None,
        "n_tool_calls": sum(len(calls_of(message)) for message in _answers(steps)),
    }
    if record["siblings"] == 1:
        response.row["seconds_generating"] = as_number(at_path(record, "metrics.time/agentflow_llm_sum_s"))
    talk = [step.get("chat_completions") or [] for step in steps]
    if talk and all(later[: len(earlier)] == earlier for earlier, later in pairwise(talk)):
        whole = talk[-1]
        first = next((place for place, one in enumerate(whole) if one.get("role") == "assistant"), len(whole))
        response.row |= {"prompt": transcript(whole[:first]) or None, "response": transcript(whole[first:]) or None}
        response.messages = responses.conversation(whole)
    else:
        said = [str(step["model_response"]) for step in steps if step.get("model_response")]
        response.row["response"] = "\n\n".join(said) or None
    if any(step.get("response_ids") for step in steps):
        turns = [len(one) - 1 for one in talk] if response.messages else range(len(steps))
        put_calls(response, [_call(step, turn) for step, turn in zip(steps, turns, strict=True)])
        versions = [step.get("weight_version") for step in steps for _ in step["response_ids"]]
        if None not in versions:
            response.values["behavior_version"] = versions
            response.row |= {"behavior_version_min": min(versions), "behavior_version_max": max(versions)}


def _call(step: Mapping[str, Any], turn: int) -> Call:
    return Call(step["response_ids"], step.get("logprobs") or None, step.get("prompt_ids") or None, turn)


def _groups_of_failed(found: Sequence[Response]) -> None:
    """One without a trajectory has no agent's name; where its task has one group alone, it is of that."""
    groups: dict[Any, set[Any]] = {}
    for response in found:
        groups.setdefault(response.row["prompt_id"], set()).add(response.row["group_id"])
    for response in found:
        if response.row["group_id"] is None and len(known := groups[response.row["prompt_id"]] - {None}) == 1:
            response.row["group_id"] = next(iter(known))


def _answers(steps: Any) -> Iterator[Mapping[str, Any]]:
    """The message with which each step ends."""
    for step in steps:
        if not isinstance(step, Mapping):
            raise BadLine("a step of its trajectory is no object")
        if talk := step.get("chat_completions"):
            yield talk[-1]


def _prompt_id(value: Any) -> int | None:
    """The hash of the task, which is the same in every step."""
    try:
        return int(str(value), 16)
    except ValueError:
        return None


def _hash_of(task: Any) -> int:
    """What rLLM's logger would call a task, of what its store has of it."""
    return int(hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:8], 16)


_NO_TOKENS = "the files have texts and rewards, no tokens: rLLM's gateway has those, with store=sqlite"
_OF_TEXTS = {name: why for name, why in of_text(_NO_TOKENS).items() if name != "finish_reason"}
_ENDED = (
    ("reward", "trajectory.reward", as_number),
    ("finish_reason", "termination_reason", words_of),
    ("failure", "termination_reason", lambda ended: _FAILURES.get(str(ended))),
)
_COMPARED = "Trajectories of one task and of one name are a group, as rLLM compares them."


def _told(first: Record, _: Path) -> Mapping[str, Any]:
    """Of an evaluation, whose tokens are there where the server gave them."""
    missing = {**_OF_TEXTS, **dict.fromkeys(("logp_current", "advantage", "entropy"), "an evaluation trains nothing")}
    for column, name in (("token_id", "response_ids"), ("logp_behavior", "logprobs")):
        if at_path(first, f"trajectory.steps[*].{name}"):
            del missing[column]
        else:
            missing[column] = f"the steps have no {name}: a server of vLLM gives them"
    if any(version is not None for version in at_path(first, "trajectory.steps[*].weight_version") or ()):
        del missing["behavior_version"]
    return {"missing": missing}


EVALUATION = Plain(
    "rllm-evaluation",
    "rLLM evaluation",
    framework="rLLM",
    within="episodes",
    files=r"episode_\d+_.*\.json",
    read=_trajectories,
    keys=_KEYS_OF_EVALUATION,
    sequences=(("prompt_id", "task", _hash_of), *_ENDED),
    group=_group,
    also=_rest,
    finish=_groups_of_failed,
    told=_told,
    assumed=("rLLM's evaluation has no updates: all episodes are one step.", _COMPARED),
    signs=(Sign("episode_*.json", _KEYS_OF_EVALUATION), Sign("episodes/episode_*.json", _KEYS_OF_EVALUATION)),
).importer

IMPORTER = Plain(
    "rllm-episodes",
    "rLLM episodes",
    framework="rLLM",
    within="episodes",
    files=r"train_step_(\d+)_epoch_\d+/episode_.*\.json",
    read=_trajectories,
    keys=_KEYS,
    sequences=(
        ("prompt_id", "task_hash", _prompt_id),
        *_ENDED,
    ),
    group=_group,
    also=_rest,
    finish=_groups_of_failed,
    missing=_OF_TEXTS,
    assumed=(
        "A step is the one in which an episode was logged; in asynchronous training the update that trained on it may "
        "be a later one.",
        _COMPARED,
        "Validations (val_step_*) are left out.",
    ),
    signs=(Sign("train_step_*/episode_*.json", _KEYS), Sign("episodes/train_step_*/episode_*.json", _KEYS)),
).importer
