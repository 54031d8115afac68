"""Rows of a mapped file as columns of the run format: padding, prompts and what a mask takes out are no rows of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ratioscope.analysis.importers.mapping_file import IDS, TableMap, TokensMap
from ratioscope.analysis.importers.source import Reading
from ratioscope.analysis.importers.sums import is_list
from ratioscope.analysis.importers.tables import RowRange
from ratioscope.analysis.importers.values import as_number
from ratioscope.run_format import schema

Columns = dict[str, Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Lists:
    """A column of lists: values of all rows one after the other, and where each row's begin and how many they are."""

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None
    """Which values are there; None: all."""
    starts: Ints
    sizes: Ints
    """-1 where a row has no list."""


class _Places:
    """The places of the whole lists of all rows, one row after the other.

    Args:
        sizes: of each row's list.
    """

    def __init__(self, sizes: Ints) -> None:
        self.sizes = sizes
        self.owner: Ints = np.repeat(np.arange(len(sizes)), sizes)
        """In which row each is."""
        self.index: Ints = np.arange(len(self.owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        """Which of its row's it is."""


def of_lists(
    tokens: TokensMap, shared: TableMap | None, parts: Sequence[RowRange], reading: Reading
) -> tuple[Columns, Columns]:
    """Tokens and responses of one step, from rows that are a response each.

    Args:
        shared: the responses' columns in the same rows; None: they have none of their own.
    """
    found: list[Columns] = []
    responses: list[Columns] = []
    for part in parts:
        per_token, per_response, counts = _of_part(tokens, part, reading)
        own = _plain_columns(shared, part, reading) if shared is not None else {}
        own = {"n_tokens": counts, **{name: per_response[name] for name in IDS if name in per_response}, **own}
        # Rows that have turned out bad are marked with a count of -1.
        good = counts >= 0
        responses.append({name: values[good] for name, values in own.items()})
        found.append(per_token)
    joined = _joined(responses)
    count = len(joined["n_tokens"])
    ids = joined.get("seq_id", np.arange(count))
    owner = np.repeat(np.arange(count), joined["n_tokens"])
    ends = np.cumsum(joined["n_tokens"])
    position = np.arange(len(owner)) - np.repeat(ends - joined["n_tokens"], joined["n_tokens"])
    of_tokens = _joined(found) | {"seq_id": ids[owner], "position": position}
    if "group_id" in joined:
        of_tokens["group_id"] = joined["group_id"][owner]
    return of_tokens | _constant(tokens, len(owner)), joined | {"seq_id": ids} | _constant(shared, count)


def of_rows(
    tokens: TokensMap, shared: TableMap | None, parts: Sequence[RowRange], reading: Reading
) -> tuple[Columns, Columns]:
    """Tokens and responses of one step, from rows that are a token each; of a response's rows the first speaks."""
    found = _joined([_plain_columns(tokens, part, reading) for part in parts])
    _, first, owner = np.unique(_keys(found["seq_id"]), return_index=True, return_inverse=True)
    kept = np.ones(len(owner), dtype=bool)
    if tokens.mask:
        kept = np.concatenate([_truths(part.columns[tokens.mask], tokens.ignore_index or 0) for part in parts])
    order = np.lexsort((found["position"], owner)) if "position" in found else np.argsort(owner, kind="stable")
    order = order[kept[order]]
    counts = np.bincount(owner[order], minlength=len(first))
    of_tokens = {name: values[order] for name, values in found.items()}
    of_tokens["position"] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    own = _joined([_plain_columns(shared, part, reading) for part in parts]) if shared is not None else {}
    own = {name: found[name] for name in IDS if name in found} | own
    responses = {name: values[first] for name, values in own.items()} | {"n_tokens": counts}
    if "group_id" in responses and "group_id" not in of_tokens:
        of_tokens["group_id"] = responses["group_id"][owner[order]]
    return of_tokens | _constant(tokens, len(order)), responses | _constant(shared, len(first))


def of_responses(table: TableMap, parts: Sequence[RowRange], reading: Reading) -> Columns:
    """Responses of one step from files of their own; without seq_id they are numbered in their order."""
    found = _joined([_plain_columns(table, part, reading) for part in parts])
    count = sum(len(part.lines) for part in parts)
    return {"seq_id": np.arange(count)} | found | _constant(table, count)


def looked_up(keys: Any, known: Any, values: Any) -> Any:
    """The value of each key, masked where it is not among the known ones."""
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known, keys, sorter=order), len(known) - 1)
    found = order[place]
    return np.ma.masked_array(np.ma.asarray(values)[found], np.asarray(known)[found] != np.asarray(keys))


