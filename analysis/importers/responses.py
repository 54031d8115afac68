"""One response of a foreign run, with what is known of it, and many of them as one step."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratioscope.analysis.importers.flatten import flattened
from ratioscope.analysis.importers.source import SURPRISES, BadLine, Reading, Step
from ratioscope.analysis.importers.values import Ordinals, as_part
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import Columns

Values = Sequence[float] | NDArray[Any]
_LARGEST: dict[Any, int] = {pa.int8(): 2**7, pa.int16(): 2**15, pa.int32(): 2**31, pa.int64(): 2**63}


def other_shape(error: Exception) -> str:
    """Why contents of another shape cannot be read."""
    if isinstance(error, BadLine):
        return str(error)
    if isinstance(error, KeyError) and isinstance(error.args[0], str):
        return f"it has no {error.args[0]}"
    return "something in it is of another kind than the format has"


@dataclass
class Response:
    """What a source knows of one response; all arrays run over it from its first token to its last, shape (length,).

    Between its sampled tokens there may be those of tools and environment: `sampled` is false there, and whatever
    stands at those places is dropped. A response of which the text alone is known has no places.
    """

    sampled: NDArray[np.bool_] | None = None
    """None: there are sampled tokens alone, and nothing tells messages from each other (`without_empty`)."""
    values: dict[str, Values | None] = field(default_factory=dict)
    """By column of the tokens table; None or absent: not logged for this response."""
    row: dict[str, Any] = field(default_factory=dict)
    """Columns of the sequences table."""
    versions: Sequence[int | None] = ()
    """Policy versions of its sampled messages; None: not a number."""
    trained_on: NDArray[np.bool_] | None = None
    """Where the loss mask was set; None: nothing is known of a mask beyond `sampled`."""
    reason: str = "masked by the framework"
    """Why sampled tokens that were not trained on were held out."""
    messages: Sequence[dict[str, Any]] = ()
    """The conversation, one message a row of the messages table (without `step` and `seq_id`)."""

    @property
    def length(self) -> int:
        """How many places it has."""
        known = (values for values in (self.sampled, *self.values.values()) if values is not None)
        return len(next(known, ()))

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which of its places are sampled tokens. (length,)"""
        return np.ones(self.length, dtype=bool) if self.sampled is None else self.sampled

    def drop(self, why: str) -> None:
        """Say that it never reached the loss; its tokens keep their values."""
        self.row["dropped"] = why
        if self.values:
            self.values["rejected"] = np.full(self.length, why, dtype=object)


def without_empty(
    row: Mapping[str, Any], tokens: Mapping[str, Any] | None = None, messages: Iterable[Mapping[str, Any]] = ()
) -> Response:
    """A response of which the sampled tokens alone are known, one after the other.

    Args:
        row: of the sequences table, without seq_id.
        tokens: arrays over them by column; None: not logged.
        messages: rows of the messages table, without seq_id.

    Raises:
        BadLine: a value is of another kind than its column.
    """
    fitted = [fitting(schema.MESSAGES, message) for message in messages]
    return Response(values=dict(tokens or {}), row=fitting(schema.SEQUENCES, row), messages=fitted)


def fitting(table: schema.DeclaredTable, row: Mapping[str, Any]) -> dict[str, Any]:
    """The same row, if its values are of their columns' kinds; a number may stand for a name.

    Raises:
        BadLine: one is not.
    """
    found, fits = dict(row), _fits(table.name)
    for name, value in row.items():
        if value is None or name not in fits:
            continue
        if not fits[name](value):
            raise BadLine(f"{name} is {value!r:.60}")
        if fits[name] is _is_text:
            found[name] = str(value)
    return found


@lru_cache
def _fits(table: str) -> dict[str, Callable[[Any], bool]]:
    """Whether a value fits into a column, by its name."""
    return {column.name: _fitting(column.type) for column in schema.ALL_TABLES[table].columns}


def _fitting(kind: pa.DataType) -> Callable[[Any], bool]:
    if pa.types.is_string(kind):
        return _is_text
    if pa.types.is_boolean(kind):
        return lambda value: isinstance(value, bool)
    if pa.types.is_integer(kind):
        largest = _LARGEST[kind]
        return lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) < largest
    return lambda value: isinstance(value, int | float | np.floating | datetime)


def _is_text(value: Any) -> bool:
    return isinstance(value, str | int | float)


def made(
    make: Callable[[], Response], reading: Reading, file: Path, what: str, line: int | None = None
) -> Response | None:
    """A response that a file's contents give; None where they give none and what is bad is left out.

    Args:
        make: reads them; may raise whatever contents of another shape lead to.
        what: which response it is.

    Raises:
        ImportProblem: the contents are of another shape, or lists differ in length.
    """
    try:
        response = make()
        sizes = {name: len(values) for name, values in response.values.items() if values is not None}
        if response.trained_on is not None:
            sizes["loss mask"] = len(response.trained_on)
        for name, size in sizes.items():
            if size != response.length:
                raise BadLine(f"{size} of {name} for {response.length} tokens")
    except SURPRISES as error:
        reading.bad(file, f"{what} cannot be read: {other_shape(error)}", line)
        return None
    return response


