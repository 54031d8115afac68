"""A format of plain files, declared: where they lie, what is which of ours. Everything else follows from that."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.paths import Record, at_path, spread
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.side_by_side import side_by_side
from ratioscope.analysis.importers.source import (
    FIRST_LINE,
    BadLine,
    Description,
    Importer,
    Reading,
    Sign,
    Step,
    StepStart,
)
from ratioscope.analysis.importers.values import table_rows
from ratioscope.storage import bounds

Row = tuple[str, str, Callable[[Any], Any]]
"""A column of ours, where its value lies in a record of theirs (`at_path`), and what is made of it."""


def of_text(no_tokens: str) -> dict[str, str]:
    """What is missing where files have text and rewards alone.

    Args:
        no_tokens: why they have no tokens.
    """
    return {
        **dict.fromkeys(("logp_behavior", "logp_current", "advantage", "entropy", "token_id"), no_tokens),
        "behavior_version": "the files do not say which weights sampled a response",
        "finish_reason": "the files do not say how a response ended",
        "wall_time": "the files have no times",
    }


@dataclass(frozen=True)
class Plain:
    """A format of files that hold records: a response each, or lists of them (`spread`)."""

    name: str
    """What `--format` takes."""
    title: str
    framework: str
    files: str
    r"""Regular expressions of the names on the way to a file, with / between them. Groups are numbers; where the step
    is not in the records, the first of them is it: `(\d+)/part_\d+\.jsonl`."""
    keys: tuple[str, ...]
    """What every record has; by these the format is recognised, too."""
    sequences: tuple[Row, ...]
    """Of the sequences table."""
    tokens: tuple[Row, ...] = ()
    """Of the tokens table: lists over the response. One that is called `sampled` is the mask of what the policy
    sampled; without it, all was."""
    within: str = ""
    """A folder that the path may stand for by the one it lies in."""
    group: Callable[[Record], Any] | None = None
    """What the records of one prompt have in common; None: `sequences` says it, or nobody does."""
    step: str = ""
    """The key with the step, in records that are in its order in each file; "" where a file's name has it. Where
    neither does, all of it is one step."""
    spread: Literal["", "step", "group"] = ""
    """Of what a record is that is a list of each of `keys` (but the step), and of what is as long, with an entry a
    response: of some responses of a step, or of those to one prompt."""
    read: Callable[[Path, Reading], Iterator[tuple[int, Record]]] | None = None
    """The records of a file and their numbers from 1, where it is not JSON lines, JSON or Parquet (`records`)."""
    only: tuple[str, ...] = ()
    """The keys that are read, where records hold much else; (): all."""
    also: Callable[[Record, Response], None] | None = None
    """What else is made of a record."""
    finish: Callable[[Sequence[Response]], None] | None = None
    """What else is made of the responses of a step."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """See `Description`, as `assumed`."""
    assumed: tuple[str, ...] = ()
    told: Callable[[Record, Path], Mapping[str, Any] | None] | None = None
    """Fields of the description that the first record, of this file, decides; None: it is no such file after all."""
    scalars: Callable[[Path, Reading], Mapping[int, Mapping[str, Any]]] | None = None
    """By step, what files beside these say of it: columns of the steps table."""
    signs: tuple[Sign, ...] = ()
    format: str = ""
    """What a run says that it was made of; "": the title."""

    @property
    def importer(self) -> Importer:
        """It as every format is known."""
        return Importer(self.name, self.title, self._describe, self._read, self.signs)

    def _describe(self, path: Path) -> Description | None:
        files = self._files(path, Reading())
        file, first = next(((file, first) for _, file in files if (first := self._first(file))), (path, {}))
        if not first.keys() >= {*self.keys}:
            return None
        known = Description(self.framework, self.format or self.title, path, missing=self.missing, assumed=self.assumed)
        if not self.step:
            known = replace(known, steps=len({step for step, _ in files}))
        told = self.told(first, file) if self.told is not None else {}
        return None if told is None else replace(known, **told)

    def _read(self, path: Path, reading: Reading) -> Iterator[Step]:
        scalars = self.scalars(path, reading) if self.scalars is not None else {}
        for number, found in self._by_step(path, reading):
            if self.group is not None or self.spread == "group":
                numbers = responses.groups_of([response.row["group_id"] for response in found])
                for response, number_of_group in zip(found, numbers, strict=True):
                    response.row["group_id"] = number_of_group
            if self.finish is not None:
                self.finish(found)
            if found:
                yield responses.step(number, found, scalars.get(number))

    # Files and records --------------------------------------------------------------------------------------------

    def _files(self, path: Path, reading: Reading) -> list[tuple[int, Path]]:
        """Steps and files; a step of 0 where the name has none. Where any name fits, those of others are left out."""
        *folders, name = self.files.split("/")
        if path.is_file():
            is_one = not re.compile(name).groups and re.fullmatch(name, path.name)
            return [(0, path)] if is_one else []
        below = path / self.within
        found: list[tuple[tuple[int, ...], Path]] = [((), below if below.is_dir() else path)]
        for pattern in (*folders, name):
            found = [
                ((*numbers, *map(int, match.groups())), entry)
                for numbers, folder in found
                for entry in _entries(folder)
                if (match := re.fullmatch(pattern, entry.name))
            ]
        return [
            (numbers[0] if numbers and not self.step else 0, file)
            for numbers, file in sorted(found)
            if not name.startswith(".*") or self._is_own(file, reading)
        ]

    def _is_own(self, file: Path, reading: Reading) -> bool:
        """Whether the first record of a file has the keys, if there is one; what has not is named."""
        first = self._first(file)
        absent = sorted({*self.keys} - first.keys()) if first else []
        if absent:
            what = f"{file}: is left out: its first record has no {' and no '.join(absent)}, as {self.title} have."
            reading.problems.append(what)
        return not absent

    def _first(self, file: Path) -> Record:
        """The first record, with all of its keys: also those that show that it is of another format."""
        quiet = Reading(skip_bad=True, growing=True)
        return next((record for _, record in (self.read or records)(file, quiet)), {})

    def _records(self, file: Path, reading: Reading, begin: StepStart = FIRST_LINE) -> Iterator[tuple[int, Record]]:
        """The records of a file and their lines, or numbers."""
        if self.read is not None:
            return self.read(file, reading)
        arrays = {theirs for _, theirs, _ in self.tokens}
        return records(file, reading, arrays=arrays, only=self.only or None, begin=begin)

    def _by_step(self, path: Path, reading: Reading) -> Iterator[tuple[int, list[Response]]]:
        """Responses by step; of a source that grows without the last, which may grow, too."""
        files = self._files(path, reading)
        if self.step:
            first = {file: responses.version(self._first(file).get(self.step)) or 0 for _, file in files}
            for step, found, is_last in side_by_side(first, lambda file: self._with_steps(file, reading)):
                if step > reading.after and not (reading.growing and is_last):
                    yield step, self._responses(found, reading)
            return
        for step in dict.fromkeys(step for step, _ in files):
            if step > reading.after and not (reading.growing and step == files[-1][0]):
                mine = [file for of, file in files if of == step]
                # One at a time: Python's collector goes through all objects that are held, again and again.
                records_of_step = ((file, *numbered) for file in mine for numbered in self._records(file, reading))
                yield step, self._responses(records_of_step, reading)

    def _with_steps(self, file: Path, reading: Reading) -> Iterator[tuple[int, tuple[Path, int, Record]]]:
        """The records of a file that says their steps."""
        last = -1
        for line, record in self._records(file, reading, reading.place(file)):
            step = responses.version(record.get(self.step))
            if step is None or step < 0:
                reading.bad(file, "no step", line)
            elif step < last:
                reading.bad(file, f"step {step} comes after step {last}", line)
            else:
                if step > last:
                    reading.begins(file, step, line)
                last = step
                yield step, (file, line, record)

    # Responses ----------------------------------------------------------------------------------------------------

    def _responses(self, found: Iterable[tuple[Path, int, Record]], reading: Reading) -> list[Response]:
        """Those in some records, each of which is in a line of a file."""
        return [
            made
            for file, line, record in found
            for what, one in self._one_by_one(record, reading, file, line)
            if (made := responses.made(partial(self._response, one, (file, line)), reading, file, what, line))
        ]

    def _one_by_one(self, record: Record, reading: Reading, file: Path, line: int) -> Iterator[tuple[str, Record]]:
        """What a record's responses are made of, and how each is called."""
        if self.spread:
            try:
                found = list(spread(record, [name for name in self.keys if name != self.step]))
            except BadLine as error:
                reading.bad(file, str(error), line)
                return
            yield from ((f"response {place}", one) for place, one in enumerate(found))
        elif absent := sorted({*self.keys} - record.keys()):
            reading.bad(file, f"no {' and no '.join(absent)}", line)
        else:
            yield "the response", record

    def _response(self, record: Record, place: tuple[Path, int]) -> Response:
        there = [(ours, at_path(record, theirs), value) for ours, theirs, value in self.tokens]
        values = {ours: value(theirs) for ours, theirs, value in there if theirs is not None}
        mask = values.pop("sampled", None)
        size = next((len(list_) for list_ in values.values()), 0)
        response = Response(
            sampled=np.ones(size, dtype=bool) if mask is None else np.asarray(mask, dtype=bool),
            values=values,
            row={ours: value(at_path(record, theirs)) for ours, theirs, value in self.sequences},
        )
        if self.group is not None or self.spread == "group":
            response.row["group_id"] = key = self.group(record) if self.group is not None else place
            hash(key)
        if self.also is not None:
            self.also(record, response)
        return response


