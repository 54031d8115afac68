"""What does not add up: extremes, quantiles, tail indices and the log-ratio histogram of each step."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from math import ceil, inf, nan
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from ratioscope import notes
from ratioscope.analysis.summary.selection import Edges
from ratioscope.analysis.summary.sketch import Sketch, StepSketch, exact_ones, sketch, together
from ratioscope.tails import QUANTILES as QUANTILES
from ratioscope.tails import Array, interpolated, kept_size, largest_last, log_sum_squares, pareto_khat

# Bins are even in asinh(log rho / BIN_SCALE): fine around ratio 1, logarithmic far from it.
BIN_SCALE, BIN_WIDTH, LAST_BIN = 0.01, 0.15, 100

Rows = slice | NDArray[np.intp]

RankedRatios = tuple[list[tuple[int, Rows]], Array, Array]
"""Each step with its rows; of rows, the log-ratio and the new log-ratio, (n,), NaN where there is none."""

EXACT_TOKENS = 5_000_000
"""Steps are sorted up to this many tokens, alone or together."""
_PIECE_TOKENS = 1_000_000


def bin_log_ratio(bins: Array) -> Array:
    """The log-ratio at the centre of a histogram bin."""
    return BIN_SCALE * np.sinh(bins * BIN_WIDTH)


_EDGES: Array = bin_log_ratio(np.arange(-LAST_BIN, LAST_BIN, dtype=float) + 0.5)


def of_steps(
    connection: duckdb.DuckDBPyConnection, part_of: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame | None]:
    """Order statistics (one row a step with ratios) and histogram (one row a step and bin) of the view `usable`.

    Needs the tables `sequence_sums` and `unusable_sums`. The first has, in nats, lowest and highest log-ratio, the
    highest of a sequence, the quantiles, and log of the sum of squares of the largest 1 % of ratios; and the tail
    indices, NaN where they cannot be estimated, for the reason in <name>_note, which is of the kind <name>_note_kind.
    They are exact for steps of up to EXACT_TOKENS tokens, of others they are those of a `StepSketch`.

    Args:
        part_of: the steps that the view shows a part of have at most so many tokens; None: it shows them whole.

    Returns:
        Both, and where the view shows a part the sketches of its steps, as rows.
    """
    weights = connection.execute(
        "select step, log_w from sequence_sums anti join unusable_sums using (step, seq_id) where n_ratios = n_tokens"
    ).fetchnumpy()
    log_weights = _weights_of_steps(weights["step"], weights["log_w"])
    rows, bins, sketches = [], [], []
    for where, tokens in _batches(connection):
        # No nulls: they would cost a mask.
        found = connection.sql(
            "select step, coalesce(log_rho, 'nan'::double) as log_rho, coalesce(log_rho_new, 'nan'::double) as "
            f"log_rho_new from usable where {where}"
        )
        if part_of is None and tokens <= EXACT_TOKENS:
            for number, ordered, new in _by_step(_arrays(found.to_arrow_table())):
                row = of_step(ordered, largest_last(new), log_weights.get(number, np.empty(0)))
                rows.append({"step": number} | row)
                bins.append(_histogram(ordered))
            continue
        largest = exact_ones(part_of or tokens)
        for number, (of_tokens, of_new, histogram) in _sketched(found, largest).items():
            of_sequences = sketch(log_weights.get(number, np.empty(0)), largest)
            sketched = StepSketch(of_tokens, of_new, of_sequences)
            rows.append({"step": number} | sketched.order())
            bins.append(histogram)
            sketches.append(sketched.table(number))
    return *_frames(rows, bins), pd.concat(sketches, ignore_index=True) if part_of and sketches else None


def of_log_ratios(log_ratios: RankedRatios, weights: tuple[NDArray[Any], Array]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same of steps whose rows are in memory.

    Args:
        weights: step and log-ratio of each response all of whose tokens have one.
    """
    log_weights = _weights_of_steps(*weights)
    rows, bins = [], []
    for number, ordered, new, histogram in _selected(log_ratios):
        rows.append({"step": number} | of_step(ordered, new, log_weights.get(number, np.empty(0))))
        bins.append(histogram)
    return _frames(rows, bins)


def _weights_of_steps(step: NDArray[Any], log_weights: Array) -> dict[int, Array]:
    return {number: log_weights[rows] for number, rows in _rows_of_steps(step)}


