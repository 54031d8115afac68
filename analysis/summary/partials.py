"""Per-step partial sums of a run, computed once for each set of files and cached.

Sums are kept for each (step, prompt group): they merge by addition, carry the cluster-robust intervals, and are all
that a bootstrap over groups needs.

Partials are kept in the cache, never in the run; of a live run only the new files are read.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import ceil, inf

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from ratioscope.analysis.runs.columns import columns_with_values
from ratioscope.analysis.runs.database import connect, one_thread, query
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.runs.relations import create_usable, create_views, may_hold_out
from ratioscope.analysis.runs.unreadable import unreadable
from ratioscope.analysis.summary import by_group, compiled, sums
from ratioscope.analysis.summary.merging import merged_groups, merged_histogram, merged_order
from ratioscope.analysis.summary.order_statistics import RankedRatios, of_log_ratios, of_steps
from ratioscope.analysis.summary.packed import packed_tables, unpacked
from ratioscope.analysis.summary.units import ScanUnit
from ratioscope.metric import SAMPLED
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import counted_nonfinite
from ratioscope.storage.cache import Entry, entry_of
from ratioscope.storage.failures import storage_failure
from ratioscope.storage.parquet import footer

# Files are scanned together to about so many tokens: with less, starting a query shows, with more, memory does.
_SCAN_TOKENS, _FEWEST_TOKENS = 4_000_000, 250_000
_AT_A_TIME = os.cpu_count() or 1

# Beyond these, exp(log rho) of a step's largest ratio leaves too little of the floating-point range for its square, or
# sums of rho are smaller than the rounding of sums of rho - 1.
_PEAK_RANGE = (-1.0, 300.0)


Tables = tuple[pa.Table, ...]
"""The frames of `Partials`, each with its rows by step."""
UnitBatch = Sequence[ScanUnit]
"""Units that are scanned together."""
ScanEngine = Callable[[Sequence[ScanUnit]], Iterator[tuple[UnitBatch, Tables]]]
"""What scans all of some units: its batches, each with its partials, in any order."""


@dataclass(frozen=True)
class Partials:
    """What is kept of the tokens of some steps."""

    groups: pd.DataFrame
    """One row a (step, group_id), in this order: sums and log-sum-exps of the tokens and sequences."""
    order: pd.DataFrame
    """One row a step: extremes, quantiles and tail indices."""
    histogram: pd.DataFrame
    """One row a (step, bin): tokens by log-ratio."""
    sketches: pd.DataFrame | None = None
    """Of parts of steps: rows of `StepSketch.table`."""

    def tables(self) -> Tables:
        """The same as Arrow tables, of which parts are taken and kept at little cost."""
        frames = [frame for frame in vars(self).values() if frame is not None]
        return tuple(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata() for frame in frames)


def joined_partials(parts: Sequence[Tables]) -> Partials:
    """The partials of several units, in the order in which they are given."""
    whole = (pa.concat_tables(tables, promote_options="permissive") for tables in zip(*parts, strict=True))
    return Partials(*(table.to_pandas() for table in whole))


def kept(unit: ScanUnit) -> Entry:
    """Where a unit's partials are kept."""
    return entry_of("partials", unit.identity)


def _read(contents: bytes) -> Tables:
    groups, order, histogram, *sketches = unpacked(contents)
    return groups, order, histogram, *sketches


def threads(units: Sequence[ScanUnit]) -> Iterator[tuple[UnitBatch, Tables]]:
    """Scan several batches at a time, each with one thread: sums do not depend on which thread was faster."""
    pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="scan")
    try:
        scanned = deque((batch, pool.submit(scan_alone, batch)) for batch in batches(units, _AT_A_TIME))
        while scanned:  # one is let go after the other: together they may be large
            batch, tables = scanned.popleft()
            yield batch, tables.result()
    finally:
        pool.shutdown(cancel_futures=True)


def partials_of(
    units: Sequence[ScanUnit], engine: ScanEngine = threads, passing: Collection[ScanUnit] = ()
) -> Iterator[tuple[ScanUnit, Tables]]:
    """Each unit with its partials, those that are in the cache first; what is not there, the engine scans.

    Parts of a unit are merged.

    Args:
        passing: of these, partials need not be kept.

    Raises:
        RatioscopeError: a file vanished or broke between listing and reading.
    """
    whole = {part: (unit, len(parts)) for unit, parts in ((unit, unit.parts) for unit in units) for part in parts}
    found: dict[ScanUnit, list[Tables]] = {}
    for part, tables in _each(list(whole), engine, passing):
        unit, of = whole[part]
        if of > 1:
            found.setdefault(unit, []).append(tables)
        if of == 1 or len(found[unit]) == of:
            yield unit, tables if of == 1 else _merged(found.pop(unit)).tables()


