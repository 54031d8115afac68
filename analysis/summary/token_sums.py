"""Sums over the usable tokens of each response, in one pass over the rows: what the step summary is made from.

The terms are numpy twins of the SQL in the catalogue; tests compare them. Order statistics take log-ratios from the
same pass. A mean or a count that is not here is left to SQL (`sums.py`): an entry in the catalogue is enough.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratioscope.tails import Array

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
Sums = dict[str, NDArray[Any]]
"""By name; one value a response, or a stretch of rows of one."""

KEYS = ("step", "group_id", "seq_id")

_READ = (
    "step, group_id, seq_id, grouped::tinyint as grouped, logp_behavior, logp_sampled, logp_current, logp_new, "
    "advantage, clip_side, clipped::tinyint as clipped, version_lag"
)
# Rows at a time: intermediate values stay in the processor's caches.
_ROWS = 32_768
_MANY = 1_000_000
# Below it k3 is its series: the difference of exponential and polynomial would have fewer digits.
_SMALL = 1e-2

# What each sum is over: it is null, and not 0, where there is nothing of that.
_OVER = {
    **dict.fromkeys(("log_w", "signed_deviation", "deviation_squared"), "n_ratios"),
    **dict.fromkeys(("abs_log_ratio", "kl_k2", "kl_k3", "kl_reverse"), "n_ratios"),
    **dict.fromkeys(("u_k", "u_k_bounded"), "n_update"),
    "signed_deviation_new": "n_new",
    "n_signal": "n_advantage",
    "version_lag": "n_lag",
}
_OTHERS = (
    *("shortfall", "shortfall_new", "n_tokens", "n_grouped", "n_recomputed", "n_sampled", "n_current", "n_behavior"),
    *("n_ratios", "n_new", "n_update", "n_advantage", "n_clip", "n_side", "n_positive", "n_negative", "n_lag"),
    *("clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_positive", "clip_fraction_negative"),
)
SUMS = frozenset((*_OVER, *_OTHERS))
"""Names of all that is counted and summed here: those of catalogue entries, of what they are over, and what
`group_sums.sql` makes others from."""


LogRatios = tuple[NDArray[np.integer], Array, Array]
"""Of rows, as they came: step, and log-ratio and new log-ratio, NaN where there is none; each (n,)."""


def create_sequence_sums(connection: duckdb.DuckDBPyConnection, most: int) -> LogRatios | None:
    """Make the table `sequence_sums` of the rows of the view `usable`: one row a (step, group_id, seq_id), ascending.

    Returns:
        The log-ratios of the rows; None where these are more than `most`.
    """
    reader = connection.sql(f"select {_READ} from usable").to_arrow_reader(_ROWS)
    nothing = pa.RecordBatch.from_pylist([], schema=reader.schema)
    # New memory for each term would take longer than the terms.
    scratch, log_ratios = np.empty((4, _ROWS)), np.empty((2, max(most, _ROWS)))
    steps: list[NDArray[np.integer]] = []
    sums, n_rows, n_sums = [], 0, 0
    with np.errstate(all="ignore"):  # a ratio of 0, or beyond the floating-point range
        for batch in chain([nothing], reader):
            rows = _Rows(batch)
            start, n_rows = n_rows, n_rows + len(batch)
            kept = slice(start, n_rows) if n_rows <= most else slice(len(batch))
            of_batch = _sums_of(rows, log_ratios[:, kept], scratch)
            sums.append(of_batch)
            steps.append(rows.keys[0])
            n_sums += len(of_batch["step"])
            if n_rows > most:
                steps.clear()
            if n_sums > _MANY:  # rows of a response are not side by side
                sums, n_sums = [_merged(sums)], 0
        whole = _merged(sums)
    columns = {name: pa.array(values, mask=_missing(whole, name)) for name, values in whole.items()}
    connection.register("scanned", pa.table(columns))
    connection.execute("create or replace temp table sequence_sums as select * from scanned")
    connection.unregister("scanned")
    if n_rows > most:
        return None
    log_rho, log_rho_new = log_ratios[:, :n_rows]
    return np.concatenate(steps), log_rho, log_rho_new


def _missing(sums: Sums, name: str) -> Mask | None:
    return sums[_OVER[name]] == 0 if name in _OVER else None


class _Rows:
    """Rows of one batch, those of a response side by side as a rule."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.keys = [batch[key].to_numpy() for key in KEYS]
        self._starts = _starts(self.keys)
        self._sizes = np.diff(self._starts, append=len(batch))

    def column(self, name: str) -> tuple[Array, Mask | None]:
        """Its values, NaN where there is none, and where there are; None: everywhere."""
        column = self._batch[name]
        values = column.to_numpy(zero_copy_only=False)
        return values, ~np.isnan(values) if column.null_count else None

    def firsts(self) -> Sums:
        """The keys of each stretch of rows that have the same ones."""
        return {name: key[self._starts] for name, key in zip(KEYS, self.keys, strict=True)}

    def total(self, terms: Array) -> Array:
        """The sum of each stretch."""
        return np.add.reduceat(terms, self._starts, dtype=np.float64)

    def count(self, holds: Mask | None) -> Ints:
        """How many rows of each stretch it is true for; None: for all."""
        return self._sizes if holds is None else np.add.reduceat(holds, self._starts, dtype=np.int64)


def _starts(keys: Iterable[NDArray[np.integer]]) -> NDArray[np.intp]:
    """Where the keys differ from those before."""
    changes = np.logical_or.reduce([np.diff(key, prepend=key[:1] - 1) != 0 for key in keys])
    return np.flatnonzero(changes)


def _both(mask: Mask | None, other: Mask | None) -> Mask | None:
    return other if mask is None else mask if other is None else mask & other


