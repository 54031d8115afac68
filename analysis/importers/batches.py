"""Parquet, Arrow, JSON and SQLite files as batches of columns.

Columns of Parquet and Arrow stay as they are where a name leads to them. Everything else is read as records: JSON, rows
of databases, text that holds JSON, what lies in lists of objects (`at_path`), rows of several responses (`spread`).
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.analysis.importers import lines, plain, sqlite_rows
from ratioscope.analysis.importers.mapping_file import ROW, TableMap
from ratioscope.analysis.importers.paths import Record, as_stored, at_path, at_paths, spread, taken_apart
from ratioscope.analysis.importers.source import FIRST_LINE, BadLine, Reading, StepStart
from ratioscope.analysis.importers.sums import ColumnSum, WholeText, is_list, names_in, summed
from ratioscope.errors import RatioscopeError, first_line, unknown
from ratioscope.storage import bounds
from ratioscope.storage.parquet import footer

_LINE_SUFFIXES = (".jsonl", ".ndjson", *lines.COMPRESSED)
SUFFIXES = (".parquet", *_LINE_SUFFIXES, ".json", ".arrow", ".feather", ".ipc", *sqlite_rows.SUFFIXES)

_LISTS, _ROWS = 128, 65_536
"""Rows of a batch: a row is a response with its lists, or a token."""
_LINES, _VALUES = 1_000, 1_000_000
"""JSON lines of a batch, and numbers in them."""
_BEING_WRITTEN = 600.0
"""Seconds: a file that cannot be read yet and has changed in so many is being written."""


class NotYetError(Exception):
    """A file of a source that grows is not whole; what comes after it has to wait."""


Batch = tuple[dict[str, pa.Array], Sequence[int]]
"""Columns by their names, and of each row its line or number in the file."""


def column_batches(
    file: Path,
    names: Sequence[str],
    reading: Reading,
    table: TableMap,
    lines_of_batch: int = _LINES,
    begin: StepStart = FIRST_LINE,
) -> Iterator[Batch]:
    """The wanted columns of a file, some rows at a time, with the sums that are made of them.

    Args:
        begin: where reading begins, of a file that is followed.

    Raises:
        ImportProblem: the file cannot be read, or holds what does not fit; unless what is bad is left out.
        NotYetError: it is of a source that grows, and is not whole.
    """
    stored = list(dict.fromkeys(one for name in names for one in names_in(name)))
    if is_columnar(file):
        found = _of_columns(file, stored, reading, table)
    else:
        read = _of_records(file, table, stored, reading, begin)
        found = _of_rows(file, read, stored, reading, table, lines_of_batch)
    for columns, numbers in found:
        for name in names:
            if isinstance(name, ColumnSum):
                columns[name], bad = summed(name, columns)
                for row, what in bad:
                    reading.bad(file, what, numbers[row])
        yield columns, numbers


def is_columnar(file: Path) -> bool:
    """Whether its columns are stored one by one, each of one type."""
    return file.suffix in (".parquet", ".arrow", ".feather", ".ipc")


def _of_columns(file: Path, names: Sequence[str], reading: Reading, table: TableMap) -> Iterator[Batch]:
    """Batches of Parquet and Arrow: columns as they are, or by way of records where that is not enough."""
    seen, rows_of_batch = 0, _ROWS if table.layout == "rows" and not table.each else _LISTS
    by_record = bool(table.each) or table.layout in ("groups", "steps") or ROW in names
    read = [*names, table.each]
    try:
        for batch in parquet_batches(file, read, rows_of_batch) if file.suffix == ".parquet" else arrow_batches(file):
            found = {name: _part_of(batch, name) for name in names if name != ROW}
            absent = [name for name, column in found.items() if column is None]
            there = dict(named_in(batch.schema)) if absent else {}
            if unfound := [name for name in absent if not leads_somewhere(name, there, table.each)]:
                reading.bad(file, str(unknown("a column here", unfound[0], there)).rstrip(".?"))
                return
            if file.suffix == ".parquet":
                reading.bytes_read += batch.nbytes
            for start in range(0, batch.num_rows, rows_of_batch):
                count = min(rows_of_batch, batch.num_rows - start)
                numbers = range(seen + start + 1, seen + start + count + 1)
                if by_record or absent:
                    rows = zip(numbers, batch.slice(start, count).to_pylist(), strict=True)
                    yield from _of_rows(file, rows, names, reading, table, count)
                else:
                    yield (
                        {name: array.slice(start, count) for name, array in found.items() if array is not None},
                        numbers,
                    )
            seen += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        if reading.growing and time.time() - file.stat().st_mtime < _BEING_WRITTEN:
            raise NotYetError(str(file)) from None
        reading.bad(file, f"cannot be read ({first_line(error, 120)})")


def parquet_batches(file: Path, names: Sequence[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
    """Its columns with these names (None: all), so many rows at a time."""
    metadata = footer(file)
    bounds.refuse(file, bounds.bomb(metadata, file.stat().st_size))
    with pq.ParquetFile(file, metadata=metadata) as opened:
        there = set(opened.schema_arrow.names)
        roots = there if names is None else {root for name in names for root in _roots(name)}
        yield from opened.iter_batches(
            rows, columns=[name for name in opened.schema_arrow.names if name in roots & there]
        )


def _roots(name: str) -> list[str]:
    """The columns in which a path may begin."""
    return [name, *(re.split(r"[.\[]", one, maxsplit=1)[0] for one in name.split("|"))]


def arrow_batches(file: Path) -> Iterator[pa.RecordBatch]:
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


def _of_records(
    file: Path, table: TableMap, names: Sequence[str], reading: Reading, begin: StepStart
) -> Iterator[tuple[int, Record]]:
    """The records of a file with their lines or numbers."""
    if file.suffix not in sqlite_rows.SUFFIXES:
        roots = {root for name in [*names, table.each] for root in _roots(name)}
        arrays = [as_stored(name, table.each) for name in names]
        yield from plain.records(file, reading, arrays=arrays, only=roots, begin=begin)
        return
    texts = {name for name in names if isinstance(name, WholeText)}
    try:
        for number, row in enumerate(sqlite_rows.rows(file, table_of(file, table.table)), start=1):
            yield number, {name: value if name in texts else _listed(value) for name, value in row.items()}
    except RatioscopeError as error:
        if not reading.skip_bad:
            raise
        reading.problems.append(str(error))


def _of_rows(
    file: Path,
    found: Iterable[tuple[int, Record]],
    names: Sequence[str],
    reading: Reading,
    table: TableMap,
    most: int,
) -> Iterator[Batch]:
    """Batches of what lies at the names in records, each of which is one row or several, one a response."""
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    values = 0
    entered = {root for name in [*names, table.each] for root in _roots(name)} - {*names}
    whole = [name for name in names if isinstance(name, WholeText) and name != ROW]
    beside = [name for name in names if name not in (*whole, ROW)]
    for number, record in found:
        if texts := {name: parsed(record[name]) for name in entered & record.keys() if isinstance(record[name], str)}:
            record = {**record, **texts}
        new: list[dict[str, Any]] = []
        try:
            for place, one in taken_apart(record, table.each) if table.each else [("", record)]:
                of = place if table.layout == "groups" else place.rpartition(".")[0]
                row: dict[str, Any] = {ROW: f"{file}:{number}{of}"} if ROW in names else {}
                row |= {name: at_path(one, name) for name in whole}
                row |= {name: _numbers(value) for name, value in at_paths(one, beside).items()}
                new += _responses(row) if table.layout in ("groups", "steps") else [row]
        except BadLine as error:
            reading.bad(file, str(error), number)
            continue
        rows += new
        numbers += [number] * len(new)
        values += sum(len(value) for one in new for value in one.values() if isinstance(value, np.ndarray))
        if len(rows) >= most or values >= _VALUES:
            yield from _converted(file, names, rows, numbers, reading)
            rows, numbers, values = [], [], 0
    if rows:
        yield from _converted(file, names, rows, numbers, reading)


def _responses(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The responses of a row that has lists with an entry for each; a conversation is one value."""
    whole = {name: value for name, value in row.items() if _is_conversation(value)}
    rest = {name: value for name, value in row.items() if name not in whole}
    lists = [name for name, value in rest.items() if isinstance(value, list | np.ndarray)]
    yield from (whole | one for one in spread(rest, lists)) if lists else [row]


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "role" in one for one in value)


