"""The step summary: every metric of the catalogue for every step, with interval and trust.

summary = summarise(run)
summary.values["s_k_bounded"]    # indexed by step
summary.low["s_k_bounded"], summary.high["s_k_bounded"]
summary.note(step, "chi2_seq")   # why it is missing or cannot be trusted; None where nothing is the matter
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.blocks import BlockTable, UnitBlock, blocks, tables_of
from ratioscope.analysis.summary.intervals import of_share
from ratioscope.analysis.summary.metrics import COUNTS, StepTable
from ratioscope.analysis.summary.over_run import judge_over_run
from ratioscope.analysis.summary.packed import packed_tables, unpacked
from ratioscope.analysis.summary.partials import rewards_between
from ratioscope.analysis.summary.units import ScanUnit, scan_units
from ratioscope.catalogue import CATALOGUE
from ratioscope.catalogue.denominators import RESPONSES
from ratioscope.errors import unknown
from ratioscope.metric import Grain, not_logged
from ratioscope.notes import Kind, Note, is_unreliable, text_of
from ratioscope.storage.cache import Entry, entry_of

LOGGED = tuple(key for key, metric in CATALOGUE.items() if metric.grain is Grain.STEP)
"""Metrics that are read from the steps table."""
_KEYS = [*COUNTS, *CATALOGUE]
NO_TOKEN = Note(Kind.UNDEFINED, "no token of this step is on disk")
_LEFT_OUT = Note(Kind.UNDEFINED, "no token of this step is on disk, or its rows are left out")
_INFINITE = Note(Kind.INFINITE, "an infinite value is logged")
_NO_SHARE = Note(Kind.UNDEFINED, _INFINITE.reason)
NO_TOKENS = Note(Kind.NOT_LOGGED, "no tokens are logged")


@dataclass(frozen=True, eq=False)
class StepSummary:
    """Frames with one row a step and one column a metric key; NaN is "undefined", the reason is in `notes`."""

    values: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame
    notes: Mapping[int, Mapping[str, Note]]
    """By step, then by metric; only where there is one."""
    histogram: pd.DataFrame
    """step, bin, tokens: the log-ratio histogram (`bin_log_ratio`)."""
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The run's own steps table, indexed by step."""

    @property
    def last_step(self) -> int:
        return int(self.values.index.max()) if len(self.values) else -1

    def metric(self, key: str) -> pd.DataFrame:
        """A metric over the steps: value, low and high of its 95 % interval, and the text of its note.

        Raises:
            RatioscopeError: there is no such metric.
        """
        if key not in CATALOGUE:
            raise unknown("a metric", key, CATALOGUE)
        numbers = {"value": self.values[key], "low": self.low[key], "high": self.high[key]}
        return pd.DataFrame(numbers | {"note": list(map(text_of, self._notes_of(key)))}, index=self.values.index)

    def trusted(self, key: str) -> pd.Series:
        """Bool by step: the value is there, finite, and can be estimated."""
        return np.isfinite(self.values[key]) & ~self.unreliable(key)

    def unreliable(self, key: str) -> "pd.Series[bool]":
        """By step: the value is there, and what was not seen could move it."""
        return self._where([is_unreliable(note) for note in self._notes_of(key)])

    def note(self, step: int, key: str) -> Note | None:
        """Why a value is missing or cannot be trusted; None where nothing is the matter, and for an unknown step."""
        return self.notes.get(step, {}).get(key)

    def last_note(self, key: str) -> Note | None:
        """The note of the latest step that has one."""
        return next((note for note in reversed(self._notes_of(key)) if note), None)

    def why_unknown(self, key: str) -> str:
        """Why no step has a metric, a clause: what is not logged rather than what is undefined."""
        notes = [note for note in self._notes_of(key) if note]
        absent = [note.text for note in notes if note.kind is Kind.NOT_LOGGED]
        if absent:
            return absent[-1]
        if not len(self.values):
            return "no step lies in this range"
        rows = self.values["n_tokens"] + self.values["n_invalid"]
        return "no step has a token on disk" if (rows == 0).all() else "no step has a usable token"

    def _notes_of(self, key: str) -> list[Note | None]:
        return [self.note(step, key) for step in self.values.index]

    def _where(self, marks: list[bool]) -> "pd.Series[bool]":
        return pd.Series(marks, index=self.values.index, dtype=bool)

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


