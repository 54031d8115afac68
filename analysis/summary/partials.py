"""Per-step partial sums of a run, computed once for each set of files and cached.

A *scan unit* is a set of files whose step ranges overlap, so that a step is never split between units: quantiles and
tails, which do not add up, are exact within one. Sums are kept for each (step, prompt group): they merge by addition,
carry the cluster-robust intervals, and are all that a bootstrap over groups needs.

Partials are kept in the cache, never in the run; of a live run only the new files are read.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil, inf

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import schema
from ratioscope.analysis.runs.columns import columns_with_values
from ratioscope.analysis.runs.database import connect, one_thread, query
from ratioscope.analysis.runs.relations import create_views
from ratioscope.analysis.runs.store import Run, TableFile
from ratioscope.analysis.summary import sums
from ratioscope.analysis.summary.order_statistics import of_steps
from ratioscope.analysis.summary.packed import packed, unpacked
from ratioscope.cache import Entry, entry_of
from ratioscope.metric import SAMPLED
from ratioscope.recorder import NONFINITE_KEY

# Files are scanned together to about so many tokens: with less, starting a query shows, with more, memory does.
_SCAN_TOKENS, _FEWEST_TOKENS = 1_000_000, 250_000
_AT_A_TIME = os.cpu_count() or 1

_END = 2**31
"""Beyond every step."""

# Beyond these, exp(log rho) of a step's largest ratio leaves too little of the floating-point range for its square, or
# sums of rho are smaller than the rounding of sums of rho - 1.
_PEAK_RANGE = (-1.0, 300.0)


@dataclass(frozen=True)
class Partials:
    """What is kept of the tokens of some steps."""

    groups: pd.DataFrame
    """One row a (step, group_id), in this order: sums and log-sum-exps of the tokens and sequences."""
    order: pd.DataFrame
    """One row a step: extremes, quantiles and tail indices."""
    histogram: pd.DataFrame
    """One row a (step, bin): tokens by log-ratio."""

    def between(self, first: int, last: int) -> "Partials":
        """Those of the steps first..last."""
        return Partials(*(frame[frame["step"].between(first, last)] for frame in self.frames))

    @property
    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        return self.groups, self.order, self.histogram


@dataclass(frozen=True)
class ScanUnit:
    """Files of both tables that share steps; of texts alone there are no tokens."""

    steps: tuple[int, int]
    """First and last step. A file of sequences that reaches beyond them is in several units."""
    tokens: tuple[TableFile, ...]
    sequences: tuple[TableFile, ...]

    @property
    def kept(self) -> Entry:
        """Where its partials are kept."""
        files = (file.identity for file in (*self.tokens, *self.sequences))
        return entry_of("partials", __name__, str(self.steps), *files)

    @property
    def rows(self) -> int:
        """Of tokens, where it has any."""
        return sum(pq.read_metadata(file.path).num_rows for file in self.tokens or self.sequences)


def scan_units(run: Run) -> list[ScanUnit]:
    """The run's files in sets with disjoint step ranges, in step order.

    Between files of tokens, and behind them, are the steps that have responses alone.
    """
    ranges = _ranges(run.files["tokens"])
    listed = _ranges(run.files["sequences"])
    for (_, before), (after, _) in pairwise([(-1, -1), *ranges, (_END, _END)]):
        ranges += [(max(first, before + 1), min(last, after - 1)) for first, last in listed]
    return [
        ScanUnit((first, last), *(_overlapping(run.files[table], first, last) for table in ("tokens", "sequences")))
        for first, last in sorted(ranges)
        if first <= last
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


def partials_of(units: Sequence[ScanUnit]) -> Iterator[tuple[ScanUnit, Partials]]:
    """Each unit with its partials, those that are in the cache first.

    What is not there is scanned several batches at a time, each with one thread, so that sums come out the same to the
    last digit every time.

    Raises:
        OSError, duckdb.Error: a file vanished or broke between listing and reading.
    """
    missing = []
    for unit in units:
        contents = unit.kept.get()
        if contents is None:
            missing.append(unit)
        else:
            yield unit, Partials(*(table.to_pandas() for table in unpacked(contents)))
    pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="scan")
    try:
        scanned = [(batch, pool.submit(_scan_alone, batch)) for batch in _batches(missing)]
        for batch, partials in scanned:
            yield from _kept(batch, partials.result())
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(units: Sequence[ScanUnit]) -> Iterator[list[ScanUnit]]:
    """Which units are scanned together: sets of about the same size, so many that every processor has its share."""
    sizes = [unit.rows for unit in units]
    rounds = ceil(sum(sizes) / _SCAN_TOKENS / _AT_A_TIME)
    share = max(_FEWEST_TOKENS, sum(sizes) / max(1, rounds * _AT_A_TIME))
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


def _scan_alone(units: Sequence[ScanUnit]) -> Partials:
    with one_thread():
        return scan(units)


def _kept(units: Sequence[ScanUnit], scanned: Partials) -> Iterator[tuple[ScanUnit, Partials]]:
    """The part of each unit, after having put it into the cache."""
    for unit in units:
        part = scanned.between(*unit.steps) if len(units) > 1 else scanned
        unit.kept.put(packed(*(pa.Table.from_pandas(frame, preserve_index=False) for frame in part.frames)))
        yield unit, part


def scan(units: Sequence[ScanUnit]) -> Partials:
    """Read the files of some units, in one go."""
    tokens = [file for unit in units for file in unit.tokens]
    sequences = list(dict.fromkeys(file for unit in units for file in unit.sequences))
    with connect(sorted({file.path.parent for file in (*tokens, *sequences)})) as connection:
        create_views(connection, schema.TOKENS, tokens, sequences, ahead=pd.Series(dtype=int))
        create_views(connection, schema.SEQUENCES, sequences, sequences, tokens=tokens)
        optional = bool(columns_with_values(tokens) & sums.optional_columns())
        inside = " or ".join(f"step between {first} and {last}" for first, last in _joined(units))
        return partials_in(connection, clean=all(map(_known_clean, tokens)), optional=optional, responses=inside)


def _joined(units: Sequence[ScanUnit]) -> list[tuple[int, int]]:
    """The steps of some units, ranges without a gap as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(unit.steps for unit in units):
        if found and first == found[-1][1] + 1:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


