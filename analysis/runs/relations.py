"""A run's tables as relations of a connection: `token`, `usable` and `sequence`, over the files of a range of steps.

with relations(run, first=10, last=20) as connection:
    frame = connection.execute("select step, avg(exp(log_rho)) from usable group by step").df()

`token` has every declared column of the tokens table (null where the run does not log it), the log-ratios of the pairs
in double, and `invalid`: why a row cannot be used. `usable` is its rows without such a reason (`docs/metrics.md`,
bad numbers). `sequence` has every declared column of the sequences table, and those named reward_<part>.

What one table lacks and the other has is looked up there: the prompt group of tokens, the length of responses.

Responses that were held out of their update (`schema.HELD_OUT`) are in none of them, unless they are what is asked for.
Rows that the run leaves out (`Run.left_out`) are in none of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import duckdb
import pandas as pd
import pyarrow as pa

from ratioscope.analysis.runs.columns import columns_with_values, counted, schema_of
from ratioscope.analysis.runs.database import PIECE, connect, query
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.runs.left_out import LeftOut, kept_rows
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.runs.unreadable import unreadable
from ratioscope.run_format import schema
from ratioscope.storage.failures import storage_failure
from ratioscope.storage.parquet import footer
from ratioscope.storage.places import Remote

_FEW = 600_000
"""Rows that fit into little memory: tens of megabytes."""


@contextmanager
def relations(
    run: Run,
    first: int | None = None,
    last: int | None = None,
    *,
    held_out: bool = False,
    tables: Sequence[schema.DeclaredTable] = (schema.TOKENS, schema.SEQUENCES),
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that sees the steps first..last of a run, both included; None is the first or last there is.

    Args:
        held_out: see only the responses that were held out, of prompt groups that their update did not see.
        tables: whose relations there are; those of fewer are there sooner.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    inside = f"step between {first if first is not None else 0} and {last if last is not None else 2**31 - 1}"
    inside_of = {name: [file for file in files if _overlaps(file, first, last)] for name, files in run.files.items()}
    try:
        few = all(_at_most(PIECE, inside_of[table.name]) for table in tables)
        with connect(run.places, few=few) as connection:
            for table in tables:
                files = inside_of[table.name]
                create_views(
                    connection,
                    table,
                    files,
                    run.files[schema.SEQUENCES.name],
                    inside,
                    run.versions_ahead if run.counts_versions else None,
                    tokens=inside_of[schema.TOKENS.name],
                    # Of one elsewhere every column would be moved; one table alone is asked for a few columns, once.
                    held=len(tables) > 1 and _at_most(_FEW, files) and not isinstance(run.folder, Remote),
                    held_out=held_out,
                    left_out=run.left_out,
                )
            yield connection
    except (duckdb.Error, pa.ArrowInvalid, OSError) as error:
        if failure := storage_failure(error):
            raise failure from None
        every = [file.path for files in run.files.values() for file in files]
        if problem := unreadable(every, error):
            raise problem from None
        raise


def create_views(
    connection: duckdb.DuckDBPyConnection,
    table: schema.DeclaredTable,
    files: Sequence[TableFile],
    responses: Sequence[TableFile],
    where: str = "true",
    ahead: "pd.Series[int] | None" = None,
    *,
    tokens: Sequence[TableFile] = (),
    held: bool = False,
    held_out: bool = False,
    left_out: Sequence[LeftOut] = (),
) -> None:
    """Make `token` and `usable`, or `sequence`, of the rows of some files.

    Args:
        connection: may read the files.
        table: TOKENS or SEQUENCES.
        files: of this table.
        responses: of SEQUENCES, at least those of the same steps: they say what was held out.
        where: which rows, in SQL.
        ahead: see `Run.versions_ahead`; without it no token has an age.
        tokens: files of TOKENS of the same steps, where `table` is SEQUENCES.
        held: read the rows now and keep them in memory, where every query has them at once.
        held_out: see `relations`.
        left_out: see `Run.left_out`.
    """
    rows = kept_rows(source(files, table), table, left_out, source(responses, schema.SEQUENCES))
    rows = f"(select * from {_chosen(rows, responses, held_out=held_out)} where {where})"
    if table is schema.TOKENS:
        if "group_id" not in columns_with_values(files) and "group_id" in columns_with_values(responses):
            listed = source(responses, schema.SEQUENCES)
            rows = _looked_up(rows, "group_id", f"select step, seq_id, any_value(group_id) as found from {listed}")
        if ahead is not None and len(ahead):
            connection.register("versions", ahead.reset_index())
            rows = f"(select rows.*, coalesce(ahead, 0) as ahead from {rows} as rows left join versions using (step))"
        else:
            rows = f"(select *, {'null::integer' if ahead is None else 0} as ahead from {rows})"
    elif tokens and "n_tokens" not in columns_with_values(files):
        of_tokens = source(tokens, schema.TOKENS)
        rows = _looked_up(rows, "n_tokens", f"select step, seq_id, count(*) as found from {of_tokens}")
    if held:
        connection.execute(f"create or replace temp table read_{table.name} as select * from {rows}")
        rows = f"read_{table.name}"
    text = query(f"runs/{table.name}").replace("$largest", str(schema.LARGEST_LOG_PROBABILITY))
    connection.execute(text.replace("from source", f"from {rows}"))
    if table is schema.TOKENS:
        create_usable(connection)


def create_usable(connection: duckdb.DuckDBPyConnection, *, clean: bool = False) -> None:
    """Make `usable` of the rows that `token` has now.

    Args:
        clean: it is known that every row can be used.
    """
    where = "" if clean else " where invalid is null"
    # Temporary, as a table `token` may be, which a view that lasts would not see.
    connection.execute(f"create or replace temp view usable as select * exclude (invalid) from token{where}")


def _looked_up(rows: str, column: str, of_responses: str) -> str:
    """The rows with a column that a query over the other table says by response, in `found`."""
    joined = f"({of_responses} group by step, seq_id) as other using (step, seq_id)"
    return f"(select rows.* exclude ({column}), found as {column} from {rows} as rows left join {joined})"


def source(files: Sequence[TableFile], table: schema.DeclaredTable) -> str:
    """A relation with the declared columns of all the files; what no file has is null."""
    found: dict[str, set[pa.DataType]] = {}
    for file in files:
        for name, field in _fields(file).items():
            found.setdefault(name, set()).add(field.type)
    selected = [_column(column, found.get(column.name, set())) for column in table.columns]
    if table is schema.SEQUENCES:
        selected += [quoted(name) for name in found if name.startswith("reward_")]
    if not files:
        return f"(select {', '.join(selected)} where false)"
    paths = ", ".join("'" + str(file.resolved).replace("'", "''") + "'" for file in files)
    # can_have_nan: without it DuckDB prunes row groups by min and max, in which Parquet leaves NaN out.
    return f"(select {', '.join(selected)} from read_parquet([{paths}], union_by_name=true, can_have_nan=true))"


def _column(declared: schema.Column, found: set[pa.DataType]) -> str:
    if not found:
        return f"null::{sql_type(declared)} as {declared.name}"
    if pa.types.is_integer(declared.type):
        # What its own type cannot hold is no value, and what SQL adds of it in 64 bits cannot overflow. Row groups are
        # chosen by the step, which is one to be added to only.
        fitting = declared.name if found == {declared.type} else f"try_cast({declared.name} as {sql_type(declared)})"
        return f"{fitting}{'::bigint' * (declared.name != 'step')} as {declared.name}"
    return declared.name


def _chosen(rows: str, responses: Sequence[TableFile], *, held_out: bool) -> str:
    """Rows of either table, without those of responses that were held out, or these alone."""
    if not any(map(may_hold_out, responses)):
        return f"(select * from {rows} where false)" if held_out else rows
    listed = source(responses, schema.SEQUENCES)
    those = f"select step, seq_id from {listed} as listed where dropped = '{schema.HELD_OUT}'"
    if not held_out:
        return f"(select * from {rows} as every anti join ({those}) as held using (step, seq_id))"
    # A group, or a prompt, that the update has seen as well is none that it did not see.
    seen = f"(select * from {listed} where dropped is distinct from '{schema.HELD_OUT}')"
    for column in ("group_id", "prompt_id"):
        those += (
            f" and not exists (select 1 from {seen} as seen where seen.step = listed.step "
            f"and seen.{column} = listed.{column})"
        )
    return f"(select * from {rows} as every semi join ({those}) as held using (step, seq_id))"


@lru_cache(maxsize=100_000)
def may_hold_out(file: TableFile) -> bool:
    """Whether a file of the sequences table may have rows that were held out, by its footer alone."""
    metadata = footer(file.path)
    columns = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    if "dropped" not in columns:
        return False
    place = columns.index("dropped")
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(place).statistics
        if statistics is None or not statistics.has_null_count:
            return True
        if statistics.has_min_max and statistics.min <= schema.HELD_OUT <= statistics.max:
            return True
        if not statistics.has_min_max and statistics.null_count < metadata.row_group(number).num_rows:
            return True
    return False


def _at_most(most: int, files: Sequence[TableFile]) -> bool:
    """Whether the files have no more rows; no more of them are opened than that takes."""
    rows = 0
    for file in files:
        rows += counted(file)[0]
        if rows > most:
            return False
    return True


def _fields(file: TableFile) -> dict[str, pa.Field]:
    return {field.name: field for field in schema_of(file)}


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
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "varchar",
    "timestamp[us, tz=UTC]": "timestamptz",
}
