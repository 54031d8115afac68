"""Metrics by step of blocks of units: the second level, so that who reads a run need not hold partials of every group.

A block is so many consecutive units that files which are appended change none but the last. The partials of one block
are in memory at a time; the table of a full block is kept in the cache, a few kilobytes a step.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from ratioscope.analysis.summary.metrics import StepTable, step_table
from ratioscope.analysis.summary.packed import packed_tables, unpacked
from ratioscope.analysis.summary.partials import Tables, joined_partials, partials_of
from ratioscope.analysis.summary.shards import missing, parts
from ratioscope.analysis.summary.units import ScanUnit
from ratioscope.storage.cache import Entry, entry_of

UNITS = 64

# Partials of units with fewer bytes of tokens are scanned again sooner than kept: the table of their block is.
_SMALL_BYTES = 2**20

UnitBlock = tuple[ScanUnit, ...]
BlockTable = tuple[StepTable, pd.DataFrame]
"""Every metric of each step, and the histogram of log-ratios."""


def blocks(units: Sequence[ScanUnit], *, live: bool) -> list[UnitBlock]:
    """The units in blocks. Of a live run each unit behind the last full block is one of its own: more are to come."""
    found = [tuple(units[start : start + UNITS]) for start in range(0, len(units), UNITS)]
    if live and found and len(found[-1]) < UNITS:
        found += [(unit,) for unit in found.pop()]
    return found


def tables_of(
    wanted: Sequence[UnitBlock], progress: Callable[[int, int], None] = lambda done, of: None
) -> Iterator[tuple[UnitBlock, BlockTable]]:
    """Each block with its table.

    Args:
        progress: called with the units done and all.

    Raises:
        RatioscopeError: as `partials_of`.
    """
    done, of = 0, sum(map(len, wanted))
    left: dict[UnitBlock, dict[ScanUnit, Tables]] = {}
    for block in wanted:
        table = _kept(block).read(_read) if len(block) == UNITS else None
        if table is None:
            left[block] = {}
        else:
            yield block, table
            done += len(block)
    block_of = {unit: block for block in left for unit in block}
    small = {unit for unit, block in block_of.items() if len(block) == UNITS and unit.bytes < _SMALL_BYTES}
    for unit, tables in partials_of(list(block_of), passing=small):
        block = block_of[unit]
        left[block][unit] = tables
        done += 1
        progress(done, of)
        if len(left[block]) == len(block):
            yield block, _computed(block, left.pop(block))


def fill(units: Sequence[ScanUnit]) -> None:
    """Put the tables of full blocks whose partials are all there into the cache, for those who read the run next."""
    for block in blocks(units, live=True):
        if len(block) == UNITS and not _kept(block).there and not missing(parts(block)):
            for _ in tables_of([block]):
                pass


def _computed(block: UnitBlock, found: dict[ScanUnit, Tables]) -> BlockTable:
    partials = joined_partials([found[unit] for unit in block])
    table = step_table(partials), partials.histogram
    if len(block) == UNITS:
        _kept(block).put(_written(table))
    return table


def _kept(block: UnitBlock) -> Entry:
    return entry_of("steps", *(unit.identity for unit in block))


def _written(table: BlockTable) -> bytes:
    steps, histogram = table
    frames = [frame.reset_index() for frame in (steps.values, steps.low, steps.high)]
    return packed_tables(
        *(pa.Table.from_pandas(frame, preserve_index=False) for frame in (*frames, steps.notes, histogram))
    )


def _read(contents: bytes) -> BlockTable:
    *frames, notes, histogram = (table.to_pandas() for table in unpacked(contents))
    values, low, high = (_by_step(frame) for frame in frames)
    return StepTable(values, low, high, notes), histogram


def _by_step(frame: pd.DataFrame) -> pd.DataFrame:
    """Free to be changed: the memory of Arrow is not."""
    columns = {name: np.array(frame[name], dtype=float) for name in frame.columns.drop("step")}
    return pd.DataFrame(columns, index=pd.Index(frame["step"].to_numpy(), name="step", dtype="int64"))
