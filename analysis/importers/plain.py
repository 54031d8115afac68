"""A format of plain files, declared: where they lie, what is which of ours. Everything else follows from that."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import bounds
from ratioscope.analysis.importers import lines, responses
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import table_rows

Record = Mapping[str, Any]
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
    """A format whose files are JSON lines, JSON or Parquet, with a record a response (or lists of them: `spread`)."""

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
    """Of the tokens table: lists over the response."""
    sampled: str = ""
    """Where the mask of the sampled tokens lies; "": all of the response are."""
    group: Callable[[Record], Any] | None = None
    """What the records of one prompt have in common; None: `sequences` says it, or nobody does."""
    step: str = ""
    """The key with the step, in records that are in its order in each file; "" where a file's name has it. Where
    neither does, all of it is one step."""
    spread: bool = False
    """A record is a list of each of `keys`, and of what is as long, with an entry a response."""
    only: tuple[str, ...] = ()
    """The keys that are read, where records hold much else; (): all."""
    also: Callable[[Record, Response], None] | None = None
    """What else is made of a record."""
    finish: Callable[[Sequence[Response]], None] | None = None
    """What else is made of the responses of a step."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """See `Description`, as `assumed`."""
    assumed: tuple[str, ...] = ()
    told: Callable[[Record], Mapping[str, Any] | None] | None = None
    """Fields of the description that the first record decides; None: the files are no such ones after all."""
    signs: tuple[Sign, ...] = ()
    format: str = ""
    """What a run says that it was made of; "": the title."""

    @property
    def importer(self) -> Importer:
        """It as every format is known."""
        return Importer(self.name, self.title, self._describe, self._read, self.signs)

    def _describe(self, path: Path) -> Description | None:
        files = self._files(path)
        first = self._first(files[0][1]) if files else {}
        if not first.keys() >= {*self.keys}:
            return None
        known = Description(self.framework, self.format or self.title, path, missing=self.missing, assumed=self.assumed)
        if not self.step:
            known = replace(known, steps=len({step for step, _ in files}))
        told = self.told(first) if self.told is not None else {}
        return None if told is None else replace(known, **told)

    def _read(self, path: Path, reading: Reading) -> Iterator[Step]:
        for number, found in self._by_step(path, reading):
            if self.group is not None:
                numbers = responses.groups_of([response.row["group_id"] for response in found])
                for response, number_of_group in zip(found, numbers, strict=True):
                    response.row["group_id"] = number_of_group
            if self.finish is not None:
                self.finish(found)
            if found:
                yield responses.step(number, found)

    # Files and records --------------------------------------------------------------------------------------------

    def _files(self, path: Path) -> list[tuple[int, Path]]:
        """Steps and files; a step of 0 where the name has none."""
        *folders, name = self.files.split("/")
        if path.is_file():
            is_one = not re.compile(name).groups and re.fullmatch(name, path.name)
            return [(0, path)] if is_one else []
        found: list[tuple[tuple[int, ...], Path]] = [((), path)]
        for pattern in (*folders, name):
            found = [
                ((*numbers, *map(int, match.groups())), entry)
                for numbers, folder in found
                for entry in _entries(folder)
                if (match := re.fullmatch(pattern, entry.name))
            ]
        return [(numbers[0] if numbers and not self.step else 0, file) for numbers, file in sorted(found)]

    def _first(self, file: Path) -> Record:
        quiet = Reading(skip_bad=True, growing=True)
        return next((record for _, record in self._records(file, quiet)), {})

    def _records(self, file: Path, reading: Reading) -> Iterator[tuple[int, Record]]:
        """The records of a file and their lines, or numbers."""
        arrays = {theirs for _, theirs, _ in self.tokens} | {self.sampled}
        return records(file, reading, arrays=arrays, only=self.only or None)

    def _by_step(self, path: Path, reading: Reading) -> Iterator[tuple[int, list[Response]]]:
        """Responses by step; of a source that grows without the last, which may grow, too."""
        files = self._files(path)
        if self.step:
            yield from self._side_by_side([file for _, file in files], reading)
            return
        last = files[-1][0] if files else 0
        for step in dict.fromkeys(step for step, _ in files):
            if step > reading.after and not (reading.growing and step == last):
                mine = [file for of, file in files if of == step]
                yield step, [made for file in mine for made in self._of(file, self._records(file, reading), reading)]

    def _side_by_side(self, files: Sequence[Path], reading: Reading) -> Iterator[tuple[int, list[Response]]]:
        """Files are opened when their first step is due, and read as far as a step goes."""
        begins = {file: responses.version(self._first(file).get(self.step)) or 0 for file in files}
        waiting = sorted(files, key=lambda file: (begins[file], file.name), reverse=True)
        opened: list[_File] = []
        while waiting or opened:
            now = min([file.step for file in opened if file.step is not None] + [begins[file] for file in waiting[-1:]])
            while waiting and begins[waiting[-1]] <= now:
                file = waiting.pop()
                opened.append(_File(file, self.step, self._records(file, reading), reading))
            rows = [made for source in opened for made in self._of(source.path, source.records(now), reading)]
            opened = [file for file in opened if file.step is not None]
            if now > reading.after and (waiting or opened or not reading.growing):
                yield now, rows

    # Responses ----------------------------------------------------------------------------------------------------

    def _of(self, file: Path, found: Iterable[tuple[int, Record]], reading: Reading) -> Iterator[Response]:
        """The responses of some records of a file."""
        for line, record in found:
            for place, one in self._one_by_one(record, reading, file, line):
                what = f"response {place}" if self.spread else "the response"
                made = responses.made(partial(self._response, one), reading, file, what, line)
                if made is not None:
                    yield made

    def _one_by_one(self, record: Record, reading: Reading, file: Path, line: int) -> Iterator[tuple[int, Record]]:
        if self.spread:
            lists = {name: column for name, column in record.items() if isinstance(column, list)}
            sizes = {len(lists[name]) if name in lists else -1 for name in self.keys}
            if len(sizes) > 1 or -1 in sizes:
                reading.bad(file, f"{', '.join(self.keys)} are not lists of one length", line)
                return
            whole = {name: column for name, column in lists.items() if len(column) in sizes}
            for place in range(max(sizes)):
                yield place, {name: column[place] for name, column in whole.items()}
        elif absent := sorted({*self.keys} - record.keys()):
            reading.bad(file, f"no {' and no '.join(absent)}", line)
        else:
            yield 0, record

    def _response(self, record: Record) -> Response:
        there = [(ours, at_path(record, theirs), value) for ours, theirs, value in self.tokens]
        values = {ours: value(theirs) for ours, theirs, value in there if theirs is not None}
        mask = at_path(record, self.sampled) if self.sampled else None
        size = next((len(list_) for list_ in values.values()), 0)
        response = Response(
            sampled=np.ones(size, dtype=bool) if mask is None else np.asarray(mask, dtype=bool),
            values=values,
            row={ours: value(at_path(record, theirs)) for ours, theirs, value in self.sequences},
        )
        if self.group is not None:
            response.row["group_id"] = key = self.group(record)
            hash(key)
        if self.also is not None:
            self.also(record, response)
        return response


class _File:
    """A file that is read as far as a step goes."""

    def __init__(self, path: Path, key: str, rows: Iterator[tuple[int, Record]], reading: Reading) -> None:
        self.path, self._key, self._rows, self._reading = path, key, rows, reading
        self._next: tuple[int, Record] | None = None
        self.step: int | None = -1
        self._advance()

    def _advance(self) -> None:
        for line, record in self._rows:
            step = responses.version(record.get(self._key))
            if step is None or step < 0:
                self._reading.bad(self.path, "no step", line)
            elif self.step is not None and step < self.step:
                self._reading.bad(self.path, f"step {step} comes after step {self.step}", line)
            else:
                self.step, self._next = step, (line, record)
                return
        self.step, self._next = None, None

    def records(self, step: int) -> Iterator[tuple[int, Record]]:
        """Those of the step that it is at."""
        while self.step == step and self._next is not None:
            found = self._next
            self._advance()
            yield found


def records(
    file: Path, reading: Reading, *, arrays: Collection[str] = (), only: Collection[str] | None = None
) -> Iterator[tuple[int, Record]]:
    """The objects of a file of JSON lines, the one or the list in a JSON file, or the rows of a Parquet file.

    Args:
        arrays, only: see `lines.read`.
    """
    if file.suffix == ".parquet":
        yield from enumerate(table_rows(file, reading), start=1)
    elif file.suffix == ".json":
        yield from enumerate(_objects(file, reading), start=1)
    else:
        yield from lines.read(file, reading, arrays=arrays, only=only)


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


def at_path(record: Any, path: str) -> Any:
    """What lies at a path in a record, None where nothing does: `a.b` in an object, `a[*].b` in each object of a list;
    of `a|b` the first that is there."""
    if isinstance(record, Mapping) and path in record:
        return record[path]
    if "|" in path:
        return next((value for one in path.split("|") if (value := at_path(record, one)) is not None), None)
    begin, each, rest = path.partition("[*].")
    for name in begin.split("."):
        record = record.get(name) if isinstance(record, Mapping) else None
    if not each:
        return record
    parts = [at_path(one, rest) for one in record] if isinstance(record, list) else []
    return [value for part in parts if part is not None for value in (part if isinstance(part, list) else [part])]


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
