"""The definition switch: the same log as verl, TRL, AReaL, NeMo-RL or prime-rl would report it, and why they differ.

frame = report(run, "verl", first=10, last=20)
DIALECTS["verl"].settings, DIALECTS["verl"].not_reproducible
translation.translate(run, "verl") puts the same beside our numbers, key by key.

Computed from the usable tokens of each step in float64, infinite where their float32 overflows, with the loss and the
bounds that the run names. What a framework averages over micro-batches is averaged so where the log has them, and has
no value where it has not; padding is not imitated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from ratioscope.analysis.frameworks import areal, nemo_rl, prime_rl, trl, verl
from ratioscope.analysis.frameworks.definition import OF_TOKENS, Averaged, Dialect, Parameters, StepTokens, TheirNumber
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.analysis.what_if.gated import create_gated
from ratioscope.analysis.what_if.rule import takes_several_passes
from ratioscope.errors import unknown
from ratioscope.inert import one_line
from ratioscope.notes import Kind, Note, cells, joined
from ratioscope.run_format.manifest import Manifest

__all__ = ["DIALECTS", "Dialect", "StepTokens", "TheirNumber", "beside_ours", "parameters_of", "report", "theirs"]

DIALECTS: dict[str, Dialect] = {
    "verl": verl.DIALECT,
    "trl": trl.DIALECT,
    "areal": areal.DIALECT,
    "nemo_rl": nemo_rl.DIALECT,
    "prime_rl": prime_rl.DIALECT,
}

_COLUMN = {
    "behavior": "logp_behavior",
    "current": "logp_current",
    "gate": "logp_gate",
    "reference": "logp_reference",
    "length": "n_tokens",
    "lag": "behavior_version",
    "group": "group_id",
}
# What every log had once, so that rows do not say whether they need it.
_USUAL = ("behavior", "current", "advantage", "lag", "reward", "length", "group")

_PARTED = Note(Kind.UNDEFINED, "groups span steps: each step has parts of them, whose spread is not theirs")
_PART_OF_A_GENERATION = Note(Kind.UNDEFINED, "logged once a generation, and generations span steps")

# Tokens that are in memory at once; a longer step is read whole.
_TOKENS_AT_ONCE = 1_000_000


def report(
    run: Run,
    framework: str,
    first: int | None = None,
    last: int | None = None,
    *,
    summary: StepSummary | None = None,
    parameters: Parameters | None = None,
) -> pd.DataFrame:
    """One row a step and number of a framework over the steps first..last, both included.

    Columns: step, name, value, our_key and our_value (of the catalogue; empty and NaN where we have none like it),
    difference (theirs - ours), clamped (how many terms their clamp or mask changes), formula, why (it differs),
    note_kind and note (why the value is missing or saturated; `ratioscope.notes`), and missing (the columns that the
    value needs and the step does not have, separated by commas).

    Args:
        summary: the run's step summary where it is at hand; otherwise it is computed.
        parameters: other values for some of `DIALECTS[framework].parameters`.

    Raises:
        RatioscopeError: unknown framework or parameter.
    """
    return beside_ours(theirs(run, framework, first, last, parameters), framework, summary or summarise(run))


def theirs(
    run: Run,
    framework: str,
    first: int | None = None,
    last: int | None = None,
    parameters: Parameters | None = None,
) -> pd.DataFrame:
    """`report` without our numbers: step, name, value, clamped, note_kind, note, missing. It raises the same."""
    dialect = _dialect(framework)
    other = parameters or {}
    for name in other.keys() - dialect.parameters.keys():
        raise unknown(f"a parameter of {dialect.framework.title}", name, dialect.parameters)
    used = parameters_of(framework, run.manifest, other)
    update = _Update.of(run, dialect)
    rows: list[tuple[Any, ...]] = []
    for step, tokens, environments in _steps(run, first, last):
        for row, those in _rows(dialect, tokens, environments):
            value, clamped, note, missing = _evaluate(row, those, used, update)
            rows.append((step, row.name, value, clamped, *cells(note).values(), ", ".join(missing)))
    frame = pd.DataFrame(rows, columns=["step", "name", "value", "clamped", "note_kind", "note", "missing"])
    return frame.astype({"value": float})


def beside_ours(frame: pd.DataFrame, framework: str, summary: StepSummary) -> pd.DataFrame:
    """A frame of `theirs` with our numbers of the same steps: that of `report`."""
    rows = {name: DIALECTS[framework].row(name) for name in frame["name"].unique()}
    named = [row for name in frame["name"] if (row := rows[name]) is not None]
    ours = {row.ours: summary.values[row.ours].to_dict() for row in rows.values() if row and row.ours}
    of_rows = [ours[row.ours][step] if row.ours else nan for row, step in zip(named, frame["step"], strict=True)]
    our_value = np.array(of_rows, dtype=float)
    found = {
        "step": frame["step"], "name": frame["name"], "value": frame["value"],
        "our_key": [row.ours for row in named], "our_value": our_value, "difference": frame["value"] - our_value,
        "clamped": frame["clamped"],
        "formula": [row.formula for row in named], "why": [row.why for row in named],
        "note_kind": frame["note_kind"], "note": frame["note"], "missing": frame["missing"],
    }  # fmt: skip
    return pd.DataFrame(found)


def _dialect(framework: str) -> Dialect:
    if framework not in DIALECTS:
        raise unknown("a framework whose numbers are known", framework, DIALECTS)
    return DIALECTS[framework]


def parameters_of(framework: str, manifest: Manifest, other: Parameters | None = None) -> Parameters:
    """With which a run's numbers are computed: the framework's defaults, what the run names instead, and `other`."""
    dialect = DIALECTS[framework]
    return {**dialect.parameters, **dialect.as_run(manifest).parameters, **(other or {})}


@dataclass(frozen=True)
class _Update:
    """What of an update decides how a framework logs it."""

    loss: str
    several: bool
    """Whether it takes several passes."""
    parted: bool
    """Whether prompt groups span updates."""
    parts: Mapping[Averaged, int]
    """How many there are; 0: a part of one."""
    part_size: Mapping[Averaged, int]
    """Micro-batches of each."""
    processes: int
    recorded: int
    """Processes whose responses are in the log."""

    @classmethod
    def of(cls, run: Run, dialect: Dialect) -> "_Update":
        as_run, schedule = dialect.as_run(run.manifest), run.manifest.schedule
        ours = bool(as_run.loss)  # another framework's schedule says nothing of how this one would have logged

        def count(name: str, default: int = 1) -> int:
            value = schedule.get(name)
            return value if ours and isinstance(value, int) and not isinstance(value, bool) and value > 0 else default

        micro = count("gradient_accumulation_steps")
        of_generation = count("steps_per_generation", micro)
        whole = max(1, micro // (of_generation * count("num_iterations")))
        return cls(
            loss=as_run.loss or dialect.default_loss,
            several=takes_several_passes(run),
            parted=schedule.get("groups_span_steps") is True,
            parts={
                Averaged.MICRO_BATCHES: micro,
                Averaged.GENERATIONS: whole if micro >= of_generation else 0,
            },
            part_size={Averaged.MICRO_BATCHES: 1, Averaged.GENERATIONS: of_generation},
            processes=count("processes"),
            recorded=count("processes_recorded"),
        )

    def why_not(self, row: TheirNumber) -> Note | None:
        """Why the framework logs no such number of this update, or one that this log cannot give; None: it does."""
        if row.losses and self.loss not in row.losses:
            return Note(Kind.UNDEFINED, f"the loss {self.loss} does not log it so")
        if self.recorded < self.processes:
            return Note(Kind.UNDEFINED, f"the log has {self.recorded} of {self.processes} processes, theirs is of all")
        if self.parted and "group" in row.needs:
            return _PARTED
        if row.averaged is Averaged.GENERATIONS and not self.parts[row.averaged]:
            return _PART_OF_A_GENERATION
        return None


def _rows(
    dialect: Dialect, tokens: StepTokens, environments: Sequence[str]
) -> Iterator[tuple[TheirNumber, StepTokens]]:
    """Their numbers with the tokens that each is of."""
    yield from ((row, tokens) for row in dialect.rows)
    if dialect.per_environment and tokens.environment is not None:
        for index, name in enumerate(environments):
            those = tokens.those(tokens.environment == index)
            if len(those.behavior):
                yield from ((row, those) for row in dialect.of_environment(name))


def _evaluate(
    row: TheirNumber, tokens: StepTokens, parameters: Parameters, update: _Update
) -> tuple[float, int, Note | None, list[str]]:
    """The value, how many terms a clamp changes, a note, and the columns that are missing."""
    if (why := update.why_not(row)) is not None:
        return float("nan"), 0, why, []
    absent = [column for column in row.needs if not tokens.logged(column)]
    usual = [column for column in _USUAL if not tokens.logged(column)]
    if usual and not absent:
        absent = [column for column in usual if column in tokens.asked_by(row.compute, parameters)]
    missing = [_COLUMN.get(column, column) for column in absent]
    beside = ""
    if "gate" in row.needs and not tokens.gate_logged:
        if update.several and "logp_gate" not in missing:
            missing.insert(0, "logp_gate")
        beside = "logp_gate not logged: as at the start of the update"
    if missing:
        note = Note(Kind.NOT_LOGGED, f"{' and '.join(missing)} not logged in this step")
        return float("nan"), 0, note, missing
    if "gate" in row.needs and (n := len(tokens.gate) - len(tokens.gated.gate)):
        tokens, beside = tokens.gated, f"{n} tokens left out: their logp_gate is not a log-probability"
    if row.of_processes and update.processes > 1:
        if len(tokens.by_process) != update.processes:
            told = f"rank names {len(tokens.by_process)}" if tokens.by_process else "rank is not logged"
            text = f"a mean of the means of {update.processes} processes, and {told}"
            return float("nan"), 0, Note(Kind.NOT_LOGGED, text), ["rank"]
        row = _of_processes(row)
    several = update.parts[row.averaged] if row.averaged else 1
    if several > 1 and row.averaged and row.name not in _SAME_IN_EQUAL_PARTS:
        return _averaged(row, tokens, parameters, several, update.part_size[row.averaged], beside)
    value, clamped, found = _compute(row, tokens, parameters)
    return value, clamped, joined(found, beside), []


def _of_processes(row: TheirNumber) -> TheirNumber:
    """The same number with the mean of its values of each process."""
    return replace(row, compute=lambda tokens, p: float(np.mean([row.compute(own, p) for own in tokens.by_process])))


# Means over responses, of which each part has as many.
_SAME_IN_EQUAL_PARTS = ("completions/mean_length",)


def _averaged(
    row: TheirNumber, tokens: StepTokens, parameters: Parameters, several: int, size: int, beside: str
) -> tuple[float, int, Note | None, list[str]]:
    """The mean of the values of an update's parts, without those that have none."""
    parts = tokens.parts(size)
    if not parts:
        text = f"the mean of {several} {row.averaged.value if row.averaged else 'parts'}, and micro_batch is not logged"
        return float("nan"), 0, Note(Kind.NOT_LOGGED, text), ["micro_batch"]
    values, clamped = zip(*(_compute(row, part, parameters)[:2] for part in parts), strict=True)
    there = [value for value in values if not np.isnan(value)]
    if not there:
        return float("nan"), 0, Note(Kind.UNDEFINED, "undefined in every part of the update, in their log as well"), []
    found = float(np.mean(there))
    note = (
        Note(Kind.REMARK, f"the mean of {len(there)} values, one of each of the update's {row.averaged.value}")
        if row.averaged
        else None
    )
    return found, sum(clamped), joined(note, beside), []


