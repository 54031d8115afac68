"""Harbor's jobs: a folder a trial, with its result.json and the agent's trajectory in ATIF (agent/trajectory.json).

Read against harbor 0.26.0: harbor/models/trial/result.py (TrialResult) and paths.py, harbor/models/trajectories/ (ATIF
1.0 to 1.8), harbor/models/agent/rollout_detail.py, and harbor/agents/terminus_2/terminus_2.py, which writes tokens into
both and goes on in another file after it has summarised its history.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import plain, responses
from ratioscope.analysis.importers.calls import Call, put_calls
from ratioscope.analysis.importers.paths import Record, at_path
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.responses import Response, plain_text, version
from ratioscope.analysis.importers.source import Reading, Sign
from ratioscope.analysis.importers.values import as_number, as_part, content_text, transcript, words_of

_KEYS = ("agent_info", "task_name", "trial_name")
_CALLED = "subagent_trajectory_ref"
_TRAJECTORY = "trajectory.json"
_ROLES = {"agent": "assistant", "system": "system", "user": "user"}
_REWARDS = "verifier_result.rewards"

# Parts of the names of exceptions, in the order in which they are looked for.
_FAILURES = {
    "Cancel": "aborted",
    "Environment": "environment",
    "Timeout": "timeout",
    "Verifier": "judge",
    "Reward": "judge",
    "LengthExceeded": "length",
    "Agent": "environment",
}

_NO_TRAINER = "Harbor runs trials and scores them; it does not train"
_MISSING = {
    **dict.fromkeys(("logp_current", "logp_new", "advantage", "entropy", "clipped"), _NO_TRAINER),
    "behavior_version": "the files do not say which weights sampled a trial",
    "finish_reason": "the files do not say how an answer ended",
    "wall_time": "the files have no times of updates",
}
_NO_TRAJECTORY = "the first trial has no agent/trajectory.json"
_NO_IDS = "the agent wrote no token ids: Terminus 2 does with collect_rollout_details=true"
_NO_LOGPS = "the agent wrote no log-probabilities: Terminus 2 does with collect_rollout_details=true"
_ASSUMED = (
    "Harbor has no updates: all trials are one step.",
    "Trials of one task with the same agent and model are a group.",
)


# Trials -------------------------------------------------------------------------------------------------------------


def _records(file: Path, reading: Reading) -> Iterator[tuple[int, Record]]:
    """The result of a trial, with its trajectories, those of subagents last."""
    for number, record in plain.records(file, reading):
        steps = [str(name) for name in at_path(record, "step_results[*].step_name") or []]
        own, called = list[Record](), list[Record]()
        for folder in (file.parent, *(file.parent / "steps" / Path(name).name for name in steps)):
            files = _Files(folder / "agent", reading)
            found = [*files.chain(_TRAJECTORY)]
            own += found
            called += [subagent for one in found for subagent in files.subagents(one)]
        yield number, {**record, "trajectories": own, "subagents": called}


class _Files:
    """The trajectories in the folder of an agent, each of which is read once."""

    def __init__(self, folder: Path, reading: Reading) -> None:
        self.folder, self.reading, self.seen = folder, reading, set[str]()

    def chain(self, name: str) -> Iterator[Record]:
        """A trajectory and what it goes on in."""
        while name and name not in self.seen and (self.folder / name).is_file():
            self.seen.add(name)
            found = [trajectory for _, trajectory in plain.records(self.folder / name, self.reading)]
            yield from found
            name = _name(found[-1].get("continued_trajectory_ref")) if found else ""

    def subagents(self, trajectory: Record) -> Iterator[Record]:
        """Those that it called with the model that it has itself, and those that they called."""
        model = at_path(trajectory, "agent.model_name")
        called = [one for one in trajectory.get("subagent_trajectories") or () if isinstance(one, Mapping)]
        for path in at_path(trajectory, f"steps[*].observation.results[*].{_CALLED}[*].trajectory_path") or ():
            called += self.chain(_name(path))
        for one in called:
            if model is None or at_path(one, "agent.model_name") in (None, model):
                yield one
            yield from self.subagents(one)


def _name(reference: Any) -> str:
    """The file that a reference names, which lies beside the one that has it."""
    return Path(plain_text(reference) or "").name


def _told(first: Record, _: Path) -> Mapping[str, Any]:
    missing = dict(_MISSING)
    trajectories = [*first["trajectories"], *first["subagents"]]
    for column, key, why in (("token_id", "completion_token_ids", _NO_IDS), ("logp_behavior", "logprobs", _NO_LOGPS)):
        in_steps = any(at_path(one, f"steps[*].metrics.{key}") for one in trajectories)
        if not in_steps and not at_path(first, f"agent_result.rollout_details[*].{key}"):
            missing[column] = why if trajectories else _NO_TRAJECTORY
    version_of_atif = next((plain_text(one.get("schema_version")) for one in trajectories), None)
    return {"missing": missing, "assumed": _ASSUMED, "version": version_of_atif or ""}


def _group(record: Record) -> tuple[str | None, ...]:
    parts = ("task_name", "agent_info.name", "agent_info.model_info.name")
    return tuple(plain_text(at_path(record, part)) for part in parts)


def _trial(record: Record, response: Response) -> None:
    rows, calls, asked = _conversation(record["trajectories"], record["subagents"])
    details = at_path(record, "agent_result.rollout_details")
    if not any(call.size for call in calls) and isinstance(details, list):
        rows, calls = _detailed(details, rows)
    response.messages = rows
    put_calls(response, calls)
    if rows:
        response.row |= {
            "prompt": transcript(rows[:asked]) or None,
            "response": transcript(rows[asked:]) or None,
        }
    if not response.values:
        _put_counts([*record["trajectories"], *record["subagents"]], response)
    if at_path(record, "agent_info.name") == "terminus-2" and any(map(_summarises, record["trajectories"])):
        response.row["history_break"] = "compaction"
    _put_rewards(record, response)


def _put_counts(trajectories: Sequence[Record], response: Response) -> None:
    """How many tokens there were, where these are not in the files."""
    metrics = [step.get("metrics") or {} for one in trajectories for step in _sampled(one)]
    counts = [version(one.get("completion_tokens")) for one in metrics]
    known = [count for count in counts if count is not None]
    if counts and len(known) == len(counts):
        response.row |= {"n_tokens": sum(known), "prompt_tokens": version(metrics[0].get("prompt_tokens"))}


def _put_rewards(record: Record, response: Response) -> None:
    """The reward that is called so, or the only one; what an exception made invalid is none."""
    rewards = at_path(record, _REWARDS)
    found = responses.parts(rewards)
    if len(found) > 1:
        response.row |= {name: value for name, value in found.items() if name != "reward_reward"}
    elif found and "reward" not in rewards:
        response.row["reward"] = next(iter(found.values()))
    exceptions = [record.get("exception_info"), *(at_path(record, "step_results[*].exception_info") or ())]
    kinds = [plain_text(one.get("exception_type")) or "" for one in exceptions if isinstance(one, Mapping)]
    if kinds:
        response.row["failure"] = next((ours for part, ours in _FAILURES.items() if part in kinds[0]), kinds[0] or None)
        if record.get("reward_valid") is False:
            response.row["reward"] = None
        if not response.values and response.row.get("reward") is None:
            response.drop(f"failed: {kinds[0] or 'exception'}")  # whatever its agent counted, nobody can train on it


# Trajectories -------------------------------------------------------------------------------------------------------


def _sampled(trajectory: Record) -> list[Mapping[str, Any]]:
    """The steps that a model wrote, and that this trajectory does not repeat."""
    return [
        step
        for step in trajectory.get("steps") or ()
        if step.get("source") == "agent" and step.get("llm_call_count") != 0 and not step.get("is_copied_context")
    ]


def _repeats(trajectory: Record) -> bool:
    """Whether it goes on from a history that it holds in part, in other words."""
    return any(step.get("is_copied_context") for step in trajectory.get("steps") or ())


def _summarises(trajectory: Record) -> bool:
    """Whether its history was replaced by a summary, in this file or in the next one."""
    kinds = at_path(trajectory, "steps[*].extra.context_management.type") or ()
    return "compaction" in kinds or _repeats(trajectory)


def _conversation(
    trajectories: Sequence[Record], subagents: Sequence[Record]
) -> tuple[list[dict[str, Any]], list[Call], int]:
    """Messages, calls, and how many messages came before the first that was sampled.

    What subagents wrote comes behind, so that the history of the agent itself goes on as it did.
    """
    rows, calls = list[dict[str, Any]](), list[Call]()
    asked: int | None = None
    for number, trajectory in enumerate((*trajectories, *subagents)):
        sampled = {id(step) for step in _sampled(trajectory)}
        begins = number >= len(trajectories) or _repeats(trajectory)
        for step in trajectory.get("steps") or ():
            if step.get("is_copied_context"):
                continue
            called = [plain_text(call.get("function_name")) or "" for call in step.get("tool_calls") or ()]
            turn = len(rows)
            role, tools = _ROLES.get(str(step.get("source"))), ", ".join(filter(None, called)) or None
            rows.append({"turn": turn, "role": role, "content": _said(step), "tool": tools})
            if id(step) in sampled:
                asked = turn if asked is None else asked
                calls.append(_call(step, turn, begins))
                begins = False
            names = {call.get("tool_call_id"): call.get("function_name") for call in step.get("tool_calls") or ()}
            for result in at_path(step, "observation.results") or ():
                if result.get("content") is None and result.get(_CALLED):
                    continue  # it says no more than where theirs are
                tool = plain_text(names.get(result.get("source_call_id")))
                content = content_text(result.get("content"))
                rows.append({"turn": len(rows), "role": "tool", "content": content, "tool": tool})
    return rows, calls, len(rows) if asked is None else asked


def _said(step: Mapping[str, Any]) -> str:
    calls = [
        f"{call.get('function_name')}({plain_text(call.get('arguments'))})" for call in step.get("tool_calls") or ()
    ]
    parts = (plain_text(step.get("reasoning_content")), content_text(step.get("message")), *calls)
    return "\n".join(filter(None, parts))


def _call(step: Mapping[str, Any], turn: int, begins: bool) -> Call:
    metrics = step.get("metrics") or {}
    alone = (step.get("llm_call_count") or 1) == 1  # of several calls the prompt is that of one
    prompt = metrics.get("prompt_token_ids") if alone else None
    return Call(
        metrics.get("completion_token_ids") or None, metrics.get("logprobs") or None, prompt or None, turn, begins
    )


def _detailed(details: Sequence[Any], rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Call]]:
    """Calls from the result of a trial, where the trajectory has none; each of the details is a history."""
    calls = list[Call]()
    for number, detail in enumerate(details):
        made, logps, prompts = (
            detail.get(name) or () for name in ("completion_token_ids", "logprobs", "prompt_token_ids")
        )
        for place in range(max(len(made), len(logps))):
            ids, values, prompt = (listed[place] if place < len(listed) else None for listed in (made, logps, prompts))
            calls.append(Call(ids, values, prompt, len(calls), begins=number > 0 and place == 0))
    turns = [row["turn"] for row in rows if row["role"] == "assistant"]
    if len(turns) != len(calls):
        return [], calls  # which message is whose is not known
    return rows, [
        Call(one.sampled, one.logps, one.prompt, turn, one.begins) for one, turn in zip(calls, turns, strict=True)
    ]


IMPORTER = Plain(
    "harbor",
    "Harbor trials",
    framework="Harbor",
    format="Harbor trials with ATIF trajectories",
    files=r".+/result\.json",
    keys=_KEYS,
    sequences=(
        ("reward", f"{_REWARDS}.reward", as_number),
        ("environment", "source", words_of),
        ("source", "agent_info.name", words_of),
        ("temperature", "config.agent.kwargs.temperature", as_part),
    ),
    read=_records,
    group=_group,
    also=_trial,
    told=_told,
    signs=(
        Sign("*/result.json", _KEYS, says_enough=False),
        Sign("*__*", ("agent", "result.json"), says_enough=False),
    ),
).importer