class Notes(Mapping[int, Mapping[str, Note]]):
    """Notes by step, then by metric, read from a table (step, key, note_kind, note) when they are first asked for."""

    def __init__(self, steps: pd.Index, table: pa.Table) -> None:
        self._steps, self._table = steps, table

    @cached_property
    def _by_step(self) -> dict[int, dict[str, Note]]:
        notes: dict[int, dict[str, Note]] = {number: {} for number in self._steps.tolist()}
        note_of = cache(lambda kind, text: Note(Kind(kind), text))  # few of many are different
        columns = (self._table[name].to_pylist() for name in ("step", "key", "note_kind", "note"))
        for number, key, kind, text in zip(*columns, strict=True):
            notes[number][key] = note_of(kind, text)
        return notes

    def __getitem__(self, number: int) -> dict[str, Note]:
        return self._by_step[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_step)

    def __len__(self) -> int:
        return len(self._by_step)


class Summariser:
    """Keeps what it has computed, so that a live run costs only its new files."""

    def __init__(self) -> None:
        self._blocks: dict[UnitBlock, BlockTable] = {}

    def summarise(self, run: Run, progress: Callable[[int, int], None] = lambda done, of: None) -> StepSummary:
        """The summary of everything the run holds.

        Raises:
            RatioscopeError: a file that was there at opening cannot be read any more.
        """
        units = scan_units(run)
        kept = _kept(run, units)
        known = None if self._blocks else kept.read(_read)
        if known is not None:
            return known
        every = blocks(units, live=run.status == "running")
        self._blocks |= dict(tables_of([block for block in every if block not in self._blocks], progress))
        self._blocks = {block: self._blocks[block] for block in every}
        tables, histograms = zip(*self._blocks.values(), strict=True) if every else ((), ())
        summary, notes = _assemble(run, tables, histograms)
        if run.status != "running":
            kept.put(_written(summary, notes))
        return summary


def summarise(run: Run) -> StepSummary:
    """The step summary of a run; see `Summariser` for live ones."""
    return Summariser().summarise(run)


def _kept(run: Run, units: list[ScanUnit]) -> Entry:
    """Where the summary is kept: another place for other files of the run."""
    return entry_of(
        "summaries", str(run.manifest.evaluation_prompts), *(unit.identity for unit in units),
        *(file.identity for file in run.files["steps"]),
    )  # fmt: skip


def _read(contents: bytes) -> StepSummary:
    """A summary that was computed before."""
    table, notes, histogram, steps = unpacked(contents)
    # (values low high, steps, step and keys); a copy, because Arrow's memory cannot be written
    numbers = np.array(table["numbers"]).reshape(3, -1, 1 + len(_KEYS))
    index = pd.Index(numbers[0, :, 0].astype(np.int64), name="step")
    values, low, high = (pd.DataFrame(kind[:, 1:], index=index, columns=_KEYS) for kind in numbers)
    return StepSummary(
        values, low, high, Notes(index, notes), histogram.to_pandas(), steps.to_pandas().set_index("step")
    )


def _written(summary: StepSummary, notes: pa.Table) -> bytes:
    numbers = np.stack([frame.reset_index().to_numpy(float) for frame in (summary.values, summary.low, summary.high)])
    frames = (pa.Table.from_pandas(frame) for frame in (summary.histogram, summary.steps.reset_index()))
    return packed_tables(pa.table({"numbers": numbers.ravel()}), notes, *frames)


