"""Calls of a sampler as one response: the prompt of each goes on from what was there, or a new history begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import BadLine
from ratioscope.analysis.importers.values import joined_columns, nulls, numbers, token_ids


@dataclass(frozen=True)
class Call:
    """What one call sampled."""

    sampled: Sequence[int] | None
    """None: its tokens have no ids."""
    logps: Sequence[float | None] | None
    """Of the tokens that were sampled; None: not logged."""
    prompt: Sequence[int] | None
    """All tokens that it was given; None: not logged."""
    turn: int
    """The message of the conversation that it wrote."""
    begins: bool = False
    """The source says that a new history begins with it."""

    @property
    def size(self) -> int:
        """How many tokens it sampled.

        Raises:
            BadLine: it has log-probabilities of another number of tokens than it sampled.
        """
        sizes = [len(values) for values in (self.sampled, self.logps) if values is not None]
        if len(set(sizes)) > 1:
            raise BadLine(f"a call has {sizes[1]} log-probabilities for {sizes[0]} tokens")
        return max(sizes, default=0)


def put_calls(response: Response, calls: Sequence[Call]) -> None:
    """Give a response the tokens that its calls sampled, and its messages their places.

    A prompt that does not begin with all that was there before begins a new segment. What stands between two calls
    (answers of tools, templates) was not sampled and is no token.

    Raises:
        BadLine: a call has log-probabilities of another number of tokens than it sampled, or tokens without a number.
    """
    history, segment, position = np.zeros(0, dtype=np.int32), 0, 0
    parts: dict[str, list[Any]] = {name: [] for name in ("token_id", "logp_behavior", "turn", "segment_id")}
    rows = {message["turn"]: message for message in response.messages}
    for place, call in enumerate(calls):
        size = call.size
        ids = nulls(size) if call.sampled is None else token_ids(call.sampled)
        prompt = None if call.prompt is None else token_ids(call.prompt)
        goes_on = prompt is None or np.array_equal(prompt[: len(history)], history)
        segment += place > 0 and (call.begins or not goes_on)
        if prompt is not None:
            history = np.concatenate([prompt, np.ma.getdata(ids).astype(np.int32)])
        parts["token_id"].append(ids)
        parts["logp_behavior"].append(nulls(size) if call.logps is None else numbers(call.logps))
        parts["turn"].append(np.full(size, call.turn, dtype=np.int16))
        parts["segment_id"].append(np.full(size, segment, dtype=np.int16))
        if call.turn in rows and (call.sampled is not None or call.logps is not None):
            rows[call.turn] |= {"n_tokens": size, "first_position": position}
        position += size
    known = {
        "token_id": any(call.sampled is not None for call in calls),
        "logp_behavior": any(call.logps is not None for call in calls),
        "turn": position > 0,
        "segment_id": all(call.prompt is not None for call in calls) or any(call.begins for call in calls),
    }
    response.sampled = None
    response.values = {name: joined_columns(values) for name, values in parts.items() if position and known[name]}
    response.row["n_turns"] = len(calls) or None
    if calls and calls[0].prompt is not None:
        response.row["prompt_tokens"] = len(calls[0].prompt)
