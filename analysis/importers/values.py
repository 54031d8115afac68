"""What importers share: values as they are meant, small files beside a run, texts of messages."""

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratioscope.analysis.importers.source import BadLine, Reading
from ratioscope.errors import first_line
from ratioscope.storage import bounds
from ratioscope.storage.parquet import read_rows

_LARGEST_FIRST_LINE = 64_000_000


def numbers(values: Sequence[float | None] | None) -> NDArray[np.float32] | None:
    """Log-probabilities and the like. A null among numbers is how JSON writes one that is not finite: it stays NaN."""
    return None if values is None else np.array(values, dtype=np.float32)


def token_ids(values: Sequence[int]) -> NDArray[np.int32]:
    """Token ids as the run format has them.

    Raises:
        BadLine: one is no whole number, or beyond 32 bits.
    """
    found = np.asarray(values)
    mixed = isinstance(values, list) and bool in map(type, values)  # numpy makes numbers of true among numbers
    if mixed or (len(found) and (found.dtype.kind not in "iu" or found.min() < -(2**31) or found.max() >= 2**31)):
        raise BadLine("a token id is no whole number of 32 bits")
    return found.astype(np.int32)


def nulls(count: int) -> Any:
    """Log-probabilities of tokens that nobody scored."""
    return np.ma.masked_array(np.zeros(count, dtype=np.float32), True)


def joined_columns(parts: Sequence[Any]) -> Any:
    """Parts of a column as one, nulls included; the only part as it is."""
    if len(parts) == 1:
        return parts[0]
    if not any(isinstance(part, np.ma.MaskedArray) for part in parts):
        return np.concatenate(parts)
    values = np.concatenate([np.ma.getdata(part) for part in parts])
    return with_nulls(values, np.concatenate([np.ma.getmaskarray(part) for part in parts]))


def with_nulls(values: NDArray[Any], absent: NDArray[np.bool_]) -> Any:
    """Values of which some are absent; the same array where none is."""
    return np.ma.masked_array(values, absent) if absent.any() else values


class Ordinals(dict[Any, int]):
    """Names as numbers, in order of appearance; None stays None."""

    def of(self, name: Any) -> int | None:
        return None if name is None else self.setdefault(name, len(self))


def scattered(place: NDArray[np.bool_], words: str) -> NDArray[np.object_]:
    """A column of words where `place` is true, and of nulls elsewhere."""
    column = np.full(len(place), None, dtype=object)
    column[place] = words
    return column


def segments(mask: NDArray[np.bool_]) -> NDArray[np.int16]:
    """By token of a conversation, in which run of equal mask values it lies: a message, where only a mask is logged.

    Counted so that the prompt is 0, with or without one.
    """
    changes = mask.copy()
    changes[1:] ^= mask[:-1]
    return np.cumsum(changes, dtype=np.int16)


def sampled_runs(mask: NDArray[np.bool_]) -> int:
    """How many sampled messages a mask shows."""
    return int(np.count_nonzero(mask[:1])) + int(np.count_nonzero(mask[1:] > mask[:-1]))


def numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """What lies in a folder under names with a number in them, in ascending order; {} when it is no folder."""
    found = {}
    try:
        for entry in folder.iterdir():
            if match := re.fullmatch(pattern, entry.name):
                found[int(match[1])] = entry
    except OSError:
        return {}
    return dict(sorted(found.items()))


def config(path: Path) -> dict[str, Any]:
    """A TOML or JSON file of settings; {} where there is none that can be read."""
    try:
        text = bounds.read_whole(path, bounds.SETTINGS_BYTES).decode()
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def first_object(path: Path) -> dict[str, Any]:
    """The object in the first line of a file of JSON lines; {} where there is none."""
    try:
        with bounds.opened(path) as file:
            found = json.loads(file.readline(_LARGEST_FIRST_LINE))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def table_rows(file: Path, reading: Reading) -> list[dict[str, Any]]:
    """The rows of a Parquet file; none, with the reason on `reading`, where it cannot be read."""
    try:
        return read_rows(file)
    except OSError as error:
        reading.bad(file, f"cannot be read ({first_line(error)})")
    except (pa.ArrowException, UnicodeDecodeError) as error:
        reading.bad(file, f"no Parquet file, or not whole ({first_line(error)})")
    return []


def at(settings: Any, *keys: str) -> Any:
    """A nested setting of what JSON or TOML hold; None where it is not set."""
    found = settings
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def known_values(**values: Any) -> dict[str, Any]:
    """What is set of these."""
    return {name: value for name, value in values.items() if value is not None and value != {}}


def as_number(value: Any) -> float | None:
    """Return a reward, a time or the like as every format has it read: a truth value is 1 or 0, text counts where it is
    a number, and NaN and infinite are kept; None for what is no number."""
    if not isinstance(value, bool | int | float | str | np.number | np.bool_):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:  # a whole number beyond 1e308
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def as_part(value: Any) -> float | None:
    """`as_number` of a field whose name says nothing: text that looks like a number is an answer, not a reward."""
    return None if isinstance(value, str) else as_number(value)


def words_of(value: Any) -> str | None:
    """A name that is one; anything else as text, and None as None."""
    return None if value is None else str(value)


def moment(seconds: Any) -> datetime | None:
    """Seconds since 1970 as a time in UTC; None for 0, which stands for "not yet", and for what is no time."""
    value = as_number(seconds)
    try:
        return datetime.fromtimestamp(value, UTC) if value else None
    except (OverflowError, OSError, ValueError):
        return None


def part_of_reward(name: str) -> str:
    """The column of one part of the reward."""
    return "reward_" + (re.sub(r"\W+", "_", name).strip("_") or "part")


def content_text(content: Any) -> str:
    """The text of a message, whose content may be a list of parts; images and the like are named, not shown."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "\n".join(content_text(part) for part in content)
    if isinstance(content, Mapping):
        return str(content["text"]) if "text" in content else f"[{content.get('type', 'content')}]"
    return str(content)


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and arguments of the tools that a message calls, in either of the two shapes that are in use."""
    found = []
    for call in message.get("tool_calls") or []:
        call = json.loads(call) if isinstance(call, str) and call.startswith("{") else call
        inner = call.get("function", call) if isinstance(call, Mapping) else {}
        if isinstance(inner, Mapping):
            found.append((str(inner.get("name", "")), str(inner.get("arguments", ""))))
    return found


def said(message: Mapping[str, Any]) -> str:
    """Everything that a message says: reasoning, text, calls."""
    reasoning = content_text(message.get("reasoning_content"))
    calls = [f"{name}({arguments})" for name, arguments in calls_of(message)]
    return "\n".join(part for part in (reasoning, content_text(message.get("content")), *calls) if part)


def transcript(messages: Sequence[Mapping[str, Any]]) -> str:
    """Messages as one text; the roles are named where there are several."""
    if len(messages) == 1:
        return said(messages[0])
    return "\n\n".join(f"[{message.get('role', '')}]\n{said(message)}" for message in messages)
