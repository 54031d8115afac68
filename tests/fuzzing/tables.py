"""Runs with a strange table, run.json or file name; the other steps' numbers stay what they are."""

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.runs.store import discover
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import Manifest
from tests.fuzzing.holding import Broken, Target, check_sentence, lasting
from tests.fuzzing.values import TEXTS, json_values, shape, texts
from tests.making.runs import random_step, write_run

_STEPS = 3
FILE = "000001-000001-w0.parquet"
"""What is damaged; the steps before and after lie in files of their own."""

Values = Callable[[pa.ChunkedArray], Any]


@cache
def whole() -> Path:
    """A small run with files of its own for each step; not to be written to."""
    rng = np.random.default_rng(1)
    steps = [random_step(rng, number) for number in range(_STEPS)]
    folder = lasting() / "run"
    return write_run(folder, steps, flush_seconds=0, algorithm={"name": "grpo"}, schedule={"sync_interval": 4})


@cache
def right() -> pd.DataFrame:
    """Its numbers."""
    return open_folder(whole()).summary.values


def copied(inside: Path) -> Path:
    return Path(shutil.copytree(whole(), inside / "run"))


def read(run: Path, untouched: tuple[int, ...] = ()) -> Opened:
    """Everything that is said of a run, after having made sure that steps without damage have their numbers.

    Raises:
        RatioscopeError: it cannot be read.
    """
    listed = discover([run.parent])
    if len(listed) != 1:
        raise Broken(f"{len(listed)} runs are listed instead of one")
    opened = open_folder(run)
    for problem in opened.run.problems:
        check_sentence(problem)
    for remark in opened.remarks:
        check_sentence(remark.sentence)
    values = opened.summary.values
    check_values(opened.summary)
    for step in untouched:
        if step not in values.index:
            raise Broken(f"step {step} is whole and was not read")
        same = ["n_tokens", "s_k", "chi2_k", "mean_ratio_k"]
        same = [name for name in same if name in values and name in right()]
        if not np.allclose(values.loc[step, same], right().loc[step, same], rtol=1e-9, equal_nan=True):
            raise Broken(f"step {step} is whole and has other numbers")
    return opened


def check_values(summary: StepSummary) -> None:
    """Infinite numbers have a note, and shares lie between 0 and 1, whatever was logged."""
    values = summary.values
    for name in [name for name in values if name in CATALOGUE]:
        found = values[name].dropna().to_numpy(dtype=np.float64)
        infinite = values.index[np.isinf(values[name].astype(float))]
        if any(name not in summary.notes.get(step, {}) for step in infinite):
            raise Broken(f"{name} is infinite, and nothing says why")
        if CATALOGUE[name].share and not ((found >= -1e-12) & (found <= 1 + 1e-12)).all():
            raise Broken(f"{name} is a share of {found}")


# Columns --------------------------------------------------------------------------------------------------------------


def _each(change: Callable[[Any], Any], kind: pa.DataType | None = None) -> Values:
    return lambda values: pa.array([change(value) for value in values.to_pylist()], kind)


def _full(value: Any, kind: pa.DataType) -> Values:
    return lambda values: pa.array([value] * len(values), kind)


def _numbers(values: pa.ChunkedArray) -> "np.ndarray[Any, Any]":
    """As numbers, whatever they are: a text is its length, a time its microseconds."""
    found = values.to_pylist()
    return np.array([x if isinstance(x, int | float) else len(str(x)) for x in found], dtype=np.float64)


def _cast(kind: pa.DataType) -> Values:
    return lambda values: pa.array(_numbers(values)).cast(kind, safe=False)


def _some(value: float) -> Values:
    def change(values: pa.ChunkedArray) -> Any:
        found = _numbers(values)
        found[::3] = value
        return pa.array(found)

    return change


def _no_text(n: int) -> pa.Array:
    """Strings of bytes that no text has; Parquet takes them."""
    starts = pa.array(np.arange(n + 1, dtype=np.int32) * 2).buffers()[1]
    return pa.Array.from_buffers(pa.string(), n, [None, starts, pa.py_buffer(b"\xff\xfe" * n)])


