"""Strange texts: limits in TOML, settings as key=value, mapping files, sources of importers, queries."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from ratioscope.analysis.findings.limits import limits_of
from ratioscope.analysis.importers.detect import FoundSource, the_source
from ratioscope.analysis.importers.mapping import importer_of
from ratioscope.analysis.importers.writing import Options, import_run
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.sql import QueryLimits, ask
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import THRESHOLDS
from ratioscope.trainer.settings.load import load_settings
from tests.fuzzing.holding import Broken, Target, check_sentence, lasting
from tests.fuzzing.tables import whole
from tests.fuzzing.values import TEXTS, json_values, shape, texts
from tests.making.foreign import imitated_lines, truth


def toml(value: Any) -> str:
    """A value as TOML spells it, or nearly."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else str(value)


def _write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


_BROKEN_TOML = (
    "x = = 1", "[", "[[thresholds]]", "a = " + "[" * 5_000, "a = " + "{a=" * 3_000, "[" + "a." * 50_000 + "b]",
    "\ufeffa = 1", "a = 1\na = 2", "thresholds = 5", "[thresholds]\n" * 2, "a = '''", "\x00",
    "x = 1979-05-27T07:32:00Z", "x = 0x" + "f" * 5_000, "x = 1" + "0" * 5_000,
)  # fmt: skip

# ratioscope.toml ------------------------------------------------------------------------------------------------------


def ask_limits(inside: Path, example: str | dict[str, Any]) -> None:
    """A ratioscope.toml: as text, or values of thresholds."""
    text = example if isinstance(example, str) else f"[thresholds]\n{_lines(example)}"
    _write(inside / "ratioscope.toml", text)
    limits = limits_of(inside)
    if not all(isinstance(value, int | float) and abs(value) < 1e12 for value in vars(limits).values()):
        raise Broken(f"a limit that is none: {limits}")


def _lines(values: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in values.items())


def _text_kind(example: Any) -> str:
    if isinstance(example, str):
        return f"text {_BROKEN_TOML.index(example)}" if example in _BROKEN_TOML else "any text"
    return next(
        (f"{key if key not in TEXTS else 'a strange name'} {shape(value)}" for key, value in example.items()), "nothing"
    )


# key=value ------------------------------------------------------------------------------------------------------------

_KEYS = (
    "algorithm", "algorithm.name", "algorithm.parameters", "algorithm.parameters.x", "epsilon_low", "schedule", "seed",
    "schedule.sync_interval", "sync_interval", "sync_offset", "task", "task.name", "task.options.a.b", "model",
    "updates", "warm_start.updates", "optimiser.learning_rate", "learning_rate", "lr", "sampler.temperature",
    "temperature", "top_p", "group_size", "--lr", "-", ".", "..", "a..b", "schedule.", ".seed", "__class__",
    "algorithm.gate", "algorithm.loss", "batch_size", "precision", "model.name", "task.seed", "workers", "mixture",
)  # fmt: skip


def ask_settings(inside: Path, overrides: list[str]) -> None:
    """Settings on the command line of the trainer; one that is taken can be written and read again."""
    config = load_settings("on_policy", overrides)
    json.dumps(config.model_dump(mode="json"), allow_nan=False)


_setting = (
    st.builds(lambda key, value: f"{key}={value}", st.sampled_from(_KEYS) | texts, (json_values.map(toml) | texts))
    | texts
)

_sound = st.builds(
    "{}={}".format,
    st.sampled_from(_KEYS[9:32]),
    st.sampled_from([1, 2, 0, 0.5, 1e-9, 1e9, 10**18, "true", "nan", "1e309", "[1]"]),
)

# Mapping files --------------------------------------------------------------------------------------------------------

