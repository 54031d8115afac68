"""Parquet, JSON lines and Arrow files as record batches, and the runs of rows in them that are of one step.

Memory holds some batches and never a file: files are read in the order of their steps, those that share steps side by
side.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.analysis.importers import lines
from ratioscope.analysis.importers.mapping_file import TableMap
from ratioscope.analysis.importers.side_by_side import side_by_side
from ratioscope.analysis.importers.source import Reading
from ratioscope.errors import RatioscopeError, first_line, unknown
from ratioscope.storage import bounds
from ratioscope.storage.parquet import footer, read_schema

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".arrow", ".feather", ".ipc")

_LISTS, _ROWS = 128, 65_536
"""Rows of a batch: a row is a response with its lists, or a token."""
_LINES, _VALUES = 1_000, 1_000_000
"""JSON lines of a batch, and numbers in them."""
_LOOKED_AT = 50
"""Lines from which the columns of a file of JSON lines are taken."""
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_BEING_WRITTEN = 600.0
"""Seconds: a file that cannot be read yet and has changed in so many is being written."""


class NotYetError(Exception):
    """A file of a source that grows is not whole; what comes after it has to wait."""


@dataclass(frozen=True)
class RowRange:
    """Some rows of one step, in a file."""

    step: int
    columns: dict[str, pa.Array]
    """By their names; dotted names are parts of structures."""
    path: Path
    lines: Sequence[int]
    """Of each row: its line, or its number in the file, from 1."""


def files_of(path: Path, pattern: str) -> list[Path]:
    """The files below a folder that fit a pattern, or the file that the path is.

    Raises:
        RatioscopeError: the pattern is none, or leads out of the folder.
    """
    if path.is_file():
        return [path]
    if not pattern or ".." in Path(pattern).parts:
        raise RatioscopeError(f"files = {pattern!r} names no files below {path}; a pattern such as *.parquet does.")
    try:
        return sorted(found for found in path.glob(pattern) if found.is_file() and found.suffix in SUFFIXES)
    except (ValueError, NotImplementedError) as error:
        raise RatioscopeError(f"files = {pattern!r} is no pattern below {path} ({str(error).rstrip('.')}).") from None


def columns_in(path: Path) -> dict[str, str]:
    """Columns of a file and their types, in words; parts of structures dotted.

    Raises:
        RatioscopeError: it cannot be read.
    """
    try:
        if path.suffix in (".jsonl", ".ndjson"):
            rows = lines.read(path, Reading(growing=True, skip_bad=True))
            return _of_objects(row for _, row in islice(rows, _LOOKED_AT))
        found = read_schema(path) if path.suffix == ".parquet" else next(_arrow(path)).schema
    except (OSError, pa.ArrowException, StopIteration) as error:
        why = "it is empty" if isinstance(error, StopIteration) else first_line(error, 120)
        raise RatioscopeError(f"{path}: cannot be read ({why}).") from None
    return dict(_named(found))


def _of_objects(rows: Iterable[dict[str, Any]], before: str = "") -> dict[str, str]:
    """The keys of some objects, and what their first values are."""
    found: dict[str, str] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, dict):
                found |= _of_objects([value], f"{before}{key}.")
            elif found.get(before + key) in (None, "null"):
                found[before + key] = "null" if value is None else _shape(value).removeprefix("a ").removeprefix("an ")
    return found


def _named(found: Any, before: str = "") -> Iterator[tuple[str, str]]:
    for one in found:
        if pa.types.is_struct(one.type):
            yield from _named(one.type, f"{before}{one.name}.")
        else:
            yield before + one.name, str(one.type)


def by_step(
    path: Path, table: TableMap, names: Sequence[str], reading: Reading
) -> Iterator[tuple[int, list[RowRange]]]:
    """The rows of a table, step by step in ascending order: the steps beyond `reading.after`.

    Args:
        names: the columns that are wanted.

    Raises:
        ImportProblem: a file cannot be read, or its steps go back; unless what is bad is left out.
        NotYetError: a file of a source that grows is not whole.
    """
    files = files_of(path, table.files)
    if table.step_in_name:
        yield from _by_name(path, files, table, names, reading)
        return
    first = {file: step for file in files if (step := _first_step(file, table, reading)) is not None}
    for step, found, _ in side_by_side(first, lambda file: _runs(file, table, names, reading)):
        if step > reading.after:
            yield step, found


def _by_name(
    path: Path, files: list[Path], table: TableMap, names: Sequence[str], reading: Reading
) -> Iterator[tuple[int, list[RowRange]]]:
    pattern = re.compile(table.step_in_name)
    numbered: dict[int, list[Path]] = {}
    for file in files:
        within = file.relative_to(path).as_posix() if file != path else file.name
        match = pattern.search(within)
        text = match[1] if match else None
        number = _whole(text)
        if number is None:
            reading.bad(file, f"its name has no step: {table.step_in_name!r} finds {text!r} in it")
            continue
        numbered.setdefault(number + table.step_offset, []).append(file)
    for step in sorted(numbered):
        if step > reading.after:
            found = [
                RowRange(step, columns, file, numbers)
                for file in numbered[step]
                for columns, numbers in _batches(file, names, reading, table)
            ]
            if found:
                yield step, found


def _first_step(file: Path, table: TableMap, reading: Reading) -> int | None:
    """The step of the first row that has one; files without rows have none."""
    looking = Reading(growing=reading.growing, skip_bad=True)
    for columns, _ in _batches(file, [table.step], looking, table, lines_of_batch=1):
        for value in columns[table.step].to_pylist():
            if (step := _whole(value)) is not None:
                return step + table.step_offset
    if not reading.skip_bad and looking.problems:  # again, to say what is wrong
        for _ in _batches(file, [table.step], reading, table):
            pass
    reading.problems += looking.problems
    return None


def _runs(file: Path, table: TableMap, names: Sequence[str], reading: Reading) -> Iterator[tuple[int, RowRange]]:
    """The rows of a file, cut where the step changes."""
    last = None
    for columns, numbers in _batches(file, list(dict.fromkeys([*names, table.step])), reading, table):
        for first, end, step in _cuts(columns[table.step]):
            if step is None:
                value = columns[table.step][first].as_py()
                reading.bad(file, f"{table.step} is {value!r}, and no step", numbers[first])
                continue
            step += table.step_offset
            if last is not None and step < last:
                what = f"step {step} comes after step {last}; rows must be in the order of their steps"
                reading.bad(file, what, numbers[first])
                continue
            last = step
            cut = {name: array.slice(first, end - first) for name, array in columns.items()}
            yield step, RowRange(step, cut, file, numbers[first:end])


def _cuts(column: pa.Array) -> Iterator[tuple[int, int, int | None]]:
    """Stretches of rows of one step: first row, end, step. What is no step is a stretch of its own."""
    if pa.types.is_integer(column.type) and not column.null_count:
        values = column.to_numpy(zero_copy_only=False)
        ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
        for first, end in zip([0, *ends], ends, strict=False):
            yield first, end, int(values[first])
        return
    steps = [_whole(value) for value in column.to_pylist()]
    first = 0
    for place in range(1, len(steps) + 1):
        if place == len(steps) or steps[place] != steps[first] or steps[first] is None:
            yield first, place, steps[first]
            first = place


def _whole(value: Any) -> int | None:
    """An integer, also one that is written as a float or in a string."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    return None