def _assemble(
    run: Run, tables: Sequence[StepTable], histograms: Sequence[pd.DataFrame]
) -> tuple[StepSummary, pa.Table]:
    """The summary, and its notes as a table."""
    steps = run.steps.set_index("step")
    values, low, high = (
        pd.concat([getattr(table, name) for table in tables]) if tables else pd.DataFrame(columns=_KEYS, dtype=float)
        for name in ("values", "low", "high")
    )
    # Partials are of token files alone, which do not know the policy's version.
    ahead = run.versions_ahead.reindex(values.index).fillna(0).astype(float) if run.counts_versions else np.nan
    for frame in (values, low, high):
        frame["version_lag"] += ahead
    empty = steps.index.difference(values.index)
    index = pd.Index(values.index.union(empty), name="step", dtype="int64")  # sorted
    values, low, high = (frame.reindex(index) for frame in (values, low, high))
    judged = list(judge_over_run(values, low, high))
    # A step that the run lists and that no token can be read of: nulls, not zeros and not a missing line.
    values.loc[empty, list(COUNTS)] = 0
    of_tokens = [key for key in CATALOGUE if key not in LOGGED]
    no_token = _LEFT_OUT if run.left_out else NO_TOKEN
    found = [*(table.notes for table in tables), *judged, _noted(empty, of_tokens, no_token)]
    without = values.index[(values["n_tokens"] + values["n_invalid"] == 0).to_numpy()]
    if len(without):
        missing = values.loc[without].isna()
        note = no_token if run.files["tokens"] else NO_TOKENS
        keys = [key for key in of_tokens if CATALOGUE[key].over.chain[-1] is not RESPONSES]
        found += [_noted(without[missing[key].to_numpy()], [key], note) for key in keys]
    if not run.counts_versions:
        found.append(_noted(values.index.difference(without), ["version_lag"], not_logged("policy_version")))
    for key in LOGGED:
        values[key] = steps[key].reindex(index).astype(float)
        if values[key].isna().all():
            found.append(_noted(index, [key], not_logged(key)))
        infinite = index[np.isinf(values[key].to_numpy())]
        if len(infinite):
            share = CATALOGUE[key].share  # which no infinite value can be
            if share:
                values.loc[infinite, key] = np.nan
            found.append(_noted(infinite, [key], _NO_SHARE if share else _INFINITE))
    if prompts := run.manifest.evaluation_prompts:
        low["eval_accuracy"], high["eval_accuracy"] = of_share(values["eval_accuracy"].to_numpy(), prompts)
    ends = [rewards_between(file) for file in run.files["sequences"]]
    low["reward"], high["reward"] = _within_rewards(ends, low["reward"]), _within_rewards(ends, high["reward"])
    notes = pa.Table.from_pandas(pd.concat(found, ignore_index=True))
    histogram = pd.concat(histograms) if histograms else pd.DataFrame({"step": [], "bin": [], "tokens": []})
    return StepSummary(values, low, high, Notes(index, notes), histogram.reset_index(drop=True), steps), notes


def _within_rewards(ends: list[tuple[float, float]], interval: "pd.Series[float]") -> "pd.Series[float]":
    """An end of the mean reward's interval: not below -1 or 0, nor above 1, where no reward of the run is."""
    lowest, highest = min((low for low, _ in ends), default=0.0), max((high for _, high in ends), default=0.0)
    lower = 0.0 if lowest >= 0 else -1.0 if lowest >= -1 else None
    return interval.clip(lower, 1.0 if highest <= 1 else None)


def _noted(steps: pd.Index, keys: list[str], note: Note) -> pd.DataFrame:
    """One note for some metrics of some steps."""
    of_all = {"step": np.repeat(steps, len(keys)), "key": keys * len(steps)}
    return pd.DataFrame(of_all | {"note_kind": note.kind.value, "note": note.text})


def summary_json(run: Run, summary: StepSummary) -> dict[str, Any]:
    """The stable shape of `ratioscope summarize --json`: undefined is null, with its reason in notes, and so is an open
    end of an interval."""
    steps = []
    for label, values in summary.values.iterrows():
        number = int(label)  # type: ignore[call-overload]
        low, high = summary.low.loc[number], summary.high.loc[number]
        texts = {key: note.text for key, note in summary.notes.get(number, {}).items()}
        entry: dict[str, Any] = {"step": number}
        for key, value in values.items():
            finite = bool(np.isfinite(value))
            entry[str(key)] = (int(value) if key in COUNTS else float(value)) if finite else None
            if not finite and key not in texts:
                texts[str(key)] = "not logged for this step"
        entry["intervals"] = {
            str(key): [_finite(low[key]), _finite(high[key])] for key in values.index if np.isfinite(low[key])
        }
        entry["notes"] = texts
        steps.append(entry)
    return {"schema_version": run.manifest.schema_version, "run": run.manifest.name, "steps": steps}


def _finite(end: float) -> float | None:
    return float(end) if np.isfinite(end) else None