_GOOD: dict[str, Any] = {
    "step": "it",
    "tokens": {
        "files": "*.parquet",
        "layout": "lists",
        "columns": {"logp_behavior": "old", "logp_current": "now", "token_id": "ids"},
    },
    "sequences": {"files": "*.parquet", "columns": {"response": "answer"}, "rewards": {"total": "score"}},
    "run": {"algorithm": {"name": "grpo"}, "seed": 3},
}
_PLACES = (
    "step", "step_in_name", "step_offset", "tokens", "tokens.files", "tokens.layout", "tokens.padding",
    "tokens.length", "tokens.prompt_length", "tokens.mask", "tokens.shifted", "tokens.columns",
    "tokens.columns.advantage", "tokens.columns.seq_id", "tokens.columns.position", "tokens.constants",
    "tokens.constants.advantage", "tokens.constants.group_id", "tokens.step", "tokens.columns.extra_x", "sequences",
    "sequences.files", "sequences.columns.group_id", "sequences.columns.reward", "sequences.columns.n_tokens",
    "sequences.rewards", "sequences.rewards.part", "sequences.constants.temperature", "sequences.constants.prompt",
    "steps", "steps.columns.loss", "steps.constants.wall_time", "steps.files", "run", "run.seed", "run.created",
    "run.tags", "run.algorithm", "run.log_probability_decimals", "run.sampled_with", "run.planned_updates",
    "run.framework", "run.libraries", "tokens.step_offset", "tokens.step_in_name", "other",
    "tokens.table", "tokens.ignore_index", "tokens.columns.behavior_version", "tokens.columns.token_id",
    "sequences.layout", "sequences.columns.behavior_version_min", "steps.columns.policy_version",
)  # fmt: skip
_THEIRS = (
    "it", "old", "now", "ids", "answer", "score", "nested", "when", "mixed", "objects", "lists", "text",
    "nested.a", "nested.a[0]", "objects[*].a", "objects[-1].b", "objects[*]", "lists[*]", "lists[0]", "text.a",
    "text[*].a", "none|old", "it - 1", "it + it - 3", "it - objects[0].b", "it - mixed", "ids + it", "lists - it",
    "text.b - it", "it - none", "groups", "steps", "rows",
)  # fmt: skip
_PATTERNS = (
    r"(\d+)",
    r"(\w+)",
    r"(a+)+$",
    r"()",
    r"(",
    r"(?P<n>\d+)?",
    r"(.*)*x",
    r"\d+",
    r"(-?\d+)",
    "**",
    "../*",
    "/etc/*",
    "*",
)


@cache
def _source(kind: str) -> Path:
    path = lasting() / f"rows-7.{kind}"
    n = 6
    table = pa.table(
        {
            "it": [0, 0, 0, 1, 1, 1],
            "old": [[-0.5, -1.0]] * n,
            "now": [[-0.4, -1.1]] * n,
            "ids": [[1, 2]] * n,
            "answer": ["a b"] * n,
            "score": [0.0, 1.0] * 3,
            "nested": [{"a": [1]}] * n,
            "when": pa.array([1] * n, pa.timestamp("us")),
            "mixed": [None, [1.0], [], [None], [float("nan")], None],
            "objects": [[{"a": [1, 2], "b": 1}, {"a": None, "b": 2}], [], None] * 2,
            "lists": [[[1, 2], [3]], [[1]], None] * 2,
            "text": ['{"a": [1, 2], "b": 3}', "[1, 2", "no JSON", None, "[]", "{}"],
        }
    )
    if kind == "parquet":
        pq.write_table(table, path)
        return path
    rows = table.drop_columns(["when"]).to_pylist()
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    with closing(sqlite3.connect(path)) as store, store:
        store.execute(f"CREATE TABLE data ({', '.join(rows[0])})")
        for row in rows:
            kept = [json.dumps(value) if isinstance(value, list | dict) else value for value in row.values()]
            store.execute(f"INSERT INTO data VALUES ({', '.join('?' * len(row))})", kept)
    return path


def ask_mapping(inside: Path, example: str | dict[str, Any]) -> None:
    """A mapping file over a small source: as text, or a good one with other values at some places."""
    if isinstance(example, str):
        text = example
    else:
        made = json.loads(json.dumps(_GOOD))
        for place, value in example.items():
            *outer, last = place.split(".")
            held = made
            for part in outer:
                if not isinstance(held.get(part), dict):
                    held[part] = {}
                held = held[part]
            held[last] = value
        text = _lines(made)
    kind = ("parquet", "jsonl", "db")[len(text) % 3]
    file = _write(inside / "mapping.toml", text.replace("*.parquet", f"*.{kind}"))
    (inside / "theirs").mkdir()
    shutil.copy(_source(kind), inside / "theirs")
    importer = importer_of(file)
    description = importer.describe(inside / "theirs")
    assert description is not None
    _imported(FoundSource(importer, description, inside / "theirs"), inside)


