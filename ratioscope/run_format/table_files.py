"""Columns of a step as Arrow tables, and table files that appear whole or not at all."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratioscope.errors import RunFormatError, first_line
from ratioscope.run_format import schema
from ratioscope.run_format.seals import is_sealed, sealed
from ratioscope.storage.parquet import footer
from ratioscope.storage.whole_files import instead_of

Columns = Mapping[str, Any]
"""By name, anything that pyarrow turns into an array, or torch tensors."""

LAST_STEP = schema.LAST_STEP
_SHARED_LEFTOVER = re.compile(r"vocabulary\.tmp-\d+|run\.json\.tmp-[0-9a-f]{16}")
NONFINITE_KEY = b"ratioscope.nonfinite"
VERSION_KEY = b"ratioscope.schema_version"
_DIFFERING = ("token_id", "position")
"""Whole numbers that are others in nearly every row: a dictionary of them is slow to make, and larger than they are."""


def check_columns(table: schema.DeclaredTable, columns: Columns) -> None:
    """Raise a RunFormatError where a required column is missing, or columns differ in length."""
    missing = [column.name for column in table.required if columns.get(column.name) is None and column.name != "step"]
    if missing:
        raise RunFormatError(f"The {table.name} table needs the column{'s' * (len(missing) > 1)} {', '.join(missing)}.")
    single = [name for name, values in columns.items() if values is not None and not _has_length(values)]
    if single:
        raise RunFormatError(f"Column {single[0]} of the {table.name} table is one value, not one a row.")
    lengths = {name: len(values) for name, values in columns.items() if values is not None}
    if len(set(lengths.values())) > 1:
        raise RunFormatError(f"The columns of the {table.name} table differ in length: {lengths}.")


def _has_length(values: Any) -> bool:
    try:
        len(values)
    except TypeError:  # also of an array without a dimension
        return False
    return True


def check_step(step: int, tables: Mapping[str, Columns | None]) -> None:
    """Raise the RunFormatError that recording this step would, at the cost of converting its columns."""
    if not 0 <= step <= LAST_STEP:
        raise RunFormatError(f"Steps count from 0 to {LAST_STEP}, this is {step}.")
    for name, columns in tables.items():
        if columns is not None:
            check_columns(schema.ALL_TABLES[name], columns)
            copied(schema.ALL_TABLES[name], columns, step)


def to_arrow(table: schema.DeclaredTable, columns: Columns, step: int) -> pa.Table:
    """One step's columns as `copied`, sorted by the table's key."""
    return by_key(table, copied(table, columns, step))


def by_key(table: schema.DeclaredTable, rows: pa.Table) -> pa.Table:
    """The rows of one step, sorted by the table's key; the same table where they are, as most programs give them."""
    names = table.key[1:]
    ordered = pa.scalar(True)
    for column in reversed([rows.column(name) for name in names if rows.num_rows > 1]):
        before, after = column[:-1], column[1:]
        ordered = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), ordered))
    return rows if pc.all(ordered).as_py() else rows.sort_by([(name, "ascending") for name in names])


def copied(table: schema.DeclaredTable, columns: Columns, step: int) -> pa.Table:
    """One step's columns as an Arrow table in the declared types: nothing in it is shared with what was given.

    Extra columns are kept: `extra_` and `reward_` columns as float32, others as pyarrow infers them.

    Raises:
        RunFormatError: values do not fit the declared type, a required column holds nulls, or a column `step` says
            another step.
    """
    arrays: dict[str, pa.Array] = {}
    names = [column.name for column in table.columns if columns.get(column.name) is not None]
    names += [name for name in columns if table.column(name) is None]
    for name in names:
        declared = table.column(name)
        kind = declared.type if declared else pa.float32() if name.startswith(("extra_", "reward_")) else None
        values = columns[name]
        try:
            array = _array(values)
            arrays[name] = (
                array if kind is None or array.type == kind else pc.cast(array, kind, safe=kind != pa.float32())
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError, RuntimeError) as error:
            reason = first_line(error)
            raise RunFormatError(
                f"Column {name} of the {table.name} table cannot be stored as {kind}: {reason}."
            ) from None
        if declared is not None and declared.required and arrays[name].null_count:
            raise RunFormatError(f"Column {name} of the {table.name} table is required, step {step} has nulls in it.")
    others = [] if "step" not in arrays else sorted(set(arrays.pop("step").to_pylist()) - {step}, key=str)
    if others:
        raise RunFormatError(f"Column step of the {table.name} table says {others[0]}, the step recorded is {step}.")
    length = len(next(iter(arrays.values())))
    return pa.table({"step": pa.repeat(pa.scalar(step, pa.int32()), length)} | arrays)


