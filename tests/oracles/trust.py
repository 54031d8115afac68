"""What is printed, and how often it holds: intervals and marks of the step summary on populations with known truth.

    python -m tests.oracles.trust [samples]     # the table of docs/metrics.md

Every sample is a step of one table, which the step summary computes as it computes a run's. A *printed* interval is one
without a mark; of a marked one, and of a one-sided one, the end that is left is judged.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.summary.metrics import step_table
from ratioscope.notes import Kind
from tests.oracles.populations import POPULATIONS, SIZES, samples, truth_of

GROUPS = (8, 16, 32)
FIRST = ("s_k", "s_k_bounded", "ratio_mean", "kl_k3", "kl_reverse")
SECOND = ("chi2_token", "ess_token")
ONE_SIDED = ("chi2_seq", "log1p_chi2_seq", "ess_seq")


@dataclass(frozen=True)
class Cell:
    """One metric on samples of one population: by sample, whether it is marked and whether the interval holds."""

    population: str
    sizes: str
    groups: int
    key: str
    marked: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    """The truth is within both ends as they would be printed without a mark."""
    printed: NDArray[np.bool_]
    """The truth is within what is printed."""


@dataclass(frozen=True)
class Row:
    """Cells together."""

    cells: tuple[Cell, ...]

    @property
    def marked(self) -> float:
        return share(np.concatenate([cell.marked for cell in self.cells]))

    def coverage(self, *, marked: bool) -> float:
        """Of the closed intervals that are marked, or that are not."""
        return share(np.concatenate([cell.holds[cell.marked == marked] for cell in self.cells]))

    @property
    def printed(self) -> float:
        return share(np.concatenate([cell.printed for cell in self.cells]))


def share(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def judged(population: str, sizes: str, groups: int, steps: int, seed: int = 0) -> list[Cell]:
    """The cells of so many samples of one population."""
    table = step_table(samples(population, sizes, groups, steps, seed))
    truth, cells = truth_of(population), []
    for key in (*FIRST, *SECOND, *ONE_SIDED):
        notes = table.notes[(table.notes["key"] == key) & (table.notes["note_kind"] == Kind.UNRELIABLE)]
        marked = pd.Series(table.values.index.isin(notes["step"])).to_numpy()
        low, high, value = (frame[key].to_numpy() for frame in (table.low, table.high, table.values))
        printed = (low <= truth[key]) & (truth[key] <= high)
        if key in SECOND:  # both ends have the same distance from the value in logarithms
            low = np.where(marked & (low == 0), value**2 / high, low)
            high = np.where(marked & np.isinf(high), value**2 / low, high)
        holds = (low <= truth[key]) & (truth[key] <= high)
        cells.append(Cell(population, sizes, groups, key, marked, holds, printed))
    return cells


def every(steps: int, groups: Iterable[int] = GROUPS, sizes: Iterable[str] = SIZES) -> Iterator[Cell]:
    """The cells of every population."""
    for seed, population in enumerate(POPULATIONS):
        for of in sizes:
            for count in groups:
                yield from judged(population, of, count, steps, seed)


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}".removeprefix("0")


def lines(cells: list[Cell]) -> Iterator[str]:
    """A Markdown table: a row for each population, group sizes and number of groups; a column for each metric.

    Coverage of what is printed without a mark; in brackets the share of marked steps and the coverage of their
    intervals, had they been printed.
    """
    keys = (*FIRST, *SECOND)
    header = ("population", "sizes", "groups", *(f"`{key}`" for key in keys), *(f"`{key}`, bound" for key in ONE_SIDED))
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    places = dict.fromkeys((cell.population, cell.sizes, cell.groups) for cell in cells)
    for place in places:
        of = {cell.key: Row((cell,)) for cell in cells if (cell.population, cell.sizes, cell.groups) == place}
        shown = []
        for key in keys:
            text = _number(of[key].coverage(marked=False))
            if of[key].marked:
                text += f" ({of[key].marked:.0%}: {_number(of[key].coverage(marked=True))})"
            shown.append(text)
        shown += [_number(of[key].printed) for key in ONE_SIDED]
        yield f"| {' | '.join((place[0], place[1], str(place[2]), *shown))} |"


if __name__ == "__main__":
    found = list(every(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
    print("\n".join(lines(found)))
