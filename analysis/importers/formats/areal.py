"""AReaL's `rollout.dump_to_file`: {version}/{task_id}.jsonl, a response a line, text, rewards and versions.

Read against AReaL cbff54d6 and the wheel 1.0.4: areal/infra/workflow_executor.py (_dump_trajectory). The wheel writes
no version_rle, and its head_version is the smallest of all tokens, the prompt's -1 among them.
"""

from typing import Any

from ratioscope.analysis.importers.paths import Record
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.responses import Response, plain_text, version
from ratioscope.analysis.importers.source import Sign
from ratioscope.analysis.importers.values import as_number

_KEYS = ("completion", "prompt", "reward", "tail_version", "task_id")
_ROLES = {"prompt": "user", "gen": "assistant", "context": "tool"}
_RANGES = {"behavior_version_min": "this AReaL writes the range of a task's versions with the prompt's -1"}
_MISSING = {
    **dict.fromkeys(
        ("logp_behavior", "logp_current", "advantage", "entropy", "token_id"),
        "the files have text, rewards and versions, no tokens",
    ),
    "policy_version": "the files do not say which update trained on a response, so its age there is not known",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}


def _versions_and_turns(record: Record, response: Response) -> None:
    spans = [(int(number), int(count)) for number, count in record.get("version_rle") or ()]
    versions = [number for number, _ in spans if number >= 0]
    tail = version(record["tail_version"])
    if not versions and tail is not None and tail >= 0:
        versions = [tail]
    n_tokens = sum(count for _, count in spans) if spans else _rest(record.get("seqlen"), record.get("prompt_len"))
    response.row |= {
        "n_tokens": n_tokens,
        "behavior_version_min": min(versions) if spans and versions else None,
        "behavior_version_max": max(versions, default=None),
    }
    messages, position = [], 0
    for turn, segment in enumerate(record.get("segments") or ()):
        sampled, length = segment.get("role") == "gen", int(segment.get("len") or 0)
        messages.append(
            {
                "turn": turn,
                "role": _ROLES.get(str(segment.get("role"))),
                "content": plain_text(segment.get("text")),
                "n_tokens": length,
                "first_position": position if sampled else None,
            }
        )
        position += length * sampled
    response.messages = messages
    response.row["n_turns"] = sum(message["role"] == "assistant" for message in messages) or None


def _rest(whole: Any, part: Any) -> int | None:
    return int(whole) - int(part) if isinstance(whole, int) and isinstance(part, int) else None


IMPORTER = Plain(
    "areal",
    "AReaL rollout dump",
    framework="AReaL",
    format="AReaL rollout.dump_to_file",
    files=r"(\d+)/(\d+)\.jsonl",
    keys=_KEYS,
    sequences=(
        ("group_id", "task_id", version),
        ("prompt", "prompt", plain_text),
        ("response", "completion", plain_text),
        ("reward", "reward", as_number),
        ("reward_original", "original_reward", as_number),
    ),
    also=_versions_and_turns,
    missing=_MISSING,
    assumed=(
        "A step is the newest policy version that sampled a token of its responses, which is how AReaL names its "
        "folders; the update that trained on them is this one or a later one.",
        "Responses that AReaL's filter turned away are among them: they are written before it decides.",
        "Responses of a task are a group.",
    ),
    told=lambda first, _: {} if "version_rle" in first else {"missing": _MISSING | _RANGES},
    signs=(Sign("[0-9]*/[0-9]*.jsonl", _KEYS, says_enough=False),),
).importer
