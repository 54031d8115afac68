"""The step summary: every metric of the catalogue for every step, with interval and trust.

summary = summarise(run)
summary.values["s_k"]            # indexed by step
summary.low["s_k"], summary.high["s_k"]
summary.notes[step]["chi2_seq"]  # why it is missing or cannot be trusted
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from analysis import intervals, partials, step
from analysis.partials import ScanUnit, partials_of, scan_units
from analysis.step import COUNTS, StepRow, step_rows
from analysis.store import Run
from ratioscope import metric, tails
from ratioscope.catalogue import CATALOGUE, divergences, learning, weights
from ratioscope.errors import RatioscopeError
from ratioscope.manifest import replace_atomically
from ratioscope.tails import Array

LOGGED = ("eval_accuracy", "kl_to_initial", "grad_norm")


@dataclass(frozen=True)
class StepSummary:
    """Frames with one row a step and one column a metric key; NaN is "undefined", the reason is in `notes`."""

    values: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame
    notes: dict[int, dict[str, str]]
    histogram: pd.DataFrame
    """step, bin, tokens: the log-ratio histogram (`bin_log_ratio`)."""
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The run's own steps table, indexed by step."""

    @property
    def last_step(self) -> int:
        return int(self.values.index.max()) if len(self.values) else -1

    def trusted(self, key: str) -> pd.Series:
        """Bool by step: the value is there and its moment can be estimated."""
        noted = pd.Series([key in self.notes.get(step, {}) for step in self.values.index], index=self.values.index)
        return self.values[key].notna() & ~noted.astype(bool)

    def up_to(self, first: int | None, last: int | None) -> "StepSummary":
        """The steps first..last, both included."""
        kept = slice(first, last)
        inside = self.histogram["step"].between(
            first if first is not None else -1, last if last is not None else np.inf
        )
        return StepSummary(
            self.values.loc[kept], self.low.loc[kept], self.high.loc[kept], self.notes, self.histogram[inside],
            self.steps.loc[kept] if len(self.steps) else self.steps,
        )  # fmt: skip


def bin_log_ratio(bins: Array) -> Array:
    """The log-ratio at the centre of a histogram bin: bins are even in asinh(log rho / 0.01)."""
    return 0.01 * np.sinh(bins * 0.15)


class Summariser:
    """Keeps what it has computed, so that a live run costs only its new files."""

    def __init__(self) -> None:
        self._units: dict[str, tuple[list[StepRow], pd.DataFrame]] = {}

    def summarise(self, run: Run, progress: Callable[[int, int], None] = lambda done, of: None) -> StepSummary:
        """The summary of everything the run holds.

        Raises:
            RatioscopeError: a file that was there at opening cannot be read any more.
        """
        units = scan_units(run)
        known = {}
        for number, unit in enumerate(units):
            known[unit.key] = self._units.get(unit.key) or _compute(unit)
            progress(number + 1, len(units))
        self._units = known
        rows = [row for rows, _ in known.values() for row in rows]
        histograms = [histogram for _, histogram in known.values()]
        return _assemble(run, rows, histograms)


def summarise(run: Run) -> StepSummary:
    """The step summary of a run; see `Summariser` for live ones."""
    return Summariser().summarise(run)


def _compute(unit: ScanUnit) -> tuple[list[StepRow], pd.DataFrame]:
    """A unit's rows and histogram; once computed they come from the cache, without any arithmetic."""
    rows_file = unit.cache / f"rows-{_code_digest()}.json"
    try:
        histogram = pq.read_table(unit.cache / "histogram.parquet").to_pandas()
        return [StepRow(**row) for row in json.loads(rows_file.read_bytes())], histogram
    except (OSError, ValueError, TypeError):
        pass
    try:
        computed = partials_of(unit)
    except (duckdb.Error, OSError) as error:
        reason = str(error).splitlines()[0]
        where = unit.tokens[0].path
        raise RatioscopeError(f"{where}: vanished or changed while it was read ({reason}); try again.") from None
    rows = step_rows(computed)
    with suppress(OSError):
        replace_atomically(rows_file, json.dumps([asdict(row) for row in rows]).encode())
    return rows, computed.histogram


@cache
def _code_digest() -> str:
    """Changes with the code that turns partials into rows: rows of another version are not mistaken for this one's."""
    modules = (partials, step, intervals, tails, divergences, weights, learning, metric)
    sources = [Path(str(module.__file__)).read_bytes() for module in modules]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]


def _empty_row(step: int) -> StepRow:
    """A step that the run lists and that no token can be read of: nulls, not zeros and not a missing line."""
    reasons = {key: "no token of this step is on disk" for key in CATALOGUE if key not in LOGGED}
    return StepRow(step, values=dict.fromkeys(COUNTS, 0), notes=reasons)


def _assemble(run: Run, rows: list[StepRow], histograms: list[pd.DataFrame]) -> StepSummary:
    steps = run.read("steps").set_index("step").sort_index()
    steps = steps[~steps.index.duplicated(keep="last")]
    empty = steps.index.difference([row.step for row in rows])
    rows = sorted([*rows, *(_empty_row(int(step)) for step in empty)], key=lambda row: row.step)
    index = pd.Index([row.step for row in rows], name="step", dtype="int64")
    keys = [*COUNTS, *CATALOGUE]
    values = pd.DataFrame([row.values for row in rows], index=index).reindex(columns=keys).astype(float)
    low, high = (
        pd.DataFrame([{k: interval[end] for k, interval in row.intervals.items()} for row in rows], index=index)
        .reindex(columns=keys)
        .astype(float)
        for end in (0, 1)
    )
    notes = {row.step: row.notes for row in rows}
    for key in LOGGED:
        values[key] = steps[key].reindex(index).astype(float)
    histogram = pd.concat(histograms) if histograms else pd.DataFrame({"step": [], "bin": [], "tokens": []})
    return StepSummary(values, low, high, notes, histogram.reset_index(drop=True), steps)


def to_json(run: Run, summary: StepSummary) -> dict[str, Any]:
    """The stable shape of `ratioscope summarize --json`: undefined is null, with its reason in notes."""
    steps = []
    for label, values in summary.values.iterrows():
        number = int(label)  # type: ignore[call-overload]
        low, high, notes = summary.low.loc[number], summary.high.loc[number], summary.notes.get(number, {})
        entry: dict[str, Any] = {"step": number}
        for key, value in values.items():
            finite = bool(np.isfinite(value))
            entry[str(key)] = (int(value) if key in COUNTS else float(value)) if finite else None
            if not finite and key not in notes:
                notes = notes | {str(key): "not logged for this step"}
        entry["intervals"] = {
            str(key): [float(low[key]), float(high[key])] for key in values.index if np.isfinite(low[key])
        }
        entry["notes"] = notes
        steps.append(entry)
    return {"schema_version": run.manifest.schema_version, "run": run.manifest.name, "steps": steps}
