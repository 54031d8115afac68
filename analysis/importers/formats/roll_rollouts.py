"""ROLL's `rollout_dump_dir`: rollout_dump_data.step_{n}.jsonl, one line with a list a column, text and scores.

Read against alibaba/ROLL 8eb27cc2: roll/pipeline/rlvr/utils.py (dump_rollout_to_specific_path), which RLVR pipelines
call. Agentic pipelines write columns of their own there, which are not read.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.gathered import as_number
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step

_NAME = re.compile(r"rollout_dump_data\.step_(\d+)\.jsonl")
_COLUMNS = ("global_step", "responses", "scores")
_NO_TOKENS = "the files have text and scores, no tokens: save_logging_board_dir makes ROLL write those of the trainer"

_MISSING = {
    **dict.fromkeys(("logp_behavior", "logp_current", "advantage", "entropy", "token_id"), _NO_TOKENS),
    "behavior_version": "the files do not say which weights sampled a response",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}
_ASSUMED = ("Responses of a step that have the same id, or without ids the same prompt, are a group.",)


def _files(path: Path) -> dict[int, Path]:
    found = {int(match[1]): file for file in path.glob("*.jsonl") if (match := _NAME.fullmatch(file.name))}
    return dict(sorted(found.items()))


def _describe(path: Path) -> Description | None:
    try:
        files = _files(path)
        file = next(iter(files.values()), None)
        first = next((row for _, row in lines.read(file, Reading(skip_bad=True))), {}) if file is not None else {}
    except OSError:
        return None
    if not first.keys() >= {*_COLUMNS}:
        return None
    return Description(
        framework="ROLL",
        format="ROLL rollout_dump_dir",
        path=path,
        steps=len(files),
        missing=_MISSING,
        assumed=_ASSUMED,
    )


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    files = _files(path)
    for number, file in files.items():
        if number <= reading.after or (reading.growing and number == max(files)):
            continue
        found = []
        for line, columns in lines.read(file, reading):
            lists = {name: column for name, column in columns.items() if isinstance(column, list)}
            sizes = {len(lists[name]) if name in lists else -1 for name in _COLUMNS}
            if len(sizes) > 1 or -1 in sizes:
                reading.bad(file, f"{', '.join(_COLUMNS)} are not lists of one length", line)
                continue
            whole = {name: column for name, column in lists.items() if len(column) in sizes}
            keys = next((whole[name] for name in ("id", "prompt", "messages") if name in whole), [])
            groups = responses.groups_of([responses.text(key) for key in keys]) or [None] * max(sizes)
            for place, group in enumerate(groups):
                row = {name: column[place] for name, column in whole.items()} | {"group": group}
                found.append(responses.made(partial(_response, row), reading, file, f"response {place}", line))
        rows = [response for response in found if response is not None]
        if rows:
            yield responses.step(number, rows)


def _response(row: Mapping[str, Any]) -> responses.Response:
    return responses.Response(
        row={
            "group_id": row["group"],
            "prompt": responses.text(row.get("prompt") or row.get("messages")),
            "response": responses.text(row["responses"]),
            "reward": as_number(row["scores"]),
            "environment": responses.text(row.get("domain")),
            "source": responses.text(row.get("source")),
        }
    )


IMPORTER = Importer(
    "roll-rollouts",
    "ROLL rollout_dump_dir",
    _describe,
    _read,
    signs=(Sign("rollout_dump_data.step_*.jsonl", _COLUMNS),),
)
