"""Files of JSON lines, read line by line, with the number of every line that is not what it should be.

What is compressed with gzip or zstd, as the ending of its name says, is read as it is unpacked.

Numbers are what bounds an import: the lists that are named as `arrays` go from the text into numpy and never become
Python's numbers, by simdjson where it is installed.
"""

import io
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from ratioscope.analysis.importers.source import FIRST_LINE, Line, Reading, StepStart
from ratioscope.storage import bounds

# Without it the same objects, at a fifth of the speed.
simdjson: Any = import_module("simdjson") if find_spec("simdjson") else None
_Array: Any = simdjson.Array if simdjson is not None else None
_Object: Any = simdjson.Object if simdjson is not None else None

# A line with its lists is often longer than Python's usual buffer, and would be put together of pieces.
_BUFFER = 1 << 20

COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
"""Endings of compressed files, and pyarrow's names of what unpacks them."""


def read(
    path: Path,
    reading: Reading,
    *,
    arrays: Collection[str] = (),
    only: Collection[str] | None = None,
    wanted: Callable[[bytes], bool] | None = None,
    begin: StepStart = FIRST_LINE,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file and their line numbers, from 1. Empty lines are none; NaN and Infinity are numbers.

    Of a source that grows, a last line without its end is left for later; of another one, that a file is empty is said.

    Args:
        arrays: keys, or paths into objects, whose lists of numbers or of truth values are wanted as numpy arrays
            (`a[*].b`: in each object of a list). Where such a list holds
            anything else (a null), it stays a list; in a list of lists each of these is one.
        only: the keys that are wanted; None: all.
        wanted: whether a line is, told from its text, which is much quicker than to parse it; None: all are.
        begin: the line to begin with.

    Raises:
        ImportProblem: a line is no JSON object, or the file cannot be read; unless what is bad is left out.
    """
    parse = Parser(arrays, only)
    tells = reading.growing and path.suffix not in COMPRESSED
    number = begin.line - 1
    try:
        with _opened(path, begin) as file:
            for line in bounds.lines(file):
                number += 1
                if line is None:
                    reading.bad(path, bounds.too_long(), number)
                    continue
                reading.bytes_read += len(line)
                if line.isspace() or not (wanted is None or wanted(line)):
                    continue
                whole = line.endswith(b"\n")
                try:
                    found = parse(line)
                except (ValueError, RecursionError) as error:
                    if not whole and reading.growing:
                        return
                    what = "the file ends within this line" if not whole else f"not JSON ({_reason(error)})"
                    reading.bad(path, what, number)
                    continue
                if isinstance(found, dict):
                    yield Line(number, file.tell() - len(line), line) if tells else number, found
                else:
                    reading.bad(path, f"a JSON object is wanted, this is {_KINDS.get(type(found), 'none')}", number)
            if not number and not reading.growing:
                reading.problems.append(f"{path}: is empty, so that what it was for is missing.")
    except OSError as error:
        if not (reading.growing and path.suffix in COMPRESSED):  # it may be packed at this moment
            is_cut = path.suffix in COMPRESSED and "Truncated" in str(error)
            why = "its compressed stream is cut; copy the file again" if is_cut else error.strerror or error
            reading.bad(path, f"cannot be read ({why})")


def of_steps(path: Path, reading: Reading, key: str = "step") -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file that are of a step beyond `reading.after`, with it, from where earlier looks came to.

    Args:
        key: of the step; rows without one are of none.
    """
    seen: set[int] = set()
    for line, row in read(path, reading, begin=reading.place(path)):
        step = row.get(key)
        if not isinstance(step, int) or isinstance(step, bool):
            continue
        if step not in seen:
            reading.begins(path, step, line)
            seen.add(step)
        if step > reading.after:
            yield step, row


def _opened(path: Path, begin: StepStart) -> IO[bytes]:
    """A file at the line to begin with."""
    file = bounds.opened(path, _BUFFER)
    if codec := COMPRESSED.get(path.suffix):
        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file), codec), _BUFFER)
    file.seek(begin.offset)
    return file


class Parser:
    """One line after the other; what simdjson refuses (NaN, an integer of 30 digits) Python's own parser decides.

    Args:
        arrays, only: see `read`.
        numbers: paths of lists of objects of which one key is wanted, which holds a number in each and stands nowhere
            else: `a.b[*].key` makes b {"key": array}, read from the text alone. Where that is not so, b is a list.
    """

    def __init__(
        self, arrays: Collection[str] = (), only: Collection[str] | None = None, numbers: Collection[str] = ()
    ) -> None:
        self._ways, self._only = _ways(arrays), None if only is None else frozenset(only)
        self._numbers: dict[str, _Numbers] = {}
        self._with_numbers = _ways(arrays)
        for path in numbers:
            place, _, key = path.rpartition("[*].")
            *way, last = _PLACE.split(place)
            inner = self._with_numbers
            for name in way:
                inner = inner.setdefault(name, {})
            inner[last] = self._numbers.setdefault(key, _Numbers(key))
        self._parser = simdjson.Parser() if simdjson is not None else None

    def __call__(self, line: bytes) -> Any:
        if self._parser is not None:
            with suppress(ValueError, RuntimeError):
                return self._fast(line)
        found = json.loads(line)
        if not isinstance(found, dict):
            return found
        wanted = found if self._only is None else {key: found[key] for key in found if key in self._only}
        return _with_arrays(wanted, self._ways)

    def _fast(self, line: bytes) -> Any:
        assert self._parser is not None
        # What the parser returns lies in its memory, which the next line takes: nothing of it may outlive this call.
        document = self._parser.parse(line)
        if type(document) is not _Object:
            return document.as_list() if type(document) is _Array else document
        keys = [key for key in document if self._only is None or key in self._only]
        if self._numbers:
            for column in self._numbers.values():
                column.lists.clear()
            found = {key: _taken_out(document[key], self._with_numbers.get(key)) for key in keys}
            if all(column.fill(line) for column in self._numbers.values()):
                return found
        return {key: _taken_out(document[key], self._ways.get(key)) for key in keys}