def _compute(row: TheirNumber, tokens: StepTokens, parameters: Parameters) -> tuple[float, int, Note | None]:
    with np.errstate(all="ignore"):  # what is not finite is handed on as they would, with a note
        value = row.compute(tokens, parameters)
        clamped = int(row.clamped(tokens, parameters).sum()) if row.clamped else 0
    if np.isnan(value):
        text = "undefined, in their log as well: a ratio of 0, no spread, or too few values"
        return value, clamped, Note(Kind.UNDEFINED, text)
    if np.isinf(value):
        return value, clamped, Note(Kind.INFINITE, "infinite, in their log as well: a ratio of 0 or beyond float32")
    saturated = Note(Kind.REMARK, f"saturated: their bound changes {clamped} of the terms")
    return value, clamped, saturated if clamped else None


def _steps(run: Run, first: int | None, last: int | None) -> Iterator[tuple[int, StepTokens, list[str]]]:
    """Each step's usable tokens, and its environments; steps without any token have nothing to report."""
    with relations(run, first, last) as connection:
        counts = connection.execute("select step, count(*) as tokens from token group by step order by step").df()
        part = (counts["tokens"].cumsum() - 1) // _TOKENS_AT_ONCE
        frames = _read(connection) if part.nunique() == 1 else None
    if frames is not None:
        yield from _by_step(*frames)
        return
    for _, steps in counts["step"].groupby(part):
        with relations(run, int(steps.iloc[0]), int(steps.iloc[-1])) as connection:
            frames = _read(connection)
        yield from _by_step(*frames)