def records(
    file: Path,
    reading: Reading,
    *,
    arrays: Collection[str] = (),
    only: Collection[str] | None = None,
    begin: StepStart = FIRST_LINE,
) -> Iterator[tuple[int, Record]]:
    """The objects of a file of JSON lines, the one or the list in a JSON file, or the rows of a Parquet file.

    Args:
        arrays, only, begin: see `lines.read`.
    """
    if file.suffix == ".parquet":
        yield from enumerate(table_rows(file, reading), start=1)
    elif file.suffix == ".json":
        yield from enumerate(_objects(file, reading), start=1)
    else:
        yield from lines.read(file, reading, arrays=arrays, only=only, begin=begin)


def _objects(file: Path, reading: Reading) -> list[Record]:
    try:
        whole = json.loads(bounds.read_whole(file))
    except OSError as error:
        reading.bad(file, f"cannot be read ({error.strerror or error})")
        return []
    except (ValueError, RecursionError) as error:
        reading.bad(file, f"not JSON, or not whole ({error})")
        return []
    return [one for one in (whole if isinstance(whole, list) else [whole]) if isinstance(one, Mapping)]


def number_lists(record: Record) -> set[str]:
    """The keys of a record that hold lists with numbers in them."""
    lists = {name: value for name, value in record.items() if isinstance(value, list)}
    return {name for name, value in lists.items() if any(isinstance(each, int | float) for each in value)}


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
