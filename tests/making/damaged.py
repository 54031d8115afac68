"""The corpus of damaged and strange runs: by name, what is done to a run that has files of its own for each step.

It grows with whatever breaks. What holds of all of them: every command and page ends in numbers or in one sentence.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Change = Callable[[Path], object]
"""Damages the run in a folder."""
FILE = "000001-000001-w0.parquet"


def _file(run: Path, table: str = "tokens") -> Path:
    return run / table / FILE


def _bytes(change: Callable[[bytes], bytes], table: str = "tokens") -> Change:
    return lambda run: _file(run, table).write_bytes(change(_file(run, table).read_bytes()))


def _flipped(share: float) -> Callable[[bytes], bytes]:
    """One bit another at a place in the file."""

    def change(contents: bytes) -> bytes:
        place = int(share * len(contents))
        return contents[:place] + bytes([contents[place] ^ 16]) + contents[place + 1 :]

    return change


def rewritten(change: Callable[[pa.Table], pa.Table], table: str = "tokens", **options: Any) -> Change:
    """A file read, changed and written again with pyarrow, which keeps what its footer says."""

    def damage(run: Path) -> None:
        path = _file(run, table)
        pq.write_table(change(pq.ParquetFile(path).read()), path, **options)

    return damage


def column(name: str, values: Callable[[pa.ChunkedArray], Any], table: str = "tokens") -> Change:
    """A column with other values, in whatever type they are."""

    def change(found: pa.Table) -> pa.Table:
        place = found.column_names.index(name)
        return found.set_column(place, name, pa.array(values(found.column(name))))

    return rewritten(change, table)


def _as(kind: pa.DataType) -> Callable[[pa.ChunkedArray], Any]:
    return lambda values: values.combine_chunks().cast(kind, safe=False)


def _all(value: Any) -> Callable[[pa.ChunkedArray], Any]:
    return lambda values: [value] * len(values)


def _some(value: float) -> Callable[[pa.ChunkedArray], Any]:
    def change(values: pa.ChunkedArray) -> Any:
        found = values.to_numpy().copy()
        found[::7] = value
        return found

    return change


def _without(*names: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns(list(names))


def manifest(**fields: Any) -> Change:
    """run.json with other fields."""

    def damage(run: Path) -> None:
        path = run / "run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return damage


def _written(contents: bytes) -> Change:
    return lambda run: (run / "run.json").write_bytes(contents)


def _linked_file(run: Path) -> None:
    """As DVC, git-annex and the caches of hubs do: the file lies elsewhere."""
    store = run.parent / f"{run.name}.store"
    store.mkdir()
    for path in (run / "tokens").iterdir():
        path.rename(store / path.name)
        path.symlink_to(store / path.name)


def _linked_table(run: Path) -> None:
    moved = run.parent / f"{run.name}.tokens"
    (run / "tokens").rename(moved)
    (run / "tokens").symlink_to(moved, target_is_directory=True)


def _renamed(name: str, table: str = "tokens") -> Change:
    return lambda run: _file(run, table).rename(run / table / name)


def _replaced(make: Callable[[Path], object], table: str = "tokens") -> Change:
    def damage(run: Path) -> None:
        _file(run, table).unlink()
        make(_file(run, table))

    return damage


def _huge(table: pa.Table) -> pa.Table:
    return table.append_column("extra_text", pa.array(["x" * 300_000] + [None] * (len(table) - 1)))


def _footer(counts: bytes) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.replace_schema_metadata(
        {**(table.schema.metadata or {}), b"ratioscope.nonfinite": counts}
    )


def _lying_nan(run: Path) -> None:
    """NaN in a file whose footer counts none, as pyarrow leaves it of a file that was changed."""
    column("logp_current", _some(float("nan")))(run)


_DEEP = b'{"name": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
_FLOATS = ("logp_behavior", "logp_current", "logp_new", "advantage", "entropy")
_KINDS: dict[str, pa.DataType] = {
    "float16": pa.float16(),
    "float64": pa.float64(),
    "integers": pa.int64(),
    "texts": pa.string(),
    "decimals": pa.decimal128(20, 6),
}
_IDS: dict[str, pa.DataType] = {
    "uint64": pa.uint64(),
    "int8": pa.int8(),
    "floats": pa.float64(),
    "texts": pa.string(),
    "dictionary": pa.dictionary(pa.int32(), pa.int64()),
}

DAMAGE: dict[str, Change] = {
    "nothing": lambda run: None,
    # Files
    **{
        f"{table} truncated to {share}": _bytes(lambda b, s=share: b[: int(s * len(b))], table)
        for table in ("tokens", "sequences", "steps")
        for share in (0.0, 0.3, 0.999)
    },
    **{
        f"{table} bit flipped at {share}": _bytes(_flipped(share), table)
        for table in ("tokens", "sequences", "steps")
        for share in (0.0, 0.1, 0.25, 0.45, 0.6, 0.8, 0.95, 0.9999)
    },
    "tokens of zeros": _bytes(lambda b: bytes(len(b))),
    "tokens of text": _bytes(lambda b: b"step,seq_id\n1,2\n"),
    "tokens twice in a file": _bytes(lambda b: b + b),
    "tokens a folder": _replaced(Path.mkdir),
    "tokens a pipe": _replaced(os.mkfifo),
    "tokens a link to itself": _replaced(lambda path: path.symlink_to(path)),
    "tokens a link to nothing": _replaced(lambda path: path.symlink_to(path.with_name("nothing"))),
    "tokens a link to a device": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "tokens a link to memory": _replaced(lambda path: path.symlink_to("/proc/self/mem")),
    "tokens files are links": _linked_file,
    "tokens folder is a link": _linked_table,
    "tokens folder is a file": lambda run: (shutil.rmtree(run / "tokens"), (run / "tokens").write_text("x")),
    "tokens folder links to itself": lambda run: (shutil.rmtree(run / "tokens"), (run / "tokens").symlink_to("tokens")),
    "no tokens folder": lambda run: shutil.rmtree(run / "tokens"),
    "no sequences folder": lambda run: shutil.rmtree(run / "sequences"),
    "no steps folder": lambda run: shutil.rmtree(run / "steps"),
    "a name with 200 digits": _renamed("1" * 100 + "-" + "1" * 100 + "-w0.parquet"),
    "steps beyond the range": _renamed("99999999999-99999999999-w0.parquet"),
    "a writer with 60 digits": _renamed("000001-000001-w" + "1" * 60 + ".parquet"),
    "last before first": _renamed("000003-000001-w0.parquet"),
    "a range that lies": _renamed("000007-000009-w0.parquet"),
    "a range too wide": _renamed("000001-2000000000-w0.parquet"),
    "a name that is no text": _renamed(os.fsdecode(b"000001\xff-000001-w0.parquet")),
    "quotes in a folder": lambda run: (run / 'it\'s "one"').mkdir(),
    "the same file by two writers": lambda run: shutil.copy(_file(run), run / "tokens" / "000001-000001-w1.parquet"),
    # Columns
    **{
        f"{name} of {kind}": column(
            name, _as(dtype) if kind != "texts" else (lambda v: [str(x) for x in v.to_pylist()])
        )
        for name in ("logp_behavior", "logp_current", "advantage")
        for kind, dtype in _KINDS.items()
    },
    **{
        f"{name} of {kind}": column(
            name,
            (
                lambda v, d=dtype: (
                    v.combine_chunks().dictionary_encode()
                    if pa.types.is_dictionary(d)
                    else pa.array(np.asarray(v.to_numpy() % 100)).cast(d)
                    if not pa.types.is_string(d)
                    else [str(x) for x in v.to_pylist()]
                )
            ),
        )
        for name in ("seq_id", "position", "group_id")
        for kind, dtype in _IDS.items()
    },
    **{
        f"{name} of lists": column(name, lambda v: [[x] for x in v.to_pylist()])
        for name in ("seq_id", "logp_current", "advantage")
    },
    **{f"{name} of objects": column(name, lambda v: [{"a": x} for x in v.to_pylist()]) for name in ("position",)},
    **{
        f"{name} null": column(name, lambda v: pa.nulls(len(v)))
        for name in ("step", "seq_id", "position", "logp_behavior", "logp_current", "advantage", "group_id")
    },
    **{
        f"{name} all {value}": column(name, lambda v, x=value: np.full(len(v), x, dtype=np.float32))
        for name in _FLOATS
        for value in (float("nan"), float("inf"), float("-inf"), 1e38, 0.0)
    },
    **{
        f"some {name} {value}": column(name, _some(value))
        for name in ("logp_behavior", "logp_current", "logp_new", "advantage")
        for value in (float("nan"), 5.0)
    },
    **{
        f"without {name}": rewritten(_without(name))
        for name in ("step", "seq_id", "position", "logp_behavior", "logp_current", "group_id", "advantage")
    },
    "step of another update": column("step", lambda v: pa.array([0] * len(v), pa.int32())),
    "step below 0": column("step", lambda v: pa.array([-5] * len(v), pa.int32())),
    "step beyond int32": column("step", lambda v: pa.array([2**40] * len(v), pa.int64())),
    "seq_id beyond int64": column("seq_id", lambda v: pa.array([2**63 + 5] * len(v), pa.uint64())),
    "one name twice": rewritten(lambda t: t.append_column("logp_current", t.column("logp_current"))),
    "names in capitals": rewritten(lambda t: t.rename_columns([name.upper() for name in t.column_names])),
    "a name twice but for capitals": rewritten(lambda t: t.append_column("Logp_Current", t.column("logp_current"))),
    "a name with quotes": rewritten(lambda t: t.append_column('x";drop', t.column("logp_current"))),
    "500 more columns": rewritten(
        lambda t: pa.table(
            dict(zip(t.column_names, t.columns, strict=True))
            | {f"extra_{n}": t.column("advantage") for n in range(500)}
        )
    ),
    "huge text": rewritten(_huge),
    "a reward of text": rewritten(lambda t: t.append_column("reward_part", pa.array(["x"] * len(t))), "sequences"),
    "a reward of lists": rewritten(lambda t: t.append_column("reward_part", pa.array([[1]] * len(t))), "sequences"),
    "a reward of infinity": column("reward", lambda v: np.full(len(v), np.inf, dtype=np.float32), "sequences"),
    "a reward of float16": column("reward", _as(pa.float16()), "sequences"),
    "a response of lists": rewritten(lambda t: t.append_column("response", pa.array([["a"]] * len(t))), "sequences"),
    "n_tokens below 0": column("n_tokens", lambda v: pa.array([-1] * len(v), pa.int32()), "sequences"),
    "n_tokens huge": column("n_tokens", lambda v: pa.array([2**31 - 1] * len(v), pa.int32()), "sequences"),
    "policy_version huge": column("policy_version", lambda v: pa.array([2**62] * len(v), pa.int64()), "steps"),
    "policy_version of text": column("policy_version", lambda v: ["7"] * len(v), "steps"),
    "behavior_version huge": column("behavior_version", lambda v: pa.array([2**62] * len(v), pa.int64())),
    "loss of text": column("loss", lambda v: ["x"] * len(v), "steps"),
    "loss of float16": column("loss", _as(pa.float16()), "steps"),
    "extra of lists": rewritten(lambda t: t.append_column("extra_x", pa.array([[1.0]] * len(t))), "steps"),
    "wall_time of text": column("wall_time", lambda v: ["today"] * len(v), "steps"),
    "wall_time in the year 1": column(
        "wall_time", lambda v: pa.array([-62_135_596_800_000_000] * len(v), pa.timestamp("us", tz="UTC")), "steps"
    ),
    # Rows
    "duplicated rows": rewritten(lambda t: pa.concat_tables([t, t])),
    "one duplicated row": rewritten(lambda t: pa.concat_tables([t, t.slice(0, 1)])),
    "duplicated responses": rewritten(lambda t: pa.concat_tables([t, t]), "sequences"),
    "duplicated steps": rewritten(lambda t: pa.concat_tables([t, t]), "steps"),
    "rows shuffled": rewritten(lambda t: t.take(np.random.default_rng(0).permutation(len(t)))),
    "one row": rewritten(lambda t: t.slice(0, 1)),
    **{f"no row of {table}": rewritten(lambda t: t.slice(0, 0), table) for table in ("tokens", "sequences", "steps")},
    # Encodings
    **{
        f"compressed by {kind}": rewritten(lambda t: t, compression=kind)
        for kind in ("none", "gzip", "snappy", "brotli", "lz4")
    },
    "dictionaries": rewritten(lambda t: t, use_dictionary=True),
    "format 1.0": rewritten(lambda t: t, version="1.0"),
    "data pages of version 2": rewritten(lambda t: t, data_page_version="2.0"),
    "no statistics": rewritten(lambda t: t, write_statistics=False),
    "row groups of one row": rewritten(lambda t: t, row_group_size=1),
    # Footers
    "a footer that lies of NaN": _lying_nan,
    **{
        f"a footer that says {text!r}": rewritten(_footer(text))
        for text in (b"", b"x", b"[]", b"3", b"null", b'{"logp_current": "x"}', b'{"logp_current": -5}', b"\xff")
    },
    "no metadata": rewritten(lambda t: t.replace_schema_metadata(None)),
    "version x": rewritten(lambda t: t.replace_schema_metadata({b"ratioscope.schema_version": b"\xff\xfe"})),
    "version 99": rewritten(lambda t: t.replace_schema_metadata({b"ratioscope.schema_version": b"99.0"})),
    # run.json
    "manifest of nothing": _written(b""),
    "manifest of zeros": _written(bytes(500)),
    "manifest in UTF-16": _written('{"name": "x"}'.encode("utf-16")),
    "manifest deeply nested": _written(_DEEP),
    "manifest a list": _written(b"[1]"),
    "manifest null": _written(b"null"),
    "manifest with a huge number": _written(b'{"schema_version": "1.2", "name": "x", "seed": ' + b"9" * 10_000 + b"}"),
    "manifest NaN": _written(b'{"schema_version": "1.2", "name": NaN}'),
    "manifest a folder": lambda run: ((run / "run.json").unlink(), (run / "run.json").mkdir()),
    "manifest a link to itself": lambda run: ((run / "run.json").unlink(), (run / "run.json").symlink_to("run.json")),
    **{
        f"heartbeat {text}": manifest(status="running", heartbeat=text)
        for text in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "yesterday", "", "2099-01-01")
    },
    **{
        f"created {text}": manifest(created=text)
        for text in ("0001-01-01T00:00:00", "9999-12-31T23:59:59-12:00", "yesterday", "")
    },
    **{
        f"{name} a {type(value).__name__}": manifest(**{name: value})
        for name, value in {
            "name": 5,
            "algorithm": "grpo",
            "seed": "7",
            "tags": "x",
            "planned_updates": "many",
            "notes": ["x"],
            "writers": {"0": 3},
            "task": [1],
            "extra": {"a": 1},
            "process_id": "x",
            "status": "asleep",
        }.items()
    },
    **{
        f"algorithm {json.dumps(value)[:40]}": manifest(algorithm=value)
        for value in (
            {"name": 5},
            {"name": ["grpo"]},
            {"name": "grpo", "gate": 7},
            {"name": "grpo", "gate": {"name": "x"}},
            {"name": "grpo", "parameters": "x"},
            {"name": "grpo", "parameters": {"clip_low": "a lot"}},
            {"name": "grpo", "clip_low": "0.2", "clip_high": [1]},
            {"name": "grpo", "loss": {"a": {"b": [1]}}},
        )
    },
    **{
        f"schedule {json.dumps(value)[:40]}": manifest(schedule=value)
        for value in (
            {"sync_interval": "often"},
            {"sync_interval": -1},
            {"sync_interval": None},
            {"max_staleness": "x"},
            {"sync_interval": [1]},
            {"sync_interval": 0},
        )
    },
    **{
        f"sampler {json.dumps(value)[:40]}": manifest(sampler=value)
        for value in ({"temperature": "hot"}, {"top_p": []}, {"temperature": 0}, {"engine": 5})
    },
    **{
        f"task {json.dumps(value)[:40]}": manifest(task=value)
        for value in ({"name": 5}, {"evaluation_prompts": "many"}, {"evaluation_prompts": -1})
    },
    **{
        f"optimiser {json.dumps(value)[:40]}": manifest(optimiser=value)
        for value in ({"learning_rate": "small"}, {"learning_rate": None}, {"epochs": "x"}, {"learning_rate": [1]})
    },
    "log_probability_decimals huge": manifest(log_probability_decimals=10**9),
    "planned_updates huge": manifest(planned_updates=10**30),
    "planned_updates below 0": manifest(planned_updates=-3),
    "seed huge": manifest(seed=10**400),
    "missing of numbers": manifest(missing={"logp_new": 5}),
    "assumed of numbers": manifest(assumed=[5, {"a": 1}]),
    "source of numbers": manifest(source={"framework": 5, "version": []}),
    "tags of lists": manifest(tags=[[1], {"a": 1}, None]),
    "libraries of lists": manifest(libraries={"torch": [1]}),
    "producer of numbers": manifest(producer={"name": 7, "version": None}),
    "warm_start of text": manifest(warm_start={"step": "x", "learned": None}),
    "name of 100,000 letters": manifest(name="x" * 100_000),
    "name of markup": manifest(name="<script>alert(1)</script>\x1b[31m\x00\u202e"),
    # What lies beside
    "thresholds that are no TOML": lambda run: (run / "ratioscope.toml").write_text("x = = 1"),
    "thresholds of text": lambda run: (run / "ratioscope.toml").write_text('[thresholds]\nstaleness_high = "a"\n'),
    "vocabulary of text": lambda run: (run / "vocabulary.parquet").write_text("x"),
    "vocabulary without texts": lambda run: pq.write_table(pa.table({"token_id": [1]}), run / "vocabulary.parquet"),
    "vocabulary of numbers": lambda run: pq.write_table(
        pa.table({"token_id": [1], "text": [5]}), run / "vocabulary.parquet"
    ),
}
"""By name: what was damaged."""
