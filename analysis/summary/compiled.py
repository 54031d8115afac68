"""Sums over the tokens of each response by one compiled pass over the columns, for large scans.

SQL stays the definition, and takes several times as long: `sequence_sums.sql` and the catalogue say what is summed,
tests hold this module to them, and files that are out of the ordinary are left to them (`can_sum`).
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ratioscope import schema
from ratioscope.analysis.runs.columns import counted, schema_of
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.summary.kernels import installed, kernel, loaded
from ratioscope.analysis.summary.order_statistics import EXACT_TOKENS, LogRatios, rows_of_stretches
from ratioscope.storage.places import Remote

KEYS = ("step", "group_id", "seq_id")
# Every other column that is read, with what stands for null.
_NULL: dict[str, float] = {
    **dict.fromkeys(("logp_behavior", "logp_behavior_train", "logp_current", "logp_new", "advantage"), np.nan),
    "clip_side": -128,
    "clipped": -1,
    "behavior_version": -(2**31),
}
_NO_SIDE, _NO_VERSION = int(_NULL["clip_side"]), int(_NULL["behavior_version"])

# Of rows. More would take too much memory, and a step of more is sketched.
_FEWEST, _MOST = 50_000, EXACT_TOKENS
# So many rows, in one scan or in several, are worth the second in which the compiler is imported.
_WORTH_LOADING = 2_000_000
# Rows at a time: what is computed on the way stays in the processor's cache.
_ROWS = 32_768

COUNTS = (
    "n_tokens", "n_recomputed", "n_sampled", "n_behavior", "n_current", "n_ratios", "n_new", "n_update",
    "n_advantage", "n_signal", "n_clip", "n_side", "n_positive", "n_negative", "n_lag",
    "clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_positive", "clip_fraction_negative",
)  # fmt: skip
# Each with what it is a sum over: where there is none of that it is null, and not 0, as is n_signal.
SUMS = {
    "log_w": "n_ratios", "signed_deviation": "n_ratios", "shortfall": "n_tokens", "deviation_squared": "n_ratios",
    "abs_log_ratio": "n_ratios", "kl_k2": "n_ratios", "kl_k3": "n_ratios", "kl_reverse": "n_ratios",
    "signed_deviation_new": "n_new", "shortfall_new": "n_tokens",
    "u_k": "n_update", "u_k_bounded": "n_update", "version_lag": "n_lag",
}  # fmt: skip

SUMMED = frozenset((*COUNTS, *SUMS))

Columns = dict[str, NDArray[Any]]


def pays(rows: int) -> bool:
    """Whether so many rows are worth a compiled scan, and the compiler is installed: `pip install "ratioscope[fast]"`.

    A process that is asked for file after file, as a dashboard that follows a run, loads it once their rows add up.
    """
    global _asked
    if not _FEWEST <= rows <= _MOST:
        return False
    _asked += rows
    return (_asked >= _WORTH_LOADING or loaded()) and installed()


_asked = 0


def can_sum(file: TableFile) -> bool:
    """Whether a file of tokens, all of them usable, is of the ordinary kind: columns as declared, groups, local."""
    if isinstance(file.path, Remote):
        return False
    fields = {field.name: field.type for field in schema_of(file)}
    rows, values = counted(file)
    read = (column for column in schema.TOKENS.columns if column.name in (*KEYS, *_NULL) and column.name in fields)
    return all(values.get(key) == rows for key in KEYS) and all(fields[each.name] == each.type for each in read)


def sums_of(files: Sequence[TableFile]) -> tuple[pa.Table, LogRatios]:
    """What `sequence_sums.sql` makes a table of, and the log-ratios of the rows, until the thread asks for others.

    Args:
        files: for which `can_sum`; their rows may be in any order.
    """
    n_rows = sum(counted(file)[0] for file in files)
    log_ratios = _memory(n_rows)
    deviations, starts = np.empty((2, _ROWS)), np.empty(_ROWS, dtype=np.int64)
    steps, firsts = [], []
    parts: list[Columns] = []
    done = 0
    for block in _blocks(files):
        size = len(block["step"])
        rows = slice(done, done := done + size)
        sampled = block["logp_behavior"]
        if (missing := np.isnan(sampled)).any():
            sampled = np.where(missing, block["logp_behavior_train"], sampled)
        np.subtract(block["logp_current"], sampled, out=log_ratios[0, rows], dtype=np.float64)
        np.subtract(block["logp_new"], sampled, out=log_ratios[1, rows], dtype=np.float64)
        with np.errstate(over="ignore"):
            np.expm1(log_ratios[:, rows], out=deviations[:, :size])
        keys = [block[key] for key in KEYS]
        first = starts[: kernel(_find_starts)(*keys, starts)]
        counts, sums = np.zeros((len(COUNTS), len(first)), dtype=np.int64), np.zeros((len(SUMS), len(first)))
        others = (block[name] for name in _NULL if name != "logp_behavior_train")
        kernel(_add)(first, keys[0], sampled, *others, *log_ratios[:, rows], *deviations[:, :size], counts, sums)
        steps.append(keys[0][first])
        firsts.append(first + rows.start)
        named = zip((*KEYS, *COUNTS, *SUMS), (*(key[first] for key in keys), *counts, *sums), strict=True)
        parts.append(dict(named))
    return _table(parts), (rows_of_stretches(np.concatenate(steps), np.concatenate(firsts), n_rows), *log_ratios)


_kept = threading.local()


def _memory(n: int) -> NDArray[np.float64]:
    """(2, n), the same for each scan of a thread: new memory would cost more than what is written into it."""
    whole: NDArray[np.float64] = getattr(_kept, "memory", np.empty(0))
    if len(whole) < 2 * n:
        whole = _kept.memory = np.empty(2 * n)
    return whole[: 2 * n].reshape(2, n)


def _blocks(files: Sequence[TableFile]) -> Iterator[Columns]:
    """The columns of at most _ROWS rows at a time; what a file lacks is null."""
    types = {column.name: column.type for column in schema.TOKENS.columns}
    for file in files:
        with pq.ParquetFile(file.path, memory_map=True, page_checksum_verification=True) as opened:
            there = [name for name in (*KEYS, *_NULL) if name in opened.schema_arrow.names]
            for number in range(opened.num_row_groups):
                table = opened.read_row_group(number, columns=there, use_threads=False)
                whole = {name: _values(table[name], _NULL.get(name)) for name in there}
                for name in _NULL.keys() - whole.keys():
                    kind = np.int8 if name == "clipped" else types[name].to_pandas_dtype()
                    whole[name] = np.full(len(table), _NULL[name], dtype=kind)
                for start in range(0, len(table), _ROWS):
                    yield {name: values[start : start + _ROWS] for name, values in whole.items()}


def _values(column: pa.ChunkedArray, null: float | None) -> NDArray[Any]:
    """A column as numbers, truth as 0 and 1."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.fill_null(pa.scalar(null, column.type))
    return column.to_numpy()


