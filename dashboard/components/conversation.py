"""A conversation around the sampled tokens: what was said to the model between its turns, as text."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from ratioscope.analysis.tokens.reader import SequenceReading
from ratioscope.dashboard.formats import count, escape
from ratioscope.inert import one_line, safe

_LONGEST = 4_000
"""Signs of a message that are shown between tokens."""

Between = dict[int, list[tuple[str, str]]]


def between(read: SequenceReading) -> Between:
    """Heading and text of what stands before the token of a row of `read.tokens`, or behind the last one.

    A message whose tokens are logged has its heading alone: its text is the tokens. Without turns there is nothing.
    """
    turns = read.tokens["turn"] if len(read.tokens) else pd.Series(dtype=float)
    first = {int(turn): row for row, turn in reversed(list(enumerate(turns))) if pd.notna(turn)}
    if not first:
        return {}
    messages = {int(message["turn"]): message for message in read.messages.to_dict("records")}
    found: Between = {}
    for turn in sorted({*first, *messages}):
        row = next((first[later] for later in sorted(first) if later >= turn), len(read.tokens))
        message = messages.get(turn, {})
        sampled = turn in first
        if sampled and len(first) == 1 and not messages:
            continue
        text = "" if sampled else _text(message.get("content"))
        found.setdefault(row, []).append((_heading(turn, message), text))
    return found


def _heading(turn: int, message: Mapping[Hashable, Any]) -> str:
    """Turn, role and tool."""
    named = [message.get(name) for name in ("role", "tool")]
    return " · ".join([f"turn {turn}", *(one_line(text) for text in named if isinstance(text, str))])


def _text(content: object) -> str:
    if not isinstance(content, str):
        return "not logged"
    text = safe(content)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({count(len(text))} characters)"


def draw_messages(read: SequenceReading) -> None:
    """The messages below each other, where no tokens of theirs are shown."""
    for message in read.messages.to_dict("records"):
        st.caption(escape(_heading(int(message["turn"]), message)))
        st.code(_text(message["content"]), language=None, wrap_lines=True)
