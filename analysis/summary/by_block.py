"""Tables by step that are read off a run's files, kept by blocks of files: who looks again reads what has come since.

by_block("versions", run, counted)      # counted(run, first, last) -> the tables of these steps; concatenated
"""

from collections.abc import Callable
from itertools import groupby

import pandas as pd
import pyarrow as pa

from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.blocks import UnitBlock, blocks
from ratioscope.analysis.summary.packed import packed_tables, unpacked
from ratioscope.analysis.summary.units import scan_units
from ratioscope.storage.cache import entry_of

Frames = tuple[pd.DataFrame, ...]


def by_block(purpose: str, run: Run, compute: Callable[[Run, int | None, int | None], Frames]) -> Frames:
    """What `compute` says of all steps of a run, in their order.

    Args:
        purpose: the name of the tables in the cache.
        compute: tables with a column `step` of the steps first..last, in their order. They follow from the files of
            tokens and sequences, and each row from those of its step.

    Raises:
        RatioscopeError: as `compute`.
    """
    every = blocks(scan_units(run), live=run.status == "running")
    entries = [entry_of(purpose, *(unit.identity for unit in block)) for block in every]
    # One without a table is not what was put there.
    found = [entry.read(_read) or None for entry in entries]
    missing = [place for place, frames in enumerate(found) if frames is None]
    # Neighbours at one go: to begin a query takes longer than to read a small file.
    for _, neighbours in groupby(enumerate(missing), lambda each: each[1] - each[0]):
        places = [place for _, place in neighbours]
        whole = compute(run, _ends(every[places[0]])[0], _ends(every[places[-1]])[1])
        for place in places:
            frames = tuple(frame[frame["step"].between(*_ends(every[place]))] for frame in whole)
            found[place] = frames
            entries[place].put(packed_tables(*(pa.Table.from_pandas(each, preserve_index=False) for each in frames)))
    parts = [frames for frames in found if frames is not None]
    if not parts:
        return compute(run, None, None)
    return tuple(pd.concat(each, ignore_index=True) for each in zip(*parts, strict=True))


def _ends(block: UnitBlock) -> tuple[int, int]:
    return block[0].steps[0], block[-1].steps[1]


def _read(contents: bytes) -> Frames:
    return tuple(table.to_pandas() for table in unpacked(contents))