def step(number: int, responses: Sequence[Response], scalars: Mapping[str, Any] | None = None) -> Step:
    """The responses as one step; `seq_id` is their place in the list."""
    for response in responses:
        _place_versions(response)
    names = {name: None for response in responses for name in response.values}
    lists: dict[str, list[Any]] = {name: [response.values.get(name) for response in responses] for name in names}
    if any(response.trained_on is not None for response in responses):
        held_out = [_held_out(response) for response in responses]
        if any(reasons.any() for reasons in held_out):
            lists["rejected"] = list(held_out)
    turns = [_turns(response) for response in responses]
    if any(turn is not None for turn in turns):
        lists["turn"] = turns
    groups = [response.row.get("group_id") for response in responses]
    tokens = None
    if any(any(values is not None for values in column) for column in lists.values()):
        whole = {} if all(group is None for group in groups) else {"group_id": groups}
        masks = [response.mask for response in responses]
        tokens = flattened(lists, keep=masks, whole=whole)
        for response, mask in zip(responses, masks, strict=True):
            if any(values is not None for values in response.values.values()):
                response.row.setdefault("n_tokens", int(mask.sum()))
    return Step(
        number=number,
        tokens=tokens,
        sequences={"seq_id": np.arange(len(responses)), **table([response.row for response in responses])},
        scalars={"wall_time": None} | dict(scalars or {}),
        messages=_messages(responses),
    )


def table(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows as columns; what a row lacks is null, and a column that no row fills is left out."""
    names = {name: None for row in rows for name, value in row.items() if value is not None}
    return {name: [row.get(name) for row in rows] for name in names}


def runs_of(sampled: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First place and end of each uninterrupted run of sampled tokens: one generated message each."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], sampled, [False]])))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _place_versions(response: Response) -> None:
    """The version of every token, where each generated message has one; else their range alone."""
    known = [version for version in response.versions if version is not None]
    if not known:
        return
    response.row |= {"behavior_version_min": min(known), "behavior_version_max": max(known)}
    spans = list(runs_of(response.mask))
    if len(set(response.versions)) == 1:
        response.values["behavior_version"] = np.full(response.length, known[0])
    elif len(spans) == len(response.versions) == len(known):
        by_token = np.zeros(response.length, dtype=np.int64)
        for (first, end), version in zip(spans, known, strict=True):
            by_token[first:end] = version
        response.values["behavior_version"] = by_token


def _held_out(response: Response) -> NDArray[Any]:
    """Why each token was held out, None where it was not."""
    reasons = np.full(response.length, None, dtype=object)
    if response.trained_on is not None:
        reasons[response.mask & ~response.trained_on] = response.reason
    return reasons


def _turns(response: Response) -> NDArray[Any] | None:
    """The message that each token belongs to: its place in the conversation where there is one, else its number."""
    if response.sampled is None:
        return None
    spans = list(runs_of(response.sampled))
    response.row.setdefault("n_turns", len(spans) or None)
    assistant = [message["turn"] for message in response.messages if message.get("role") == "assistant"]
    if len(spans) < 2 and not response.messages:
        return None
    # Answers that the prompt already held come first; they were not sampled here.
    places = assistant[-len(spans) :] if response.messages else list(range(len(spans)))
    if len(places) != len(spans):
        return None
    turns = np.zeros(len(response.sampled), dtype=np.int16)
    position = 0
    for (first, end), place in zip(spans, places, strict=True):
        turns[first:end] = place
        for message in response.messages:
            if message["turn"] == place:
                message.update(n_tokens=end - first, first_position=position)
        position += end - first
    return turns


def _messages(responses: Sequence[Response]) -> Columns | None:
    rows = [{"seq_id": seq_id, **message} for seq_id, response in enumerate(responses) for message in response.messages]
    return table(rows) if rows else None


def conversation(messages: Any) -> list[dict[str, Any]]:
    """Chat messages as rows of the messages table; what is no list of them has none."""
    rows = []
    entries = messages if isinstance(messages, Sequence | np.ndarray) else ()
    for turn, message in enumerate(entry for entry in entries if isinstance(entry, Mapping)):
        calls = message.get("tool_calls")
        called = [_called(call) for call in calls] if isinstance(calls, Sequence | np.ndarray) else []
        thought, said = plain_text(message.get("reasoning_content")), plain_text(message.get("content"))
        name = message.get("name") if message.get("role") == "tool" else ", ".join(filter(None, called)) or None
        rows.append(
            {
                "turn": turn,
                "role": plain_text(message.get("role")),
                "content": f"{thought}\n{said or ''}".rstrip() if thought else said,
                "tool": plain_text(name),
            }
        )
    return rows


def _called(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    return str(function.get("name") or "") if isinstance(function, Mapping) else ""


def plain_text(value: Any) -> str | None:
    """A prompt, response or message as text; chat messages one a line, with the role before each."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list) and value and all(isinstance(entry, Mapping) and "role" in entry for entry in value):
        return "\n".join(f"{entry['role']}: {plain_text(entry.get('content')) or ''}" for entry in value)
    return json.dumps(value, ensure_ascii=False, default=str)


def parts(reward: Any) -> dict[str, float]:
    """The numbers of a reward that is a dictionary, as `reward_<name>` columns."""
    if not isinstance(reward, Mapping):
        return {}
    return {f"reward_{name}": found for name, value in reward.items() if (found := as_part(value)) is not None}


def version(value: Any) -> int | None:
    """A policy version that may be text; None where it is no number, as SGLang's "default" is not."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) < 2**63 else None


def groups_of(keys: Sequence[Any]) -> list[int | None]:
    """Small numbers for keys of prompt groups, in the order they occur; None stays None."""
    numbers = Ordinals()
    return [numbers.of(key) for key in keys]
