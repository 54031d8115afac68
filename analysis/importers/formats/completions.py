"""TRL's `log_completions`: completions/completions_{step}.parquet, the last generated batch at every logging step.

Read against TRL 1.16.0: trl/trainer/grpo_trainer.py (log, and the queues it logs from). A batch that is trained on for
several steps is written at each of them; it is one step here, the first that it was written at.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.analysis.importers import responses
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import as_number, as_part, numbered, table_rows
from ratioscope.storage.parquet import read_schema

_FIXED = ("step", "prompt", "completion", "advantage")
_NO_TOKENS = "the files have text, rewards and advantages, no tokens: ratioscope.adapters.trl.record(trainer) has them"

_MISSING = {
    **dict.fromkeys(("logp_behavior", "logp_current", "entropy", "token_id"), _NO_TOKENS),
    "advantage": "the files have one advantage a response, and no tokens that it could belong to",
    "behavior_version": "the files do not say which weights sampled a response",
    "finish_reason": "the files do not say how a response ended",
    "wall_time": "the files have no times",
}
_NO_TOTAL = (
    "the files have the rewards of each function, not their weights, and the plain sum does not give the advantages"
)
_ASSUMED = (
    "Rows that a file repeats from the one before are one batch, which TRL logs until it generates the next; its step "
    "is the first that has it. With logging_steps above 1, batches in between are not in the files.",
    "Responses that follow each other on the same prompt are a group; where a prompt came twice in a row, groups are "
    "as large as the lengths of all such runs allow.",
    "What an evaluation generated is in the files, too, if one ran between two of them: TRL keeps both in one queue.",
)
_SUM = "The reward is the sum of the reward functions, as the advantages in the first files are those of that sum."

# Files that are looked at for whether the sum of the rewards gives the advantages.
_FIRST = 8


def _folder(path: Path) -> Path:
    return path / "completions" if (path / "completions").is_dir() else path


def _files(path: Path) -> dict[int, Path]:
    return numbered(_folder(path), r"completions_(\d+)\.parquet")


def _describe(path: Path) -> Description | None:
    try:
        files = _files(path)
        columns: list[str] = next((read_schema(file).names for file in files.values() if file.stat().st_size), [])
    except (OSError, pa.ArrowException):
        return None
    if not {"step", "prompt", "completion"} <= {*columns}:
        return None
    first = next(filter(None, (table_rows(file, Reading(skip_bad=True)) for file in files.values())), [])
    names = _reward_names(first) if first else []
    total = len(names) == 1 or _sums(files, names, _group_size(files))
    return Description(
        framework="TRL",
        format="TRL log_completions",
        path=path,
        missing=_MISSING | ({} if total else {"reward": _NO_TOTAL}),
        assumed=_ASSUMED + ((_SUM,) if total and len(names) > 1 else ()),
    )


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    files = _files(path)
    before: list[str] = []
    names: list[str] | None = None
    total, size = False, 0
    for place, (number, file) in enumerate(files.items()):
        if number <= reading.after and any(later <= reading.after for later in [*files][place + 1 :]):
            continue  # the last one that was read is read again: the next one may repeat it
        last = reading.growing and number == max(files)
        quiet = Reading(skip_bad=reading.skip_bad or last)
        rows = table_rows(file, quiet)
        if last and quiet.problems:
            return  # a file that is still being written
        reading.problems += quiet.problems
        if names is None and rows:
            names = _reward_names(rows)
            size = _group_size(files)
            total = len(names) == 1 or _sums(files, names, size)
        identities = [repr({name: value for name, value in row.items() if name != "step"}) for row in rows]
        new = rows[_repeated(before, identities) :]
        before = identities or before
        reading.bytes_read += file.stat().st_size
        if new and number > reading.after:
            yield _step(number, new, _groups(new, size), names or [], total, file, reading)


def _repeated(before: Sequence[str], rows: Sequence[str]) -> int:
    """How many rows at the beginning are the last of the file before: TRL's queue drops the oldest for new ones.

    One row may be alike by chance.
    """
    longest = min(len(before), len(rows))
    overlaps = (size for size in range(longest, 1, -1) if before[-size:] == rows[:size])
    return next(overlaps, 1 if len(rows) == 1 and before[-1:] == rows else 0)


def _reward_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns of numbers beside TRL's own: reward functions, and numbers that these logged with log_extra."""
    names = [name for name in rows[0] if name not in _FIXED]
    return [
        name
        for name in names
        if all(row[name] is None or as_part(row[name]) is not None for row in rows)
        and any(row[name] is not None for row in rows)
    ]