def _frames(rows: list[dict[str, Any]], bins: list[NDArray[np.int64]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Order statistics and histogram from a row, and the counts of the bins, of each step."""
    order = pd.DataFrame(rows, columns=["step", *of_step(np.zeros(1), np.zeros(0), np.zeros(0))])
    counts = np.asarray(bins, dtype=np.int64).reshape(-1, len(_EDGES) + 1)  # (steps, bins)
    filled, bin_ = np.nonzero(counts)
    steps = order["step"].to_numpy(dtype=np.int64)[filled]
    histograms = pd.DataFrame({"step": steps, "bin": bin_ - LAST_BIN, "tokens": counts[filled, bin_]})
    return order, histograms


def _batches(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, int]]:
    """Which steps are fetched together, as a condition, and how many tokens they have: a step of more is alone."""
    sizes = connection.execute("select step, sum(n_tokens) from sequence_sums group by step order by step").fetchall()
    if sizes and sum(size for _, size in sizes) <= EXACT_TOKENS:
        yield "true", sum(size for _, size in sizes)  # a filter would be half of the work
        return
    first, tokens = 0, 0
    for place, (step, size) in enumerate(sizes):
        first, tokens = (first, tokens + size) if tokens else (step, size)
        if place == len(sizes) - 1 or tokens + sizes[place + 1][1] > EXACT_TOKENS:
            yield f"step between {first} and {step}", tokens
            tokens = 0


def _arrays(table: pa.Table) -> RankedRatios:
    step, log_rho, log_rho_new = (column.to_numpy() for column in table.columns)
    return list(_rows_of_steps(step)), log_rho, log_rho_new


def _by_step(log_ratios: RankedRatios) -> Iterator[tuple[int, Array, Array]]:
    """Each step with its log-ratios, ascending, and those of the new policy, without NaN."""
    steps, log_rho, log_rho_new = log_ratios
    for number, places in steps:
        ordered, new = np.sort(log_rho[places]), log_rho_new[places]
        absent = np.isnan(new)
        yield number, ordered[: np.searchsorted(ordered, np.nan)], new[~absent] if absent.any() else new  # NaN is last


def _selected(log_ratios: RankedRatios) -> Iterator[tuple[int, Array, Array, NDArray[np.int64]]]:
    """Each step with its log-ratios and those of the new policy, in order where `of_step` asks, and the histogram."""
    steps, log_rho, log_rho_new = log_ratios
    for number, places in steps:
        binned, new = (_edges().bins_of(logs[places]) for logs in (log_rho, log_rho_new))
        n, n_new = int(binned.counts.sum()), int(new.counts.sum())
        yield number, binned.ascending(_asked_of(n)), new.ascending(_kept_of(n_new)), binned.counts


def _asked_of(n: int) -> NDArray[np.int64]:
    """The places of n ascending numbers that the row of a step is made from."""
    quantiles = [place for q in QUANTILES.values() for place in (int(q * (n - 1)), min(int(q * (n - 1)) + 1, n - 1))]
    return np.concatenate([_kept_of(n), np.array([0, *quantiles] if n else [], dtype=np.int64)])


def _kept_of(n: int) -> NDArray[np.int64]:
    return np.arange(n - min(kept_size(n), n), n)


@cache
def _edges() -> Edges:
    """Those of the histogram."""
    return Edges(_EDGES)


def _sketched(found: duckdb.DuckDBPyRelation, largest: int) -> dict[int, tuple[Sketch, Sketch, NDArray[np.int64]]]:
    """By step: log-ratios, those of the new policy, and the histogram, from a piece of the rows after the other."""
    so_far: dict[int, tuple[Sketch, Sketch, NDArray[np.int64]]] = {}
    for batch in found.to_arrow_reader(_PIECE_TOKENS):
        for number, ordered, new in _by_step(_arrays(pa.Table.from_batches([batch]))):
            tokens, of_new, bins = sketch(ordered, largest), sketch(new, largest), _histogram(ordered)
            if number in so_far:
                before = so_far[number]
                tokens, of_new = together([before[0], tokens], largest), together([before[1], of_new], largest)
                bins = bins + before[2]
            so_far[number] = tokens, of_new, bins
    return so_far


def _histogram(ordered: Array) -> NDArray[np.int64]:
    return np.diff(np.searchsorted(ordered, _EDGES), prepend=0, append=len(ordered))


def rows_of_stretches(step: NDArray[Any], starts: NDArray[np.int64], n: int) -> list[tuple[int, Rows]]:
    """Each step with its rows, from stretches of rows of one step, which begin at `starts`; there are n rows."""
    if (np.diff(step) < 0).any():
        return list(_rows_of_steps(np.repeat(step, np.diff(starts, append=n))))
    changes = np.flatnonzero(np.diff(step, prepend=step[:1] - 1))
    bounds = pairwise([*starts[changes].tolist(), n])
    return [(int(number), slice(*rows)) for number, rows in zip(step[changes], bounds, strict=True)]


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


def of_step(ordered: Array, largest_new: Array, log_weights: Array) -> dict[str, Any]:
    """The row of one step.

    Args:
        ordered: log-ratios of the tokens, ascending: of its `_asked_of` places alone this need be true.
        largest_new: those of the new policy: the `kept_size` largest are last and ascending.
        log_weights: those of the sequences, in any order.
    """
    there = len(ordered) > 0
    row: dict[str, Any] = {"lowest": ordered[0] if there else nan, "highest": ordered[-1] if there else nan}
    row["highest_w"] = log_weights.max() if len(log_weights) else -inf
    for name, q in QUANTILES.items():
        row[name] = interpolated(lambda place: float(ordered[place]), len(ordered), q) if there else nan
    row["top_squares"] = log_sum_squares(ordered[-max(1, ceil(len(ordered) / 100)) :]) if there else nan
    tails = {"khat_token": ordered, "khat_token_new": largest_new, "khat_seq": largest_last(log_weights)}
    for name, logs in tails.items():
        khat, note = pareto_khat(logs[::-1][: kept_size(len(logs))], len(logs))
        row[name] = np.nan if khat is None else khat
        row |= {f"{name}_{column}": text for column, text in notes.cells(note).items()}
    return row
