"""Logs of more ratios than are sorted at once: the largest and the lowest exactly, the others rounded and counted.

A log is rounded to half precision, by at most 2^-11 of itself (ROUNDING) or 2^-25 nats, whichever is more. Order
statistics of rounded values are rounded order statistics, so a quantile is off by no more than that. Sketches of parts
add up to the sketch of the whole, whatever the parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, nan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope import notes
from ratioscope.tails import QUANTILES, Array, interpolated, log_sum_squares, pareto_khat, tail_size

SKETCH_ROUNDING = 2.0**-11

_HALVES = 2**16


@dataclass(frozen=True)
class Sketch:
    """Some logs, in nats."""

    exact: Array
    """Ascending: the lowest, and at least so many of the largest as were asked for."""
    rounded: NDArray[np.int64]
    """(65536,): how many of the others are rounded to each half-precision number, by its bits."""

    @property
    def n(self) -> int:
        return len(self.exact) + int(self.rounded.sum())

    def listed(self) -> tuple[Array, NDArray[np.int64]]:
        """The exact values, then those that others are rounded to, and how often each is there."""
        bits = np.flatnonzero(self.rounded)
        values = np.concatenate([self.exact, bits.astype(np.uint16).view(np.float16).astype(float)])
        return values, np.concatenate([np.ones(len(self.exact), dtype=np.int64), self.rounded[bits]])

    def weighted(self) -> tuple[Array, NDArray[np.int64]]:
        """Values, ascending, and how often each is there; none is beyond the extremes."""
        values, counts = self.listed()
        values = values.clip(self.exact[:1], self.exact[-1:]) if len(self.exact) else values
        order = np.argsort(values, kind="stable")
        return values[order], counts[order]


def sketch(logs: Array, largest: int) -> Sketch:
    """Of logs in any order, without NaN: exactly the lowest and so many of the largest."""
    ordered = np.sort(logs)
    first = max(len(ordered) - largest, 0)
    rest = ordered[1:first]
    with np.errstate(over="ignore"):  # beyond 65504 nats a ratio is 0 or infinite either way
        bits = rest.astype(np.float16).view(np.uint16)
    exact = np.concatenate([ordered[: min(1, first)], ordered[first:]])
    return Sketch(exact, np.bincount(bits, minlength=_HALVES))


def together(parts: Sequence[Sketch], largest: int) -> Sketch:
    """The sketch of all, with so many exact ones."""
    whole = sketch(np.concatenate([part.exact for part in parts]), largest)
    return Sketch(whole.exact, whole.rounded + np.sum([part.rounded for part in parts], axis=0))


def exact_ones(tokens: int) -> int:
    """How many of the largest logs a part of so many tokens has to keep for the tail of the whole."""
    return tail_size(tokens) + 1


@dataclass(frozen=True)
class StepSketch:
    """What is kept of a part of a step, or of a step that is sorted in parts."""

    tokens: Sketch
    """Log-ratios of the tokens."""
    new: Sketch
    """Log-ratios of the tokens, new policy."""
    sequences: Sketch
    """Log-ratios of whole responses."""

    def table(self, step: int) -> pd.DataFrame:
        """As rows: step, of (which of the three), log, n (how many are rounded to it; 0: one, exactly)."""
        frames = []
        for place, one in enumerate(vars(self).values()):
            logs, n = one.listed()
            n[: len(one.exact)] = 0
            frames.append(pd.DataFrame({"of": np.int8(place), "log": logs, "n": n.astype(np.int32)}))
        return pd.concat(frames, ignore_index=True).assign(step=np.int32(step))

    def order(self) -> dict[str, Any]:
        """The row of `order_statistics.of_step`. Extremes and tail indices are exact."""
        values, counts = self.tokens.weighted()
        n, ends = self.tokens.n, np.cumsum(counts)
        weights = self.sequences.exact
        row: dict[str, Any] = {"lowest": values[0] if n else nan, "highest": values[-1] if n else nan}
        row["highest_w"] = weights[-1] if len(weights) else -inf
        for name, q in QUANTILES.items():
            row[name] = (
                interpolated(lambda place: float(values[np.searchsorted(ends, place, "right")]), n, q) if n else nan
            )
        row["top_squares"] = _top_squares(values, counts, max(1, ceil(n / 100))) if n else nan
        for name, one in {"khat_token": self.tokens, "khat_token_new": self.new, "khat_seq": self.sequences}.items():
            khat, note = pareto_khat(one.exact[::-1], one.n)
            row[name] = nan if khat is None else khat
            row |= {f"{name}_{column}": text for column, text in notes.cells(note).items()}
        return row


def of_tables(table: pd.DataFrame) -> StepSketch:
    """What the tables of all parts of a step say together."""
    of, logs, n = (table[name].to_numpy() for name in ("of", "log", "n"))
    found = []
    for place in range(len(StepSketch.__dataclass_fields__)):
        exact, others = (of == place) & (n == 0), (of == place) & (n > 0)
        bits = logs[others].astype(np.float16).view(np.uint16)
        rounded = np.bincount(bits, n[others], _HALVES).astype(np.int64)
        found.append(Sketch(np.sort(logs[exact]), rounded))
    return StepSketch(*found)


def _top_squares(values: Array, counts: NDArray[np.int64], largest: int) -> float:
    """Log of the sum of squares of so many of the largest ratios, from their ascending logs."""
    above = np.cumsum(counts[::-1])[::-1] - counts
    return log_sum_squares(values, np.clip(largest - above, 0, counts).astype(float))
