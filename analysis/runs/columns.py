"""Which columns files have, and in which they have values, by their footers: no row is read."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import nan

import pyarrow as pa

from ratioscope.analysis.runs.files import TableFile
from ratioscope.storage.parquet import footer, read_schema


@lru_cache(maxsize=100_000)
def schema_of(file: TableFile) -> pa.Schema:
    """Columns and types of a file, without its remarks.

    Raises:
        OSError, ArrowInvalid: it cannot be read any more.
    """
    return _one_of_equal(read_schema(file.path).remove_metadata())


@lru_cache(maxsize=1_000)
def _one_of_equal(schema: pa.Schema) -> pa.Schema:
    """The files of a run have one schema: it is kept once."""
    return schema


@lru_cache(maxsize=100_000)
def counted(file: TableFile) -> tuple[int, Mapping[str, float]]:
    """The rows of a file, and how many of them have a value in each column; NaN where its footer does not count nulls.

    Raises:
        OSError, ArrowInvalid: it cannot be read any more.
    """
    metadata, n_values = footer(file.path), dict[str, float]()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            statistics = chunk.statistics
            nulls = statistics.null_count if statistics is not None and statistics.has_null_count else nan
            n_values[chunk.path_in_schema] = n_values.get(chunk.path_in_schema, 0) + group.num_rows - nulls
    return metadata.num_rows, n_values


def added_up(files: Iterable[TableFile]) -> tuple[int, dict[str, float]]:
    """`counted` over several files: a column that one of them lacks has no value in its rows."""
    n_rows, n_values = 0, dict[str, float]()
    for rows, values in map(counted, files):
        n_rows += rows
        for name, n in values.items():
            n_values[name] = n_values.get(name, 0) + n
    return n_rows, n_values


def columns_with_values(files: Iterable[TableFile]) -> frozenset[str]:
    """The columns in which some file has a value, or may have one."""
    _, n_values = added_up(files)
    return frozenset(name for name, n in n_values.items() if n != 0)
