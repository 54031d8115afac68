"""rLLM's model gateway: every call of a session in SQLite, with token ids and the sampler's log-probabilities.

Read against rLLM 9beb6e0f: rllm-model-gateway/src/rllm_model_gateway/store/sqlite_store.py (its tables), models.py
(TraceRecord) and data_process.py; rllm/engine/agentflow_engine.py (sessions are called task:rollout, and are deleted
when the engine has read them).

A session is a response. A call whose prompt begins with all tokens of an earlier one goes on with that one's history;
another one begins a history of its own, a segment.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import responses, sqlite_rows
from ratioscope.analysis.importers.responses import Response, plain_text, version
from ratioscope.analysis.importers.source import (
    SURPRISES,
    BadLine,
    Description,
    Importer,
    ImportProblem,
    Reading,
    Sign,
    Step,
)
from ratioscope.analysis.importers.values import (
    as_number,
    at,
    calls_of,
    joined_columns,
    known_values,
    moment,
    nulls,
    numbers,
    token_ids,
    transcript,
    words_of,
)

_TABLE, _TABLES = "traces", ("traces", "trace_sessions")
_LOOKED_AT, _MOST_FILES = 200, 1_000
"""Calls that are looked at for what the database has; files of a folder."""

_NOT_THE_TRAINERS = "the gateway stands between agent and sampler: what the trainer computes is not in it"
_MISSING = {
    **dict.fromkeys(("logp_current", "logp_new", "advantage", "entropy", "clipped"), _NOT_THE_TRAINERS),
    "reward": "the gateway sees calls alone; rewards are in the episodes that rLLM logs with log_episodes",
    "policy_version": "the database does not say which update trained on a response, so its age there is not known",
    "wall_time": "the database has the times of calls, not of updates",
}
_BY_VERSION = (
    "A step is the newest weight version that sampled a token of its responses; the update that trained on them is "
    "this one or a later one."
)
_DELETED = "Sessions that the engine has deleted are not there: rLLM's own engines delete one when they have read it."
_VALIDATION = "Responses of validations are among them: the database does not tell them from those of the training."
_BY_SESSION = "Sessions that have the same name up to the last colon are a group: rLLM calls them task:rollout."
_BY_PROMPT = "Sessions that begin with the same prompt are a group: their names do not say which belong together."


def _database(path: Path) -> Path | None:
    """The file, or the only one in the folder, that has the gateway's tables."""
    places = sorted(islice(path.iterdir(), _MOST_FILES)) if path.is_dir() else [path]
    files = [file for file in places if file.suffix in sqlite_rows.SUFFIXES and file.is_file()]
    found = [file for file in files if {*_TABLES} <= _tables(file).keys()]
    return found[0] if len(found) == 1 else None


def _tables(file: Path) -> dict[str, list[str]]:
    with suppress(ImportProblem):  # somebody else's, or none
        return sqlite_rows.tables(file)
    return {}


def _describe(path: Path) -> Description | None:
    file = _database(path)
    first = [call for _, call in islice(_calls(file, Reading(skip_bad=True)), _LOOKED_AT)] if file is not None else []
    if file is None:
        return None
    missing = dict(_MISSING)
    if not first:  # reading says so
        return Description("rLLM", "rLLM gateway database", file, missing=missing)
    if all(call.get("weight_version") is None for call in first):
        missing["behavior_version"] = "no call has a weight version, so which weights sampled a response is not known"
        when = "All responses are one step: no call has a weight version that would divide them."
    else:
        when = _BY_VERSION
    if not any(call.get("completion_token_ids") for call in first):
        missing["token_id"] = "the sampler returned no token ids"
    if not any(call.get("logprobs") for call in first):
        missing["logp_behavior"] = "the sampler returned no log-probabilities"
    if any(call.get("routing_matrices") for call in first):
        missing["routing_agreement"] = "the database has the sampler's experts, not the trainer's"
    named = [_task_of(call["session_id"]) is not None for call in first]
    group = _BY_SESSION if all(named) else _BY_PROMPT if not any(named) else f"{_BY_SESSION} {_BY_PROMPT}"
    return Description(
        framework="rLLM",
        format="rLLM gateway database",
        path=file,
        missing=missing,
        assumed=(when, group, _DELETED, _VALIDATION),
        manifest=known_values(model=known_values(path=words_of(first[0].get("model") or None))),
    )


# Calls and sessions ---------------------------------------------------------------------------------------------------


