"""Where values lie in the records of other programs: paths into objects and lists."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ratioscope.analysis.importers.source import BadLine

Record = Mapping[str, Any]


def at_path(record: Any, path: str) -> Any:
    """What lies at a path in a record, None where nothing does: `a.b` in an object, `a[0].b` in the first of a list
    (`[-1]`: the last), `a[*].b` in each of a list, one after the other; of `a|b` the first that is there."""
    if isinstance(record, dict) and path in record:
        return record[path]
    if "|" in path:
        return next((value for one in path.split("|") if (value := at_path(record, one)) is not None), None)
    return _followed(record, way) if (way := _way(path)) else None


_WAY = re.compile(r"\[(\*|-?[0-9]{1,9})\]|([^.\[\]]+)")


_Way = tuple[str | int | None, ...]
"""Names and places in lists on the way; None: each of a list."""


@lru_cache(maxsize=1_000)
def _way(path: str) -> _Way:
    return tuple(name or (None if place == "*" else int(place)) for place, name in _WAY.findall(path))


def _followed(value: Any, way: Sequence[str | int | None]) -> Any:
    for done, step in enumerate(way, start=1):
        if not isinstance(step, str) and isinstance(value, np.ndarray):
            value = value.tolist()
        if step is None:
            parts = [_followed(one, way[done:]) for one in value] if isinstance(value, list) else []
            return _one_after_the_other([part for part in parts if part is not None])
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def at_paths(record: Record, names: Iterable[str]) -> dict[str, Any]:
    """What lies at several paths (`at_path`), with the same places in what lies in one list of objects.

    An object that has a value for one path and none for another has null there; one that has none adds nothing.

    Raises:
        BadLine: the lists in one of several objects differ in length, so that nothing says what belongs together.
    """
    found: dict[str, Any] = {}
    ways: dict[str, _Way] = {}
    for name in names:
        path = name if name in record else next((p for p in name.split("|") if at_path(record, p) is not None), name)
        if path in record or None not in _way(path):
            found[name] = at_path(record, path)
        else:
            ways[name] = _way(path)
    return found | {name: [] if value is None else value for name, value in _beside(record, ways).items()}


def _beside(value: Any, ways: Mapping[str, _Way]) -> dict[str, Any]:
    """What lies at the end of each way, by its name; None where nothing does."""
    found: dict[str, Any] = {}
    into: dict[_Way, dict[str, _Way]] = {}
    for name, way in ways.items():
        if None in way:
            place = way.index(None)
            into.setdefault(way[:place], {})[name] = way[place + 1 :]
        else:
            found[name] = _followed(value, way)
    for way, on in into.items():
        objects = _followed(value, way)
        found |= _of_each(objects, on) if isinstance(objects, list) else dict.fromkeys(on)
    return found


def _of_each(objects: list[Any], ways: Mapping[str, _Way]) -> dict[str, Any]:
    rows = [_beside(one, ways) for one in objects]
    sizes = [{name: _size(value) for name, value in row.items() if value is not None} for row in rows]
    are_lists = not any(value is not None and not _is_list(value) for row in rows for value in row.values())
    parts: dict[str, list[Any]] = {name: [] for name in ways}
    for place, (one, row, own) in enumerate(zip(objects, rows, sizes, strict=True)):
        if len({*own.values()}) > 1 and sum(map(bool, sizes)) > 1:
            told = ", ".join(f"{name} {size}" for name, size in own.items())
            raise BadLine(f"entry {place} of a list has lists of different lengths ({told})")
        # Where one value stands in each, a null among them is one of them.
        counts = own or (not are_lists and len(ways) == 1 and _is_there(one, *ways.values()))
        for name, value in row.items() if counts else ():
            parts[name].append([None] * max(own.values(), default=1) if value is None else value)
    return {name: _one_after_the_other(values) for name, values in parts.items()}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)


def _size(value: Any) -> int:
    return len(value) if _is_list(value) else 1


def _is_there(value: Any, way: _Way) -> bool:
    """Whether there is something at the end of a way, if only a null."""
    inner = _followed(value, way[:-1])
    return not way or (isinstance(inner, dict) and way[-1] in inner)


def _one_after_the_other(parts: list[Any]) -> Any:
    filled = [part for part in parts if not _is_list(part) or len(part)]
    if filled and all(isinstance(part, np.ndarray) for part in filled):
        return np.concatenate(filled)
    lists = [part.tolist() if isinstance(part, np.ndarray) else part for part in filled]
    return [each for part in lists for each in (part if isinstance(part, list) else [part])]


def spread(record: Record, wanted: Collection[str]) -> Iterator[dict[str, Any]]:
    """The responses in a record that has lists with an entry per response; what is no such list holds for each.

    Args:
        wanted: the keys that must have such lists.

    Raises:
        BadLine: the lists differ in length, or one of them is none.
    """
    lists = {name: values for name, values in record.items() if isinstance(values, list | np.ndarray)}
    sizes = {name: len(lists[name]) if name in lists else -1 for name in wanted}
    size = next(iter(sizes.values()), -1)
    if size < 0 or len({*sizes.values()}) > 1:
        told = ", ".join("none" if size < 0 else str(size) for size in sizes.values())
        raise BadLine(f"{', '.join(sizes)} are not lists of one length ({told})")
    whole = {name: values for name, values in record.items() if name not in lists}
    entries = {name: values for name, values in lists.items() if len(values) == size}
    for place in range(size):
        yield whole | {name: values[place] for name, values in entries.items()}


def taken_apart(record: Record, path: str) -> Iterator[tuple[str, Record]]:
    """The record once for each object of the list at a path, with the object in place of the list.

    Args:
        path: `a.b`; with `a[*].b` for each object of b in each of a.

    Returns:
        Of each its places in the lists on the way, as in ".0.2", and the record.

    Raises:
        BadLine: there is no list of objects.
    """
    yield from _apart(record, _way(f"{path}[*]"), path)


def _apart(value: Any, way: Sequence[str | int | None], path: str) -> Iterator[tuple[str, Any]]:
    if not way:
        yield "", value
        return
    step, *on = way
    if isinstance(step, str):
        if not isinstance(value, Mapping) or step not in value:
            raise BadLine(f"no {path}")
        for place, inner in _apart(value[step], on, path):
            yield place, {**value, step: inner}
        return
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise BadLine(f"{path} is no list of objects")
    for number, one in enumerate(value):
        for place, inner in _apart(one, on, path):
            yield f".{number}{place}", inner


def as_stored(name: str, each: str) -> str:
    """The path in a record as it is stored of what is so called where it is taken apart; "" as `each`: it is not."""
    lists = each.split("[*]") if each else []
    for count in range(1, len(lists) + 1):
        one = "[*]".join(lists[:count])
        name = f"{one}[*]{name.removeprefix(one)}" if name.startswith(f"{one}.") else name
    return name


def as_called(path: str, each: str) -> str:
    """What a path in a record as it is stored is called where that is taken apart, as `as_stored` takes it."""
    lists = each.split("[*]")
    for count in range(len(lists), 0, -1):
        if path.startswith(inner := "[*]".join(lists[:count]) + "[*]."):
            return f"{''.join(lists[:count])}.{path.removeprefix(inner)}"
    return path