def _sums(files: Mapping[int, Path], names: Sequence[str], size: int) -> bool:
    """Whether advantages are those of the plain sum of the columns: proportional to it within every group."""
    judged = False
    for file in list(files.values())[:_FIRST]:
        rows = table_rows(file, Reading(skip_bad=True))
        groups = np.array(_groups(rows, size))
        sums = np.array([_total(row, names) for row in rows])
        advantages = np.array([as_number(row.get("advantage")) or 0.0 for row in rows])
        for group in set(groups.tolist()):
            ours, theirs = sums[groups == group], advantages[groups == group]
            ours = ours - ours.mean()
            one, other = np.linalg.norm(ours), np.linalg.norm(theirs)
            if one < 1e-9 and other < 1e-6:
                continue
            if one < 1e-9 or other < 1e-9 or ours @ theirs / (one * other) < 1 - 1e-5:
                return False
            judged = True
    return judged


def _total(row: Mapping[str, Any], names: Sequence[str]) -> float:
    values = [as_number(row[name]) for name in names]
    return float(np.nansum([np.nan if value is None else value for value in values]))


def _runs(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """How many responses follow each other on the same prompt, by run."""
    return [len([*run]) for _, run in groupby(rows, key=lambda row: responses.plain_text(row["prompt"]))]


def _group_size(files: Mapping[int, Path]) -> int:
    """The number of generations a prompt: what all runs of the first files are multiples of; 0: no number above 1."""
    lengths = [
        length for file in list(files.values())[:_FIRST] for length in _runs(table_rows(file, Reading(skip_bad=True)))
    ]
    size = math.gcd(*lengths)
    return size if size > 1 else 0


def _groups(rows: Sequence[Mapping[str, Any]], size: int) -> list[int]:
    """One number for responses that follow each other on the same prompt, `size` at most."""
    numbers: list[int] = []
    for run in _runs(rows):
        first = numbers[-1] + 1 if numbers else 0
        numbers += [first + (place // size if size else 0) for place in range(run)]
    return numbers


def _step(
    number: int,
    rows: Sequence[Mapping[str, Any]],
    groups: Sequence[int],
    names: Sequence[str],
    total: bool,
    file: Path,
    reading: Reading,
) -> Step:
    found = [
        responses.made(partial(_response, row, group, names, total), reading, file, f"row {place}")
        for place, (row, group) in enumerate(zip(rows, groups, strict=True))
    ]
    return responses.step(number, [response for response in found if response is not None])


def _response(row: Mapping[str, Any], group: int, names: Sequence[str], total: bool) -> responses.Response:
    asked, said = row["prompt"], row["completion"]
    talk = [*asked, *said] if isinstance(asked, list) and isinstance(said, list) else []
    fields = {
        "group_id": group,
        "prompt": responses.plain_text(asked),
        "response": responses.plain_text(said[0].get("content"))
        if talk and len(said) == 1
        else responses.plain_text(said),
        "reward": _total(row, names) if total and names else None,
    }
    if talk:
        fields["n_turns"] = sum(message.get("role") == "assistant" for message in said)
        fields["n_tool_calls"] = sum(message.get("role") == "tool" for message in said)
    parts = responses.parts({name: row[name] for name in names}) if len(names) > 1 else {}
    return responses.Response(row=fields | parts, messages=responses.conversation(talk))


IMPORTER = Importer(
    "trl-completions",
    "TRL log_completions",
    _describe,
    _read,
    signs=(
        *(Sign(f"{place}completions_*.parquet", ("step", "prompt", "completion")) for place in ("completions/", "")),
    ),
)
