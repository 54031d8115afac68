"""Text of a log without characters that a terminal or a browser would obey instead of showing."""

import re

# Control characters but tab and line feed, and marks that turn the direction of writing: either could let a run's
# name redraw the screen or pretend to be another line.
_ACTIVE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ESCAPED = re.compile(r"\\u(?:00(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])|200[ef]|202[a-e]|206[6-9])")


def safe(text: str) -> str:
    """The text with a replacement character for each of these; line feeds and tabs stay."""
    return _ACTIVE.sub("\N{REPLACEMENT CHARACTER}", text)


def safe_json(text: str) -> str:
    """JSON in ASCII, where they are escaped, with their escapes replaced."""
    return _ESCAPED.sub(r"\\ufffd", text)