def _merged(parts: Sequence[Tables]) -> Partials:
    """The partials of a unit from those of its parts."""
    every = joined_partials(parts)
    assert every.sketches is not None
    order = merged_order(every.order, every.sketches)
    return Partials(merged_groups(every.groups), order, merged_histogram(every.histogram))


def _each(
    units: Sequence[ScanUnit], engine: ScanEngine, passing: Collection[ScanUnit]
) -> Iterator[tuple[ScanUnit, Tables]]:
    """Each unit, or part of one, with its partials."""
    missing = []
    for unit in units:
        tables = kept(unit).read(_read)
        if tables is None:
            missing.append(unit)
        else:
            yield unit, tables
    try:
        for batch, tables in engine(missing):
            yield from _put(batch, tables, passing)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if failure := storage_failure(error):
            raise failure from None
        if problem := unreadable([file.path for unit in missing for file in (*unit.tokens, *unit.sequences)], error):
            raise problem from None
        raise


def batches(units: Sequence[ScanUnit], at_a_time: int) -> Iterator[UnitBatch]:
    """Which units are scanned together: sets of about the same size, so many that every processor has its share."""
    yield from ([unit] for unit in units if unit.responses)
    units = [unit for unit in units if not unit.responses]
    sizes = [unit.rows for unit in units]
    rounds = ceil(sum(sizes) / _SCAN_TOKENS / at_a_time)
    share = max(_FEWEST_TOKENS, sum(sizes) / max(1, rounds * at_a_time))
    batch: list[ScanUnit] = []
    done, of = 0, 1
    for unit, size in zip(units, sizes, strict=True):
        batch.append(unit)
        done += size
        if done >= share * of:
            yield batch
            batch, of = [], int(done / share) + 1
    if batch:
        yield batch


def scan_alone(units: UnitBatch) -> Tables:
    """The partials of a batch, by one thread."""
    with one_thread():
        return scan(units).tables()


def _put(units: UnitBatch, scanned: Tables, passing: Collection[ScanUnit]) -> Iterator[tuple[ScanUnit, Tables]]:
    """The part of each unit, after having put it into the cache."""
    steps = [table["step"].to_numpy() for table in scanned]
    for unit in units:
        first, last = unit.steps
        places = (np.searchsorted(ascending, (first, last + 1)) for ascending in steps)
        part = tuple(table.slice(start, end - start) for table, (start, end) in zip(scanned, places, strict=True))
        if unit not in passing:
            kept(unit).put(packed_tables(*part))
        yield unit, part


def scan(units: UnitBatch) -> Partials:
    """Read the files of some units, in one go; of parts only one."""
    first = units[0]
    tokens = [file for unit in units for file in unit.tokens]
    sequences = list(dict.fromkeys(file for unit in units for file in unit.sequences))
    optional = bool(columns_with_values(tokens) & sums.optional_columns())
    clean = all(map(_known_clean, tokens))
    part_of = first.part_of if first.responses else None
    rows = sum(footer(file.path).num_rows for file in tokens)
    can = (
        compiled.knows_all()
        and clean
        and part_of is None
        and compiled.pays(rows)
        and not any(map(may_hold_out, sequences))
        and not first.left_out
    )
    found = compiled.sums_of(tokens) if can and all(map(compiled.can_sum, tokens)) else None
    if found and not optional and by_group.can_sum(sequences):
        partials = _without_database(found, sequences, _ranges(units))
        if partials is not None:
            return partials
    with connect(sorted({file.resolved.parent for file in (*tokens, *sequences)})) as connection:
        which = first.where
        create_views(connection, schema.TOKENS, tokens, sequences, which, pd.Series(dtype=int), left_out=first.left_out)
        create_views(connection, schema.SEQUENCES, sequences, sequences, which, tokens=tokens, left_out=first.left_out)
        inside = " or ".join(f"step between {first} and {last}" for first, last in _ranges(units))
        return partials_in(connection, clean=clean, optional=optional, responses=inside, part_of=part_of, found=found)


def _without_database(
    found: tuple[pa.Table, RankedRatios], sequences: Sequence[TableFile], steps: Sequence[tuple[int, int]]
) -> Partials | None:
    """What `partials_in` makes of compiled sums; None where ratios go so far that their sums need a common factor."""
    of_responses, log_ratios = found
    order, histogram = of_log_ratios(log_ratios, by_group.log_weights(of_responses))
    if len(_extreme(order)):
        return None
    listed = by_group.response_groups(sequences, steps)
    groups = by_group.token_groups(of_responses).merge(listed, how="outer", on=["step", "group_id"])
    return Partials(_unscaled(groups).sort_values(["step", "group_id"], ignore_index=True), order, histogram)


