"""NeMo-Gym's rollouts: JSON lines, a rollout a line, as items of OpenAI's Responses API, with tokens where asked for.

Read against NVIDIA-NeMo/Gym 07d6b0d0 and nemo-gym 0.4.0: nemo_gym/rollout_collection.py (what is written, and the
failures beside it), nemo_gym/openai_utils.py (TokenIDLogProbMixin), nemo_gym/responses_converter.py (the tokens of a
call are at the last item that it wrote), nemo_gym/token_id_capture/delivery.py (mask_sample) and resources_servers/
(failure_reason).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import plain
from ratioscope.analysis.importers.calls import Call, put_calls
from ratioscope.analysis.importers.paths import Record, at_path
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.responses import Response, plain_text, version
from ratioscope.analysis.importers.source import Reading, Sign
from ratioscope.analysis.importers.values import as_number, content_text, transcript, words_of

_KEYS = ("response", "responses_create_params", "reward")
_FAILED = "_ng_failure_class"
_IDS, _LOGPS, _PROMPT = "generation_token_ids", "generation_log_probs", "prompt_token_ids"
_INPUTS = "_materialized_inputs.jsonl"
"""Ends the name of what the rollouts were asked for, which lies beside them."""

# What servers and agents call a failure, by a part of its name. Their other reasons are those of answers that were
# scored (target_mismatch, judge_not_equivalent), which did not fail.
_FAILURES = {
    "judge_not": None,
    "judge": "judge",
    "unknown_error": "judge",
    "timeout": "timeout",
    "no_sql_extracted": "parse",
    "output_invalid": "parse",
    "gold_execution": "environment",
    "expected_": "environment",
    "remote_agent": "environment",
    "transient": "environment",
    "skipped": "aborted",
}

_NO_TRAINER = "NeMo-Gym samples and scores; it does not train"
_NO_IDS = "the rollouts have no token ids: the model server gives them with return_token_id_information=true"
_ONE_STEP = "NeMo-Gym has no updates: all rollouts are one step."
_BY_TASK = "Rollouts of one task, with equal inputs, are a group."
_BY_INPUT = "Rollouts with equal inputs are a group: the files number no tasks."


def _records(file: Path, reading: Reading) -> Iterator[tuple[int, Record]]:
    if file.name.endswith(_INPUTS):
        return
    for line, record in plain.records(file, reading):
        # An attempt that failed may have got nothing that could be scored.
        yield line, {**dict.fromkeys(_KEYS), **record} if record.get(_FAILED) is not None else record


def _told(first: Record, _: Path) -> Mapping[str, Any]:
    missing = dict.fromkeys(("logp_current", "logp_new", "advantage", "entropy", "clipped"), _NO_TRAINER)
    missing["behavior_version"] = "the files do not say which weights sampled a rollout"
    missing["wall_time"] = "the files have no times of updates"
    if at_path(first, "response.status") is None:
        missing["finish_reason"] = "the files say how a rollout ended only where it was cut off"
    if not any(_IDS in item for item in _items(at_path(first, "response.output"))):
        missing |= dict.fromkeys(("token_id", "logp_behavior"), _NO_IDS)
    return {"missing": missing, "assumed": (_ONE_STEP, _BY_TASK if "_ng_task_index" in first else _BY_INPUT)}


def _items(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _group(record: Record) -> tuple[Any, ...]:
    return (version(record.get("_ng_task_index")), plain_text(at_path(record, "responses_create_params.input")))


def _rollout(record: Record, response: Response) -> None:
    asked = _asked(record)
    output = _items(at_path(record, "response.output"))
    messages, calls = _conversation(asked, output)
    response.messages = messages
    put_calls(response, calls)
    if not calls:
        response.row["n_turns"] = sum(row["role"] == "assistant" for row in messages[len(asked) :]) or None
    cut = plain_text(at_path(record, "response.incomplete_details.reason"))
    response.row |= {
        "prompt": transcript([{"role": row["role"], "content": row["content"]} for row in messages[: len(asked)]])
        or None,
        "response": transcript(messages[len(asked) :]) or None,
        "n_tool_calls": sum(item.get("type") == "function_call" for item in output) or None,
        "finish_reason": cut or plain_text(at_path(record, "response.status")),
        "truncated": True if cut == "max_output_tokens" else None,
        "failure": _failure(record),
    }
    if record.get(_FAILED) is not None:
        response.row["reward"] = None  # of an attempt that failed it is 0 whatever was sampled
        response.drop(f"failed attempt ({record[_FAILED]})")
    elif record.get("mask_sample") is True:
        response.drop("mask_sample")


def _asked(record: Record) -> list[dict[str, Any]]:
    """The messages that a rollout began with."""
    given = at_path(record, "responses_create_params.input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _items(given)
    instructions = at_path(record, "responses_create_params.instructions")
    if instructions:
        items = [{"role": "system", "content": instructions}, *items]
    return [_row(turn, item) for turn, item in enumerate(items)]


def _row(turn: int, item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type")
    if kind == "function_call_output":
        return {"turn": turn, "role": "tool", "content": content_text(item.get("output")), "tool": None}
    called = plain_text(item.get("name")) if kind == "function_call" else None
    role = "assistant" if kind in ("function_call", "reasoning") else words_of(item.get("role"))
    return {"turn": turn, "role": role, "content": _said(item), "tool": called}


def _said(item: Mapping[str, Any]) -> str:
    if item.get("type") == "function_call":
        return f"{item.get('name')}({item.get('arguments')})"
    return content_text(item.get("content") or item.get("summary"))


def _conversation(
    asked: Sequence[dict[str, Any]], output: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[Call]]:
    """Messages and calls: what the model wrote in one call (a thought, a text, calls of tools) is one message."""
    rows, calls, names = list(asked), list[Call](), dict[Any, Any]()
    open_row: dict[str, Any] | None = None
    for item in output:
        row = _row(len(rows), item)
        if item.get("type") == "function_call":
            names[item.get("call_id")] = row["tool"]
        if row["role"] == "tool":
            row["tool"] = names.get(item.get("call_id"))
        if open_row is not None and row["role"] == "assistant":
            open_row["content"] = "\n".join(filter(None, (open_row["content"], row["content"])))
            open_row["tool"] = ", ".join(filter(None, (open_row["tool"], row["tool"]))) or None
        else:
            rows.append(row)
            open_row = row if row["role"] == "assistant" else None
        if item.get(_IDS) is not None:
            turn = rows[-1]["turn"]
            calls.append(Call(item[_IDS], item.get(_LOGPS), item.get(_PROMPT), turn))
            open_row = None
    return rows, calls


def _failure(record: Record) -> str | None:
    attempt = plain_text(record.get(_FAILED))
    word = attempt or plain_text(record.get("failure_reason")) or ""
    return next((ours for part, ours in _FAILURES.items() if part in word), attempt)


IMPORTER = Plain(
    "nemo-gym",
    "NeMo-Gym rollouts",
    framework="NeMo-Gym",
    files=r".*\.jsonl",
    keys=_KEYS,
    sequences=(
        ("prompt_id", "_ng_task_index", version),
        ("reward", "reward", as_number),
        ("environment", "agent_ref.name", words_of),
        ("temperature", "responses_create_params.temperature|response.temperature", as_number),
        ("top_p", "responses_create_params.top_p|response.top_p", as_number),
    ),
    read=_records,
    group=_group,
    also=_rollout,
    told=_told,
    signs=(Sign("*rollouts*.jsonl", _KEYS, says_enough=False),),
).importer
