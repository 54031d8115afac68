"""The rows of files of tables step by step: the runs of rows in each file that are of one step.

Memory holds some batches and never a file: files are read in the order of their steps, those that share steps side by
side.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.analysis.importers import sqlite_rows
from ratioscope.analysis.importers.batches import SUFFIXES, column_batches
from ratioscope.analysis.importers.mapping_file import TableMap
from ratioscope.analysis.importers.side_by_side import side_by_side
from ratioscope.analysis.importers.source import Reading
from ratioscope.analysis.importers.sums import whole_number
from ratioscope.errors import RatioscopeError


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


def rows_by_step(
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
    if not isinstance(table.step, str) or table.step_in_name:
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
        number: int | None
        if isinstance(table.step, str):
            within = file.relative_to(path).as_posix() if file != path else file.name
            match = pattern.search(within)
            text = match[1] if match else None
            number = whole_number(text)
            if number is None:
                reading.bad(file, f"its name has no step: {table.step_in_name!r} finds {text!r} in it")
                continue
        else:
            number = table.step
        if number + table.step_offset < 0:
            reading.bad(file, _below(number + table.step_offset, table))
        else:
            numbered.setdefault(number + table.step_offset, []).append(file)
    for step in sorted(numbered):
        if step > reading.after:
            found = [
                RowRange(step, columns, file, numbers)
                for file in numbered[step]
                for columns, numbers in column_batches(file, names, reading, table)
            ]
            if found:
                yield step, found


def _first_step(file: Path, table: TableMap, reading: Reading) -> int | None:
    """The step of the first row that has one; files without rows have none."""
    assert isinstance(table.step, str)
    looking = Reading(growing=reading.growing, skip_bad=True)
    by_row = replace(table, layout="lists")
    others: list[tuple[Any, int]] = []
    for columns, numbers in column_batches(file, [table.step], looking, by_row, lines_of_batch=1):
        for value, number in zip(columns[table.step].to_pylist(), numbers, strict=True):
            for one in value if isinstance(value, list) else [value]:
                if (step := whole_number(one)) is not None:
                    return step + table.step_offset
                if one is not None and not others:
                    others.append((one, number))
    for one, number in others:
        reading.bad(file, _no_step(one, table), number)
    if not reading.skip_bad and looking.problems:  # again, to say what is wrong
        for _ in column_batches(file, [table.step], reading, by_row):
            pass
    reading.problems += looking.problems
    return None


def _no_step(value: Any, table: TableMap) -> str:
    return f"{table.step} is {value!r:.60}, and no step"


def _sorting(file: Path, table: TableMap) -> str:
    """What to do with a file whose rows are in another order than their steps."""
    if file.suffix in sqlite_rows.SUFFIXES:
        return f"read a table that is sorted by {table.step} (CREATE TABLE ... AS SELECT ... ORDER BY ...)"
    return f"sort its rows by {table.step} first"


def _runs(file: Path, table: TableMap, names: Sequence[str], reading: Reading) -> Iterator[tuple[int, RowRange]]:
    """The rows of a file, cut where the step changes."""
    assert isinstance(table.step, str)
    last = None
    names = list(dict.fromkeys([*names, table.step]))
    for columns, numbers in column_batches(file, names, reading, table, begin=reading.place(file)):
        for first, end, step in _cuts(columns[table.step]):
            if step is None:
                value = columns[table.step][first].as_py()
                reading.bad(file, _no_step(value, table), numbers[first])
                continue
            step += table.step_offset
            if last is not None and step < last:
                reading.bad(file, f"step {step} comes after step {last}; {_sorting(file, table)}", numbers[first])
                continue
            if step < 0:
                reading.bad(file, _below(step, table), numbers[first])
                continue
            if step != last:
                reading.begins(file, step, numbers[first])
            last = step
            cut = {name: array.slice(first, end - first) for name, array in columns.items()}
            yield step, RowRange(step, cut, file, numbers[first:end])


def _below(step: int, table: TableMap) -> str:
    offset = f" (step_offset = {table.step_offset})" if table.step_offset else ""
    return f"step {step} is below 0, where ours begin{offset}"


def _cuts(column: pa.Array) -> Iterator[tuple[int, int, int | None]]:
    """Stretches of rows of one step: first row, end, step. What is no step is a stretch of its own."""
    if pa.types.is_integer(column.type) and not column.null_count:
        values = column.to_numpy(zero_copy_only=False)
        ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
        for first, end in zip([0, *ends], ends, strict=False):
            yield first, end, int(values[first])
        return
    steps = [whole_number(value) for value in column.to_pylist()]
    first = 0
    for place in range(1, len(steps) + 1):
        if place == len(steps) or steps[place] != steps[first] or steps[first] is None:
            yield first, place, steps[first]
            first = place