_DEEP = json.loads("[" * 10 + "1" + "]" * 10)
KINDS: dict[str, Values] = {
    **{
        str(kind): _cast(kind)
        for kind in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float16(),
            pa.float32(), pa.float64(), pa.bool_(),
        )
    },
    "decimal": lambda v: pa.array(np.round(_numbers(v), 3)).cast(pa.decimal128(30, 3), safe=False),
    "text": _each(str),
    "large text": _each(str, pa.large_string()),
    "empty text": _full("", pa.string()),
    "bytes": _each(lambda x: str(x).encode()),
    "bytes that are no text": _full(b"\xff\xfe\x00", pa.binary()),
    "text that is not UTF-8": lambda v: _no_text(len(v)),
    "smallest of its type": lambda v: pa.array([-(2 ** (v.type.bit_width - 1))] * len(v), v.type),
    "largest of its type": lambda v: pa.array([2 ** (v.type.bit_width - 1) - 1] * len(v), v.type),
    "a text that unpacks": lambda v: pa.array(["a" * 2**26] + [""] * (len(v) - 1)),
    "lists": _each(lambda x: [x]),
    "lists of lists": _each(lambda x: [[x], []]),
    "lists of fixed length": _full([1.0, 2.0], pa.list_(pa.float32(), 2)),
    "empty lists": _full([], pa.list_(pa.int64())),
    "structs": _each(lambda x: {"a": x, "b": None}),
    "maps": _full([("a", 1)], pa.map_(pa.string(), pa.int64())),
    "nested ten times": _full(_DEEP, pa.array([_DEEP]).type),
    "dates": _full(1, pa.date32()),
    "times": _full(1, pa.time64("us")),
    "durations": lambda v: pa.array([1] * len(v), pa.duration("us")),
    "timestamps without zone": _full(1, pa.timestamp("ns")),
    "nulls": lambda v: pa.nulls(len(v)),
    "nulls of its type": lambda v: pa.nulls(len(v), v.type),
    "some nulls": lambda v: pa.array([None if n % 3 else x for n, x in enumerate(v.to_pylist())], v.type),
    "a dictionary": lambda v: v.combine_chunks().dictionary_encode(),
    "largest": _full(2**63 - 1, pa.int64()),
    "smallest": _full(-(2**63), pa.int64()),
    "beyond int64": _full(2**64 - 1, pa.uint64()),
    **{f"all {value}": _full(value, pa.float64()) for value in (0.0, -0.0, 1e300, -1e300, 1e-320, 1000.0, -1000.0)},
    **{f"all {value}": _full(value, pa.float32()) for value in (float("nan"), float("inf"), float("-inf"))},
    **{f"some {value}": _some(value) for value in (float("nan"), float("inf"), float("-inf"), 1000.0, -1000.0, 1e30)},
}  # fmt: skip
"""What a column's values become, by name."""
_WITHOUT, _TWICE, _CAPITALS, _BESIDE = "missing", "there twice", "in capitals", "beside another"
_MORE = (_WITHOUT, _TWICE, _CAPITALS, _BESIDE)
# Values that are the same ones in another type.
_LOSSLESS = {("logp_current", "double"), ("logp_behavior", "double"), ("seq_id", "int32"), ("seq_id", "int64")}


_LOGGED = ("logp_behavior", "logp_current")
_IMPOSSIBLE = [f"{how} {value}" for how in ("all", "some") for value in ("nan", "inf", "-inf", "1000.0")]


def _written_columns() -> list[tuple[str, str]]:
    return [
        (name, column.name)
        for name in ("tokens", "sequences", "steps")
        for column in schema.TABLES[name].columns
        if column.name not in ("turn", "kept_mass", "routing_agreement")
    ]


def ask_schema(inside: Path, changes: list[tuple[str, str, str]]) -> None:
    """Columns of step 1 of other kinds: (table, column, kind)."""
    run = copied(inside)
    for table, column, kind in changes:
        path = run / table / FILE
        found = pq.ParquetFile(path).read()
        try:
            pq.write_table(_changed(found, column, kind), path)
        except (pa.ArrowException, OverflowError, ValueError):
            continue  # not every value can be made one of every kind, and not every kind written
    opened = read(run, untouched=(0, 2))
    if all((column, kind) in _LOSSLESS for _, column, kind in changes):
        read(run, untouched=(1,))
    impossible = [change for change in changes if change[1] in _LOGGED and change[2] in _IMPOSSIBLE]
    taken = 1 in opened.summary.values.index and opened.summary.values.loc[1, "n_invalid"] == 0
    if any(change[0] == "tokens" for change in impossible) and taken and not opened.run.problems:
        raise Broken("log-probabilities that are none were taken")


def _changed(table: pa.Table, column: str, kind: str) -> pa.Table:
    if column not in table.column_names:  # one that the run does not log
        table = table.append_column(column, pa.array(np.arange(len(table), dtype=np.int64)))
    place = table.column_names.index(column)
    values = table.column(place)
    if kind == _WITHOUT:
        return table.remove_column(place)
    if kind == _TWICE:
        return table.append_column(column, values)
    if kind == _CAPITALS:
        return table.rename_columns([name.upper() if name == column else name for name in table.column_names])
    if kind == _BESIDE:
        return table.append_column(column.upper(), pa.array(["x"] * len(table)))
    return table.set_column(place, column, KINDS[kind](values))


_change = st.builds(
    lambda where, kind: (*where, kind), st.sampled_from(_written_columns()), st.sampled_from([*KINDS, *_MORE])
)

# run.json -------------------------------------------------------------------------------------------------------------