def _calls(file: Path, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """The calls in the order in which they were stored, and their rows from 1."""
    with reading.whole_file():
        for number, row in enumerate(sqlite_rows.rows(file, _TABLE), start=1):
            try:
                call = json.loads(row["data"])
                hash(call["session_id"])
            except (*SURPRISES, RecursionError):
                reading.bad(file, f"row {number} of {_TABLE} holds no call of a session")
                continue
            reading.bytes_read += len(row["data"])
            yield number, call


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    """The database is read twice, first for the versions alone: only sessions under way are kept in memory."""
    file = _database(path) or path
    of = [(call["session_id"], version(call.get("weight_version")) or 0) for _, call in _calls(file, reading)]
    steps: dict[Any, int] = {}
    for name, weights in of:
        steps[name] = max(steps.get(name, 0), weights)
    left = Counter(steps[name] for name, _ in of)
    # A session that began with the weights before may go on, and others of these come yet.
    for step in sorted(left)[-2:] if reading.growing else ():
        del left[step]
    _say_late(Counter(name for name, _ in of if steps[name] <= reading.after), file, reading)
    for step in [step for step in left if step <= reading.after]:
        del left[step]
    order = sorted(left)
    waiting: dict[int, dict[Any, list[tuple[int, dict[str, Any]]]]] = {step: {} for step in order}
    for number, call in _calls(file, Reading(skip_bad=True)) if order else ():  # what is bad has been said
        step = steps.get(call["session_id"], -1)
        if step in waiting:
            waiting[step].setdefault(call["session_id"], []).append((number, call))
            left[step] -= 1
        while order and not left[order[0]]:
            yield from _step(order[0], waiting.pop(order.pop(0)), file, reading)
    for step in order:  # calls were deleted since
        yield from _step(step, waiting[step], file, reading)


def _say_late(calls: Mapping[Any, int], file: Path, reading: Reading) -> None:
    """Say, at the last look, how many calls came to sessions of recorded steps since those were recorded."""
    taken = reading.taken.setdefault(file, dict(calls))  # what is there at the first look
    late = sum(max(count - taken.get(name, 0), 0) for name, count in calls.items())
    if late and not reading.growing:
        what = f"{late} of the calls came too late for the step of their session, which was recorded already"
        reading.problems.append(f"{file}: {what}; import the database under another name to have all.")


def _step(
    number: int, sessions: Mapping[Any, list[tuple[int, dict[str, Any]]]], file: Path, reading: Reading
) -> Iterator[Step]:
    made = [
        responses.made(partial(_response, [call for _, call in calls]), reading, file, f"session {name!r:.60}")
        for name, calls in sessions.items()
    ]
    reading.taken[file] |= {name: len(calls) for name, calls in sessions.items()}
    found = [one for one in made if one is not None]
    for response, group in zip(found, responses.groups_of([one.row["group_id"] for one in found]), strict=True):
        response.row["group_id"] = group
    if found:
        yield responses.step(number, found)


# A session as a response ----------------------------------------------------------------------------------------------


@dataclass
class _Segment:
    """Calls that go on with one history."""

    history: NDArray[np.int32]
    """All tokens of its last call. (n,)"""
    calls: list[dict[str, Any]]


def _response(calls: list[dict[str, Any]]) -> Response:
    calls = sorted(calls, key=lambda call: as_number(call.get("timestamp")) or 0.0)
    segments, breaks = _segments(calls)
    first, last = calls[0], calls[-1]
    own = [call for segment in segments for call in segment.calls]
    messages, turns = _messages(segments)
    versions = [found for call in calls if (found := version(call.get("weight_version"))) is not None]
    request = first.get("raw_request") or {}
    top_k = request.get("top_k")
    counted = [as_number(at(call, "token_counts", "completion")) for call in calls]
    answers = [call.get("response_message") or {} for call in calls]
    finish = words_of(last.get("finish_reason"))
    row = {
        "prompt": transcript(first.get("messages") or []) or None,
        "response": transcript([*(segments[-1].calls[-1].get("messages") or [])[_asked(first) :], answers[-1]]) or None,
        "n_tokens": None if None in counted else sum(map(int, filter(None, counted))),
        "prompt_tokens": len(_ids(first, "prompt_token_ids")) or at(first, "token_counts", "prompt"),
        "finish_reason": finish,
        "truncated": finish == "length" if finish else None,
        "behavior_version_min": min(versions, default=None),
        "behavior_version_max": max(versions, default=None),
        "temperature": as_number(request.get("temperature")),
        "top_p": as_number(request.get("top_p")),
        "top_k": max(top_k, 0) if isinstance(top_k, int) else None,
        "n_turns": len(calls),
        "n_tool_calls": sum(len(calls_of(answer)) for answer in answers),
        "seconds_generating": sum(as_number(call.get("latency_ms")) or 0.0 for call in calls) / 1000 or None,
        "history_break": breaks.pop() if len(breaks) == 1 else None,
    }
    lengths = [len(_ids(call, "completion_token_ids")) for call in own]
    tokens = None
    if any(lengths):
        del row["n_tokens"]
        tokens = {
            "token_id": np.concatenate([_ids(call, "completion_token_ids") for call in own]),
            "turn": np.repeat(np.array(turns, dtype=np.int16), lengths),
            "behavior_version": joined_columns(
                [
                    nulls(size).astype(np.int32)
                    if (of := version(call.get("weight_version"))) is None
                    else np.full(size, of, dtype=np.int32)
                    for call, size in zip(own, lengths, strict=True)
                ]
            ),
            "logp_behavior": joined_columns([_logprobs(call) for call in own]),
        }
        for name in ("behavior_version", "logp_behavior"):
            if np.ma.getmaskarray(tokens[name]).all():
                del tokens[name]  # not logged
        if len(segments) > 1:
            sizes = [sum(len(_ids(call, "completion_token_ids")) for call in one.calls) for one in segments]
            tokens["segment_id"] = np.repeat(np.arange(len(segments), dtype=np.int16), sizes)
    response = responses.without_empty(row, tokens, messages)
    response.row["group_id"] = _group(first)
    return response


def _group(call: Mapping[str, Any]) -> Any:
    """What the sessions of a prompt have in common."""
    task = _task_of(call["session_id"])
    return task if task is not None else (_ids(call, "prompt_token_ids").tobytes() or plain_text(call.get("messages")))


def _task_of(session: Any) -> str | None:
    """The task of a session that is called task:rollout."""
    task, _, rollout = str(session).rpartition(":")
    return task if task and rollout.isdecimal() else None


def _segments(calls: Sequence[dict[str, Any]]) -> tuple[list[_Segment], set[str | None]]:
    """The histories of a session, and why there are several."""
    found: list[_Segment] = []
    why: set[str | None] = set()
    for call in calls:
        prompt = _ids(call, "prompt_token_ids")
        goes_on = next((one for one in reversed(found) if _begins(prompt, one.history) or not len(prompt)), None)
        if goes_on is None:
            if found:
                why.add(_break(call, prompt, found))
            found.append(goes_on := _Segment(prompt, []))
        goes_on.history = np.concatenate([prompt, _ids(call, "completion_token_ids")])
        goes_on.calls.append(call)
    return found, why


def _break(call: Mapping[str, Any], prompt: NDArray[np.int32], found: Sequence[_Segment]) -> str | None:
    """Why a call does not go on with a history: its messages do and its tokens do not, it begins where an earlier call
    began, or it has less to read than the one before has told."""
    messages, last = call.get("messages") or [], found[-1].calls[-1]
    before = last.get("messages") or []
    if before and len(messages) > len(before) and messages[: len(before)] == before:
        return "re_rendering"
    earlier = [_ids(one, "prompt_token_ids") for segment in found for one in segment.calls]
    if any(_begins(prompt, one) for one in earlier if len(one)):
        return "fork"
    return "compaction" if len(messages) < len(before) else None


def _begins(whole: NDArray[np.int32], part: NDArray[np.int32]) -> bool:
    return len(part) <= len(whole) and bool((whole[: len(part)] == part).all())


def _messages(segments: Sequence[_Segment]) -> tuple[list[dict[str, Any]], list[int]]:
    """The conversations of the segments one after the other, and the place of the answer of each call."""
    rows: list[dict[str, Any]] = []
    turns: list[int] = []
    position = 0
    for segment in segments:
        last, begin = segment.calls[-1], len(rows)
        asked = last.get("messages") or []
        # Of calls that complete a text there are no messages but their answers.
        answers = [call.get("response_message") or {} for call in segment.calls[0 if not asked else -1 :]]
        rows += responses.conversation([*asked, *answers])
        for turn in range(begin, len(rows)):
            rows[turn]["turn"] = turn
        for place, call in enumerate(segment.calls):
            turn = min(begin + (_asked(call) if asked else place), len(rows) - 1)
            size, ended = len(_ids(call, "completion_token_ids")), moment(call.get("timestamp"))
            took = as_number(call.get("latency_ms"))
            began = moment((as_number(call.get("timestamp")) or 0) - took / 1000) if ended and took else None
            rows[turn] |= {
                "role": "assistant",
                "n_tokens": size or None,
                "first_position": position if size else None,
                "started": began,
                "ended": ended,
            }
            turns.append(turn)
            position += size
    return rows, turns


def _asked(call: Mapping[str, Any]) -> int:
    return len(call.get("messages") or [])


def _ids(call: Mapping[str, Any], name: str) -> NDArray[np.int32]:
    return token_ids(call.get(name) or [])


def _logprobs(call: Mapping[str, Any]) -> Any:
    """Of the sampled tokens of a call, null where the sampler gave none."""
    size = len(_ids(call, "completion_token_ids"))
    values = call.get("logprobs")
    if not values:
        return nulls(size)
    if len(values) != size:
        raise BadLine(f"a call has {len(values)} log-probabilities for {size} sampled tokens")
    return numbers(values)


IMPORTER = Importer(
    "rllm-gateway",
    "rLLM gateway: calls of the sampler",
    _describe,
    _read,
    signs=(Sign("gateway_traces.db", _TABLES), Sign("*.db", _TABLES, says_enough=False)),
)
