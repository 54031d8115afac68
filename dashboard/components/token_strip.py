"""The token reader: a response's tokens in colour; hover or focus shows all numbers, keys go to the extremes.

token_strip(reading.tokens, COLOURINGS["current"], key="here", label="Step 12, response 3", chosen=None, on_token=...)

A Components-v2 component without parts from elsewhere: `token_strip.js` and `token_strip.css` beside this file.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import streamlit as st

from ratioscope.analysis.tokens import reader
from ratioscope.dashboard.components.token_colours import Colouring, classes, legend, verdict_words
from ratioscope.dashboard.formats import plain_number
from ratioscope.inert import one_line

# Tokens on one page of the reader: more make the browser slow.
PART = 2_000

# Keys go to this many tokens that stand out.
MOST_EXTREMES = 200

_LONGEST_TEXT = 80

_HTML = """
<div class="reader light">
  <div class="head">
    <ul class="legend" aria-label="Colours"></ul>
    <div class="moves">
      <span class="status" aria-live="polite"></span>
      <button type="button" class="previous">Previous extreme <kbd>p</kbd></button>
      <button type="button" class="next">Next extreme <kbd>n</kbd></button>
    </div>
  </div>
  <div class="strip" role="listbox"></div>
  <div class="detail"></div>
</div>
"""

_FOLDER = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "ratioscope_token_strip",
    html=_HTML,
    css=(_FOLDER / "token_strip.css").read_text(encoding="utf-8"),
    js=(_FOLDER / "token_strip.js").read_text(encoding="utf-8"),
)


def token_strip(
    tokens: pd.DataFrame,
    colouring: Colouring,
    *,
    key: str,
    label: str,
    chosen: int | None = None,
    jump: int = 0,
    on_token: Callable[[int], None] | None = None,
    between: Mapping[int, Sequence[tuple[str, str]]] = MappingProxyType({}),
) -> None:
    """The tokens of a response, page by page where it is long.

    Args:
        tokens: of `analysis.tokens.reader.Reading`, at least one.
        key: of the widget; unique for a response.
        label: what it is, for screen readers.
        chosen: the row that is shown as chosen, and so which page; None: the first extreme of the first page.
        jump: changes when `chosen` comes from elsewhere than the reader, which then goes there.
        on_token: is called with the row that the user has chosen.
        between: heading and text of what stands before the token of a row, or after the last one (see `conversation`).
    """
    places = extremes_of(tokens, colouring)
    first = (chosen if chosen is not None else places[0] if places else 0) // PART * PART
    part = tokens.iloc[first : first + PART]

    def report() -> None:
        place = st.session_state.get(key, {}).get("token")
        if on_token is not None and isinstance(place, int | float) and 0 <= place < len(tokens):
            on_token(int(place))

    data = {
        "identity": f"{key}|{colouring.column}|{first}|{len(tokens)}|{jump}",
        "label": f"{label}: tokens {first + 1} to {first + len(part)} of {len(tokens)}, coloured by {colouring.title}",
        "first": first,
        "total": len(tokens),
        "chosen": chosen,
        "extremes": places,
    }
    rows = range(first, first + len(part) + (first + len(part) == len(tokens)))
    data["between"] = [[list(pair) for pair in between.get(row, ())] for row in rows]
    _COMPONENT(key=key, data=data | _drawn(part, colouring), on_token_change=report)


def extremes_of(tokens: pd.DataFrame, colouring: Colouring) -> list[int]:
    """The rows that stand out by what the colour shows, the farthest first."""
    if colouring.kind == "verdict":
        gated = tokens["log_rho"].abs().where(tokens["verdict"].isin((reader.BELOW, reader.ABOVE, reader.CLIPPED)))
        return reader.extremes(gated, 0)[:MOST_EXTREMES]
    floor = colouring.edges[1] if colouring.kind != "amount" else colouring.edges[2]
    return reader.extremes(tokens[colouring.column], floor)[:MOST_EXTREMES]


def _drawn(part: pd.DataFrame, colouring: Colouring) -> dict[str, Any]:
    """The tokens of a page, their classes, and the words to show and to read aloud."""
    texts = shown_texts(part)
    values = token_details(part)
    said = (
        f"ratio {ratio}, {verdict}"
        for ratio, verdict in zip(_ratios(part), part["verdict"].map(verdict_words), strict=True)
    )
    return {
        "title": colouring.title,
        "legend": [list(entry) for entry in legend(colouring)],
        "texts": texts,
        "breaks": ["\n" in str(text) for text in part["text"]],
        "classes": classes(part, colouring),
        "marks": [_marks(*row) for row in zip(part["verdict"], part["invalid"], strict=True)],
        "names": [
            f"{text}, position {position}, {words}"
            for text, position, words in zip(texts, part["position"], said, strict=True)
        ],
        "fields": list(values),
        "values": [list(row) for row in zip(*values.values(), strict=True)],
    }


def _marks(verdict: str, invalid: Any) -> str:
    """Style classes that show without colour what the gate did, and that a row is not usable."""
    named = verdict if verdict in (reader.BELOW, reader.ABOVE, reader.CLIPPED, reader.PARTLY) else ""
    return named if pd.isna(invalid) else f"{named} invalid"


def token_details(tokens: pd.DataFrame) -> dict[str, list[str]]:
    """What is known of each token in words, by the name of what it is; "" where it is not logged."""
    found: dict[str, list[str]] = {}
    for words, column in reader.TOKEN_NUMBERS:
        values = tokens[column]
        if values.notna().any():
            found[words] = ["" if pd.isna(value) else _number(value) for value in values.tolist()]
    if (tokens["verdict"] != reader.UNKNOWN).any():
        found["gate verdict"] = [verdict_words(verdict) for verdict in tokens["verdict"]]
    for words, column in (("not usable", "invalid"), ("taken out of the loss", "rejected")):
        if tokens[column].notna().any():
            found[words] = ["" if pd.isna(reason) else one_line(reason) for reason in tokens[column]]
    return found


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else plain_number(value)


def _ratios(tokens: pd.DataFrame) -> list[str]:
    return ["not known" if pd.isna(ratio) else plain_number(ratio) for ratio in tokens["ratio"]]


def shown_texts(tokens: pd.DataFrame) -> list[str]:
    """What stands for each token."""
    columns = (tokens[name] for name in ("text", "token_id", "position"))
    return [shown_text(*row) for row in zip(*columns, strict=True)]


def shown_text(text: str | None, token_id: int | None, position: int) -> str:
    """A token's text with what cannot be seen made visible; else its id, else its position."""
    if text is None or pd.isna(text):
        return f"@{position}" if token_id is None or pd.isna(token_id) else f"#{int(token_id)}"
    shown = "".join(_visible(sign) for sign in text[:_LONGEST_TEXT]) + "…" * (len(text) > _LONGEST_TEXT)
    return shown or "∅"


def _visible(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    # Control and format characters: among them those that turn the direction of the text around.
    return f"⟨{ord(sign):X}⟩" if unicodedata.category(sign) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") else sign


_SIGNS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"}
