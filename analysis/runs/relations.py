"""A run's tables as relations of a connection: `token`, `usable` and `sequence`, over the files of a range of steps.

with relations(run, first=10, last=20) as connection:
    frame = connection.execute("select step, avg(exp(log_rho)) from usable group by step").df()

`token` has every declared column of the tokens table (null where the run does not log it), the log-ratios of the pairs
in double, and `invalid`: why a row cannot be used. `usable` is its rows without such a reason (`docs/metrics.md`,
bad numbers). `sequence` has every declared column of the sequences table, and those named reward_<part>.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import schema
from ratioscope.analysis.runs.database import connect, query
from ratioscope.analysis.runs.store import Run, TableFile
from ratioscope.errors import RatioscopeError

_FEW = 600_000


@contextmanager
def relations(run: Run, first: int | None = None, last: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that sees the steps first..last of a run, both included; None is the first or last there is.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    inside = f"step between {first if first is not None else 0} and {last if last is not None else 2**31 - 1}"
    with connect([run.folder]) as connection:
        try:
            for table in (schema.TOKENS, schema.SEQUENCES):
                files = [file for file in run.files[table.name] if _overlaps(file, first, last)]
                create_views(connection, table, files, inside, run.versions_ahead, held=_are_few(files))
            yield connection
        except (duckdb.IOException, pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise RatioscopeError(f"{run.folder}: a file vanished or changed while it was read ({reason}).") from None


def create_views(
    connection: duckdb.DuckDBPyConnection,
    table: schema.Table,
    files: Sequence[TableFile],
    where: str = "true",
    ahead: "pd.Series[int] | None" = None,
    *,
    held: bool = False,
) -> None:
    """Make `token` and `usable`, or `sequence`, of the rows of some files.

    Args:
        connection: may read the files.
        table: TOKENS or SEQUENCES.
        files: of this table.
        where: which rows, in SQL.
        ahead: see `Run.versions_ahead`; without it versions are counted like steps.
        held: read the rows now and keep them in memory, where every query has them at once.
    """
    rows = f"(select * from {source(files, table)} where {where})"
    if table is schema.TOKENS:
        if ahead is not None and len(ahead):
            connection.register("versions", ahead.reset_index())
            rows = f"(select rows.*, coalesce(ahead, 0) as ahead from {rows} as rows left join versions using (step))"
        else:
            rows = f"(select *, 0 as ahead from {rows})"
    if held:
        connection.execute(f"create or replace temp table read_{table.name} as select * from {rows}")
        rows = f"read_{table.name}"
    text = query(f"runs/{table.name}").replace("$largest", str(schema.LARGEST_LOG_PROBABILITY))
    connection.execute(text.replace("from source", f"from {rows}"))


def source(files: Sequence[TableFile], table: schema.Table) -> str:
    """A relation with the declared columns of all the files; what no file has is null."""
    found = {name: field for file in files for name, field in _fields(file).items()}
    selected = [
        column.name if column.name in found else f"null::{sql_type(column)} as {column.name}"
        for column in table.columns
    ]
    if table is schema.SEQUENCES:
        selected += [quoted(name) for name in found if name.startswith("reward_")]
    if not files:
        return f"(select {', '.join(selected)} where false)"
    paths = ", ".join("'" + str(file.path.resolve()).replace("'", "''") + "'" for file in files)
    # can_have_nan: without it DuckDB prunes row groups by min and max, in which Parquet leaves NaN out.
    return f"(select {', '.join(selected)} from read_parquet([{paths}], union_by_name=true, can_have_nan=true))"


def _are_few(files: Sequence[TableFile]) -> bool:
    """Whether all rows of the files fit into little memory: tens of megabytes."""
    rows = 0
    for file in files:
        rows += pq.read_metadata(file.path).num_rows
        if rows > _FEW:
            return False
    return True


def _fields(file: TableFile) -> dict[str, pa.Field]:
    return {field.name: field for field in pq.read_schema(file.path)}


def _overlaps(file: TableFile, first: int | None, last: int | None) -> bool:
    return (last is None or file.name.first_step <= last) and (first is None or file.name.last_step >= first)


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def sql_type(column: schema.Column) -> str:
    """DuckDB's type for a declared column."""
    return _TYPES[str(column.type)]


_TYPES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int32": "integer",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "varchar",
    "timestamp[us, tz=UTC]": "timestamptz",
}
