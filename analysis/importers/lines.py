"""Files of JSON lines, read line by line, with the number of every line that is not what it should be."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers.source import Reading


def read(path: Path, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file and their line numbers, from 1. Empty lines are none; NaN and Infinity are numbers.

    Of a source that grows, a last line without its end is left for later.

    Raises:
        ImportProblem: a line is no JSON object, or the file cannot be read; unless what is bad is left out.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                whole = line.endswith(b"\n")
                try:
                    found = json.loads(line)
                except ValueError as error:
                    if not whole and reading.growing:
                        return
                    what = "the file ends within this line" if not whole else f"not JSON ({_reason(error)})"
                    reading.bad(path, what, number)
                    continue
                if isinstance(found, dict):
                    yield number, found
                else:
                    reading.bad(path, f"a JSON object is wanted, this is {_KINDS.get(type(found), 'none')}", number)
    except OSError as error:
        reading.bad(path, f"cannot be read ({error.strerror or error})")


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


_KINDS = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}
