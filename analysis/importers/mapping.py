"""Any tables, JSON or databases as a source, by a mapping file that says what is what."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.analysis.importers import unpadded
from ratioscope.analysis.importers.batches import NotYetError, column_batches, leads_somewhere
from ratioscope.analysis.importers.contents import columns_in
from ratioscope.analysis.importers.mapping_file import IDS, ROW, MappingFile, TableMap, TokensMap, read_mapping
from ratioscope.analysis.importers.source import Description, Importer, Reading, Step
from ratioscope.analysis.importers.sums import is_list, names_in, whole_number
from ratioscope.analysis.importers.tables import RowRange, files_of, rows_by_step
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.run_format import schema

# What pages are about; what of it is not mapped is said to be missing.
_WANTED = {
    "tokens": ("logp_behavior", "logp_current", "logp_new", "advantage", "behavior_version", "token_id"),
    "sequences": ("group_id", "reward"),
}


def importer_of(file: Path) -> Importer:
    """An importer that reads what a mapping file describes.

    Raises:
        RatioscopeError: the mapping file cannot be used (`read_mapping`).
    """
    mapping = read_mapping(file)
    return Importer(
        f"mapping:{mapping.digest}",
        f"files as {file.name} describes them",
        lambda path: describe(path, mapping),
        lambda path, reading: read(path, mapping, reading),
    )


def describe(path: Path, mapping: MappingFile) -> Description:
    """What lies at the path, as far as the mapping and the first files say it.

    Raises:
        RatioscopeError: no file fits, or a column is not in them.
    """
    if not path.exists():
        raise RatioscopeError(f"{path}: there is no such file or folder.")
    for name, table in _tables(mapping):
        try:
            files = files_of(path, table.files)
        except RatioscopeError as error:
            raise RatioscopeError(f"{mapping.file}, [{name}]: {error}") from None
        if not files:
            raise RatioscopeError(f"{mapping.file}, [{name}]: no file below {path} fits files = {table.files!r}.")
        file, there = _columns_of(files, table)
        wanted = [(ours, one) for ours, theirs in _asked(table).items() for one in names_in(theirs)]
        for ours, theirs in [("each", table.each), *wanted] if table.each else wanted:
            if theirs != ROW and not leads_somewhere(theirs, there, table.each):
                said = unknown(f"a column of {file.name}", theirs, there)
                raise RatioscopeError(f"{mapping.file}, [{name}]: {ours} = {said}")
    if mapping.tokens is not None and not mapping.tokens.columns:
        raise RatioscopeError(
            f"{mapping.file}, [tokens.columns]: names no column; say which is token_id or logp_behavior, or leave "
            "[tokens] out."
        )
    return Description(
        framework=str(mapping.run.get("framework", "")),
        format="mapping file",
        path=path,
        version=str(mapping.run.get("version", "")),
        missing=_missing(mapping),
        assumed=_assumed(mapping),
        manifest={key: value for key, value in mapping.run.items() if key not in ("framework", "version")},
    )


def _columns_of(files: Sequence[Path], table: TableMap) -> tuple[Path, Mapping[str, str]]:
    """The first file that shows its columns, and these; what is wrong with others is said when they are read.

    Raises:
        RatioscopeError: there is none.
    """
    for file in files:
        with suppress(RatioscopeError):
            if there := columns_in(file, table.table):
                return file, there
    columns_in(files[0], table.table)
    looking = Reading()
    next(column_batches(files[0], [], looking, table), None)
    raise RatioscopeError(next(iter(looking.problems), f"{files[0]}: it has no rows."))


def read(path: Path, mapping: MappingFile, reading: Reading) -> Iterator[Step]:
    """The steps of the files; of a source that grows, the last is left out."""
    held: Step | None = None
    try:
        for step in _steps(path, mapping, reading):
            if held is not None:
                yield held
            held = step
    except NotYetError:
        return  # what is held may go on in the file that is not whole
    if held is not None and not reading.growing:
        yield held


def _steps(path: Path, mapping: MappingFile, reading: Reading) -> Iterator[Step]:
    responses = mapping.sequences if mapping.sequences is not None and mapping.sequences.files else None
    drivers: dict[str, _Cursor] = {}
    if mapping.tokens is not None:
        names = _names(mapping.tokens) + (_names(mapping.sequences) if mapping.sequences and responses is None else [])
        drivers["tokens"] = _Cursor(rows_by_step(path, mapping.tokens, names, reading))
    if mapping.sequences is not None and (responses is not None or mapping.tokens is None):
        drivers["sequences"] = _Cursor(rows_by_step(path, mapping.sequences, _names(mapping.sequences), reading))
    scalars = _Cursor(rows_by_step(path, mapping.steps, _names(mapping.steps), reading)) if mapping.steps else None
    while due := [cursor.step for cursor in drivers.values() if cursor.step is not None]:
        number = min(due)
        found = {name: rows for name, cursor in drivers.items() if (rows := cursor.take(number))}
        if mapping.tokens is not None and "tokens" in found:
            parts = [_fitting(part, mapping, mapping.tokens, reading) for part in found["tokens"]]
            found["tokens"] = [part for part in parts if part.lines]
        row = _scalars(mapping.steps, scalars.take(number), reading) if mapping.steps and scalars else {}
        if any(found.values()):
            yield _step(number, mapping, found, row, reading)


class _Cursor:
    """The steps of a table, one of which lies ready."""

    def __init__(self, steps: Iterator[tuple[int, list[RowRange]]]) -> None:
        self._steps = steps
        self._next = next(steps, None)

    @property
    def step(self) -> int | None:
        return self._next[0] if self._next is not None else None

    def take(self, step: int) -> list[RowRange]:
        """The rows of a step; earlier ones are passed over."""
        while self._next is not None and self._next[0] < step:
            self._next = next(self._steps, None)
        if self._next is None or self._next[0] != step:
            return []
        rows, self._next = self._next[1], next(self._steps, None)
        return rows


# A step ---------------------------------------------------------------------------------------------------------------


def _number_ids(made: Sequence[tuple[TableMap, dict[str, Any]]]) -> None:
    """Integers in place of ids in the tables of one step; names that are numbers in all of them keep these."""
    for name in IDS:
        having = [columns for table, columns in made if name in columns]
        if len({name in table.columns for table, _ in made}) > 1:  # the others are numbers already: of their places
            having = [columns for columns in having if np.asarray(columns[name]).dtype.kind not in "iu"]
        if all(np.asarray(columns[name]).dtype.kind in "iu" for columns in having):
            continue
        given = [[_id(value) for value in np.ma.asarray(columns[name]).tolist()] for columns in having]
        there = dict.fromkeys(value for values in given for value in values if value is not None)
        keep = all(isinstance(value, int) for value in there)
        numbers = {value: value if keep else place for place, value in enumerate(there)}
        for columns, values in zip(having, given, strict=True):
            absent = [value is None for value in values]
            columns[name] = np.ma.masked_array([numbers.get(value, 0) for value in values], absent, dtype=np.int64)


def _id(value: Any) -> Any:
    """An id that equals itself in the other table, where it may be a number here and its digits there."""
    if value is None or value is np.ma.masked:
        return None
    number = whole_number(value)
    if number is not None and (not isinstance(value, str) or str(number) == value):
        return number
    return value if isinstance(value, str | float) else str(value)


def _fitting(part: RowRange, mapping: MappingFile, tokens: TokensMap, reading: Reading) -> RowRange:
    """Those of some rows whose values can be what the mapping calls them.

    Raises:
        RatioscopeError: the layout cannot be right.
    """
    names = [*tokens.columns.values(), *filter(None, [tokens.mask])]
    kinds = [part.columns[name].type for name in names]
    if kinds and tokens.layout != "rows" and not any(is_list(kind) or pa.types.is_null(kind) for kind in kinds):
        has = "one value in a row" if tokens.layout == "lists" else "one list in a row"
        other = "rows" if tokens.layout == "lists" else "lists"
        raise RatioscopeError(
            f"{mapping.file}, [tokens]: layout = {tokens.layout!r} does not fit {part.path.name}, where "
            f"{names[0]} is {has}; layout = {other!r} does."
        )
    bad = set[int]()
    for ours, theirs in tokens.columns.items():
        column = schema.TOKENS.column(ours)
        for row, value in _misfits(part.columns[theirs], column.type) if column is not None and ours not in IDS else ():
            reading.bad(part.path, f"{theirs} has {value!r}, which is no {ours}", part.lines[row])
            bad.add(row)
    if not bad:
        return part
    good = [row for row in range(len(part.lines)) if row not in bad]
    columns = {name: array.take(pa.array(good, pa.int64())) for name, array in part.columns.items()}
    return replace(part, columns=columns, lines=[part.lines[row] for row in good])


def _misfits(array: pa.Array, wanted: pa.DataType) -> Iterator[tuple[int, Any]]:
    """The rows with a number that a column cannot store, or with a truth value in place of one, and what it is."""
    for row in range(len(array)) if not _is_stored(array, wanted) else ():
        one = array.slice(row, 1)
        if not _is_stored(one, wanted):
            values = pc.list_flatten(one) if is_list(one.type) else one
            yield row, next(value.as_py() for value in values if not _is_stored(pa.array([value]), wanted))


def _is_stored(array: pa.Array, wanted: pa.DataType) -> bool:
    values = pc.list_flatten(array) if is_list(array.type) else array
    if pa.types.is_boolean(values.type):
        return pa.types.is_boolean(wanted) or values.null_count == len(values)
    if not pa.types.is_integer(wanted) or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return True  # texts may be numbers
    if pa.types.is_floating(values.type):  # NaN may stand where nothing was sampled
        values = values.filter(pc.is_finite(values))
    try:
        pc.cast(values, wanted)
    except pa.ArrowInvalid:
        return False
    return True


def _step(
    number: int, mapping: MappingFile, found: Mapping[str, list[RowRange]], row: Mapping[str, Any], reading: Reading
) -> Step:
    tokens: dict[str, Any] | None = None
    sequences: dict[str, Any] | None = None
    if mapping.tokens is not None and found.get("tokens"):
        shared = mapping.sequences if mapping.sequences is not None and not mapping.sequences.files else None
        flat = unpadded.of_rows if mapping.tokens.layout == "rows" else unpadded.of_lists
        tokens, sequences = flat(mapping.tokens, shared, found["tokens"], reading)
    if found.get("sequences") and mapping.sequences is not None:
        sequences = unpadded.of_responses(mapping.sequences, found["sequences"], reading)
    assert sequences is not None
    maps = (mapping.tokens, mapping.sequences if found.get("sequences") else mapping.tokens)
    _number_ids([(of, columns) for of, columns in zip(maps, (tokens, sequences), strict=True) if of and columns])
    if tokens is not None and "group_id" not in tokens and "group_id" in sequences:
        tokens["group_id"] = unpadded.looked_up(tokens["seq_id"], sequences["seq_id"], sequences["group_id"])
    return Step(number, sequences, tokens, row)


def _scalars(table: TableMap, rows: Sequence[RowRange], reading: Reading) -> dict[str, Any]:
    """The columns of one step: of several rows the last that has a value."""
    found: dict[str, Any] = dict(table.constants)
    for part in rows:
        for ours, theirs in table.columns.items():
            values = [value for value in part.columns[theirs].to_pylist() if value is not None]
            if not values:
                continue
            try:
                found[ours] = values[-1] if ours == "wall_time" else float(values[-1])
            except (TypeError, ValueError):
                reading.bad(part.path, f"{theirs} is {values[-1]!r}, and {ours} a number", part.lines[-1])
    if isinstance(found.get("policy_version"), float):
        found["policy_version"] = int(found["policy_version"])
    if "wall_time" in found:
        found["wall_time"] = _time(found["wall_time"])
    return found


def _time(value: Any) -> datetime | None:
    """A time from a timestamp, ISO text or seconds since 1970; without a zone it is UTC. None where it is none."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, int | float):
            value = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


