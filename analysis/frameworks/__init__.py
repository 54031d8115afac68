"""The definition switch: the same log as verl, TRL, AReaL, NeMo-RL or prime-rl would report it, and why they differ.

frame = report(run, "verl", first=10, last=20)
DIALECTS["verl"].settings, DIALECTS["verl"].not_reproducible
translation.translate(run, "verl") puts the same beside our numbers, key by key.

Computed from the usable tokens of each step in float64, infinite where their float32 overflows. What they do by
padding, micro-batch or rank is not in a log and is not imitated: a mean of unequal micro-batches differs from these.
"""

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from ratioscope.analysis.frameworks import areal, nemo_rl, prime_rl, trl, verl
from ratioscope.analysis.frameworks.definition import Dialect, Parameters, StepTokens, TheirNumber
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.analysis.what_if.gated import create_gated
from ratioscope.analysis.what_if.rule import takes_several_passes
from ratioscope.errors import unknown
from ratioscope.notes import Kind, Note, cells, joined

__all__ = ["DIALECTS", "Dialect", "StepTokens", "TheirNumber", "beside_ours", "report", "theirs"]

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
    used: Parameters = {**dialect.parameters, **other}
    several = takes_several_passes(run)
    parted = run.manifest.schedule.get("groups_span_steps") is True
    rows: list[tuple[Any, ...]] = []
    for step, tokens in _steps(run, first, last):
        for row in dialect.rows:
            value, clamped, note, missing = _evaluate(row, tokens, used, several)
            if parted and "group" in row.needs and not missing:
                value, clamped, note = float("nan"), 0, _PARTED
            rows.append((step, row.name, value, clamped, *cells(note).values(), ", ".join(missing)))
    frame = pd.DataFrame(rows, columns=["step", "name", "value", "clamped", "note_kind", "note", "missing"])
    return frame.astype({"value": float})


def beside_ours(frame: pd.DataFrame, framework: str, summary: StepSummary) -> pd.DataFrame:
    """A frame of `theirs` with our numbers of the same steps: that of `report`."""
    rows = {row.name: row for row in DIALECTS[framework].rows}
    named = [rows[name] for name in frame["name"]]
    ours = [
        float(summary.values[row.ours][step]) if row.ours else float("nan")
        for row, step in zip(named, frame["step"], strict=True)
    ]
    our_value = np.array(ours, dtype=float)
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


def _evaluate(
    row: TheirNumber, tokens: StepTokens, parameters: Parameters, several: bool
) -> tuple[float, int, Note | None, list[str]]:
    """The value, how many terms a clamp changes, a note, and the columns that are missing."""
    absent = [column for column in row.needs if not tokens.logged(column)]
    usual = [column for column in _USUAL if not tokens.logged(column)]
    if usual and not absent:
        absent = [column for column in usual if column in tokens.asked_by(row.compute, parameters)]
    missing = [_COLUMN.get(column, column) for column in absent]
    beside = ""
    if "gate" in row.needs and not tokens.gate_logged:
        if several and "logp_gate" not in missing:
            missing.insert(0, "logp_gate")
        beside = "logp_gate not logged: as at the start of the update"
    if missing:
        note = Note(Kind.NOT_LOGGED, f"{' and '.join(missing)} not logged in this step")
        return float("nan"), 0, note, missing
    if "gate" in row.needs and (n := len(tokens.gate) - len(tokens.gated.gate)):
        tokens, beside = tokens.gated, f"{n} tokens left out: their logp_gate is not a log-probability"
    value, clamped, found = _compute(row, tokens, parameters)
    return value, clamped, joined(found, beside), []


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


def _steps(run: Run, first: int | None, last: int | None) -> Iterator[tuple[int, StepTokens]]:
    """Each step's usable tokens; steps without any have nothing to report."""
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
    tokens = connection.execute(
        """
        select
            step, seq_id, logp_behavior::double as behavior, logp_current::double as current,
            logp_behavior_train::double as recomputed, gated_at::double as gate, logp_reference::double as reference,
            entropy::double as entropy, advantage::double as advantage, version_lag::double as lag,
            logp_gate is not null as gate_logged
        from gated
        where invalid is null
        order by step, seq_id, position
        """
    ).df()
    sequences = connection.execute(
        "select step, group_id, grouped, reward::double as reward, n_tokens::double as length from sequence "
        "order by step"
    ).df()
    return tokens, sequences


def _by_step(tokens: pd.DataFrame, sequences: pd.DataFrame) -> Iterator[tuple[int, StepTokens]]:
    logged = dict(list(sequences.groupby("step")))
    for label, frame in tokens.groupby("step"):
        step = int(str(label))
        rows = logged.get(step, sequences.iloc[:0])
        _, sequence = np.unique(frame["seq_id"], return_inverse=True)
        names = ("behavior", "current", "recomputed", "gate", "reference", "entropy", "advantage", "lag")
        step_tokens = StepTokens(
            **{name: frame[name].to_numpy(dtype=float) for name in names},
            sequence=sequence,
            reward=rows["reward"].to_numpy(dtype=float),
            length=rows["length"].to_numpy(dtype=float),
            group=rows["group_id"].to_numpy(dtype=np.int64),
            gate_logged=bool(frame["gate_logged"].any()),
            grouped=bool(rows["grouped"].any()),
        )
        yield step, step_tokens