def partials_in(
    connection: duckdb.DuckDBPyConnection, *, clean: bool = False, optional: bool = True, responses: str = "true"
) -> Partials:
    """The partials of whatever the views `token`, `usable` and `sequence` of a connection show.

    Args:
        connection: see `analysis.runs.relations`; two temporary tables are made in it.
        clean: it is known that every row can be used.
        optional: some column that a run need not have is there.
        responses: SQL over `sequence`: which responses count.
    """
    if clean:
        connection.execute("create or replace view usable as select * exclude (invalid) from token")
    connection.execute(sums.sequence_sums())
    connection.execute(query("summary/unusable_sums").replace("$clean", str(clean)))
    order, histogram = of_steps(connection)
    groups = connection.execute(sums.group_sums()).df()
    if optional:
        groups = groups.merge(connection.execute(sums.optional_sums()).df(), how="left", on=["step", "group_id"])
    listed = connection.execute(sums.response_sums(responses)).df()
    groups = groups.merge(listed, how="outer", on=["step", "group_id"])
    groups = _with_scaled_sums(connection, groups, order)
    return Partials(groups.sort_values(["step", "group_id"], ignore_index=True), order, histogram)


def _with_scaled_sums(connection: duckdb.DuckDBPyConnection, groups: pd.DataFrame, order: pd.DataFrame) -> pd.DataFrame:
    """Sums of rho and its square, times a common factor of the step that keeps them within the floating-point range."""
    groups = groups.assign(peak=0.0, scaled=groups["rho"], scaled_squared=groups["rho_squared"])
    highest = order["highest"].astype(float)  # objects where no token of the files is usable
    extreme = order[~highest.between(*_PEAK_RANGE) & np.isfinite(highest)]
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


@cache
def rewards_between(file: TableFile) -> tuple[float, float]:
    """The smallest and the largest reward by the footer of a file of sequences; infinite where it does not say."""
    unknown = -inf, inf
    try:
        metadata = pq.read_metadata(file.path)
    except (OSError, pa.ArrowInvalid):
        return unknown
    names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    found: list[float] = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)) if "reward" in names else ():
        statistics = group.column(names.index("reward")).statistics
        if statistics is None or (not statistics.has_min_max and statistics.null_count != group.num_rows):
            return unknown
        if statistics.has_min_max:
            found += statistics.min, statistics.max
    return min(found, default=0.0), max(found, default=0.0)


@cache
def _known_clean(file: TableFile) -> bool:
    """Whether the file's footer proves that every row can be used, so that no row need be asked."""
    metadata = pq.read_metadata(file.path)
    nonfinite = (metadata.metadata or {}).get(NONFINITE_KEY)
    columns = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    log_probabilities = {*SAMPLED, "logp_current", "logp_new"} & set(columns)
    if nonfinite is None or json.loads(nonfinite).keys() & {*log_probabilities, "advantage"}:
        return False
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for name in log_probabilities:
            statistics = group.column(columns.index(name)).statistics
            if statistics is None or not statistics.has_null_count:
                return False
            if statistics.null_count == group.num_rows:
                continue
            if not statistics.has_min_max or not statistics.max <= schema.LARGEST_LOG_PROBABILITY:
                return False
    return True
