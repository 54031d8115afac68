"""Sums over the tokens of each response by one compiled pass over the columns, for large scans.

SQL takes several times as long. Both are made of what `sum_names` lists, and files that are out of the ordinary are
left to SQL (`can_sum`).
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ratioscope.analysis.runs.columns import counted, schema_of
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.summary.kernels import installed, kernel, loaded
from ratioscope.analysis.summary.order_statistics import EXACT_TOKENS, RankedRatios, rows_of_stretches
from ratioscope.analysis.summary.rendering import python
from ratioscope.analysis.summary.sums import count_names, sum_columns, sum_names
from ratioscope.metric import Grain
from ratioscope.run_format import schema
from ratioscope.storage.places import Remote
from ratioscope.terms import DEVIATION, DEVIATION_NEW, Term, case, column

KEYS = ("step", "group_id", "seq_id")
# Of rows. More would take too much memory, and a step of more is sketched.
_FEWEST, _MOST = 50_000, EXACT_TOKENS
# So many rows, in one scan or in several, are worth the second in which the compiler is imported.
_WORTH_LOADING = 2_000_000
# Rows at a time: what is computed on the way stays in the processor's cache.
_ROWS = 32_768

# What the derived columns are made of.
_MADE_OF = (
    "logp_behavior",
    "logp_behavior_train",
    "logp_current",
    "logp_new",
    "clip_side",
    "clipped",
    "behavior_version",
)
_DERIVED = frozenset({"log_rho", "log_rho_new", "logp_sampled", "version_lag"})
_LISTED = {each.name: each.type for each in schema.TOKENS.columns if not pa.types.is_string(each.type)}

Columns = dict[str, NDArray[Any]]


@cache
def _read() -> tuple[str, ...]:
    """The columns of a file that are read, beside its keys."""
    return tuple(dict.fromkeys((*_MADE_OF, *sorted(sum_columns(Grain.TOKEN) - _DERIVED))))


def knows_all() -> bool:
    """Whether it has every column that the catalogue asks for."""
    return sum_columns(Grain.TOKEN) <= _DERIVED | _LISTED.keys()


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
    ordinary = all(fields[name] == _LISTED[name] for name in (*KEYS, *_read()) if name in fields)
    return ordinary and all(values.get(key) == rows for key in KEYS)


def sums_of(files: Sequence[TableFile]) -> tuple[pa.Table, RankedRatios]:
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
        _derive(block, log_ratios[:, rows], deviations[:, :size])
        keys = [block[key] for key in KEYS]
        first = starts[: kernel(_find_starts)(*keys, starts)]
        tallies = np.zeros((len(count_names(Grain.TOKEN)), len(first)), dtype=np.int64)
        totals = np.zeros((len(sum_names(Grain.TOKEN)), len(first)))
        kernel(summing())(first, size, *(block[name] for name in _inputs().values()), tallies, totals)
        steps.append(keys[0][first])
        firsts.append(first + rows.start)
        lengths = {"n_tokens": np.diff(first, append=size)}
        found = lengths | dict(
            zip((*count_names(Grain.TOKEN), *sum_names(Grain.TOKEN)), (*tallies, *totals), strict=True)
        )
        parts.append({name: key[first] for name, key in zip(KEYS, keys, strict=True)} | found)
    return _table(parts), (rows_of_stretches(np.concatenate(steps), np.concatenate(firsts), n_rows), *log_ratios)


def _derive(block: Columns, log_ratios: NDArray[np.float64], deviations: NDArray[np.float64]) -> None:
    """Add what `analysis/runs/tokens.sql` makes of the columns, and rho - 1; log-ratios are kept where they are."""
    sampled = block["logp_behavior"]
    if (missing := np.isnan(sampled)).any():
        sampled = np.where(missing, block["logp_behavior_train"], sampled)
    np.subtract(block["logp_current"], sampled, out=log_ratios[0], dtype=np.float64)
    np.subtract(block["logp_new"], sampled, out=log_ratios[1], dtype=np.float64)
    with np.errstate(over="ignore"):
        np.expm1(log_ratios, out=deviations)
    side, clipped = block["clip_side"], block["clipped"]
    if np.isnan(clipped).any():
        block["clipped"] = np.where(np.isnan(clipped), np.where(np.isnan(side), np.nan, side != 0), clipped)
    block |= {"logp_sampled": sampled, "version_lag": block["step"] - block["behavior_version"]}
    block |= dict(
        zip(("log_rho", "log_rho_new", "deviation", "deviation_new"), (*log_ratios, *deviations), strict=True)
    )


_kept = threading.local()


def _memory(n: int) -> NDArray[np.float64]:
    """(2, n), the same for each scan of a thread: new memory would cost more than what is written into it."""
    whole: NDArray[np.float64] = getattr(_kept, "memory", np.empty(0))
    if len(whole) < 2 * n:
        whole = _kept.memory = np.empty(2 * n)
    return whole[: 2 * n].reshape(2, n)


def _blocks(files: Sequence[TableFile]) -> Iterator[Columns]:
    """The columns of at most _ROWS rows at a time; what a file lacks is null."""
    for file in files:
        with pq.ParquetFile(file.path, memory_map=True, page_checksum_verification=True) as opened:
            there = [name for name in (*KEYS, *_read()) if name in opened.schema_arrow.names]
            for number in range(opened.num_row_groups):
                table = opened.read_row_group(number, columns=there, use_threads=False)
                whole = {name: table[name].to_numpy() for name in KEYS}
                for name in _read():
                    lacking = pa.chunked_array([pa.nulls(len(table), _LISTED[name])])
                    whole[name] = _values(table[name] if name in there else lacking)
                for start in range(0, len(table), _ROWS):
                    yield {name: values[start : start + _ROWS] for name, values in whole.items()}


def _values(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column as numbers, truth as 0 and 1, with NaN for null."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float32() if column.type.bit_width == 8 else pa.float64())
    return column.to_numpy()


def _table(parts: Sequence[Columns]) -> pa.Table:
    """One row a response, ascending, from stretches of its rows."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort([columns[key] for key in reversed(KEYS)])
    columns = {name: values[order] for name, values in columns.items()}
    keys = [columns[key] for key in KEYS]
    starts = np.empty(len(order), dtype=np.int64)
    starts = starts[: kernel(_find_starts)(*keys, starts)]
    for name in columns.keys() - {*KEYS}:
        columns[name] = np.add.reduceat(columns[name], starts)
    for key in KEYS:
        columns[key] = columns[key][starts]
    totals = {name: over.count for name, (term, over) in sum_names(Grain.TOKEN).items() if not term.is_condition}
    nulls = {name: columns[count] == 0 for name, count in totals.items()}
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