# What the mapping says ------------------------------------------------------------------------------------------------


def _tables(mapping: MappingFile) -> list[tuple[str, TableMap]]:
    """The tables that have files, each with what is asked of these files."""
    found: list[tuple[str, TableMap]] = []
    for name, table in (("tokens", mapping.tokens), ("sequences", mapping.sequences), ("steps", mapping.steps)):
        if table is None:
            continue
        if name == "sequences" and not table.files and mapping.tokens is not None:
            table = replace(table, files=mapping.tokens.files, table=mapping.tokens.table, each=mapping.tokens.each)
        found.append((name, table))
    return found


def _asked(table: TableMap) -> dict[str, str]:
    """Columns of theirs by what they are for."""
    others = {"step": table.step if isinstance(table.step, str) else ""}
    if isinstance(table, TokensMap):
        others |= {"length": table.length, "prompt_length": table.prompt_length, "mask": table.mask}
    return {name: column for name, column in others.items() if column} | dict(table.columns)


def _names(table: TableMap) -> list[str]:
    return list(dict.fromkeys(_asked(table).values()))


def _missing(mapping: MappingFile) -> dict[str, str]:
    missing: dict[str, str] = {}
    for name, table in (("tokens", mapping.tokens), ("sequences", mapping.sequences)):
        mapped = {*(table.columns if table else ()), *(table.constants if table else ())}
        if name == "sequences" and mapping.tokens is not None:
            mapped |= {*mapping.tokens.columns, *mapping.tokens.constants}
        why = "the mapping file does not name it." if table else f"the mapping file says nothing of {name}."
        missing |= {} if table or name != "tokens" else {name: why}
        missing |= {column: why for column in _WANTED[name] if column not in mapped}
    steps = {*(mapping.steps.columns if mapping.steps else ())}
    if mapping.tokens is not None and "behavior_version" not in missing and "policy_version" not in steps:
        missing["policy_version"] = "[steps] of the mapping file does not name it, so the age of no token is known."
    return missing


def _assumed(mapping: MappingFile) -> tuple[str, ...]:
    said = []
    for name, table in (("tokens", mapping.tokens), ("sequences", mapping.sequences), ("steps", mapping.steps)):
        if table is None:
            continue
        of = f"of the {schema.ALL_TABLES[name].name} table, because the mapping file says so."
        said += [f"{column} is {value!r} in every row {of}" for column, value in table.constants.items()]
        if table.step_offset:
            said.append(f"Steps are the source's {table.step_offset:+d}, because the mapping file says so.")
    tokens = mapping.tokens
    rows = tokens or mapping.sequences
    if rows is not None and rows.step != "" and not isinstance(rows.step, str):
        said.append("All responses are one step, because the mapping file says so.")
    if mapping.sequences is not None and mapping.sequences.columns.get("group_id") == ROW:
        said.append("The responses of a row are one group, because the mapping file says so.")
    if tokens is not None and tokens.layout != "rows":
        if not tokens.mask:
            said.append("Every token of a response was sampled by the policy, because the mapping file names no mask.")
        if tokens.shifted:
            listed = ", ".join(tokens.shifted)
            said.append(f"The value at index i of {listed} is about token i + 1, because the mapping file says so.")
    return tuple(dict.fromkeys(said))
