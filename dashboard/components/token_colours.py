"""How tokens are coloured: by what, in which classes, and the legend; the colours themselves are in `token_strip.css`.

The edges of the classes are fixed, so that responses and runs can be compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pandas as pd

from ratioscope.analysis.tokens import reader
from ratioscope.dashboard.formats import plain_number

# Ratios in steps that matter: within 2 % is rounding and engine noise, 1.25 is about where gates begin.
_FACTORS = (1.02, 1.1, 1.25, 2.0, 5.0)
_SURPRISE = (0.05, 0.7, 1.6, 3.0, 6.0)  # p of 0.95, 1/2, 1/5, 1/20, 1/400
_NATS = tuple(math.log(factor) for factor in _FACTORS)

_VERDICTS = {
    reader.KEPT: "gradient kept",
    reader.PARTLY: "partly gated",
    reader.BELOW: "clipped, below the lower bound",
    reader.ABOVE: "clipped, above the upper bound",
    reader.CLIPPED: "clipped, side not logged",
    reader.UNKNOWN: "not logged",
}

# The classes of the style sheet.
ABSENT = "absent"
VERDICT_CLASSES = {
    reader.KEPT: "mid",
    reader.PARTLY: "amount1",
    reader.BELOW: "low3",
    reader.ABOVE: "high3",
    reader.CLIPPED: "amount3",
    reader.UNKNOWN: ABSENT,
}


@dataclass(frozen=True)
class Colouring:
    """What decides a token's colour."""

    title: str
    column: str
    """Of `analysis.tokens.reader.Reading.tokens`."""
    kind: Literal["ratio", "signed", "amount", "verdict"]
    """A log-ratio, shown as ratio; a number around 0; one from 0 up; what the gate did."""
    edges: tuple[float, ...] = ()
    """Five edges of the six classes on one side, ascending; in nats for a log-ratio."""


COLOURINGS = {
    "current": Colouring("ρ: current over behavior", "log_rho", "ratio", _NATS),
    "new": Colouring("Update: new over current", "log_update", "ratio", _NATS),
    "engine": Colouring("Engine: recomputed over sampled", "log_engine", "ratio", _NATS),
    "gate": Colouring("What the gate did", "verdict", "verdict"),
    "entropy": Colouring("Entropy (nats)", "entropy", "amount", (0.05, 0.2, 0.5, 1.0, 2.0)),
    "advantage": Colouring("Advantage", "advantage", "signed", (0.01, 0.25, 0.5, 1.0, 2.0)),
    "distance": Colouring(
        "|Δ log p|, behavior to current (nats)", "log_distance", "amount", (0.02, 0.1, 0.25, 0.7, 1.6)
    ),
    "sampled": Colouring("Surprise, −log p when sampled (nats)", "surprise_sampled", "amount", _SURPRISE),
    "surprise": Colouring("Surprise, −log p, current (nats)", "surprise_current", "amount", _SURPRISE),
}


def is_colour_logged(tokens: pd.DataFrame, colouring: Colouring) -> bool:
    """Whether any token has a value of it."""
    values = tokens[colouring.column]
    return bool((values != reader.UNKNOWN).any() if colouring.kind == "verdict" else values.notna().any())


def classes(tokens: pd.DataFrame, colouring: Colouring) -> list[str]:
    """The class of each token."""
    if colouring.kind == "verdict":
        return [VERDICT_CLASSES[verdict] for verdict in tokens[colouring.column]]
    values = tokens[colouring.column].to_numpy(dtype=float, na_value=np.nan)
    levels = np.searchsorted(colouring.edges, np.abs(values), side="right")
    return [_class(colouring, int(level), value) for level, value in zip(levels, values.tolist(), strict=True)]


def _class(colouring: Colouring, level: int, value: float) -> str:
    if math.isnan(value):
        return ABSENT
    if level == 0:
        return "mid"
    if colouring.kind == "amount":
        return f"amount{level}"
    return f"{'high' if value > 0 else 'low'}{level}"


def legend(colouring: Colouring) -> list[tuple[str, str]]:
    """The classes in order, each with its range in words."""
    if colouring.kind == "verdict":
        return [(VERDICT_CLASSES[verdict], words) for verdict, words in _VERDICTS.items()]
    above = _ranges(colouring.edges, colouring.kind)
    entries = [("mid", "≈ 1" if colouring.kind == "ratio" else "≈ 0" if colouring.kind == "signed" else above[0])]
    side = "amount" if colouring.kind == "amount" else "high"
    entries += [(f"{side}{level}", text) for level, text in enumerate(above) if level]
    if colouring.kind != "amount":
        below = _ranges(tuple(-edge for edge in colouring.edges), colouring.kind)
        entries = [(f"low{level}", text) for level, text in reversed(list(enumerate(below))) if level] + entries
    return [*entries, (ABSENT, "not logged")]


def _ranges(edges: Sequence[float], kind: str) -> list[str]:
    """The ranges between the edges, going away from the middle, in words."""
    shown = [plain_number(round(math.exp(edge), 3) if kind == "ratio" else edge) for edge in edges]
    sign = "<" if edges[-1] < 0 else ">"
    first = f"{'>' if edges[-1] < 0 else '<'} {shown[0]}"
    between = [f"{near} to {far}" for near, far in pairwise(shown)]
    return [first, *between, f"{sign} {shown[-1]}"]


def verdict_words(verdict: str) -> str:
    """What the gate did, in words."""
    return _VERDICTS[verdict]