def _imported(found: FoundSource, inside: Path) -> None:
    before = {path: path.read_bytes() for path in found.place.rglob("*") if path.is_file()}
    done = import_run(found, inside / "runs" / "run", Options())
    for problem in done.problems:
        check_sentence(problem)
    summary = summarise(open_run(inside / "runs" / "run"))
    if done.tokens and not summary.values["n_tokens"].sum():
        raise Broken(f"{done.tokens} tokens were imported and none is counted")
    if {path: path.read_bytes() for path in found.place.rglob("*") if path.is_file()} != before:
        raise Broken("the source was written to")


_mapping_value = json_values | st.sampled_from([*_THEIRS, *_PATTERNS, [*_THEIRS[1:3]], ["mask"], {"reward": "score"}])

# Sources of importers -------------------------------------------------------------------------------------------------

_WRITERS = {
    "ROLL": lambda folder: imitated_lines.roll(folder, truth.run()),
    "RLLoggingBoard": lambda folder: imitated_lines.logging_board(folder, truth.run()),
    "text of ROLL": lambda folder: imitated_lines.roll_rollouts(folder, truth.run()),
    "AReaL": lambda folder: imitated_lines.areal(folder, truth.run()),
    "verl": lambda folder: imitated_lines.verl(folder, truth.run()),
}
_FILES: dict[str, Callable[[Path], object]] = {
    "file: a pipe": os.mkfifo,
    "file: to a device": lambda path: path.symlink_to("/dev/zero"),
    "file: empty": Path.touch,
    "file: of one line without an end": lambda path: path.write_bytes(b"[" * 10**7),
    "file: not UTF-8": lambda path: path.write_bytes(b'{"a": "\xff\xfe"}\n'),
}
"""What becomes of the first file of a source, as the other values do of what is in it."""


@cache
def _lines_of(name: str) -> tuple[Path, Path]:
    """A source that is good, and the path to import below it."""
    folder = lasting() / "theirs"
    return folder, _WRITERS[name](folder)


def ask_source(inside: Path, example: tuple[str, int, int, Any, bool]) -> None:
    """(format, line, which value of it, what it becomes, in all lines): a source of JSON lines with other values."""
    name, line, place, value, everywhere = example
    folder, path = _lines_of(name)
    copy = inside / "theirs"
    shutil.copytree(folder, copy)
    file = next(each for each in sorted(copy.rglob("*")) if each.is_file() and each.suffix in (".jsonl", ".json"))
    if isinstance(value, str) and value in _FILES:
        file.unlink()
        _FILES[value](file)
        _imported(the_source(copy / path.relative_to(folder)), inside)
        return
    lines = file.read_text().splitlines()
    for number in range(len(lines)) if everywhere else [line % len(lines)]:
        record = json.loads(lines[number])
        if isinstance(record, dict) and record:
            _exchange(record, place, value)
        lines[number] = json.dumps(record)
    file.write_text("\n".join(lines) + "\n")
    _imported(the_source(copy / path.relative_to(folder)), inside)


