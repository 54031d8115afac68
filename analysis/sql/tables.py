"""The tables that a query sees: how they are made of the run's files, and what their columns mean.

`tokens` has the declared columns and those that every analysis starts from (log-ratios in double, version lag, why a
row cannot be used); `sequences`, `steps`, `probes` and `vocabulary` are as they were logged; `summary` has every metric
of the catalogue by step, with its interval, and `notes` why one is missing or cannot be trusted.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.analysis.runs.columns import schema_of
from ratioscope.analysis.runs.database import query
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.runs.relations import may_hold_out, quoted, sql_type
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.sql.worker import SCHEME
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import Kind
from ratioscope.run_format import schema
from ratioscope.run_format.schema import Column

DERIVED = (
    Column("logp_sampled", pa.float32(), "what ratios divide by: logp_behavior, else logp_behavior_train", "nats"),
    Column("log_rho", pa.float64(), "log ratio, current over behavior: logp_current - logp_sampled", "nats"),
    Column("log_rho_new", pa.float64(), "log ratio, new over behavior: logp_new - logp_sampled", "nats"),
    Column("log_engine", pa.float64(), "log ratio of the two engines: logp_behavior_train - logp_behavior", "nats"),
    Column("log_reference", pa.float64(), "log ratio, reference over behavior: logp_reference - logp_sampled", "nats"),
    Column("log_teacher", pa.float64(), "log ratio, teacher over behavior: logp_teacher - logp_sampled", "nats"),
    Column("grouped", pa.bool_(), "the prompt group is logged; otherwise group_id is the response's own, below 0"),
    Column("version_lag", pa.int64(), "updates between the version that sampled the token and the current", "updates"),
    Column(
        "invalid",
        pa.string(),
        "why no metric uses this row: nan, infinite, positive, advantage, held out; null: they do",
    ),
)
_VOCABULARY = "vocabulary.parquet"


@dataclass(frozen=True)
class Documented:
    """A table as the schema help shows it."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    logged: frozenset[str]
    """The columns that hold something in this run; the others are null throughout."""


@dataclass(frozen=True)
class Offer:
    """What a query of a run can be answered from."""

    tables: tuple[str, ...]
    setup: tuple[str, ...]
    """Statements that make the views."""
    files: Mapping[str, Path]
    """Path of each file, by the name that the views know it by."""
    contents: Mapping[str, Callable[[], bytes]]
    """Parquet files that are not on disk, made when they are needed."""


def offer(run: Run, summary: StepSummary) -> Offer:
    """The tables of a run, for `worker`.

    Raises:
        OSError, pa.ArrowInvalid: a file vanished or broke since the run was opened.
    """
    files = {name: run.files[name] for name in schema.ALL_TABLES if run.files[name]}
    setup = [query("runs/macros")]
    names: dict[str, Path] = {}
    for name, parts in sorted(files.items(), key=lambda item: item[0] == schema.TOKENS.name):  # they ask the responses
        setup += _views(run, name, parts)
        names |= {f"{name}/{part.name}": part.resolved for part in parts}
    tables = [*files]
    vocabulary = run.folder / _VOCABULARY
    if vocabulary.is_file():
        names[_VOCABULARY] = vocabulary.resolve()
        setup.append(_plain_view("vocabulary", _VOCABULARY))
        tables.append("vocabulary")
    contents = {"summary": lambda: _parquet(wide(summary)), "notes": lambda: _parquet(notes(summary))}
    setup += [_plain_view(name, name) for name in contents]
    return Offer((*tables, *contents), tuple(setup), names, contents)


def _views(run: Run, name: str, parts: Sequence[TableFile]) -> list[str]:
    rows = _relation(schema.ALL_TABLES[name], parts)
    if name != schema.TOKENS.name:
        return [f"create view {name} as select * from {rows}"]
    ahead = run.versions_ahead
    if len(ahead):
        steps, by = ahead.index.astype(int).tolist(), ahead.astype(int).tolist()
        versions = f"(select unnest({steps}::integer[]) as step, unnest({by}::bigint[]) as ahead)"
        rows = f"(select rows.*, coalesce(ahead, 0) as ahead from {rows} as rows left join {versions} using (step))"
    else:
        rows = f"(select *, {0 if run.counts_versions else 'null::integer'} as ahead from {rows})"
    text = query(f"runs/{name}").replace("$largest", str(schema.LARGEST_LOG_PROBABILITY))
    return [text.replace("from source", f"from {rows}"), f"create view tokens as select * from {_judged(run)}"]


def _judged(run: Run) -> str:
    """`token`, in which rows that are wrong, and responses that were held out, say so."""
    rows = "token"
    if run.left_out:
        wrong = " or ".join(each.over_tokens("sequences") for each in run.left_out)
        rows = f"(select * replace (case when {wrong} then 'left out' else invalid end as invalid) from token)"
    if not any(map(may_hold_out, run.files[schema.SEQUENCES.name])):
        return rows
    held = f"(select step, seq_id, dropped as held from sequences where dropped = {_text(schema.HELD_OUT)})"
    said = "select * exclude (held) replace (coalesce(held, invalid) as invalid)"
    return f"({said} from {rows} left join {held} using (step, seq_id))"


