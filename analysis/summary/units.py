"""Which files of a run are scanned together.

A *scan unit* is a set of files whose step ranges overlap, so that a step is never split between units: quantiles and
tails, which do not add up, are exact within one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow.parquet as pq

from ratioscope.analysis.runs.store import Run, TableFile

_END = 2**31
"""Beyond every step."""


@dataclass(frozen=True)
class ScanUnit:
    """Files of both tables that share steps; of texts alone there are no tokens."""

    run: str
    """Which run they are of, wherever its folder lies."""
    steps: tuple[int, int]
    """First and last step. A file of sequences that reaches beyond them is in several units."""
    tokens: tuple[TableFile, ...]
    sequences: tuple[TableFile, ...]

    @property
    def identity(self) -> str:
        """Another one for other files. The folder is no part of it: a cluster may mount it elsewhere than a laptop."""
        states = (
            f"{table}/{file.name}:{file.size}:{file.modified_ns}"
            for table, files in (("tokens", self.tokens), ("sequences", self.sequences))
            for file in files
        )
        return "\0".join([self.run, str(self.steps), *states])

    @property
    def rows(self) -> int:
        """Of tokens, where it has any."""
        return sum(pq.read_metadata(file.path).num_rows for file in self.tokens or self.sequences)


def scan_units(run: Run) -> list[ScanUnit]:
    """The run's files in sets with disjoint step ranges, in step order.

    Between files of tokens, and behind them, are the steps that have responses alone.
    """
    identity = f"{run.manifest.run_id} {run.manifest.created}"
    ranges = _ranges(run.files["tokens"])
    listed = _ranges(run.files["sequences"])
    for (_, before), (after, _) in pairwise([(-1, -1), *ranges, (_END, _END)]):
        ranges += [(max(first, before + 1), min(last, after - 1)) for first, last in listed]
    return [
        ScanUnit(identity, steps, *(_overlapping(run.files[table], *steps) for table in ("tokens", "sequences")))
        for steps in sorted(ranges)
        if steps[0] <= steps[1]
    ]


def _ranges(files: Iterable[TableFile]) -> list[tuple[int, int]]:
    """First and last steps of sets of files that share steps, ascending."""
    found: list[tuple[int, int]] = []
    for name in sorted(file.name for file in files):
        if found and name.first_step <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], name.last_step)
        else:
            found.append((name.first_step, name.last_step))
    return found


def _overlapping(files: Iterable[TableFile], first: int, last: int) -> tuple[TableFile, ...]:
    return tuple(file for file in files if file.name.first_step <= last and file.name.last_step >= first)
