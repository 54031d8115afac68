"""What is printed, and how often it holds: intervals and marks of the step summary on populations with known truth.

    python -m tests.oracles.trust [samples]     # the tables of docs/metrics.md

The samples of a setting (population, sizes and number of groups) are the steps of one run, which the step summary
judges as it judges a run. A *printed* interval is one without a mark; of a marked one, and of a one-sided one, the end
that is left is judged.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.summary.metrics import step_table
from ratioscope.analysis.summary.over_run import judge_over_run
from ratioscope.notes import Kind
from tests.oracles.populations import BENIGN, POPULATIONS, SIZES, samples, truth_of

GROUPS = (4, 8, 16, 64)
RARE = 0.9
"""Where more of the steps are marked, the others are too few to be judged."""
FIRST = ("s_k", "s_k_bounded", "ratio_mean", "kl_k1", "kl_k2", "kl_k3")
SECOND = ("kl_reverse", "chi2_token", "ess_token")
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
    closed = table.low.copy(), table.high.copy()
    notes = pd.concat([table.notes, *judge_over_run(table.values, table.low, table.high)])
    unreliable = notes[notes["note_kind"] == Kind.UNRELIABLE]
    truth, cells = truth_of(population), []
    for key in (*FIRST, *SECOND, *ONE_SIDED):
        steps_marked = unreliable.loc[unreliable["key"] == key, "step"]
        marked = pd.Series(table.values.index.isin(steps_marked)).to_numpy()
        low, high, value = (frame[key].to_numpy() for frame in (table.low, table.high, table.values))
        printed = (low <= truth[key]) & (truth[key] <= high)
        low, high = (frame[key].to_numpy() for frame in closed)
        if key in SECOND:  # both ends have the same distance from the value in logarithms
            with np.errstate(all="ignore"):
                low = np.where(low == 0, value**2 / high, low)
                high = np.where(np.isinf(high), value**2 / low, high)
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


def _worst(cells: Iterable[Cell]) -> tuple[float, Cell] | None:
    """Where unmarked intervals cover least, or all one-sided ones; None where nearly all steps are marked."""
    found = [
        (row.printed if cell.key in ONE_SIDED else row.coverage(marked=False), cell)
        for cell, row in ((cell, Row((cell,))) for cell in cells)
        if cell.key in ONE_SIDED or row.marked <= RARE
    ]
    return min(found, key=lambda each: each[0], default=None)


def by_metric(cells: list[Cell]) -> Iterator[str]:
    """A Markdown table: a row for each metric, with the setting in which what is printed holds least often."""
    yield "| metric | unmarked cover, worst | where | marked | of the benign | marked would cover |"
    yield f"|{' --- |' * 6}"
    for key in (*FIRST, *SECOND, *ONE_SIDED):
        of = [cell for cell in cells if cell.key == key]
        row, benign, worst = Row(tuple(of)), Row(tuple(cell for cell in of if cell.population in BENIGN)), _worst(of)
        assert worst is not None, key
        where = f"{worst[1].population}, {worst[1].sizes}, {worst[1].groups} groups"
        would = _number(row.coverage(marked=True))
        yield f"| `{key}` | {_number(worst[0])} | {where} | {row.marked:.0%} | {benign.marked:.1%} | {would} |"


def by_population(cells: list[Cell]) -> Iterator[str]:
    """A Markdown table: a row for each population, a column for each metric.

    In a cell how often unmarked intervals hold in the worst of the settings, that is of the group sizes and numbers; a
    dash where all of them are marked.
    """
    keys = (*FIRST, *SECOND, *ONE_SIDED)
    yield f"| {' | '.join(('population', *(f'`{key}`' for key in keys)))} |"
    yield f"|{' --- |' * (1 + len(keys))}"
    for population in dict.fromkeys(cell.population for cell in cells):
        worst = [_worst(cell for cell in cells if (cell.population, cell.key) == (population, key)) for key in keys]
        yield f"| {' | '.join((population, *(_number(each[0]) if each else '–' for each in worst)))} |"


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
    print("\n".join((*by_metric(found), "", *by_population(found), "", *summary(found))))