def _table(parts: Sequence[Columns]) -> pa.Table:
    """One row a response, ascending, from stretches of its rows."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort([columns[key] for key in reversed(KEYS)])
    columns = {name: values[order] for name, values in columns.items()}
    keys = [columns[key] for key in KEYS]
    starts = np.empty(len(order), dtype=np.int64)
    starts = starts[: kernel(_find_starts)(*keys, starts)]
    for name in (*COUNTS, *SUMS):
        columns[name] = np.add.reduceat(columns[name], starts)
    for key in KEYS:
        columns[key] = columns[key][starts]
    nulls = {name: columns[over] == 0 for name, over in (SUMS | {"n_signal": "n_advantage"}).items()}
    arrays = {name: pa.array(values, mask=nulls.get(name)) for name, values in columns.items()}
    return pa.table(arrays | {"n_grouped": arrays["n_tokens"]})


def _find_starts(step, group, seq, starts):  # type: ignore[no-untyped-def]
    """Fill the rows at which one of the keys differs from the row before, and say how many there are."""
    found = 0
    for row in range(len(step)):
        if row == 0 or seq[row] != seq[row - 1] or group[row] != group[row - 1] or step[row] != step[row - 1]:
            starts[found] = row
            found += 1
    return found


def _add(  # type: ignore[no-untyped-def]
    starts, step, sampled, behavior, current, new, advantage, side, clipped, version,
    log_rho, log_rho_new, deviations, deviations_new, counts, sums,
):  # fmt: skip
    """Fill `counts` (COUNTS, stretches) and `sums` (SUMS, stretches) from the rows; stretches begin at `starts`.

    Positive parts are summed by themselves: as differences of other sums they would not survive a heavy tail.
    """
    for place in range(len(starts)):
        end = starts[place + 1] if place + 1 < len(starts) else len(step)
        n_recomputed = n_sampled = n_behavior = n_current = n_ratios = n_new = n_update = 0
        n_advantage = n_signal = n_clip = n_side = n_positive = n_negative = n_lag = 0
        stopped = low = high = stopped_positive = stopped_negative = lag = 0
        log_w = signed = shortfall = squared = absolute = k2 = k3 = reverse = 0.0
        signed_new = shortfall_new = distance = distance_bounded = 0.0
        for row in range(starts[place], end):
            x, d, y, e = log_rho[row], deviations[row], log_rho_new[row], deviations_new[row]
            has_ratio, has_new = not np.isnan(x), not np.isnan(y)
            has_behavior = not np.isnan(behavior[row])
            n_behavior += has_behavior
            n_sampled += not np.isnan(sampled[row])
            n_current += not np.isnan(current[row])
            if has_ratio:
                n_ratios += 1
                n_recomputed += not has_behavior
                size, square = abs(x), x * x
                log_w += x
                signed += d
                shortfall -= min(d, 0.0)
                squared += d * d
                absolute += size
                k2 += square
                if size < 1e-2:
                    k3 += square / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6))))
                    reverse += square * (0.5 + x * (1.0 / 3 + x * (0.125 + x * (1.0 / 30 + x / 144))))
                else:
                    k3 += d - x
                    reverse += (x - 1) * d + x
            if has_new:
                n_new += 1
                signed_new += e
                shortfall_new -= min(e, 0.0)
                if has_ratio:
                    n_update += 1
                    difference = e - d
                    if not np.isfinite(difference):  # as `ratio_distance` in SQL
                        root = np.exp(max(x, y) / 2)
                        apart = 0.0 if x == y else root * -np.expm1(-abs(y - x)) * root
                        difference = apart if y > x else -apart
                    distance += abs(difference)
                    distance_bounded -= min(difference, 0.0)
            a, at, was = advantage[row], side[row], version[row]
            held = clipped[row]
            if held < 0 and at != _NO_SIDE:
                held = 1 if at != 0 else 0
            n_advantage += not np.isnan(a)
            n_signal += a > 0 or a < 0
            if at != _NO_SIDE:
                n_side += 1
                low += at < 0
                high += at > 0
            if held >= 0:
                n_clip += 1
                n_positive += a > 0
                n_negative += a < 0
                if held:
                    stopped += 1
                    stopped_positive += a > 0
                    stopped_negative += a < 0
            if was != _NO_VERSION:
                n_lag += 1
                lag += step[row] - was
        counted_here = (
            end - starts[place], n_recomputed, n_sampled, n_behavior, n_current, n_ratios, n_new, n_update,
            n_advantage, n_signal, n_clip, n_side, n_positive, n_negative, n_lag,
            stopped, low, high, stopped_positive, stopped_negative,
        )  # fmt: skip
        for number in range(len(counted_here)):
            counts[number, place] = counted_here[number]
        summed_here = (
            log_w, signed, shortfall, squared, absolute, k2, k3, reverse,
            signed_new, shortfall_new, distance, distance_bounded, float(lag),
        )  # fmt: skip
        for number in range(len(summed_here)):
            sums[number, place] = summed_here[number]