_FIELDS = [name for name in Manifest.__dataclass_fields__ if name != "extra"]
_INNER = {
    "algorithm": ("name", "gate", "parameters", "epsilon_low", "loss", "clip_low", "level", "group_size"),
    "schedule": ("sync_interval", "sync_offset", "offline", "max_staleness", "mixture", "workers"),
    "sampler": ("temperature", "top_p", "top_k", "engine", "dtype"),
    "optimiser": ("learning_rate", "epochs", "minibatches", "name"),
    "task": ("name", "evaluation_prompts", "options", "max_new_tokens"),
    "model": ("name", "parameters", "precision", "layers"),
    "writers": ("0", "1", "x"),
    "source": ("framework", "format", "version", "path"),
    "warm_start": ("step", "learned"),
}


def ask_manifest(inside: Path, fields: dict[str, Any]) -> None:
    """Fields of run.json with other values; "a.b" is one inside of a field. No number may depend on what they are."""
    run = copied(inside)
    contents = json.loads((run / "run.json").read_text())
    for key, value in fields.items():
        outer, _, inner = key.partition(".")
        if inner:
            held = contents.get(outer)
            contents[outer] = (held if isinstance(held, dict) else {}) | {inner: value}
        else:
            contents[outer] = value
    (run / "run.json").write_text(json.dumps(contents), encoding="utf-8")
    (listed,) = discover([run.parent])
    if listed.problem:
        check_sentence(listed.problem)
    read(run, untouched=(0, 1, 2))


_field = st.sampled_from([*_FIELDS, *(f"{outer}.{inner}" for outer, held in _INNER.items() for inner in held)])


# File names -----------------------------------------------------------------------------------------------------------

_NAMES = (
    FILE, "000000-000000-w0.parquet", "000001-000001-w1.parquet", "000001-000003-w0.parquet",
    "000003-000001-w0.parquet", "1-1-w0.parquet", "000001-000001-w.parquet", "000001-000001-w0.PARQUET",
    "000001-000001-w0.parquet.tmp-1", "-00001-000001-w0.parquet", "٠٠٠٠٠١-٠٠٠٠٠١-w0.parquet",
    "000001-000001-w00000000000000000000.parquet", "9" * 30 + "-" + "9" * 30 + "-w0.parquet",
    "2147483647-2147483647-w0.parquet", "2147483648-2147483648-w0.parquet", "000007-000009-w0.parquet",
    "it's-*?[x]{a,b}.parquet", ".hidden.parquet", "a b.parquet", "%41.parquet", "\n.parquet", "\u202e.parquet",
    "\udcff.parquet", "x" * 240 + ".parquet", "000001-000001-w0.parquet\n", "run.json", "tokens",
)  # fmt: skip


def ask_name(inside: Path, example: tuple[str, str, str]) -> None:
    """The file of step 1 under another name (table, how, name): moved, copied, or nothing of a table."""
    table, how, name = example
    run = copied(inside)
    path = run / table / FILE
    to = run / table / name.replace("/", "_").replace("\x00", "_")
    try:
        if to.name in ("", ".", "..") or to.is_dir():
            return
        match how:
            case "moved":
                path.rename(to)
            case "copied":
                to.write_bytes(path.read_bytes())
            case "of text":
                to.write_text("step,seq_id\n1,2\n")
            case "empty":
                to.write_bytes(b"")
            case "a pipe":
                to.unlink(missing_ok=True)
                os.mkfifo(to)
            case "endless":
                with to.open("ab") as file:
                    file.truncate(2**40)  # a hole: nothing is on disk
            case "a folder":
                if not to.exists():
                    to.mkdir()
            case _:
                path.rename(to) if not to.exists() else None
                to.unlink()
                to.symlink_to(to.name if how == "to itself" else "/dev/null")
    except (OSError, UnicodeError):
        return  # no file of this system can be called so
    parsed = schema.FileName.parse(to.name)
    clear = parsed is None or parsed.first_step == parsed.last_step == 1
    read(run, untouched=(0, 2) if clear else ())


_how = st.sampled_from(
    ["moved", "copied", "of text", "a folder", "to itself", "to a device", "empty", "a pipe", "endless"]
)

TARGETS = {
    "schema": Target(
        st.lists(_change, min_size=1, max_size=2),
        ask_schema,
        lambda e: " and ".join(f"{t}.{c} {k}" for t, c, k in e[:1]),
        few=3,
    ),
    "manifest": Target(
        st.dictionaries(_field, json_values, min_size=1, max_size=2),
        ask_manifest,
        lambda e: next(f"{key} {shape(value)}" for key, value in e.items()),
        few=3,
    ),
    "names": Target(
        st.tuples(st.sampled_from(["tokens", "sequences", "steps"]), _how, st.sampled_from(_NAMES) | texts),
        ask_name,
        lambda e: (
            f"{e[0]} {e[1]} {_NAMES.index(e[2]) if e[2] in _NAMES else TEXTS.index(e[2]) if e[2] in TEXTS else 'any'}"
        ),
        few=2,
    ),
}
