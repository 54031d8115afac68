"""Atropos' `data_path_to_save_groups`: JSON lines, a group of responses a line, as environments send them to trainers.

Read against atroposlib 0.4.0 and NousResearch/atropos 296a0bc5: atroposlib/envs/base.py (ScoredDataGroup,
handle_send_to_api), envs/server_handling/managed_server.py (what is put where nothing was sampled) and
envs/teacher_distillation_env.py. Lists run over prompt and response.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers.paths import Record, at_path
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.responses import Response, conversation, plain_text
from ratioscope.analysis.importers.source import Sign
from ratioscope.analysis.importers.values import as_number, numbers, token_ids

_KEYS = ("tokens", "masks", "scores")
_NOT_SAMPLED = -100
_PLACEHOLDER = 1.0
"""Of log-probabilities: where nothing was sampled, and where the server returned fewer than it sampled."""
_DUMMY = (list(range(128)), [-0.5] * 128)
"""Tokens and log-probabilities of every response of an endpoint that gives neither."""

_OF_TRAINER = "environments write before the trainer has the group"
_MISSING = {
    **dict.fromkeys(("logp_current", "logp_new", "entropy", "clipped"), _OF_TRAINER),
    "behavior_version": "the files do not say which weights sampled a response",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}
_LISTS = {
    "inference_logprobs": ("logp_behavior", "the environment keeps no log-probabilities of the sampler"),
    "advantages": ("advantage", "the environment leaves advantages to the trainer"),
}
_ONE_STEP = "The files do not say which update trained on a group: all groups are one step, in the order of the lines."
_MASKED = (
    f"Tokens with mask {_NOT_SAMPLED} are no rows: of prompt, tools and environment, and of sampled turns that the "
    "environment masks, too."
)
_ONES = "A log-probability of 1 stands where the sampler gave none, and is null."
_MOCKED = "the tokens are placeholders: Atropos writes these for endpoints that return none"


def _told(first: Record, _: Path) -> Mapping[str, Any]:
    given = {name: first[name] for name in _LISTS if isinstance(first.get(name), list)}
    lists = {name for name, values in given.items() if any(value is not None for value in values)}
    missing = _MISSING | {column: why for name, (column, why) in _LISTS.items() if name not in lists}
    if _is_dummy(at_path(first, "tokens"), first.get("inference_logprobs")):
        missing |= dict.fromkeys(("token_id", "logp_behavior"), _MOCKED)
    return {"missing": missing, "assumed": (_ONE_STEP, _MASKED, *([_ONES] if "inference_logprobs" in lists else []))}


def _is_dummy(tokens: Any, logps: Any) -> bool:
    pairs = zip(tokens, logps, strict=False) if isinstance(tokens, list) and isinstance(logps, list) else ()
    return any(
        ids is not None and values is not None and len(ids) == len(values) == len(_DUMMY[0])
        and ([*ids], [*values]) == _DUMMY
        for ids, values in pairs
    )  # fmt: skip


def _logps(values: Sequence[float | None] | None) -> Any:
    found = numbers(values)
    return None if found is None else np.ma.masked_equal(found, _PLACEHOLDER, copy=False)


def _rest(record: Record, response: Response) -> None:
    sampled = response.mask
    if sampled.any():
        response.row["prompt_tokens"] = int(np.argmax(sampled))
    teacher = _of_teacher(record)
    if teacher is not None:
        response.values["logp_teacher"] = teacher
    if _is_dummy([record["tokens"]], [record.get("inference_logprobs")]):
        response.sampled, response.values = None, {}
    messages = conversation(record.get("messages"))
    asked = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), None)
    if asked is not None:  # without an answer in it, it is Atropos' own decoding of all tokens
        texts = record["messages"]
        response.messages = messages
        response.row["prompt"] = plain_text(texts[:asked] or None)
        response.row["response"] = (
            plain_text(texts[asked].get("content")) if len(texts) == asked + 1 else plain_text(texts[asked:])
        )
        response.row["n_tool_calls"] = sum(message["role"] == "tool" for message in messages) or None
    if at_path(record, "overrides.set_advantage_to_zero") is True:
        response.drop("set_advantage_to_zero")


def _of_teacher(record: Record) -> NDArray[Any] | None:
    """The teacher's log-probability of each token, null where it is not among those that it lists. (length,)"""
    listed, logps = record.get("distill_token_ids"), record.get("distill_logprobs")
    if listed is None or logps is None:
        return None
    found = [
        dict(zip(ids or (), values or (), strict=False)).get(token)
        for token, ids, values in zip(record["tokens"], listed, logps, strict=True)
    ]
    absent = np.array([value is None for value in found], dtype=bool)
    return np.ma.masked_array(np.array([value or 0.0 for value in found], dtype=np.float32), absent)


IMPORTER = Plain(
    "atropos",
    "Atropos scored groups",
    framework="Atropos",
    format="Atropos data_path_to_save_groups",
    files=r".*\.jsonl",
    keys=_KEYS,
    spread="group",
    sequences=(("reward", "scores", as_number),),
    tokens=(
        ("token_id", "tokens", token_ids),
        ("logp_behavior", "inference_logprobs", _logps),
        ("logp_reference", "ref_logprobs", numbers),
        ("advantage", "advantages", numbers),
        ("sampled", "masks", lambda masks: np.asarray(masks) != _NOT_SAMPLED),
    ),
    also=_rest,
    told=_told,
    signs=(Sign("*.jsonl", _KEYS, says_enough=False),),
).importer