def _array(values: Any) -> pa.Array:
    """As Arrow; what UTF-8 cannot say (half of a surrogate pair, in text that was cut) becomes a question mark."""
    values = _own(values)
    try:
        return pa.array(values, from_pandas=False)  # a NaN is evidence, not a null
    except UnicodeEncodeError:
        return pa.array([v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values])
    except (pa.ArrowException, TypeError):
        if not isinstance(values, list | tuple) or not any(hasattr(value, "item") for value in values):
            raise
        return pa.array([value.item() if hasattr(value, "item") else value for value in values])


def _own(values: Any) -> Any:
    """What Arrow takes, in memory that its giver cannot change; tensors of types that numpy lacks in float32."""
    if hasattr(values, "detach"):
        values = values.detach().to("cpu", copy=True)
        try:
            return values.numpy()
        except TypeError:  # bfloat16, float8
            return values.float().numpy()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):  # it may lie in somebody's buffer
        return pa.concat_arrays([values, values[:0]])
    return values.copy() if hasattr(values, "__array__") and hasattr(values, "copy") else values


def write_table_file(path: Path, table: pa.Table) -> None:
    """Write a Parquet file that appears under its name only when it is whole.

    Integer keys repeat, so they take a dictionary; floats, token ids and positions do not: BYTE_STREAM_SPLIT.
    """
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    split = floats + [
        field.name for field in table.schema if field.name in _DIFFERING and pa.types.is_integer(field.type)
    ]
    nonfinite = {name: count for name in floats if (count := _count_nonfinite(table.column(name)))}
    metadata = {VERSION_KEY: schema.SCHEMA_VERSION.encode(), NONFINITE_KEY: json.dumps(nonfinite).encode()}
    contents = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata),
        contents,
        row_group_size=schema.ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in table.column_names if name not in split],
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
        write_page_checksum=True,  # says which row group is damaged
    )
    temporary = path.with_name(f"{path.stem}.tmp-{os.getpid()}")
    with instead_of(path, temporary):
        with temporary.open("wb") as file:
            file.writelines(sealed(memoryview(contents.getvalue())))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def leftovers(folder: Path, writer: int, *, shared: bool) -> list[Path]:
    """The half-written files that a killed writer left in a run's folder, and no file that has such a name by chance.

    Args:
        shared: with those of what all writers share, run.json and the vocabulary.
    """
    found = []
    for path in (path for table in schema.ALL_TABLES for path in (folder / table).glob("*.tmp-*")):
        stem, _, process = path.name.partition(".tmp-")
        parsed = schema.FileName.parse(f"{stem}.parquet")
        if parsed and parsed.writer == writer and process.isdecimal():
            found.append(path)
    if shared:
        found += [path for path in folder.iterdir() if _SHARED_LEFTOVER.fullmatch(path.name)]
    return [path for path in found if path.is_file()]


def counted_nonfinite(path: Path) -> dict[str, int] | None:
    """How many values of each column are not finite, where there are any, by the file's footer.

    None: it does not say, or not of these data (`seals`), or its footer cannot be used.

    Raises:
        OSError, pa.ArrowInvalid: it cannot be read.
    """
    contents = (footer(path).metadata or {}).get(NONFINITE_KEY)
    if contents is None or not is_sealed(path):
        return None
    try:
        found = json.loads(contents)
    except ValueError:
        return None
    whole = isinstance(found, dict) and all(isinstance(count, int) for count in found.values())
    return found if whole else None


def _count_nonfinite(column: pa.ChunkedArray) -> int:
    finite = pc.sum(pc.is_finite(column)).as_py() or 0
    return int(len(column) - column.null_count - finite)
