"""Per-step partial sums of a run, computed once for each set of files and cached.

A *scan unit* is a set of files whose step ranges overlap, so that a step is never split between units: quantiles and
tails, which do not add up, are exact within one. Sums are kept for each (step, prompt group): they merge by addition,
carry the cluster-robust intervals, and are all that a bootstrap over groups needs.

Partials lie in the user's cache folder, never in the run; of a live run only the new files are read.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.database import connect, query
from analysis.relations import source
from analysis.store import Run, TableFile
from ratioscope import schema
from ratioscope.cache import cache_folder
from ratioscope.tails import kept_size

_QUERIES = ("macros", "tokens", "group_partials", "order_statistics", "log_ratio_histogram", "sequence_partials")


@dataclass(frozen=True)
class Partials:
    """What is kept of a scan unit."""

    groups: pd.DataFrame
    """One row a (step, group_id): sums and log-sum-exps of the tokens and sequences."""
    order: pd.DataFrame
    """One row a step: exact quantiles and the kept top of the log-weights."""
    histogram: pd.DataFrame
    """One row a (step, bin): tokens by log-ratio."""


@dataclass(frozen=True)
class ScanUnit:
    """Files of both tables that share steps."""

    tokens: tuple[TableFile, ...]
    sequences: tuple[TableFile, ...]

    @property
    def key(self) -> str:
        identities = [file.identity for file in (*self.tokens, *self.sequences)]
        # The queries are part of the key: partials of another ratioscope are not mistaken for this one's.
        texts = [query(name) for name in _QUERIES]
        return hashlib.sha256("\n".join([*texts, *identities]).encode()).hexdigest()[:32]

    @property
    def cache(self) -> Path:
        """The folder that holds what was computed of it; may not exist yet."""
        return cache_folder("partials") / self.key


def scan_units(run: Run) -> list[ScanUnit]:
    """The run's files in sets with disjoint step ranges, in step order."""
    units: list[list[TableFile]] = []
    last_step = -1
    for file in sorted(run.files["tokens"], key=lambda file: file.name):
        if units and file.name.first_step <= last_step:
            units[-1].append(file)
        else:
            units.append([file])
        last_step = max(last_step, file.name.last_step)
    return [ScanUnit(tuple(tokens), _overlapping(run.files["sequences"], tokens)) for tokens in units]


def _overlapping(files: Iterable[TableFile], tokens: list[TableFile]) -> tuple[TableFile, ...]:
    first = min(file.name.first_step for file in tokens)
    last = max(file.name.last_step for file in tokens)
    return tuple(file for file in files if file.name.first_step <= last and file.name.last_step >= first)


def partials_of(unit: ScanUnit) -> Partials:
    """The unit's partials, from the cache when they are there.

    Raises:
        OSError, duckdb.Error: a file vanished or broke between listing and reading.
    """
    folder = unit.cache
    try:
        return Partials(*(pq.read_table(folder / f"{name}.parquet").to_pandas() for name in _PARTS))
    except (OSError, pa.ArrowInvalid):
        pass
    scanned = _scan(unit)
    with suppress(OSError):  # a cache that cannot be written is no reason to fail
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in zip(_PARTS, scanned, strict=True):
            temporary = folder / f"{name}.tmp-{os.getpid()}"
            pq.write_table(table, temporary)
            temporary.replace(folder / f"{name}.parquet")
    return Partials(*(table.to_pandas() for table in scanned))


_PARTS = ("groups", "order", "histogram")


def _scan(unit: ScanUnit) -> tuple[pa.Table, pa.Table, pa.Table]:
    folders = sorted({file.path.parent for file in (*unit.tokens, *unit.sequences)})
    with connect(folders) as connection:
        connection.execute(query("tokens").replace("from source", f"from {source(unit.tokens, schema.TOKENS)}"))
        groups = connection.sql(query("group_partials")).to_arrow_table()
        largest = connection.execute("select max(n) from (select count(*) as n from token group by step)").fetchall()
        kept = kept_size(largest[0][0] or 0)
        order = connection.sql(query("order_statistics").replace("$kept", str(kept))).to_arrow_table()
        histogram = connection.sql(query("log_ratio_histogram")).to_arrow_table()
        if unit.sequences:
            relation = source(unit.sequences, schema.SEQUENCES)
            rewards = connection.sql(query("sequence_partials").replace("from source", f"from {relation}"))
            groups = groups.join(rewards.to_arrow_table(), ["step", "group_id"], join_type="full outer")
            groups = groups.sort_by([("step", "ascending"), ("group_id", "ascending")])
    return groups, order, histogram
