"""How numbers and text from a log are written: three significant digits, shares as percentages, all signs escaped."""

import math
import re

from ratioscope.analysis.findings.finding import Number
from ratioscope.catalogue import ENTRIES
from ratioscope.notes import Note, is_unreliable

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain(value: float) -> str:
    """A number with three significant digits; undefined is a dash."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.1e}"
    return f"{value:.3g}"


def share(value: float) -> str:
    """A share as a percentage, with one decimal."""
    return f"{value:.1%}" if math.isfinite(value) else plain(value)


def is_share(key: str) -> bool:
    """Whether a metric is written in percent; counts of the step summary, which have no entry, are not."""
    return key in ENTRIES and ENTRIES[key].share


def number(key: str, value: float) -> str:
    """The value of a metric: as a percentage where the metric is a share."""
    return share(value) if is_share(key) else plain(value)


def count(value: float) -> str:
    """How many, in three digits with an SI prefix: 950, 12.3 k, 4.56 M."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.0f}"


def estimate(key: str, value: float, low: float = math.nan, high: float = math.nan, note: Note | None = None) -> str:
    """A metric's value with its 95 % interval, or with why there is none."""
    if math.isnan(value):
        return f"– ({note})" if note else "–"
    text = number(key, value)
    if is_unreliable(note):
        return f"{text} (cannot be trusted here)"
    if math.isfinite(low) and math.isfinite(high):
        return f"{text} ({number(key, low)} to {number(key, high)})"
    return text


def quote(metric: str, quoted: Number) -> str:
    """A number of a finding about a metric, with its label and its interval."""
    text = f"{quoted.label}: {number(metric, quoted.value)}"
    if math.isfinite(quoted.low) and math.isfinite(quoted.high):
        return f"{text} (95 %: {number(metric, quoted.low)} to {number(metric, quoted.high)})"
    return f"{text} (interval withheld)" if is_unreliable(quoted.note) else text


# What Markdown makes a link of by itself, escaped or not, unless an invisible sign that joins words breaks it.
_LINKED = re.compile(r"://|www\.|@", re.IGNORECASE)
_WORD_JOINER = "\u2060"


def escape(text: object) -> str:
    """Text from a log inside Markdown: no sign that Markdown, LaTeX or Streamlit's directives act on, and no link."""
    line = _LINKED.sub(lambda found: found[0][0] + _WORD_JOINER + found[0][1:], " ".join(str(text).splitlines()))
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]()#+-.!|<>$~:&" else sign for sign in line)