def _read(connection: duckdb.DuckDBPyConnection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Usable tokens and sequences."""
    create_gated(connection)
    connection.execute(
        "create or replace temp view sequence_parts as select step, seq_id, any_value(micro_batch) as micro_batch, "
        "any_value(rank) as rank, any_value(environment) as environment from sequence group by step, seq_id"
    )
    tokens = connection.execute(
        """
        select
            step, seq_id, micro_batch::double as micro_batch, rank::double as rank, environment,
            logp_behavior::double as behavior, logp_current::double as current,
            logp_behavior_train::double as recomputed, gated_at::double as gate, logp_reference::double as reference,
            entropy::double as entropy, advantage::double as advantage, version_lag::double as lag,
            logp_gate is not null as gate_logged
        from gated left join sequence_parts using (step, seq_id)
        where invalid is null
        order by step, seq_id, position
        """
    ).df()
    sequences = connection.execute(
        "select step, group_id, grouped, reward::double as reward, n_tokens::double as length from sequence "
        "order by step"
    ).df()
    return tokens, sequences


def _by_step(tokens: pd.DataFrame, sequences: pd.DataFrame) -> Iterator[tuple[int, StepTokens, list[str]]]:
    logged = dict(list(sequences.groupby("step")))
    for label, frame in tokens.groupby("step"):
        step = int(str(label))
        rows = logged.get(step, sequences.iloc[:0])
        _, sequence = np.unique(frame["seq_id"], return_inverse=True)
        names = [name for name in OF_TOKENS if name != "environment"]
        environment, environments = pd.factorize(frame["environment"], sort=True)
        step_tokens = StepTokens(
            **{name: frame[name].to_numpy(dtype=float) for name in names},
            sequence=sequence,
            environment=environment.astype(np.int64),
            reward=rows["reward"].to_numpy(dtype=float),
            length=rows["length"].to_numpy(dtype=float),
            group=rows["group_id"].to_numpy(dtype=np.int64),
            gate_logged=bool(frame["gate_logged"].any()),
            grouped=bool(rows["grouped"].any()),
        )
        yield step, step_tokens, [one_line(name) for name in environments]  # text of the log, in names of ours
