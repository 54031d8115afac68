"""How numbers and text from a log are written: three significant digits, shares as percentages, all signs escaped.

A number that has an interval has the digits that the interval supports (`analysis.findings.numbers`).
"""

import math
import re

from ratioscope.analysis.findings import numbers
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.words import BEYOND
from ratioscope.catalogue import CATALOGUE, ENTRIES
from ratioscope.catalogue.total_variation import DISTANCES
from ratioscope.inert import one_line
from ratioscope.metric import Moment
from ratioscope.notes import Note, is_unreliable

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain_number(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """A number with three significant digits, or those that its interval supports; undefined is a dash."""
    return numbers.number(value, low, high)


def share(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """A share as a percentage with one decimal, or none where its interval is too wide for it."""
    if not math.isfinite(value):
        return plain_number(value)
    decimals = _decimals(low, high)
    shown = 1 if decimals is None or decimals > 2 else 0
    return f"{round(value, shown + 2) + 0.0:.{shown}%}"  # no -0


def _decimals(low: float, high: float) -> int | None:
    """After the point, to the second digit of the half width of an interval; None without one."""
    half = (high - low) / 2
    return max(0, 1 - math.floor(math.log10(half))) if math.isfinite(half) and half > 0 else None


def is_share(key: str) -> bool:
    """Whether a metric is written in percent; counts of the step summary, which have no entry, are not."""
    return key in ENTRIES and ENTRIES[key].share


def hover_number(key: str) -> str:
    """How Plotly writes a metric's value where it is touched."""
    return ".1%" if is_share(key) else ".3g"


def metric_value(key: str, value: float, low: float = math.nan, high: float = math.nan) -> str:
    """The value of a metric, rounded to its interval where it has one: as a percentage where the metric is a share.

    An estimate of a total variation above 1 is of a tail too heavy for it and is not quoted.
    """
    if key in DISTANCES and value > 1:
        return BEYOND
    low, high = _ends(key, low, high)
    return share(value, low, high) if is_share(key) else plain_number(value, low, high)


def interval(key: str, low: float, high: float) -> str:
    """A metric's interval in words, "at least" or "at most" where it is open; "" where there is none."""
    low, high = _ends(key, low, high)
    ends = (share(low, low, high), share(high, low, high)) if is_share(key) else numbers.ends(low, high)
    return numbers.interval_text(low, high, *ends)


def _ends(key: str, low: float, high: float) -> tuple[float, float]:
    """Of a metric's interval: infinite where it is open, and not beyond what a total variation can be."""
    if key in ENTRIES and ENTRIES[key].moment is Moment.SECOND and low == ENTRIES[key].possible[0]:
        low = -math.inf
    if key in DISTANCES:
        return (math.nan, math.nan) if low >= 1 else (low, min(high, 1.0))
    return low, high


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
    beside = ", ".join(filter(None, ("unreliable" if is_unreliable(note) else "", interval(key, low, high))))
    return f"{metric_value(key, value, low, high)} ({beside})" if beside else metric_value(key, value)


def quote(metric: str, quoted: Number) -> str:
    """A number of a finding about a metric, with its label and its interval."""
    metric = quoted.key or metric
    text = f"{quoted.label}: {metric_value(metric, quoted.value, quoted.low, quoted.high)}"
    if ends := interval(metric, quoted.low, quoted.high):
        return f"{text} (95%: {ends})"
    return f"{text} (unreliable)" if is_unreliable(quoted.note) else text


# What Markdown makes a link of by itself, escaped or not, unless an invisible sign that joins words breaks it.
_LINKED = re.compile(r"://|www\.|@", re.IGNORECASE)
_WORD_JOINER = "\u2060"


def escape(text: object) -> str:
    """Text from a log inside Markdown: nothing that Markdown, LaTeX, Streamlit or the browser obeys, and no link."""
    line = _LINKED.sub(lambda found: found[0][0] + _WORD_JOINER + found[0][1:], one_line(str(text)))
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]()#+-.!|<>$~:&" else sign for sign in line)


_SIGNS = {
    r"\hat\pi": "π̂", r"\hat k": "k̂", r"\overline{\rho}": "ρ̄", r"\overline{M}": "M̄", r"\overline{T}": "T̄",
    r"\overline T": "T̄ ", r"\overline{k-i}": "mean of k−i", r"\chi": "χ", r"\rho": "ρ", r"\pi": "π", r"\Delta": "Δ",
    r"\Vert": "‖", r"\lVert ": "‖", r"\rVert": "‖", r"\log": "log", r"\max": "max", r"\min": "min", r"\%": "%",
    "^2": "²", "^{+}": "⁺", r"^{\mathrm{version}}": ", version", r"^{\mathrm{engine}}": ", engine",
    r"^{\mathrm{exact}}": ", exact", r"\ell": "ℓ",
}  # fmt: skip


def symbol_text(symbol: str) -> str:
    """A symbol of the catalogue without LaTeX, for where none is set: `\\chi^2_{\\mathrm{seq}}` -> `χ²_seq`."""
    for sign in sorted(_SIGNS, key=len, reverse=True):
        symbol = symbol.replace(sign, _SIGNS[sign])
    plain = re.sub(r"\\(mathrm|overline)|[{}$]", "", symbol)
    return re.sub(r"\\([A-Za-z]*)", r"\1", plain)  # of any other command its name


def metric_label(key: str) -> str:
    """Title and symbol in plain text."""
    return f"{CATALOGUE[key].title} ({symbol_text(CATALOGUE[key].symbol)})"