@cache
def _inputs() -> dict[Term, str]:
    """What the compiled pass is given, and its names: columns, and rho - 1 of both policies."""
    return {DEVIATION: "deviation", DEVIATION_NEW: "deviation_new"} | {
        column(name): name for name in sorted(sum_columns(Grain.TOKEN))
    }


@cache
def summing() -> Callable[..., None]:
    """The function that fills counts and sums, (names, stretches), from rows; stretches begin at `starts`.

    It is named after its text, because what is compiled is kept by name.
    """
    text = source()
    name = f"sums_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    made: dict[str, Any] = {"np": np, "__name__": __name__}
    exec(compile(text.replace("def sums(", f"def {name}("), __file__, "exec"), made)
    function: Callable[..., None] = made[name]
    return function


def source() -> str:
    """Its text: one loop over rows, in which what is counted or summed under the same condition shares it."""
    inputs = {term: f"{name}_here" for term, name in _inputs().items()}
    added = {name: case(where, 1, 0) for name, where in count_names(Grain.TOKEN).items()}
    for name, (term, over) in sum_names(Grain.TOKEN).items():
        value = case(term, 1, 0) if term.is_condition else term
        added[name] = case(over.where, value, 0) if over.where else value
    lines = [f"def sums(starts, n_rows, {', '.join(_inputs().values())}, counts, sums):"]
    lines += ["    for place in range(len(starts)):"]
    lines += ["        end = starts[place + 1] if place + 1 < len(starts) else n_rows"]
    lines += [f"        {' = '.join(f'{name}_total' for name in count_names(Grain.TOKEN))} = 0"]
    lines += [
        f"        {name}_total = {0 if term.is_condition else 0.0}"
        for name, (term, _) in sum_names(Grain.TOKEN).items()
    ]
    lines += ["        for row in range(starts[place], end):"]
    lines += [f"            {name}_here = {name}[row]" for name in _inputs().values()]
    lines += _added(added, inputs, " " * 12)
    for array, names in (("counts", count_names(Grain.TOKEN)), ("sums", sum_names(Grain.TOKEN))):
        lines += [f"        {array}[{number}, place] = {name}_total" for number, name in enumerate(names)]
    return "\n".join(lines)


def _added(terms: dict[str, Term], inputs: dict[Term, str], indent: str) -> list[str]:
    """Lines that add terms to their totals, with a branch where several are cases of one condition."""
    lines = []
    conditions = Counter(term.of[0] for term in terms.values() if term.operation == "case")
    for name, term in terms.items():
        if term.leaf != 0 and not (term.operation == "case" and conditions[term.of[0]] > 1):
            lines += [f"{indent}{name}_total += {python(term, inputs)}"]
    for condition in (condition for condition, n in conditions.items() if n > 1):
        cases = {name: term.of for name, term in terms.items() if term.operation == "case" and term.of[0] == condition}
        then, otherwise = (
            _added({name: of[place] for name, of in cases.items()}, inputs, f"{indent}    ") for place in (1, 2)
        )
        lines += [f"{indent}if {python(condition, inputs)}:", *then]
        lines += [f"{indent}else:", *otherwise] if otherwise else []
    return lines
