"""Columns that a mapping file computes of others: whole numbers, names of columns, plus and minus."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class ColumnSum(str):
    """In place of a column's name: what `terms` splits."""

    __slots__ = ()


class WholeText(str):
    """In place of a column's name: one of which each row is one text or name, though it may look like a list."""

    __slots__ = ()


_SIGN = re.compile(r"\s+([+-])\s+")
_NUMBER = re.compile(r"[0-9]{1,18}")


@lru_cache(maxsize=1_000)
def terms(text: str) -> tuple[tuple[int, str | int], ...]:
    """The terms of `step - age + 1`, each with its sign and as a number or a name; () where the text is a name alone.

    A sign stands between blanks, because names have dashes.
    """
    first, *rest = _SIGN.split(text.strip())
    if not rest or not all(rest) or not first:
        return ()
    signed = [("+", first), *zip(rest[::2], rest[1::2], strict=True)]
    return tuple((-1 if sign == "-" else 1, int(name) if _NUMBER.fullmatch(name) else name) for sign, name in signed)


def names_in(text: str) -> list[str]:
    """The columns that a name or a sum asks for."""
    return [name for _, name in terms(text) if isinstance(name, str)] if isinstance(text, ColumnSum) else [text]


def summed(text: str, columns: Mapping[str, pa.Array]) -> tuple[pa.Array, list[tuple[int, str]]]:
    """The values of a sum, null where a term is; and what no whole number is, by row.

    A list in a row makes a list of the sum, with what is one value counting at each of its places.

    Args:
        columns: those that the sum names.
    """
    found = {name: columns[name] for name in names_in(text)}
    count = len(next(iter(found.values())))
    lists = {name: column for name, column in found.items() if is_list(column.type)}
    sizes = np.array([pc.fill_null(pc.list_value_length(column), -1).to_numpy() for column in lists.values()])
    absent = np.any(sizes < 0, axis=0) if lists else np.zeros(count, dtype=bool)
    uneven = ~absent & np.any(sizes != sizes[0], axis=0) if lists else absent
    bad = [(int(row), f"{' and '.join(lists)} are lists of different lengths") for row in np.flatnonzero(uneven)]
    kept = pa.array(np.arange(count), mask=absent | uneven)
    lists = {name: column.take(kept) for name, column in lists.items()}
    lengths = np.where(absent | uneven, 0, sizes[0]) if lists else np.ones(count, dtype=np.int64)
    owner = np.repeat(np.arange(count), lengths)
    total = pa.array(np.zeros(len(owner), dtype=np.int64))
    for sign, term in terms(text):
        if isinstance(term, str):
            value, wrong = _whole(pc.list_flatten(lists[term]) if term in lists else found[term])
            rows = owner if term in lists else np.arange(count)
            bad += [(int(rows[at]), f"{term} is {said}, and no whole number") for at, said in wrong]
            value = value if term in lists else value.take(pa.array(owner))
        else:
            value = pa.array(np.full(len(owner), term))
        total, beyond = _added(total, value, sign)
        bad += [(int(row), f"{text} is beyond 64 bits") for row in dict.fromkeys(owner[beyond].tolist())]
    if not lists:
        return total, bad
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), total, mask=pc.is_null(kept)), bad


def _added(total: pa.Array, value: pa.Array, sign: int) -> tuple[pa.Array, list[int]]:
    """Their sum or difference, null where it has no place in 64 bits, and where that is."""
    try:
        return (pc.add_checked if sign > 0 else pc.subtract_checked)(total, value), []
    except pa.ArrowInvalid:
        pairs = zip(total.to_pylist(), value.to_pylist(), strict=True)
    exact = [None if None in (one, other) else one + sign * other for one, other in pairs]
    beyond = [place for place, each in enumerate(exact) if each is not None and whole_number(each) is None]
    return pa.array([whole_number(each) for each in exact], pa.int64()), beyond


def _whole(values: pa.Array) -> tuple[pa.Array, list[tuple[int, str]]]:
    """Values as 64-bit integers; null, and named, what is none."""
    try:
        if not pa.types.is_boolean(values.type):
            return pc.cast(values, pa.int64()), []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    listed = values.to_pylist()
    found = [whole_number(value) for value in listed]
    wrong = [(at, f"{value!r:.40}") for at, value in enumerate(listed) if value is not None and found[at] is None]
    return pa.array(found, pa.int64()), wrong


_WHOLE = re.compile(r"-?[0-9]{1,18}")


def whole_number(value: Any) -> int | None:
    """An integer of 64 bits, also one that is written as a float or in a string; None for what is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds a list in each row."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
