"""What a run logs: every declared column with the share of rows that have it, values that are no numbers, and metrics
that cannot be computed for want of a column."""

from dataclasses import replace

import pandas as pd
import pyarrow as pa

from ratioscope.analysis.runs.columns import added_up
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import Kind, Note
from ratioscope.run_format import schema


def declared_columns(run: Run) -> pd.DataFrame:
    """Every declared column of every table, from the files' footers; no row is read.

    Columns: table, column, required (bool), logged (share of the table's rows that have a value; NaN where the footers
    do not count nulls, or the table has no rows), unit, meaning.

    Raises:
        OSError, ArrowInvalid: a file cannot be read any more.
    """
    rows = []
    for table in schema.ALL_TABLES.values():
        n_rows, n_values = added_up(run.files[table.name])
        for column in table.columns:
            share = n_values.get(column.name, 0) / n_rows if n_rows else float("nan")
            rows.append((table.name, column.name, column.required, share, column.unit, column.meaning))
    return pd.DataFrame(rows, columns=["table", "column", "required", "logged", "unit", "meaning"])


_ABOVE = "above 0"
_CAUSES = {
    "NaN": "isnan({0})",
    "+∞": "{0} = 'inf'::float",
    "-∞": "{0} = '-inf'::float",
    _ABOVE: f"isfinite({{0}}) and {{0}} > {schema.LARGEST_LOG_PROBABILITY}",
}


def impossible_values(run: Run, first: int | None = None, last: int | None = None) -> pd.DataFrame:
    """Values of the tokens table that are no finite numbers, or log-probabilities above 0, by column and cause.

    Columns: column, cause ("NaN", "+∞", "-∞", "above 0"), values (how many), share (of the rows). -∞ in logp_current
    and logp_new is a legitimate ratio of 0 and is counted all the same.

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    floats = [column.name for column in schema.TOKENS.columns if pa.types.is_floating(column.type)]
    with relations(replace(run, left_out=()), first, last) as connection:
        # One pass finds the columns; few logs have any, and the causes cost a pass each.
        finite = {name: f"isfinite({name})" for name in floats} | {
            name: f"isfinite({name}) and {name} <= {schema.LARGEST_LOG_PROBABILITY}"
            for name in floats if name.startswith("logp_")
        }  # fmt: skip
        every = ", ".join(f"coalesce(bool_and({condition}), true)" for condition in finite.values())
        n_rows, *clean = connection.execute(f"select count(*), {every} from token").fetchall()[0]
        conditions = {
            (name, cause): condition.format(name)
            for name, is_clean in zip(floats, clean, strict=True)
            for cause, condition in (() if is_clean else _CAUSES.items())
            if cause != _ABOVE or name.startswith("logp_")
        }
        counts = [f"count(*) filter ({condition})" for condition in conditions.values()]
        found = connection.execute(f"select {', '.join(counts)} from token").fetchall()[0] if counts else ()
    rows = [(*key, n, n / n_rows) for key, n in zip(conditions, found, strict=True) if n]
    return pd.DataFrame(rows, columns=["column", "cause", "values", "share"])


def undefined_metrics(summary: StepSummary) -> pd.DataFrame:
    """Metrics that no step of a run has because something is not logged; by what is missing.

    Columns: reason, metrics (titles, semicolons between).
    """
    found: dict[str, list[str]] = {}
    for key, metric in CATALOGUE.items():
        if summary.values[key].notna().any() or not len(summary.values):
            continue
        note = summary.last_note(key) or Note(Kind.NOT_LOGGED, f"{key} is not logged in the steps table")
        if note.kind is Kind.NOT_LOGGED:
            found.setdefault(note.text, []).append(metric.label)
    return pd.DataFrame(
        [(reason, "; ".join(metrics)) for reason, metrics in found.items()], columns=["reason", "metrics"]
    )
