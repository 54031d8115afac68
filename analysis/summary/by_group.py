"""Sums over prompt groups without a database, from what `compiled` summed over responses and from files of responses.

SQL stays the definition: `group_sums.sql` and `response_sums.sql` say what is summed, and tests hold this to them. For
a new file of a live run to make a database and its views takes as long as to read the file.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ratioscope.analysis.runs.columns import columns_with_values, schema_of
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.summary.compiled import KEYS
from ratioscope.analysis.summary.sums import MADE, WITHIN, count_names, sum_columns, sum_names
from ratioscope.metric import Grain
from ratioscope.run_format import schema
from ratioscope.storage.places import Remote
from ratioscope.tails import Array
from ratioscope.terms import Term, case, column, evaluate_term, known

_KEY = ("step", "group_id")
_LISTED = {each.name: each.type for each in schema.SEQUENCES.columns}


def log_weights(sequence_sums: pa.Table) -> tuple[NDArray[np.int64], Array]:
    """Step and log-ratio of each response all of whose tokens have one."""
    step, n_tokens, n_ratios, log_w = (
        sequence_sums[name].to_numpy() for name in ("step", "n_tokens", "n_ratios", "log_w")
    )
    whole = n_ratios == n_tokens
    return step[whole], log_w[whole]


def token_groups(sequence_sums: pa.Table) -> pd.DataFrame:
    """What `group_sums.sql` makes of responses without an unusable token, whose rows are ascending."""
    every = {name: sequence_sums[name].fill_null(0).to_numpy() for name in sequence_sums.column_names}
    starts = _starts(every)
    with np.errstate(all="ignore"):  # what is not finite stays so
        summed = {name: np.add.reduceat(values, starts) for name, values in every.items() if name not in KEYS}
        for name, (term, over) in sum_names(Grain.TOKEN).items():
            # A count of nothing but unknowns is 0.
            absent = (summed[over.count] == 0) & (not term.is_condition)
            summed[name] = np.where(absent, np.nan, summed[name].astype(float))
        made = {name: evaluate_term(term, summed, np) for name, term in MADE.items()}
        weights = _weight_sums(every["log_w"], every["n_ratios"] == every["n_tokens"], starts)
    kept = {name: values for name, values in summed.items() if name not in WITHIN}
    return pd.DataFrame({name: every[name][starts] for name in _KEY} | kept | made | weights)


_UNUSABLE = (
    "n_undefined",
    "n_invalid",
    *(f"n_invalid_{cause}" for cause in ("nan", "infinite", "positive", "advantage")),
)


def _weight_sums(log_w: Array, whole: NDArray[np.bool_], starts: NDArray[np.intp]) -> dict[str, Array]:
    """Logs of the sums of the ratios of whole responses, of their squares and of those of their distances from 1."""
    n_rows = np.diff(starts, append=len(log_w))
    log_square = 2 * np.where(log_w > 30, log_w, np.where(log_w < -30, -np.exp(log_w), np.log(np.abs(np.expm1(log_w)))))
    n = np.add.reduceat(whole.astype(np.int64), starts)
    found: dict[str, Array] = {"n_weights": np.where(n > 0, n, np.nan)}
    found["n_without_weight"] = np.where(n < n_rows, n_rows - n, np.nan)
    for name, logs in (("lse_w", log_w), ("lse_w_squared", 2 * log_w), ("lse_chi2", log_square)):
        there = np.where(whole, logs, -np.inf)
        top = np.maximum.reduceat(there, starts)
        terms = np.exp(there - np.repeat(np.where(np.isfinite(top), top, 0.0), n_rows))
        found[name] = np.where(
            n > 0, np.where(np.isfinite(top), top + np.log(np.add.reduceat(terms, starts)), top), np.nan
        )
    return found | {name: np.full(len(starts), np.nan) for name in _UNUSABLE}


@cache
def _read() -> tuple[str, ...]:
    """The columns of a file of responses that are read."""
    return tuple(dict.fromkeys((*_KEY, "seq_id", *sorted(sum_columns(Grain.RESPONSE) - {"grouped"}))))


def can_sum(files: Sequence[TableFile]) -> bool:
    """Whether files of responses are of the ordinary kind: of this machine, columns as declared, lengths listed."""
    if not files or any(isinstance(file.path, Remote) for file in files) or not _LISTED.keys() >= {*_read()}:
        return False
    fields = [field for file in files for field in schema_of(file) if field.name in _read()]
    return all(field.type == _LISTED[field.name] for field in fields) and "n_tokens" in columns_with_values(files)


def response_groups(files: Sequence[TableFile], steps: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """What `response_sums.sql` makes of the responses of some ranges of steps, ends included.

    Args:
        files: for which `can_sum`.
    """
    table = pa.concat_tables(map(_table, files))
    valid = {name: table[name].is_valid().to_numpy() for name in _read()}
    every = {name: table[name].fill_null(0).to_numpy() for name in (*_KEY, "seq_id")}
    every |= {name: table[name].to_numpy().astype(float) for name in _read() if name not in every}
    every["grouped"] = valid["group_id"]
    step = every["step"]
    inside = np.flatnonzero(np.logical_or.reduce([(step >= first) & (step <= last) for first, last in steps]))
    every["group_id"] = np.where(valid["group_id"], every["group_id"], -1 - every["seq_id"])
    order = inside[np.lexsort([every["group_id"][inside], step[inside]])]
    every, valid = ({name: values[order] for name, values in of.items()} for of in (every, valid))
    starts = _starts(every)
    computed: dict[Term, Any] = {known(column(name)): values for name, values in valid.items()}  # NaN is no null
    found = {"n_sequences": np.diff(starts, append=len(order))}
    for name, term in count_names(Grain.RESPONSE).items():
        found[name] = np.add.reduceat(evaluate_term(term, every, np, computed).astype(float), starts)
    for name, (term, over) in sum_names(Grain.RESPONSE).items():
        values = evaluate_term(case(over.where, term, 0) if over.where else term, every, np, computed)
        total = np.add.reduceat(values, starts)
        found[name] = np.where(found[over.count] > 0, total, np.nan)
    return pd.DataFrame({name: every[name][starts] for name in _KEY} | found)


def _table(file: TableFile) -> pa.Table:
    with pq.ParquetFile(file.path, memory_map=True, page_checksum_verification=True) as opened:
        there = [name for name in _read() if name in opened.schema_arrow.names]
        table = opened.read(columns=there, use_threads=False)
    return pa.table({name: table[name] if name in there else pa.nulls(len(table), _LISTED[name]) for name in _read()})


def _starts(columns: dict[str, NDArray[np.int64]]) -> NDArray[np.intp]:
    """The rows at which a group begins; rows are ascending."""
    step, group = (columns[name] for name in _KEY)
    if not len(step):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.append(True, (step[1:] != step[:-1]) | (group[1:] != group[:-1])))
