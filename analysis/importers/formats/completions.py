"""TRL's `log_completions`: completions/completions_{step}.parquet, the last generated batch at every logging step.

Read against TRL 1.16.0: trl/trainer/grpo_trainer.py (log, and the queues it logs from). A batch that is trained on for
several steps is written at each of them; it is one step here, the first that it was written at.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from ratioscope.analysis.importers import responses
from ratioscope.analysis.importers.logged_batches import FIRST, NO_TOTAL, SUM, Batches, Row, seen_before
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import numbered, table_rows
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
_ASSUMED = (
    "Rows that a file repeats from the one before are one batch, which TRL logs until it generates the next; its step "
    "is the first that has it. With logging_steps above 1, batches in between are not in the files.",
    "Responses that follow each other on the same prompt are a group; where a prompt came twice in a row, groups are "
    "as large as the lengths of all such runs allow.",
    "What an evaluation generated is in the files, too, if one ran between two of them: TRL keeps both in one queue.",
)


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
    batches = _batches(files)
    return Description(
        framework="TRL",
        format="TRL log_completions",
        path=path,
        missing=_MISSING | ({} if batches.has_total else {"reward": NO_TOTAL}),
        assumed=_ASSUMED + ((SUM,) if batches.has_total and len(batches.rewards) > 1 else ()),
    )


def _batches(files: Mapping[int, Path]) -> Batches:
    first = [table_rows(file, Reading(skip_bad=True)) for file in list(files.values())[:FIRST]]
    return Batches.of(first, _FIXED, "advantage")


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    files = _files(path)
    before: list[str] = []
    batches: Batches | None = None
    for place, (number, file) in enumerate(files.items()):
        if number <= reading.after and any(later <= reading.after for later in [*files][place + 1 :]):
            continue  # the last one that was read is read again: the next one may repeat it
        last = reading.growing and number == max(files)
        quiet = Reading(skip_bad=reading.skip_bad or last)
        rows = table_rows(file, quiet)
        if last and quiet.problems:
            return  # a file that is still being written
        reading.problems += quiet.problems
        batches = batches or _batches(files)
        identities = [repr({name: value for name, value in row.items() if name != "step"}) for row in rows]
        new = rows[seen_before(before, identities) :]
        before = identities or before
        reading.bytes_read += file.stat().st_size
        if new and number > reading.after:
            yield _step(number, new, batches, file, reading)


def _step(number: int, rows: Sequence[Row], batches: Batches, file: Path, reading: Reading) -> Step:
    found = [
        responses.made(partial(_response, row, group, batches), reading, file, f"row {place}")
        for place, (row, group) in enumerate(zip(rows, batches.groups(rows), strict=True))
    ]
    return responses.step(number, [response for response in found if response is not None])


def _response(row: Row, group: int, batches: Batches) -> responses.Response:
    asked, said = row["prompt"], row["completion"]
    talk = [*asked, *said] if isinstance(asked, list) and isinstance(said, list) else []
    fields = {
        "group_id": group,
        "prompt": responses.plain_text(asked),
        "response": responses.plain_text(said[0].get("content"))
        if talk and len(said) == 1
        else responses.plain_text(said),
    }
    if talk:
        fields["n_turns"] = sum(message.get("role") == "assistant" for message in said)
        fields["n_tool_calls"] = sum(message.get("role") == "tool" for message in said)
    return responses.Response(row=fields | batches.reward(row), messages=responses.conversation(talk))


IMPORTER = Importer(
    "trl-completions",
    "TRL log_completions",
    _describe,
    _read,
    signs=(
        *(Sign(f"{place}completions_*.parquet", ("step", "prompt", "completion")) for place in ("completions/", "")),
    ),
)