def _sums_of(rows: _Rows, log_ratios: Array, scratch: Array) -> Sums:
    """The sums of each stretch; the log-ratios of each row, (2, n), are written into the array."""
    (sampled, has_sampled), (current, has_current), (new, has_new) = map(
        rows.column, ("logp_sampled", "logp_current", "logp_new")
    )
    has_ratio, has_new = _both(has_sampled, has_current), _both(has_sampled, has_new)
    log_rho = np.subtract(current, sampled, out=log_ratios[0], dtype=np.float64)
    log_rho_new = np.subtract(new, sampled, out=log_ratios[1], dtype=np.float64)
    sums = rows.firsts() | _of_flags(rows, has_ratio)
    sums |= {"n_sampled": rows.count(has_sampled), "n_current": rows.count(has_current)}
    # Every term is 0 at a log-ratio of 0.
    x = log_rho if has_ratio is None else np.where(has_ratio, log_rho, 0.0)
    y = log_rho_new if has_new is None else np.where(has_new, log_rho_new, 0.0)
    sums |= {"n_ratios": rows.count(has_ratio), "n_new": rows.count(has_new)}
    return sums | _of_ratios(rows, x, y, _both(has_ratio, has_new), scratch)


def _of_ratios(rows: _Rows, x: Array, y: Array, has_update: Mask | None, scratch: Array) -> Sums:
    """Sums of terms of the log-ratios, of the current policy and of the new one."""
    deviation, difference, k3, term = scratch[:, : len(x)]

    def total(operation: np.ufunc, *values: Array | float) -> Array:
        return rows.total(operation(*values, out=term))

    np.expm1(x, out=deviation)
    np.multiply(x, 1 / 720, out=term)
    for coefficient in (1 / 120, 1 / 24, 1 / 6, 1 / 2):
        term += coefficient
        term *= x
    term *= x
    np.subtract(deviation, x, out=k3)
    np.copyto(k3, term, where=np.abs(x, out=difference) < _SMALL)
    reverse = np.multiply(x, deviation, out=term)
    reverse -= k3
    far = ~np.isfinite(k3)
    if far.any():
        reverse[far] = np.where(x[far] < 0, 1.0, np.inf)  # the limit at ratio 0, and beyond the range
    # Positive parts by themselves: as a difference of other sums they would not survive a heavy tail.
    sums = {
        "n_update": rows.count(has_update),
        "kl_reverse": rows.total(reverse),
        "kl_k3": rows.total(k3),
        "kl_k2": total(np.multiply, x, x),
        "abs_log_ratio": total(np.abs, x),
        "log_w": rows.total(x),
        "signed_deviation": rows.total(deviation),
        "shortfall": 0 - total(np.minimum, deviation, 0),
        "deviation_squared": total(np.multiply, deviation, deviation),
    }
    deviation_new = np.expm1(y, out=difference)
    sums |= {
        "signed_deviation_new": rows.total(deviation_new),
        "shortfall_new": 0 - total(np.minimum, deviation_new, 0),
    }
    difference -= deviation
    beyond = ~np.isfinite(difference)
    if beyond.any():
        difference[beyond] = _ratio_difference(y[beyond], x[beyond])
    if has_update is not None:
        difference[~has_update] = 0
    return sums | {"u_k": total(np.abs, difference), "u_k_bounded": 0 - total(np.minimum, difference, 0)}


def _ratio_difference(y: Array, x: Array) -> Array:
    """e^y - e^x where one of them is beyond the floating-point range; see `ratio_distance` in SQL."""
    root = np.exp(np.maximum(x, y) / 2)
    distance = root * -np.expm1(-np.abs(y - x)) * root
    return np.where(y == x, 0.0, np.copysign(distance, y - x))


def _of_flags(rows: _Rows, has_ratio: Mask | None) -> Sums:
    """Counts of what is logged, and of what the gate and the advantage say."""
    _, has_behavior = rows.column("logp_behavior")
    advantage, has_advantage = rows.column("advantage")
    clipped, has_clip = rows.column("clipped")
    side, has_side = rows.column("clip_side")
    lag, has_lag = rows.column("version_lag")
    grouped, _ = rows.column("grouped")
    held = clipped == 1
    above, below = advantage > 0, advantage < 0
    positive, negative = (sign if has_clip is None else sign & has_clip for sign in (above, below))
    recomputed = np.zeros(len(held), dtype=bool) if has_behavior is None else ~has_behavior
    return {
        "n_tokens": rows.count(None),
        "n_grouped": rows.count(grouped == 1),
        "n_recomputed": rows.count(recomputed if has_ratio is None else recomputed & has_ratio),
        "n_signal": rows.count(above | below),
        "n_behavior": rows.count(has_behavior),
        "n_advantage": rows.count(has_advantage),
        "n_clip": rows.count(has_clip),
        "n_side": rows.count(has_side),
        "n_positive": rows.count(positive),
        "n_negative": rows.count(negative),
        "n_lag": rows.count(has_lag),
        "clip_fraction": rows.count(held),
        "clip_fraction_low": rows.count(side < 0),
        "clip_fraction_high": rows.count(side > 0),
        "clip_fraction_positive": rows.count(positive & held),
        "clip_fraction_negative": rows.count(negative & held),
        "version_lag": rows.total(lag if has_lag is None else np.where(has_lag, lag, 0.0)),
    }


def _merged(parts: list[Sums]) -> Sums:
    """One row a response, from stretches of its rows."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort([columns[key] for key in reversed(KEYS)])
    columns = {name: values[order] for name, values in columns.items()}
    starts = _starts([columns[key] for key in KEYS])
    return {
        name: values[starts] if name in KEYS else np.add.reduceat(values, starts) for name, values in columns.items()
    }
