"""Files of JSON lines, read line by line, with the number of every line that is not what it should be.

What is compressed with gzip or zstd, as the ending of its name says, is read as it is unpacked.

Numbers are what bounds an import: the lists that are named as `arrays` go from the text into numpy and never become
Python's numbers, by simdjson where it is installed.
"""

import io
import json
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
        arrays: keys whose lists of numbers or of truth values are wanted as numpy arrays. Where such a list holds
            anything else (a null), it stays a list; in a list of lists each of these is one.
        only: the keys that are wanted; None: all.
        wanted: whether a line is, told from its text, which is much quicker than to parse it; None: all are.
        begin: the line to begin with.

    Raises:
        ImportProblem: a line is no JSON object, or the file cannot be read; unless what is bad is left out.
    """
    parse = _Parser(frozenset(arrays), None if only is None else frozenset(only))
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
                    yield Line(number, file.tell() - len(line)) if tells else number, found
                else:
                    reading.bad(path, f"a JSON object is wanted, this is {_KINDS.get(type(found), 'none')}", number)
            if not number and not reading.growing:
                reading.problems.append(f"{path}: is empty, so that what it was for is missing.")
    except OSError as error:
        if not (reading.growing and path.suffix in COMPRESSED):  # it may be packed at this moment
            reading.bad(path, f"cannot be read ({error.strerror or error})")


def _opened(path: Path, begin: StepStart) -> IO[bytes]:
    """A file at the line to begin with."""
    file = bounds.opened(path, _BUFFER)
    if codec := COMPRESSED.get(path.suffix):
        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file), codec), _BUFFER)
    file.seek(begin.offset)
    return file


class _Parser:
    """One line after the other; what simdjson refuses (NaN, an integer of 30 digits) Python's own parser decides."""

    def __init__(self, arrays: frozenset[str], only: frozenset[str] | None) -> None:
        self._arrays, self._only = arrays, only
        self._parser = simdjson.Parser() if simdjson is not None else None

    def __call__(self, line: bytes) -> Any:
        if self._parser is not None:
            with suppress(ValueError, RuntimeError):
                return self._fast(line)
        found = json.loads(line)
        if not isinstance(found, dict):
            return found
        wanted = found if self._only is None else {key: found[key] for key in found if key in self._only}
        return {key: as_array(value) if key in self._arrays else value for key, value in wanted.items()}

    def _fast(self, line: bytes) -> Any:
        assert self._parser is not None
        # What the parser returns lies in its memory, which the next line takes: nothing of it may outlive this call.
        document = self._parser.parse(line)
        if not isinstance(document, simdjson.Object):
            return document.as_list() if isinstance(document, simdjson.Array) else document
        found: dict[str, Any] = {}
        for key in document:
            if self._only is not None and key not in self._only:
                continue
            value = document[key]
            if isinstance(value, simdjson.Array):
                found[key] = _numbers(value) if key in self._arrays else value.as_list()
            else:
                found[key] = value.as_dict() if isinstance(value, simdjson.Object) else value
        return found


def _numbers(values: Any) -> Any:
    """A list of numbers as an array of int64 or float64; anything else by way of Python."""
    count = len(values)
    first = values[0] if count else None
    if isinstance(first, simdjson.Array):
        return [_numbers(each) if isinstance(each, simdjson.Array) else _python(each) for each in values]
    if isinstance(first, int | float) and not isinstance(first, bool):
        for kind, type_ in (("i", np.int64), ("d", np.float64)) if isinstance(first, int) else (("d", np.float64),):
            with suppress(TypeError, ValueError):
                found = np.frombuffer(values.as_buffer(of_type=kind), type_)
                if len(found) == count:  # lists in the list would have been laid out one after the other
                    return found
    return as_array(values.as_list())


def _python(value: Any) -> Any:
    return value.as_dict() if isinstance(value, simdjson.Object) else value


def as_array(value: Any) -> Any:
    """A list as an array, if it holds numbers or truth values alone."""
    if not isinstance(value, list) or (value and value[0] is None):
        return value
    if value and isinstance(value[0], list):
        return [as_array(each) for each in value]
    try:
        found = np.array(value)
    except (ValueError, OverflowError):  # lists of different lengths
        return value
    return found if found.ndim == 1 and found.dtype.kind in "bif" else value


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