def _exchange(record: dict[str, Any], place: int, value: Any) -> None:
    """Another value under one of the keys or, where a list is there, as one of its entries."""
    key = list(record)[place % len(record)]
    held = record[key]
    if isinstance(held, list) and held and place % 2:
        held[place % len(held)] = value
    elif isinstance(held, dict) and held and place % 2:
        _exchange(held, place // 2, value)
    elif value == "left out":
        del record[key]
    else:
        record[key] = value


# SQL ------------------------------------------------------------------------------------------------------------------

_PARTS = (
    "*", "step", "avg(log_rho)", "count(*)", "1/0", "getenv('HOME')", "current_setting('home_directory')", "sum(-1)",
    "'x' || 5", "array_agg(step)", "struct_pack(a := 1)", "date '0001-01-01'", "interval 1 year", "1e400",
    "'\\x00'::blob", "repeat('x', 100000)", "range(100000)", "nan::float", "170141183460469231731687303715884105727",
    "uuid()", "$1", "?", "version()", "pg_typeof(1)", "list_transform([1], x -> x)", "cast('a' as int)",
    "max(response)", "NULL", "union_value(k := 1)", "map([1], [2])", "time '10:00'", "'👩‍👩‍👧'", "chr(0)", "error('x')",
    "infinity::timestamp", "{'a': [1]}",
)  # fmt: skip
_AFTER_FROM = (
    "tokens", "summary", "notes", "responses", "sequences", "steps", "'/etc/passwd'", "read_csv('/etc/passwd')",
    "read_text('/etc/*')", "duckdb_settings()", "information_schema.tables", "pragma_version()", "glob('/*')",
    "tokens a, tokens b", "nothing", "range(3)", "(select 1)", "tokens tablesample 1 rows", "sniff_csv('/etc/passwd')",
    "sqlite_master", "query('select 1')", "tokens where",
)  # fmt: skip
_STATEMENTS = (
    "", ";", "select", "select 1; select 2", "copy (select 1) to 'out.csv'", "attach 'x.db'", "install httpfs",
    "load 'x'", "pragma database_list", "set memory_limit = '1TB'", "create table a (b int)", "drop view tokens",
    "delete from tokens", "explain select 1", "describe tokens", "show tables",
    "with x as (copy (select 1) to 'a') select * from x", "export database '.'",
    "with recursive r(n) as (select 1 union all select n + 1 from r) select * from r", "select " + "(" * 3_000, "/*",
    "--", "'", "select 1 as a, 2 as a", "from tokens", "values (1)", "call pragma_version()", "checkpoint", "vacuum",
    "x" * 11_000, "select " + ",".join(["1"] * 3_000), "select '" + "x" * 9_000 + "'", "select \x00",
    "summarize tokens", "pivot tokens on step",
)  # fmt: skip


@cache
def _asked() -> Any:
    run = open_run(whole())
    return run, summarise(run)


def ask_query(inside: Path, sql: str) -> None:
    """A query: a table of numbers and texts, or a sentence; no word of what is in files of the machine."""
    answer = ask(*_asked(), sql, QueryLimits(seconds=2.0))
    json.dumps(answer.table.to_pylist(), default=str)
    if "root:" in str(answer.table.slice(0, 20).to_pylist()):
        raise Broken("a file of the machine was read")


def _query_kind(sql: str) -> str:
    if sql in _STATEMENTS:
        return f"statement {_STATEMENTS.index(sql)}"
    part = next((part for part in _PARTS if sql.startswith(f"select {part} from ")), "any")
    return f"{part} from {sql.rpartition(' from ')[2]}" if part != "any" else part


_query = st.builds("select {} from {}".format, st.sampled_from(_PARTS), st.sampled_from(_AFTER_FROM))

TARGETS = {
    "limits": Target(
        st.dictionaries(st.sampled_from([*THRESHOLDS]) | texts, json_values, max_size=2)
        | st.sampled_from(_BROKEN_TOML)
        | st.text(max_size=40),
        ask_limits,
        _text_kind,
        few=60,
    ),
    "settings": Target(
        st.lists(_setting, min_size=1, max_size=1) | st.lists(_sound, min_size=1, max_size=2),
        ask_settings,
        lambda e: f"{e[0].partition('=')[0][:20]} {e[0].partition('=')[2][:12]}",
        few=30,
    ),
    "mapping": Target(
        st.dictionaries(st.sampled_from(_PLACES), _mapping_value, min_size=1, max_size=2)
        | st.sampled_from(_BROKEN_TOML),
        ask_mapping,
        _text_kind,
        few=8,
    ),
    "sources": Target(
        st.tuples(
            st.sampled_from([*_WRITERS]),
            st.integers(0, 30),
            st.integers(0, 40),
            json_values | st.sampled_from(["left out", *_FILES]),
            st.booleans(),
        ),
        ask_source,
        lambda e: f"{e[0]} {e[3]}" if str(e[3]) in _FILES else f"{e[0]} {e[2]} {shape(e[3])}",
        few=2,
    ),
    "sql": Target(_query | st.sampled_from(_STATEMENTS) | st.text(max_size=30), ask_query, _query_kind, few=3),
}