# Lists ----------------------------------------------------------------------------------------------------------------


def _of_part(tokens: TokensMap, part: RowRange, reading: Reading) -> tuple[Columns, Columns, Ints]:
    """Columns of the sampled tokens, columns that hold one value a response, and tokens a response; -1: it is bad."""
    names = {ours: theirs for ours, theirs in tokens.columns.items() if is_list(part.columns[theirs].type)}
    lists = {ours: _lists(part, theirs, reading) for ours, theirs in names.items()}
    if tokens.mask:
        lists["mask"] = _lists(part, tokens.mask, reading)
    single = {
        ours: _plain(part.columns[theirs], ours, schema.TOKENS, part, theirs, reading)
        for ours, theirs in tokens.columns.items()
        if ours not in lists
    }
    count = len(part.lines)
    prompt = _lengths(part, tokens.prompt_length, reading)
    real = _lengths(part, tokens.length, reading)
    whole = np.max([each.sizes for each in lists.values()], axis=0, initial=0) if lists else np.zeros(count, np.int64)
    bases = {name: _base(name, each, whole, prompt, tokens) for name, each in lists.items()}
    bad = np.zeros(count, dtype=bool)
    for base in bases.values():
        bad |= base < 0
    for row in np.flatnonzero(bad):
        said = ", ".join(f"{name} {each.sizes[row]}" for name, each in lists.items() if each.sizes[row] >= 0)
        reading.bad(part.path, f"its lists are of different lengths ({said})", part.lines[int(row)])
    places = _Places(np.where(bad, 0, whole))
    kept = _sampled(tokens, lists, bases, places, prompt, real)
    owner = places.owner[kept]
    counts = np.where(bad, -1, np.bincount(owner, minlength=count))
    columns = {
        name: _taken(each, bases[name], name in tokens.shifted, places, kept)
        for name, each in lists.items()
        if name != "mask"
    }
    of_tokens = {name: values[owner] for name, values in single.items() if name not in IDS}
    return columns | of_tokens, single, counts


def _base(name: str, each: _Lists, whole: Ints, prompt: Ints | None, tokens: TokensMap) -> Ints:
    """At which index of the whole list a column's begins, row by row; -1 where its length cannot be right."""
    lacks = np.where(each.sizes < 0, 0, whole - each.sizes)
    if name in tokens.shifted:
        lacks = np.where(lacks == 1, 0, lacks)  # the last token has no value after it
    if tokens.padding != "none":
        return lacks  # lists of the response alone stand at the end
    allowed = lacks == 0 if prompt is None else (lacks == 0) | (lacks == prompt)
    return np.where(allowed, lacks, -1)


def _sampled(
    tokens: TokensMap,
    lists: Mapping[str, _Lists],
    bases: Mapping[str, Ints],
    places: _Places,
    prompt: Ints | None,
    real: Ints | None,
) -> NDArray[np.bool_]:
    """Which places of the whole lists hold a token that the policy sampled."""
    sizes, owner, index = places.sizes, places.owner, places.index
    kept = np.ones(len(owner), dtype=bool)
    begin = np.zeros(len(sizes), dtype=np.int64)  # of the response
    for base in bases.values():
        begin = np.maximum(begin, base)
    if prompt is not None:
        pads = sizes - real if tokens.padding == "left" and real is not None else np.zeros_like(sizes)
        begin = np.maximum(begin, pads + prompt)
    if real is not None and tokens.padding == "left":
        begin = np.maximum(begin, sizes - real)
    kept &= index >= begin[owner]
    if real is not None and tokens.padding != "left":
        first = np.max([*bases.values(), np.zeros_like(sizes)], axis=0)  # the length is that of the padded block
        kept &= index < (first + real)[owner]
    if "mask" in lists:
        mask = _taken(lists["mask"], bases["mask"], "mask" in tokens.shifted, places, slice(None))
        kept &= np.ma.filled(mask != (tokens.ignore_index or 0), False)
    return kept


def _taken(each: _Lists, base: Ints, shifted: bool, places: _Places, kept: Any) -> Any:
    """The values at the places that are kept; masked where there is none."""
    if not shifted and np.array_equal(each.sizes, places.sizes):  # as most are: its values lie as the places do
        values, there = each.values[kept], None if each.valid is None else each.valid[kept]
    else:
        owner = places.owner[kept]
        source = places.index[kept] - base[owner] - int(shifted)
        there = (source >= 0) & (source < each.sizes[owner])
        place = np.where(there, each.starts[owner] + source, 0)
        values = each.values[place] if len(each.values) else np.zeros(len(place))
        if each.valid is not None:
            there &= each.valid[place]
    return values if there is None or there.all() else np.ma.masked_array(values, ~there)