# Batches of a file ----------------------------------------------------------------------------------------------------

Batch = tuple[dict[str, pa.Array], Sequence[int]]
"""Columns by their names, and of each row its line or number in the file."""


def _batches(
    file: Path, names: Sequence[str], reading: Reading, table: TableMap, lines_of_batch: int = _LINES
) -> Iterator[Batch]:
    """The wanted columns of a file, some rows at a time."""
    if file.suffix in (".jsonl", ".ndjson"):
        yield from _of_lines(file, names, reading, lines_of_batch)
        return
    rows_of_batch = _ROWS if getattr(table, "layout", "rows") == "rows" else _LISTS
    seen = 0
    try:
        for batch in _parquet(file, names, rows_of_batch) if file.suffix == ".parquet" else _arrow(file):
            columns: dict[str, pa.Array] = {}
            for name in names:
                found = _part_of(batch, name)
                if found is None:
                    reading.bad(file, str(unknown("a column here", name, dict(_named(batch.schema)))).rstrip(".?"))
                    return
                columns[name] = found
            if file.suffix == ".parquet":
                reading.bytes_read += batch.nbytes
            for start in range(0, batch.num_rows, rows_of_batch):
                count = min(rows_of_batch, batch.num_rows - start)
                yield (
                    {name: array.slice(start, count) for name, array in columns.items()},
                    range(seen + start + 1, seen + start + count + 1),
                )
            seen += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        if reading.growing and time.time() - file.stat().st_mtime < _BEING_WRITTEN:
            raise NotYetError(str(file)) from None
        reading.bad(file, f"cannot be read ({first_line(error, 120)})")