def parsed(value: Any) -> Any:
    """What a text of JSON holds; any other text as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _listed(value: Any) -> Any:
    """A value of a database, which has lists as JSON alone."""
    found = parsed(value)
    return found if isinstance(found, list) else value


def _numbers(value: Any) -> Any:
    """Numbers of a list, or of each list in one, as arrays."""
    is_numbers = isinstance(value, list) and value and isinstance(value[0], int | float | list)
    return lines.as_array(value) if is_numbers else value


def _converted(
    file: Path, names: Sequence[str], rows: list[dict[str, Any]], numbers: list[int], reading: Reading
) -> Iterator[Batch]:
    """The rows as columns; where rows do not fit together, the first of them is right and the others are bad."""
    try:
        yield {name: _column([row[name] for row in rows]) for name in names}, numbers
        return
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    shapes: dict[str, str] = {}
    fitting = []
    for row, number in zip(rows, numbers, strict=True):
        said = {name: shape_of(row[name]) for name in names if row[name] is not None}
        if beyond := [name for name in said if _is_beyond(row[name])]:
            reading.bad(file, f"{beyond[0]} has a number beyond 64 bits", number)
            continue
        wrong = next((name for name, shape in said.items() if shapes.setdefault(name, shape) != shape), None)
        if wrong is None:
            fitting.append((row, number))
        else:
            reading.bad(file, f"{wrong} is {said[wrong]}, and {shapes[wrong]} in the lines before", number)
    for name in names if fitting else ():
        try:
            _column([row[name] for row, _ in fitting])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            what = f"{name} holds values that do not go together ({first_line(error, 120)})"
            reading.bad(file, what, fitting[0][1])
            return
    yield {name: _column([row[name] for row, _ in fitting]) for name in names}, [number for _, number in fitting]


def _is_beyond(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_beyond, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def shape_of(value: Any) -> str:
    """What a value of JSON is, in words: "a list of numbers" is "a list"."""
    if isinstance(value, np.ndarray):
        return "a list of truth values" if value.dtype.kind == "b" else "a list"
    if isinstance(value, list):
        inner = sorted({shape_of(each) for each in value if each is not None})
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
    if len({part.dtype.kind == "b" for part in filled}) > 1:  # numpy would make numbers of true
        raise TypeError("truth values and numbers")
    flat = np.concatenate(filled) if filled else np.zeros(0)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    absent = pa.array([value is None for value in values])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat), mask=absent)


def table_of(path: Path, table: str) -> str:
    """The table of a database that is meant.

    Raises:
        RatioscopeError: there is no such table, or there are several and none is named.
    """
    there = sqlite_rows.tables(path)
    if table and table not in there:
        raise RatioscopeError(f"{path}: {unknown('a table', table, there)}")
    if not table and len(there) != 1:
        raise RatioscopeError(f"{path}: it has {len(there)} tables ({', '.join(there)}); name one: table = '...'.")
    return table or next(iter(there))


def leads_somewhere(name: str, there: Mapping[str, str], each: str = "") -> bool:
    """Whether a name is a column, or a path into one; what is in a text is not known before it is read.

    Args:
        each: the list whose objects stand for it, where records are taken apart.
    """
    names = name.split("|") if name not in there else [name]
    places = [re.sub(r"\[-?[0-9]+\]", "[*]", as_stored(one, each)) for one in names]
    return any(
        place in there
        or place.removesuffix("[*]") in there
        or there.get(re.split(r"[.\[]", place, maxsplit=1)[0]) in ("string", "large_string", "null")
        for place in places
    )


def named_in(found: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """The columns of a schema and their types in words, with what is in structures by its path."""
    for one in found:
        yield from _in_type(one.type, before + one.name)


def _in_type(kind: pa.DataType, name: str) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        yield from named_in(kind, f"{name}.")
        return
    yield name, str(kind)
    if is_list(kind) and pa.types.is_struct(kind.value_type):
        yield from _in_type(kind.value_type, f"{name}[*]")
