"""ms-swift's `log_completions`: completions.jsonl in the output folder, texts, rewards and advantages.

Read against ms-swift 4.6.0: swift/rlhf_trainers/grpo_trainer.py (log) and gkd_trainer.py, whose line is the queue of
the last generation at a logging step, as TRL's is; swift/megatron/trainers/rollout_mixin.py (_build_log_table), whose
line is one generation; swift/ray/megatron/base_trainer.py (_maybe_log_completions), whose line is a response.
Beside it lies args.json, of swift/arguments/base_args/base_args.py (save_args).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.logged_batches import FIRST, NO_TOTAL, SUM, Batches, Row, seen_before
from ratioscope.analysis.importers.responses import plain_text, version
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import config

_NAME = "completions.jsonl"
_STEPS = ("step", "gen_step")
_TEXTS = ("prompt", "completion")
_OWN = (*_STEPS, *_TEXTS, "advantages", "entropy", "num_turns", "solution", "image")
_NO_TOKENS = "the file has texts and numbers of whole responses, no tokens"
_MISSING = {
    **dict.fromkeys(("logp_behavior", "logp_current", "entropy", "token_id"), _NO_TOKENS),
    "behavior_version": "the file does not say which weights sampled a response",
    "finish_reason": "the file does not say how a response ended",
    "wall_time": "the file has no times",
}
_ONE_EACH = "the file has one advantage a response, and no tokens that it could belong to"
_QUEUE = (
    "Rows that a line repeats from the one before are one batch, which ms-swift logs until it generates the next; its "
    "step is the first that has it. With logging_steps above 1, batches in between are not in the file.",
    "What a second line of a step adds, and a line of step 0, is an evaluation's and left out: ms-swift logs both from "
    "one queue. An evaluation at a step that has no line before it is read as that step.",
)
_GENERATIONS = ("A step is one generation, by the number that ms-swift gives it (gen_step).",)
_RUNS = (
    "Responses that follow each other on the same prompt are a group; where a prompt came twice in a row, groups are "
    "as large as the lengths of all such runs allow."
)
_BY_SIZE = (
    "Groups are of num_generations responses, as args.json says; where rows contradict it, responses that follow each "
    "other on the same prompt are one."
)

Numbered = tuple[int, int, list[Row]]
"""A step, the line at which its rows begin, and the rows."""


def _file(path: Path) -> Path | None:
    file = path if path.is_file() else path / _NAME
    return file if file.suffix == ".jsonl" and file.is_file() else None


def _describe(path: Path) -> Description | None:
    file = _file(path)
    first = _first(file) if file is not None else []
    if file is None or not first:
        return None
    batches = _judged(first, file)
    has_advantage = "advantages" in first[0][2][0]
    missing = dict(_MISSING)
    if has_advantage:
        missing["advantage"] = _ONE_EACH
    else:
        missing["advantage"] = "the file has texts alone" if not batches.rewards else "the file has no advantages"
    if not batches.rewards:
        missing["reward"] = "the file has no rewards"
    elif not batches.has_total:
        missing["reward"] = NO_TOTAL
    adds_up = (SUM,) if batches.has_total and len(batches.rewards) > 1 else ()
    return Description(
        framework="ms-swift",
        format="ms-swift log_completions",
        path=path,
        missing=missing,
        assumed=(
            *(_QUEUE if "step" in first[0][2][0] else _GENERATIONS),
            _BY_SIZE if batches.said else _RUNS,
            *adds_up,
        ),
    )


def _first(file: Path) -> list[Numbered]:
    return [*islice(_generations(file, Reading(growing=True, skip_bad=True)), FIRST)]


def _judged(first: Sequence[Numbered], file: Path) -> Batches:
    return Batches.of([rows for _, _, rows in first], _OWN, "advantages", _said_in_a_group(file))


def _said_in_a_group(file: Path) -> int:
    """Responses to a prompt by the settings beside the file; 0 where there are none, or a training without groups."""
    settings = config(file.parent / "args.json")
    size = settings.get("num_generations")
    return size if settings.get("rlhf_type") == "grpo" and isinstance(size, int) and size > 1 else 0


def _batches(file: Path, reading: Reading) -> Batches:
    """What the first batches show; a later look at the same file does not read them again."""
    reading.place(file)  # where it is another file, what that one showed is forgotten
    if file in reading.judged:
        known: Batches = reading.judged[file]
        return known
    found = _judged(first := _first(file), file)
    if len(first) == FIRST:
        reading.judged[file] = found
    return found


def _lines(file: Path, reading: Reading) -> Iterator[Numbered]:
    """What each line holds that has rows; lines of a response each, while they are of one step, together."""
    waiting: Numbered | None = None
    for line, record in lines.read(file, reading, begin=reading.place(file)):
        step = next((name for name in _STEPS if name in record), "")
        if not step or not record.keys() >= {*_TEXTS}:
            wanted = [name for name in ("step", *_TEXTS) if name not in record and (name != "step" or not step)]
            reading.bad(file, f"no {' and no '.join(wanted)}", line)
            continue
        columns = {name: values for name, values in record.items() if isinstance(values, list)}
        if columns.keys() >= {step, *_TEXTS}:
            sizes = {len(columns[name]) for name in (step, *_TEXTS)}
            if len(sizes) > 1:
                reading.bad(file, f"{step}, prompt, completion are not lists of one length", line)
                continue
            whole = [name for name, values in columns.items() if len(values) in sizes]
            rows: list[Row] = [{name: columns[name][place] for name in whole} for place in range(max(sizes))]
        else:
            rows = [record]
        numbers = {version(row[step]) for row in rows}
        number = numbers.pop() if len(numbers) == 1 else None if rows else -1
        if number is None:
            reading.bad(file, f"{step} is not one number", line)
        elif columns.keys() >= {step, *_TEXTS}:
            if waiting is not None:
                yield waiting
            waiting = None
            if rows:
                yield number, line, rows
        elif waiting is not None and waiting[0] == number:
            waiting[2].extend(rows)
        else:
            if waiting is not None:
                yield waiting
            waiting = number, line, rows
    if waiting is not None:
        yield waiting


def _generations(file: Path, reading: Reading) -> Iterator[Numbered]:
    """What each step of the training generated: without what a line repeats, and without evaluations."""
    before: list[str] = []
    last, line_before = -1, None
    for number, line, rows in _lines(file, reading):
        if line_before is not None:
            reading.begins(file, number, line_before)  # which says what is new in this one
        line_before = line
        identities = [repr({name: row[name] for name in row if name not in ("step", "entropy")}) for row in rows]
        new = rows[seen_before(before, identities) :]
        before = identities
        if number < last:
            reading.bad(file, f"step {number} comes after step {last}", line)
        elif new and number == last and "gen_step" in rows[0]:  # a process writes each once
            reading.bad(file, f"gen_step {number} comes again, with other responses", line)
        elif new and number > last and not ("step" in rows[0] and number == 0):
            yield number, line, new
        last = max(last, number)


def _read(path: Path, reading: Reading) -> Iterator[Step]:
    file = _file(path)
    if file is None:
        return
    batches, held = _batches(file, reading), None
    for number, line, rows in _generations(file, reading):
        if held is not None:
            yield held
        held = _step(number, rows, batches, file, line, reading) if number > reading.after else None
    if held is not None and not reading.growing:
        yield held


def _step(number: int, rows: Sequence[Row], batches: Batches, file: Path, line: int, reading: Reading) -> Step:
    found = [
        responses.made(partial(_response, row, group, batches), reading, file, f"response {place}", line)
        for place, (row, group) in enumerate(zip(rows, batches.groups(rows), strict=True))
    ]
    return responses.step(number, [response for response in found if response is not None])


def _response(row: Mapping[str, Any], group: int, batches: Batches) -> responses.Response:
    fields = {
        "group_id": group,
        "prompt": plain_text(row["prompt"]),
        "response": plain_text(row["completion"]),
        "n_turns": version(row.get("num_turns")),
    }
    return responses.Response(row=fields | batches.reward(row))


IMPORTER = Importer(
    "ms-swift",
    "ms-swift completions",
    _describe,
    _read,
    signs=(Sign(_NAME, ("step", *_TEXTS), says_enough=False),),
)