def _relation(table: schema.DeclaredTable, parts: Sequence[TableFile]) -> str:
    """The declared columns of all the files, null where none has them, and the free ones that a file brings."""
    found = {name for part in parts for name in _names(part)}
    selected = [
        quoted(column.name) if column.name in found else f"null::{sql_type(column)} as {quoted(column.name)}"
        for column in table.columns
    ] + [quoted(name) for name in _free(table, parts)]
    # The names are made up: a query must not learn where on this machine the run lies.
    names = ", ".join(_text(f"{SCHEME}://{table.name}/{part.name}") for part in parts)
    # can_have_nan: without it DuckDB prunes row groups by min and max, in which Parquet leaves NaN out.
    return f"(select {', '.join(selected)} from read_parquet([{names}], union_by_name=true, can_have_nan=true))"


def _names(part: TableFile) -> list[str]:
    return list(schema_of(part).names)


def _free(table: schema.DeclaredTable, parts: Sequence[TableFile]) -> list[str]:
    """Columns that the format does not declare: reward_<part>, extra_<name> and others."""
    taken = {column.name for column in (*table.columns, *DERIVED)} | {"ahead"}
    found = {name.lower(): name for part in parts for name in _names(part)}
    return [name for lower, name in found.items() if lower not in taken]


def _plain_view(view: str, name: str) -> str:
    return f"create view {view} as select * from read_parquet({_text(f'{SCHEME}://{name}')}, can_have_nan=true)"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def wide(summary: StepSummary) -> pa.Table:
    """One row a step: each metric, and <metric>_lower and <metric>_upper where there are any; undefined is null."""
    frames = [summary.values]
    for end, name in ((summary.low, "lower"), (summary.high, "upper")):
        frames.append(end.loc[:, end.notna().any()].add_suffix(f"_{name}"))
    table = pd.concat(frames, axis=1)
    return pa.table({"step": table.index.to_numpy(np.int32)} | {str(key): pa.array(table[key]) for key in table})


def notes(summary: StepSummary) -> pa.Table:
    """Why a metric is missing or cannot be trusted at a step."""
    rows = [
        (step, key, note.kind.value, note.text)
        for step, of_step in summary.notes.items()
        for key, note in of_step.items()
    ]
    steps, keys, kinds, texts = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "step": pa.array(steps, pa.int32()),
            "metric": pa.array(keys, pa.string()),
            "note_kind": pa.array(kinds, pa.string()),
            "note": pa.array(texts, pa.string()),
        }
    )


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def documented(run: Run, summary: StepSummary) -> list[Documented]:
    """The tables of a run with what their columns mean, in the order in which they are best read."""
    found = []
    for name, table in schema.ALL_TABLES.items():
        parts = run.files[name]
        if not parts:
            continue
        logged = {column for part in parts for column in _names(part)}
        free = [Column(column, pa.string(), "free column of this run") for column in _free(table, parts)]
        derived = DERIVED if table is schema.TOKENS else ()
        known = {column.name for column in derived if all(needed & logged for needed in _PARENTS[column.name])}
        if table is schema.TOKENS and "clip_side" in logged:
            known.add("clipped")
        found.append(Documented(name, table.grain, (*table.columns, *derived, *free), frozenset(logged | known)))
    if (run.folder / _VOCABULARY).is_file():
        names = frozenset(column.name for column in schema.VOCABULARY.columns)
        found.append(Documented("vocabulary", schema.VOCABULARY.grain, schema.VOCABULARY.columns, names))
    return [*found, _summary_documented(summary), _NOTES]


_SAMPLED = frozenset({"logp_behavior", "logp_behavior_train"})
# What a derived column is null without: of each set, one.
_PARENTS: Mapping[str, tuple[frozenset[str], ...]] = {
    "logp_sampled": (_SAMPLED,),
    "log_rho": (_SAMPLED, frozenset({"logp_current"})),
    "log_rho_new": (_SAMPLED, frozenset({"logp_new"})),
    "log_engine": (frozenset({"logp_behavior"}), frozenset({"logp_behavior_train"})),
    "log_reference": (_SAMPLED, frozenset({"logp_reference"})),
    "log_teacher": (_SAMPLED, frozenset({"logp_teacher"})),
    "grouped": (),
    "version_lag": (frozenset({"behavior_version"}),),
    "invalid": (),
}
_NOTES = Documented(
    "notes",
    "a metric of the summary that is missing or cannot be trusted at a step",
    (
        Column("step", pa.int32(), "update index k"),
        Column("metric", pa.string(), "column of the summary"),
        Column("note_kind", pa.string(), ", ".join(Kind)),
        Column("note", pa.string(), "why"),
    ),
    frozenset({"step", "metric", "note_kind", "note"}),
)


def _summary_documented(summary: StepSummary) -> Documented:
    columns = [Column("step", pa.int32(), "update index k")]
    for key in map(str, summary.values):
        metric = CATALOGUE.get(key)
        interval = bool(summary.low[key].notna().any())
        meaning = (metric.title if metric else "number of them") + (
            f"; 95% interval in {key}_lower, {key}_upper" if interval else ""
        )
        columns.append(Column(key, pa.float64(), meaning, metric.unit if metric else ""))
    known = {str(key) for key in summary.values if summary.values[key].notna().any()}
    return Documented(
        "summary", "one update: every metric of the catalogue", tuple(columns), frozenset(known | {"step"})
    )


def extent(summary: StepSummary, tables: Sequence[Documented]) -> str:
    """What there is to ask, in a sentence."""
    values = summary.values
    tokens, steps = int(values["n_tokens"].sum()), len(values)
    names = ", ".join(table.name for table in tables)
    return f"{tokens:,} tokens in {steps:,} step{'s' * (steps != 1)} can be queried, in the tables {names}."
