"""What is printed, and how often it holds: intervals and marks of the step summary on populations with known truth.

    python -m tests.oracles.trust [samples]     # the table of docs/metrics.md

Every sample is a step of one table, which the step summary computes as it computes a run's. A *printed* interval is one
without a mark; of a marked one, and of a one-sided one, the end that is left is judged.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import nan

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.summary.metrics import step_table
from ratioscope.notes import Kind
from tests.oracles.populations import POPULATIONS, SIZES, samples, truth_of

GROUPS = (8, 16, 32)
RARE = 0.9
"""Where more of the steps are marked, the others are too few to be judged."""
FIRST = ("s_k", "s_k_bounded", "ratio_mean", "kl_k3", "kl_reverse")
SECOND = ("chi2_token", "ess_token")
ONE_SIDED = ("log1p_chi2_seq", "ess_seq")


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
    return "–" if np.isnan(value) else f"{value:.2f}".removeprefix("0")


def lines(cells: list[Cell]) -> Iterator[str]:
    """A Markdown table: a row for each population and kind of group sizes, a column for each metric.

    Coverage of the intervals without a mark, by number of groups; of the bounds, all of them. Last, of the squares, the
    share of marked steps and the coverage that their intervals would have.
    """
    header = ("population", "sizes", *(f"`{key}`" for key in (*FIRST, *SECOND)), "marked", "would cover",
              *(f"`{key}`" for key in ONE_SIDED))  # fmt: skip
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    for population, sizes in dict.fromkeys((cell.population, cell.sizes) for cell in cells):
        of = [cell for cell in cells if (cell.population, cell.sizes) == (population, sizes)]

        def by_groups(key: str, of: list[Cell] = of) -> str:
            found = [Row((cell,)) for cell in of if cell.key == key]
            return " / ".join(
                _number(row.printed if key in ONE_SIDED else nan if row.marked > RARE else row.coverage(marked=False))
                for row in found
            )

        squares = Row(tuple(cell for cell in of if cell.key in SECOND))
        shown = [f"{squares.marked:.1%}", _number(squares.coverage(marked=True))]
        cells_of = (*map(by_groups, (*FIRST, *SECOND)), *shown, *map(by_groups, ONE_SIDED))
        yield f"| {' | '.join((population, sizes, *cells_of))} |"


def summary(cells: list[Cell]) -> Iterator[str]:
    """What the bars are about, over all populations."""
    for name, keys in (("first moments", FIRST), ("squares", SECOND)):
        row = Row(tuple(cell for cell in cells if cell.key in keys))
        yield (
            f"{name}: {row.marked:.1%} marked; unmarked intervals cover {_number(row.coverage(marked=False))}, "
            f"marked ones would cover {_number(row.coverage(marked=True))}"
        )


if __name__ == "__main__":
    found = list(every(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
    print("\n".join((*lines(found), "", *summary(found))))