def _lists(part: RowRange, theirs: str, reading: Reading) -> _Lists:
    array = part.columns[theirs]
    count = len(part.lines)
    if pa.types.is_null(array.type):
        return _Lists(np.zeros(0), None, np.zeros(count, np.int64), np.full(count, -1))
    if not is_list(array.type):
        reading.bad(part.path, f"{theirs} holds {array.type} where lists are wanted", part.lines[0])
        return _Lists(np.zeros(0), None, np.zeros(count, np.int64), np.full(count, -1))
    if not pa.types.is_large_list(array.type):
        array = pc.cast(array, pa.large_list(array.type.value_type))
    offsets = array.offsets.to_numpy()
    absent = array.is_null().to_numpy(zero_copy_only=False)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    if not _is_number(values.type):
        try:
            values = pc.cast(values, pa.float64())  # numbers in strings
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            reading.bad(part.path, f"{theirs} holds lists of {values.type} where numbers are wanted", part.lines[0])
            return _Lists(np.zeros(0), None, np.zeros(count, np.int64), np.full(count, -1))
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
    numbers = _filled(values).to_numpy(zero_copy_only=False)
    return _Lists(numbers, valid, offsets[:-1] - offsets[0], np.where(absent, -1, np.diff(offsets)))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _lengths(part: RowRange, theirs: str, reading: Reading) -> Ints | None:
    if not theirs:
        return None
    found = _numbers(part.columns[theirs], theirs, part, reading)
    return np.asarray(np.ma.filled(found, 0)).astype(np.int64)


# One value a row ------------------------------------------------------------------------------------------------------


def _plain_columns(table: TableMap | None, part: RowRange, reading: Reading) -> Columns:
    if table is None:
        return {}
    declared = schema.TOKENS if isinstance(table, TokensMap) else schema.SEQUENCES
    return {
        ours: _plain(part.columns[theirs], ours, declared, part, theirs, reading)
        for ours, theirs in table.columns.items()
    }


def _plain(
    array: pa.Array, ours: str, table: schema.DeclaredTable, part: RowRange, theirs: str, reading: Reading
) -> Any:
    """A column of one value a row: numbers, or an array of objects for text and ids."""
    column = table.column(ours)
    if column is not None and pa.types.is_string(column.type):
        return np.array([_text(value) for value in array.to_pylist()], dtype=object)
    if ours in IDS and not pa.types.is_integer(array.type):
        return np.array(array.to_pylist(), dtype=object)
    return _numbers(array, theirs, part, reading)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _numbers(array: pa.Array, theirs: str, part: RowRange, reading: Reading) -> Any:
    """Numbers, also from strings; masked where they are null."""
    if not _is_number(array.type):
        try:
            array = pc.cast(array, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            listed = array.to_pylist()
            values = [as_number(value) for value in listed]
            for place, (value, number) in enumerate(zip(listed, values, strict=True)):
                if value is not None and number is None:
                    reading.bad(part.path, f"{theirs} is {_short(value)}, and no number", part.lines[place])
            array = pa.array(values, pa.float64())
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False)
    return np.ma.masked_array(
        _filled(array).to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _truths(array: pa.Array, false: int) -> NDArray[np.bool_]:
    if not _is_number(array.type):
        return np.array([bool(value) for value in array.to_pylist()], dtype=bool)
    return np.asarray(_filled(array).to_numpy(zero_copy_only=False) != false)


def _filled(array: pa.Array) -> pa.Array:
    """With something where nothing is, for numpy."""
    return array.fill_null(False if pa.types.is_boolean(array.type) else 0) if array.null_count else array


def _keys(values: Any) -> NDArray[Any]:
    """Ids that can be sorted: numbers as they are, everything else as text."""
    return np.array(list(map(str, values))) if values.dtype == object else np.asarray(values)


def _joined(parts: Sequence[Columns]) -> Columns:
    """The same columns of several parts, one after the other."""
    if len(parts) == 1:
        return dict(parts[0])
    names = list(dict.fromkeys(name for part in parts for name in part))
    joined: Any = np.ma.concatenate  # numpy has no types for it
    return {name: joined([part[name] for part in parts]) for name in names} if parts else {}


def _constant(table: TableMap | None, count: int) -> Columns:
    return {name: np.repeat(value, count) for name, value in (table.constants.items() if table is not None else ())}
