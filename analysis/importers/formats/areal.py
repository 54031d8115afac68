"""AReaL's `rollout.dump_to_file`: {version}/{task_id}.jsonl, a response a line, text, rewards and versions.

Read against AReaL cbff54d6 and the wheel 1.0.4: areal/infra/workflow_executor.py (_dump_trajectory). The wheel writes
no version_rle, and its head_version is the smallest of all tokens, the prompt's -1 among them.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.gathered import as_number
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step

_KEYS = {"task_id", "tail_version", "prompt", "completion", "reward"}
_ROLES = {"prompt": "user", "gen": "assistant", "context": "tool"}
_NO_TOKENS = "the files have text, rewards and versions, no tokens"

_MISSING = {
    **dict.fromkeys(("logp_behavior", "logp_current", "advantage", "entropy", "token_id"), _NO_TOKENS),
    "policy_version": "the files do not say which update trained on a response, so its age there is not known",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}
_ASSUMED = (
    "A step is the newest policy version that sampled a token of its responses, which is how AReaL names its folders; "
    "the update that trained on them is this one or a later one.",
    "Responses that AReaL's filter turned away are among them: they are written before it decides.",
    "Responses of a task are a group.",
)


def _folders(path: Path) -> dict[int, Path]:
    return dict(sorted((int(folder.name), folder) for folder in path.iterdir() if _is_version(folder)))


def _is_version(folder: Path) -> bool:
    return folder.name.isdecimal() and folder.is_dir()


def _files(folder: Path) -> list[Path]:
    return sorted((file for file in folder.glob("*.jsonl") if file.stem.isdecimal()), key=lambda file: int(file.stem))


def _describe(path: Path) -> Description | None:
    try:
        folders = _folders(path)
        file = next((file for folder in folders.values() for file in _files(folder)), None)
        first = next((row for _, row in lines.read(file, Reading(skip_bad=True))), {}) if file is not None else {}
    except OSError:
        return None
    if not first.keys() >= _KEYS:
        return None
    ranges = "" if "version_rle" in first else "this AReaL writes the range of a task's versions with the prompt's -1"
    return Description(
        framework="AReaL",
        format="AReaL rollout.dump_to_file",
        path=path,
        steps=len(folders),
        missing=_MISSING | ({"behavior_version_min": ranges} if ranges else {}),
        assumed=_ASSUMED,
    )


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    folders = _folders(path)
    for number, folder in folders.items():
        if number <= reading.after or (reading.growing and number == max(folders)):
            continue
        rows = []
        for file in _files(folder):
            for line, row in lines.read(file, reading):
                response = responses.made(partial(_response, row), reading, file, "the response", line)
                if response is not None:
                    rows.append(response)
        if rows:
            yield responses.step(number, rows)


def _response(row: Mapping[str, Any]) -> responses.Response:
    spans = [(int(version), int(count)) for version, count in row.get("version_rle") or ()]
    versions = [version for version, _ in spans if version >= 0]
    tail = responses.version(row["tail_version"])
    if not versions and tail is not None and tail >= 0:
        versions = [tail]
    n_tokens = sum(count for _, count in spans) if spans else _difference(row.get("seqlen"), row.get("prompt_len"))
    fields = {
        "group_id": responses.version(row["task_id"]),
        "prompt": responses.text(row["prompt"]),
        "response": responses.text(row["completion"]),
        "reward": as_number(row["reward"]),
        "reward_original": as_number(row.get("original_reward")),
        "n_tokens": n_tokens,
        "behavior_version_min": min(versions) if spans and versions else None,
        "behavior_version_max": max(versions, default=None),
    }
    messages, position = [], 0
    for turn, segment in enumerate(row.get("segments") or ()):
        sampled, length = segment.get("role") == "gen", int(segment.get("len") or 0)
        messages.append(
            {
                "turn": turn,
                "role": _ROLES.get(str(segment.get("role"))),
                "content": responses.text(segment.get("text")),
                "n_tokens": length,
                "first_position": position if sampled else None,
            }
        )
        position += length * sampled
    turns = sum(message["role"] == "assistant" for message in messages)
    return responses.Response(row=fields | ({"n_turns": turns} if turns else {}), messages=messages)


def _difference(whole: Any, part: Any) -> int | None:
    return int(whole) - int(part) if isinstance(whole, int) and isinstance(part, int) else None


IMPORTER = Importer(
    "areal",
    "AReaL rollout dump",
    _describe,
    _read,
    signs=(Sign("[0-9]*/[0-9]*.jsonl", tuple(sorted(_KEYS)), says_enough=False),),
)