class _Numbers:
    """The numbers under a key in lists of objects, of which a line may have several."""

    def __init__(self, key: str) -> None:
        self.key, self.lists = key, list[tuple[int, tuple[Any, Any], dict[str, Any]]]()
        self._all = re.compile(rb'"%s": ?([^,}\]]+)' % re.escape(key.encode()))
        self._parser: Any = simdjson.Parser() if simdjson is not None else None

    def take(self, objects: Any) -> dict[str, Any]:
        ends = objects[0], objects[len(objects) - 1]
        first, last = (end.get(self.key) if type(end) is _Object else None for end in ends)
        self.lists.append((len(objects), (first, last), {}))
        return self.lists[-1][2]

    def fill(self, line: bytes) -> bool:
        """Give each list its numbers, in the order in which they stand in the line.

        Returns:
            Whether there are as many, and at both ends of each list its own: else some stand elsewhere.
        """
        found = self._all.findall(line) if self.lists else []
        if len(found) != sum(size for size, *_ in self.lists):
            return False
        with suppress(ValueError, TypeError):
            text = self._parser.parse(b"[%s]" % b",".join(found))
            values = np.frombuffer(text.as_buffer(of_type="d"))
            begin = 0
            for size, ends, columns in self.lists:
                columns[self.key] = own = values[begin : begin + size]
                if (own[0], own[-1]) != ends:
                    return False
                begin += size
            return begin == len(values)
        return not self.lists


_Ways = dict[str, Any]
"""What is wanted as arrays: the ways from a key on, "[*]" into each of a list; where one ends there are none."""
_PLACE = re.compile(r"\.|(?=\[)")


def _ways(paths: Collection[str]) -> _Ways:
    tree: _Ways = {}
    for path in paths:
        tree.setdefault(path, {})  # a key may have dots in it
        for one in path.split("|"):
            inner = tree
            for name in _PLACE.split(re.sub(r"\[-?[0-9]+\]", "[*]", one)):
                inner = inner.setdefault(name, {})
    return tree


def _taken_out(value: Any, ways: Any) -> Any:
    """A value of simdjson's as Python's, with the arrays that are wanted."""
    kind = type(value)
    if kind is _Array:
        if ways is None:
            return value.as_list()
        if type(ways) is _Numbers:
            return ways.take(value) if len(value) else []
        if not ways:
            return _numbers(value)
        inner = ways.get("[*]")  # an iterator would turn each into Python's at once
        return [_taken_out(value[place], inner) for place in range(len(value))]
    if kind is _Object:
        is_on_the_way = ways and type(ways) is not _Numbers
        return {key: _taken_out(value[key], ways.get(key)) for key in value} if is_on_the_way else value.as_dict()
    return value


def _with_arrays(value: Any, ways: _Ways | None) -> Any:
    """The same of what Python's parser read."""
    if isinstance(value, list) and ways is not None:
        return [_with_arrays(each, ways.get("[*]")) for each in value] if ways else as_array(value)
    if isinstance(value, dict) and ways:
        return {key: _with_arrays(each, ways.get(key)) for key, each in value.items()}
    return value


def _numbers(values: Any) -> Any:
    """A list of numbers as an array of int64 or float64; anything else by way of Python."""
    count = len(values)
    first = values[0] if count else None
    if type(first) is _Array:
        return [_taken_out(values[place], {}) for place in range(count)]
    if isinstance(first, int | float) and not isinstance(first, bool):
        for kind, type_ in (("i", np.int64), ("d", np.float64)) if isinstance(first, int) else (("d", np.float64),):
            with suppress(TypeError, ValueError):
                found = np.frombuffer(values.as_buffer(of_type=kind), type_)
                if len(found) == count:  # lists in the list would have been laid out one after the other
                    return found
    return _truths(values.mini, count) if isinstance(first, bool) else as_array(values.as_list())


def _truths(text: bytes, count: int) -> Any:
    """A list of truth values, told from its text; as Python has it, where something else is in it."""
    signs = text.translate(None, b"rueals,")  # of anything else than true and false, other signs are left
    if len(signs) != count + 2 or signs.count(b"t") + signs.count(b"f") != count:
        return as_array(json.loads(text))
    return np.frombuffer(signs, np.uint8)[1:-1] == ord("t")


def as_array(value: Any) -> Any:
    """A list as an array, if it holds numbers alone, or truth values alone."""
    if not isinstance(value, list) or (value and value[0] is None):
        return value
    if value and isinstance(value[0], list):
        return [as_array(each) for each in value]
    try:
        found = np.array(value)
    except (ValueError, OverflowError):  # lists of different lengths
        return value
    mixed = found.dtype.kind in "if" and bool in map(type, value)  # numpy makes numbers of true among numbers
    return found if found.ndim == 1 and found.dtype.kind in "bif" and not mixed else value


def _reason(error: ValueError | RecursionError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


_KINDS = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}
