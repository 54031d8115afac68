"""Which files of a run are scanned together.

A *scan unit* is a set of files whose step ranges overlap, so that a step is never split between units: quantiles and
tails, which do not add up, are exact within one. Where a step has more tokens than are sorted at once its unit has
*parts*, ranges of responses, which are scanned and kept each for itself.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from math import ceil

from ratioscope.analysis.runs.columns import counted
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.order_statistics import EXACT_TOKENS
from ratioscope.storage.parquet import footer

_END = 2**31
"""Beyond every step."""

# A part is about as large as what is scanned together of small files. What takes fewer bytes than the fewest that so
# many tokens take need not be asked for its rows.
_PART_TOKENS = 2_000_000
_LEAST_BYTES = 2 * EXACT_TOKENS


@dataclass(frozen=True)
class ScanUnit:
    """Files of both tables that share steps; of texts alone there are no tokens."""

    run: str
    """Which run they are of, wherever its folder lies."""
    steps: tuple[int, int]
    """First and last step. A file of sequences that reaches beyond them is in several units."""
    tokens: tuple[TableFile, ...]
    sequences: tuple[TableFile, ...]
    responses: tuple[int | None, int | None] | None = None
    """Of a part: its first and last seq_id; None is no end. No part: None."""
    part_of: int = 0
    """Of a part: how many tokens the whole has."""
    left_out: tuple[LeftOut, ...] = ()
    """See `Run.left_out`."""

    def __hash__(self) -> int:
        return hash(self.identity)  # that of all files, each time that it is looked up, takes longer than to read them

    @cached_property
    def identity(self) -> str:
        """Another one for other files. The folder is no part of it: a cluster may mount it elsewhere than a laptop."""
        states = (
            f"{table}/{file.name}:{file.size}:{file.modified_ns}"
            for table, files in (("tokens", self.tokens), ("sequences", self.sequences))
            for file in files
        )
        left_out = [each.where for each in self.left_out]
        return "\0".join([self.run, str(self.steps), str(self.responses), *states, *left_out])

    @property
    def rows(self) -> int:
        """Of tokens, where it has any; of a part those of the whole."""
        return sum(counted(file)[0] for file in self.tokens or self.sequences)

    @property
    def bytes(self) -> int:
        """On disk, of tokens."""
        return sum(file.size for file in self.tokens)

    @property
    def where(self) -> str:
        """Which rows of its files it has, in SQL."""
        first, last = self.responses or (None, None)
        ends = [f"seq_id >= {first}"] * (first is not None) + [f"seq_id <= {last}"] * (last is not None)
        return " and ".join(ends) or "true"

    @property
    def parts(self) -> "list[ScanUnit]":
        """Itself, or its parts where its steps have more tokens than are sorted at once."""
        steps = self.steps[1] - self.steps[0] + 1
        if self.responses or self.bytes < _LEAST_BYTES * steps:
            return [self]
        rows = self.rows
        ends = _ends(self.tokens, ceil(rows / _PART_TOKENS)) if rows > EXACT_TOKENS * steps else []
        firsts, lasts = [None, *(end + 1 for end in ends)], [*ends, None]
        ranges = zip(firsts, lasts, strict=True)
        return [replace(self, responses=each, part_of=rows) for each in ranges] if ends else [self]


def scan_units(run: Run) -> list[ScanUnit]:
    """The run's files in sets with disjoint step ranges, in step order.

    Between files of tokens, and behind them, are the steps that have responses alone.
    """
    manifest = run.manifest
    # A run that does not say when it was made, or is called what its folder is, has no name of its own.
    named = manifest.created and manifest.run_id != run.folder.name
    identity = f"{manifest.run_id} {manifest.created}" if named else str(run.folder.resolve())
    ranges = _ranges(run.files["tokens"])
    listed = _ranges(run.files["sequences"])
    ranges = sorted([*ranges, *_between(ranges, listed)])
    shares = zip(_overlapping(run.files["tokens"], ranges), _overlapping(run.files["sequences"], ranges), strict=True)
    return [
        ScanUnit(identity, steps, *files, left_out=run.left_out) for steps, files in zip(ranges, shares, strict=True)
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


def _ends(files: Iterable[TableFile], parts: int) -> list[int]:
    """Between about so many parts of one size, the seq_id after which the next one begins, by the files' footers."""
    groups: list[tuple[int, int]] = []
    for metadata in (footer(file.path) for file in files):
        names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            statistics = group.column(names.index("seq_id")).statistics
            if statistics is None or not statistics.has_min_max:
                return []
            groups.append((statistics.max, group.num_rows))
    found: list[int] = []
    rows, share = 0, sum(rows for _, rows in groups) / parts
    for last, n in sorted(groups)[:-1]:
        rows += n
        if rows >= share * (len(found) + 1) and (not found or last > found[-1]):
            found.append(last)
    return [last for last in found if last < max(groups)[0]]


def _between(ranges: Sequence[tuple[int, int]], listed: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What of some ascending ranges lies before, between and behind others."""
    place = 0
    for (_, before), (after, _) in pairwise([(-1, -1), *ranges, (_END, _END)]):
        while place < len(listed) and listed[place][1] <= before:
            place += 1
        for first, last in islice(listed, place, None):
            if first >= after:
                break
            if max(first, before + 1) <= min(last, after - 1):
                yield max(first, before + 1), min(last, after - 1)


def _overlapping(files: Iterable[TableFile], ranges: Sequence[tuple[int, int]]) -> list[tuple[TableFile, ...]]:
    """Of each of some ascending ranges without overlaps, the files that have steps in it, in the order given."""
    found: list[list[TableFile]] = [[] for _ in ranges]
    ends = [last for _, last in ranges]
    for file in files:
        for place in range(bisect_left(ends, file.name.first_step), len(ranges)):
            if ranges[place][0] > file.name.last_step:
                break
            found[place].append(file)
    return [tuple(each) for each in found]
