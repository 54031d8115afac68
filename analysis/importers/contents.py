"""What a file of a table holds, to look at: its columns, and its first records."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

from ratioscope.analysis.importers import plain, sqlite_rows
from ratioscope.analysis.importers.batches import (
    arrow_batches,
    is_columnar,
    named_in,
    parquet_batches,
    parsed,
    shape_of,
    table_of,
)
from ratioscope.analysis.importers.paths import Record
from ratioscope.analysis.importers.source import Reading
from ratioscope.errors import RatioscopeError, first_line
from ratioscope.storage.parquet import read_schema

_LOOKED_AT, _DEEPEST = 50, 6
"""Records from which the columns of a file are taken, and how deep in them."""


def columns_in(path: Path, table: str = "") -> dict[str, str]:
    """Columns of a file and their types, in words, with what is in objects by its path.

    Args:
        table: of a database.

    Raises:
        RatioscopeError: it cannot be read.
    """
    try:
        if not is_columnar(path):
            return _of_objects(record for _, record in islice(records_of(path, table), _LOOKED_AT))
        found = read_schema(path) if path.suffix == ".parquet" else next(arrow_batches(path)).schema
    except (OSError, pa.ArrowException, StopIteration) as error:
        why = "it is empty" if isinstance(error, StopIteration) else first_line(error, 120)
        raise RatioscopeError(f"{path}: cannot be read ({why}).") from None
    return dict(named_in(found))


def records_of(path: Path, table: str = "") -> Iterator[tuple[int, Record]]:
    """The records of a file to look at, with their numbers.

    Raises:
        RatioscopeError: it is a database that cannot be read, or has several tables and none is named.
        OSError: it cannot be read.
        pyarrow.ArrowException: likewise.
    """
    quiet = Reading(growing=True, skip_bad=True)
    if is_columnar(path):
        for batch in parquet_batches(path, None, _LOOKED_AT) if path.suffix == ".parquet" else arrow_batches(path):
            yield from enumerate(batch.slice(0, _LOOKED_AT).to_pylist(), start=1)
    elif path.suffix in sqlite_rows.SUFFIXES:
        for number, row in enumerate(sqlite_rows.rows(path, table_of(path, table)), start=1):
            yield number, {name: parsed(value) for name, value in row.items()}
    else:
        yield from plain.records(path, quiet)


def _of_objects(found: Iterable[Record], before: str = "") -> dict[str, str]:
    """The keys of some objects, and what their first values are; deeper ones by their paths."""
    named: dict[str, str] = {}
    for row in found:
        for key, value in row.items():
            name = before + str(key)
            inside = value if isinstance(value, list) else []
            if before.count(".") < _DEEPEST:
                named |= _of_objects([value], f"{name}.") if isinstance(value, dict) else {}
                objects = [one for one in inside[:_LOOKED_AT] if isinstance(one, dict)]
                named = _of_objects(objects, f"{name}[*].") | named
            if not isinstance(value, dict) and named.get(name) in (None, "null"):
                named[name] = "null" if value is None else shape_of(value).removeprefix("a ").removeprefix("an ")
    return named