def _parquet(file: Path, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    metadata = footer(file)
    bounds.refuse(file, bounds.bomb(metadata, file.stat().st_size))
    with pq.ParquetFile(file, metadata=metadata) as opened:
        there = set(opened.schema_arrow.names)
        roots = list(dict.fromkeys(name if name in there else name.split(".")[0] for name in names))
        yield from opened.iter_batches(rows, columns=[root for root in roots if root in there])


def _arrow(file: Path) -> Iterator[pa.RecordBatch]:
    """Arrow files, which Feather files are, too, and streams."""
    with pa.memory_map(str(file)) as source:
        try:
            opened = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
            return
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number)


def _part_of(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column, or by a dotted name a part of a structure; None where there is none of this name."""
    if name in batch.schema.names:
        return batch.column(name)
    root, *parts = name.split(".")
    found = batch.column(root) if root in batch.schema.names else None
    for part in parts:
        if found is None or not pa.types.is_struct(found.type) or found.type.get_field_index(part) < 0:
            return None
        found = found.flatten()[found.type.get_field_index(part)]  # a null structure has null parts
    return found if parts else None


def _of_lines(file: Path, names: Sequence[str], reading: Reading, most: int) -> Iterator[Batch]:
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    values = 0
    roots = {*names, *(name.split(".")[0] for name in names)}
    for number, row in lines.read(file, reading, arrays=names, only=roots):
        rows.append({name: _value(row, name) for name in names})
        numbers.append(number)
        values += sum(len(value) for value in rows[-1].values() if isinstance(value, np.ndarray))
        if len(rows) >= most or values >= _VALUES:
            yield from _converted(file, names, rows, numbers, reading)
            rows, numbers, values = [], [], 0
    if rows:
        yield from _converted(file, names, rows, numbers, reading)


def _value(row: dict[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _converted(
    file: Path, names: Sequence[str], rows: list[dict[str, Any]], numbers: list[int], reading: Reading
) -> Iterator[Batch]:
    """The rows as columns; where rows do not fit together, the first of them is right and the others are bad."""
    try:
        yield {name: _column([row[name] for row in rows]) for name in names}, numbers
        return
    except (pa.ArrowException, TypeError, ValueError):
        pass
    shapes: dict[str, str] = {}
    fitting = []
    for row, number in zip(rows, numbers, strict=True):
        said = {name: _shape(row[name]) for name in names if row[name] is not None}
        wrong = next((name for name, shape in said.items() if shapes.setdefault(name, shape) != shape), None)
        if wrong is None:
            fitting.append((row, number))
        else:
            reading.bad(file, f"{wrong} is {said[wrong]}, and {shapes[wrong]} in the lines before", number)
    for name in names if fitting else ():
        try:
            _column([row[name] for row, _ in fitting])
        except (pa.ArrowException, TypeError, ValueError) as error:
            what = f"{name} holds values that do not go together ({first_line(error, 120)})"
            reading.bad(file, what, fitting[0][1])
            return
    yield {name: _column([row[name] for row, _ in fitting]) for name in names}, [number for _, number in fitting]


def _shape(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "a list"
    if isinstance(value, list):
        inner = sorted({_shape(each) for each in value if each is not None})
        return "a list" if inner in ([], ["a number"]) else f"a list of {' and '.join(inner)}"
    if isinstance(value, bool | int | float):
        return "a number"
    return "a string" if isinstance(value, str) else "an object"


def _column(values: list[Any]) -> pa.Array:
    """A column of JSON's values; lists of numbers come as arrays and are laid out one after the other."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return pa.array(values)
    if not all(value is None or isinstance(value, np.ndarray) for value in values):
        return pa.array([value.tolist() if isinstance(value, np.ndarray) else value for value in values])
    parts = [np.zeros(0) if value is None else value for value in values]
    filled = [part for part in parts if len(part)]
    flat = np.concatenate(filled) if filled else np.zeros(0)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    absent = pa.array([value is None for value in values])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat), mask=absent)
