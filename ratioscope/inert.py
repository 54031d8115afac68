"""Text of a log, as it may be shown: without what a terminal, a browser or a reader would obey instead of seeing.

Every way out (pages, reports, terminal, JSON, webhooks, other people's services, notebooks) passes here. What is
replaced is seen as U+FFFD, so nothing is hidden by hiding it.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

# Controls but tab and line feed, and the carriage return of a line that ends with both; everything that has no glyph of
# its own: formats (category Cf: direction, joiners, tags, byte order marks), separators of lines and paragraphs, halves
# of pairs, and letters that are drawn as nothing. Each could redraw the screen, reverse a name, or make two names that
# differ look alike.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb]"
)
# Beyond the first plane, by itself: a pattern of both is ten times as slow.
_ACTIVE_BEYOND = re.compile(
    "[\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_LINE_END = re.compile(r"\r\n?")
_LINE_ENDS = re.compile("\\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\\s*")
# Accents over one letter: Vietnamese has two, pointed Hebrew four; from here on they run into the lines above.
_MOST_MARKS = 4
_PERHAPS_A_HEAP = re.compile(f"[\u0300-\uffff]{{{_MOST_MARKS + 1}}}")


def safe(text: object) -> str:
    """Return the text with U+FFFD for each sign that would be obeyed; line feeds and tabs stay.

    Of more than four combining marks on one letter four are kept.
    """
    inert = _ACTIVE.sub("\N{REPLACEMENT CHARACTER}", _LINE_END.sub("\n", str(text)))
    if inert.isascii():
        return inert
    inert = _ACTIVE_BEYOND.sub("\N{REPLACEMENT CHARACTER}", inert)
    return _heap().sub(r"\1", inert) if _PERHAPS_A_HEAP.search(inert) else inert


def one_line(text: object) -> str:
    """Return the same on one line, so that no text of a log begins a line of ours; spaces inside of a line stay."""
    return safe(_LINE_ENDS.sub(" ", str(text).strip("\n\r")))


def hold_one_line(record: object) -> None:
    """Make each text that a new dataclass holds one line of safe text; for its `__post_init__`."""
    for name, value in vars(record).items():
        if type(value) is str:  # a note is a string of a kind
            object.__setattr__(record, name, one_line(value))


def safe_values(value: Any, made: Callable[[str], str] = safe) -> Any:
    """Return a tree of mappings and sequences, as JSON holds it, with all its text `made` safe; keys, too."""
    if isinstance(value, str):
        return made(value)
    if isinstance(value, Mapping):
        return {made(key) if isinstance(key, str) else key: safe_values(inner, made) for key, inner in value.items()}
    return [safe_values(inner, made) for inner in value] if isinstance(value, list | tuple) else value


@cache
def _heap() -> re.Pattern[str]:
    """More combining marks in a row than one letter has; made when needed, since every character is asked for."""
    marks = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(f"([{marks}]{{{_MOST_MARKS}}})[{marks}]+")
