"""What does not add up: extremes, quantiles, tail indices and the log-ratio histogram of each step."""

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, inf, isfinite, log, nan
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope import notes
from ratioscope.tails import QUANTILES as QUANTILES
from ratioscope.tails import Array, khat_of

# Bins are even in asinh(log rho / BIN_SCALE): fine around ratio 1, logarithmic far from it.
BIN_SCALE, BIN_WIDTH, LAST_BIN = 0.01, 0.15, 100

Rows = slice | NDArray[np.intp]

# Steps are fetched together up to this many tokens.
_FETCH_TOKENS = 5_000_000


def bin_log_ratio(bins: Array) -> Array:
    """The log-ratio at the centre of a histogram bin."""
    return BIN_SCALE * np.sinh(bins * BIN_WIDTH)


_EDGES: Array = bin_log_ratio(np.arange(-LAST_BIN, LAST_BIN, dtype=float) + 0.5)


def of_steps(connection: duckdb.DuckDBPyConnection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Order statistics (one row a step with ratios) and histogram (one row a step and bin) of the view `usable`.

    Needs the tables `sequence_sums` and `unusable_sums`. The first has, in nats, lowest and highest log-ratio, the
    highest of a sequence, the quantiles, and log of the sum of squares of the largest 1 % of ratios; and the tail
    indices, NaN where they cannot be estimated, for the reason in <name>_note, which is of the kind <name>_note_kind.
    """
    weights = connection.execute(
        "select step, log_w from sequence_sums anti join unusable_sums using (step, seq_id) where n_ratios = n_tokens"
    ).fetchnumpy()
    log_weights = {step: weights["log_w"][rows] for step, rows in _rows_of_steps(weights["step"])}
    rows, bins = [], []
    for where in _batches(connection):
        # No nulls: they would cost a mask.
        table = connection.sql(
            "select step, coalesce(log_rho, 'nan'::double) as log_rho, coalesce(log_rho_new, 'nan'::double) as "
            f"log_rho_new from usable where {where}"
        ).to_arrow_table()
        step, log_rho, log_rho_new = (column.to_numpy() for column in table.columns)
        for number, places in _rows_of_steps(step):
            ordered = np.sort(log_rho[places])  # NaN last
            ordered = ordered[: len(ordered) - int(np.isnan(ordered).sum())]
            row = of_step(ordered, log_rho_new[places], log_weights.get(number, np.empty(0)))
            rows.append({"step": number} | row)
            bins.append(np.diff(np.searchsorted(ordered, _EDGES), prepend=0, append=len(ordered)))
    order = pd.DataFrame(rows, columns=["step", *of_step(np.zeros(1), np.zeros(0), np.zeros(0))])
    counts = np.asarray(bins, dtype=np.int64).reshape(-1, len(_EDGES) + 1)  # (steps, bins)
    filled, bin_ = np.nonzero(counts)
    steps = order["step"].to_numpy(dtype=np.int64)[filled]
    return order, pd.DataFrame({"step": steps, "bin": bin_ - LAST_BIN, "tokens": counts[filled, bin_]})


def _batches(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Which steps are fetched together, as a condition."""
    sizes = connection.execute("select step, sum(n_tokens) from sequence_sums group by step order by step").fetchall()
    if not sizes:
        return
    if sum(size for _, size in sizes) <= _FETCH_TOKENS:
        yield "true"  # a filter would be half of the work
        return
    first, tokens = None, 0
    for place, (step, size) in enumerate(sizes):
        first, tokens = step if first is None else first, tokens + size
        if tokens >= _FETCH_TOKENS or place == len(sizes) - 1:
            yield f"step between {first} and {step}"
            first, tokens = None, 0


def _rows_of_steps(step: NDArray[Any]) -> Iterator[tuple[int, Rows]]:
    """Each step with the places of its rows: a slice where the rows are in step order, as they usually are."""
    changes = np.diff(step)
    if (changes < 0).any():
        order = np.argsort(step, kind="stable")
        starts = np.flatnonzero(np.diff(step[order])) + 1
        yield from ((int(step[places[0]]), places) for places in np.split(order, starts))
        return
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(step)]
    yield from ((int(step[start]), slice(start, end)) for start, end in pairwise(bounds) if end > start)


def of_step(ordered: Array, log_rho_new: Array, log_weights: Array) -> dict[str, Any]:
    """The row of one step.

    Args: log-ratios of the tokens, ascending; of the new policy, NaN where it is not logged; of the sequences."""
    there = len(ordered) > 0
    row: dict[str, Any] = {"lowest": ordered[0] if there else nan, "highest": ordered[-1] if there else nan}
    row["highest_w"] = log_weights.max() if len(log_weights) else -inf
    row |= {name: _quantile(ordered, q) if there else nan for name, q in QUANTILES.items()}
    row["top_squares"] = _log_sum_squares(ordered[-max(1, ceil(len(ordered) / 100)) :]) if there else nan
    tails = {"khat_token": ordered, "khat_token_new": log_rho_new[~np.isnan(log_rho_new)], "khat_seq": log_weights}
    for name, logs in tails.items():
        khat, note = khat_of(logs)
        row[name] = np.nan if khat is None else khat
        row |= {f"{name}_{column}": text for column, text in notes.cells(note).items()}
    return row


def _log_sum_squares(ordered: Array) -> float:
    """Log of the sum of squares, from ascending logarithms."""
    peak = float(ordered[-1])
    return 2 * peak + log(np.exp(2 * (ordered - peak)).sum()) if isfinite(peak) else peak


def _quantile(ordered: Array, q: float) -> float:
    """By linear interpolation of the log-ratios; a neighbour at -inf is only reached where there is nothing between."""
    place, fraction = divmod(q * (len(ordered) - 1), 1)
    low, high = float(ordered[int(place)]), float(ordered[min(int(place) + 1, len(ordered) - 1)])
    return low if low == high or fraction == 0 or low == -inf else low + fraction * (high - low)
