"""A few places of the ascending order of many numbers, without sorting all of them, and how many lie between edges."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.summary.kernels import kernel
from ratioscope.tails import Array

# Numbers that share sign, exponent and four binary digits have at most one edge among them.
_SHARED_BITS, _CELLS = 48, 2**16


@dataclass(frozen=True)
class Binned:
    """Numbers by the bin that each lies in."""

    values: Array
    bins: NDArray[np.uint8]
    """(n,): of each; what it is for NaN means nothing."""
    counts: NDArray[np.int64]
    """(bins,): how many lie in each, NaN left out."""

    def ascending(self, places: NDArray[np.int64]) -> Array:
        """As many numbers as are not NaN, of which those at these places are what sorting would have there.

        Only the bins in which these places lie are sorted; what is elsewhere means nothing.
        """
        ends = np.cumsum(self.counts)
        found = np.empty(int(ends[-1]))
        wanted = np.zeros(len(ends), dtype=np.bool_)
        wanted[np.searchsorted(ends, places, "right")] = True
        starts = ends - self.counts
        kernel(_place)(self.values, self.bins, wanted, starts.copy(), found)
        for bin_ in np.flatnonzero(wanted):
            found[starts[bin_] : ends[bin_]].sort()
        return found


class Edges:
    """At most 255 ascending edges, with the next one at least an eighth further from 0, or on its other side."""

    def __init__(self, edges: Array) -> None:
        first = np.arange(_CELLS, dtype=np.uint64) << np.uint64(_SHARED_BITS)
        with np.errstate(invalid="ignore"):
            furthest = (first + np.uint64(2**_SHARED_BITS - 1)).view(np.float64)
        lowest = np.where(first < 2**63, first.view(np.float64), np.where(np.isnan(furthest), -np.inf, furthest))
        self._below: NDArray[np.uint8] = np.searchsorted(edges, lowest, "right").astype(np.uint8)
        self._edges: Array = np.append(edges, np.nan)  # behind the last one nothing is beyond an edge

    def bins_of(self, values: Array) -> Binned:
        """The bin of each number, which is how many edges are not above it."""
        bins, counts = np.empty(len(values), dtype=np.uint8), np.zeros(len(self._edges), dtype=np.int64)
        kernel(_bin)(values, values.view(np.uint64), self._below, self._edges, bins, counts)
        return Binned(values, bins, counts)


def _bin(  # type: ignore[no-untyped-def]
    values: Any, bits: Any, below: Any, edges: Any, bins: Any, counts: Any
):
    """Fill `bins` and add to `counts`; `below` is how many edges are not above the lowest number of each cell."""
    for row in range(len(values)):
        value = values[row]
        found = below[bits[row] >> np.uint64(_SHARED_BITS)]
        bin_ = found + (value >= edges[found])
        bins[row] = bin_
        if value == value:
            counts[bin_] += 1


def _place(values: Any, bins: Any, wanted: Any, starts: Any, found: Any):  # type: ignore[no-untyped-def]
    """Fill `found` with the numbers of bins that are wanted, from the place at which each starts."""
    for row in range(len(values)):
        bin_ = bins[row]
        if wanted[bin_] and values[row] == values[row]:
            found[starts[bin_]] = values[row]
            starts[bin_] += 1