def _ranges(units: Sequence[ScanUnit]) -> list[tuple[int, int]]:
    """The steps of some units, ranges without a gap as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(unit.steps for unit in units):
        if found and first == found[-1][1] + 1:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


def partials_in(
    connection: duckdb.DuckDBPyConnection,
    *,
    clean: bool = False,
    optional: bool = True,
    responses: str = "true",
    part_of: int | None = None,
    found: tuple[pa.Table, RankedRatios] | None = None,
) -> Partials:
    """The partials of whatever the views `token`, `usable` and `sequence` of a connection show.

    Args:
        connection: see `analysis.runs.relations`; two temporary tables are made in it.
        clean: it is known that every row can be used.
        optional: some column that a run need not have is there.
        responses: SQL over `sequence`: which responses count.
        part_of: see `of_steps`.
        found: what `compiled.sums_of` gave for the same rows; None: SQL sums them.
    """
    if clean:
        create_usable(connection, clean=True)
    if found:
        connection.register("sequence_sums", found[0])
    else:
        connection.execute(sums.sequence_sums())
    connection.execute(query("summary/unusable_sums").replace("$clean", str(clean)))
    if found:
        order, histogram, sketches = *of_log_ratios(found[1], by_group.log_weights(found[0])), None
    else:
        order, histogram, sketches = of_steps(connection, part_of)
    groups = connection.execute(sums.group_sums()).df()
    if optional:
        groups = groups.merge(connection.execute(sums.optional_sums()).df(), how="left", on=["step", "group_id"])
    listed = connection.execute(sums.response_sums(responses)).df()
    groups = groups.merge(listed, how="outer", on=["step", "group_id"])
    groups = _with_scaled_sums(connection, groups, order)
    return Partials(groups.sort_values(["step", "group_id"], ignore_index=True), order, histogram, sketches)


def _with_scaled_sums(connection: duckdb.DuckDBPyConnection, groups: pd.DataFrame, order: pd.DataFrame) -> pd.DataFrame:
    """Sums of rho and its square, times a common factor of the step that keeps them within the floating-point range."""
    groups, extreme = _unscaled(groups), _extreme(order)
    if not len(extreme):
        return groups
    peaks = extreme[["step", "highest"]].rename(columns={"highest": "peak"})
    connection.register("peaks", peaks)
    scaled = connection.execute(
        """
        select
            step, group_id, peak,
            sum(exp(log_rho - peak)) as scaled,
            sum(exp(2 * (log_rho - peak))) as scaled_squared
        from usable join peaks using (step)
        group by step, group_id, peak
        """
    ).df()
    there = groups["step"].isin(peaks["step"])
    replaced = groups[["step", "group_id"]].merge(scaled, how="left", on=["step", "group_id"])
    return groups.assign(**{name: groups[name].mask(there, replaced[name]) for name in scaled.columns[2:]})


def _unscaled(groups: pd.DataFrame) -> pd.DataFrame:
    """The sums as they are, where no factor is needed."""
    return groups.assign(peak=0.0, scaled=groups["rho"], scaled_squared=groups["rho_squared"])


def _extreme(order: pd.DataFrame) -> pd.DataFrame:
    """The steps whose sums need a factor."""
    highest = order["highest"].astype(float)  # objects where no token of the files is usable
    return order[~highest.between(*_PEAK_RANGE) & np.isfinite(highest)]


@cache
def rewards_between(file: TableFile) -> tuple[float, float]:
    """The smallest and the largest reward by the footer of a file of sequences; infinite where it does not say."""
    unknown = -inf, inf
    try:
        metadata = footer(file.path)
    except (OSError, pa.ArrowInvalid):
        return unknown
    names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    found: list[float] = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)) if "reward" in names else ():
        statistics = group.column(names.index("reward")).statistics
        if statistics is None or (not statistics.has_min_max and statistics.null_count != group.num_rows):
            return unknown
        if statistics.has_min_max and isinstance(statistics.min, bytes):  # of float16
            return unknown
        if statistics.has_min_max:
            found += statistics.min, statistics.max
    return min(found, default=0.0), max(found, default=0.0)


@cache
def _known_clean(file: TableFile) -> bool:
    """Whether the file's footer proves that every row can be used, so that no row need be asked."""
    metadata = footer(file.path)
    nonfinite = counted_nonfinite(file.path)
    columns = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    log_probabilities = {*SAMPLED, "logp_current", "logp_new"} & set(columns)
    if nonfinite is None or nonfinite.keys() & {*log_probabilities, "advantage"}:
        return False
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for name in log_probabilities:
            statistics = group.column(columns.index(name)).statistics
            if statistics is None or not statistics.has_null_count:
                return False
            if statistics.null_count == group.num_rows:
                continue
            if not statistics.has_min_max or not isinstance(statistics.max, float):  # of float16 it is bytes
                return False
            if not statistics.max <= schema.LARGEST_LOG_PROBABILITY:
                return False
    return True
