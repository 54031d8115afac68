"""Nothing that is typed gets out of the sandbox: no file is written, none but the run's is read, everything ends."""

import hashlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import ratioscope.analysis.sql
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.sql import QueryError, QueryLimits, ask, worker
from ratioscope.analysis.summary.summary import StepSummary
from tests.analysis.sql.queried import rows

SECRET = "zY-the-secret-of-this-test"


@pytest.fixture
def untouched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder; fails when a file appears in it or one of the run changes."""
    monkeypatch.chdir(tmp_path)
    before = _contents(run.folder.parent)
    yield tmp_path
    assert _contents(tmp_path) == {}
    assert _contents(run.folder.parent) == before


def _contents(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


# {file} is one of the run's own files as the machine names it, {made_up} as the views do, {out} a file to write.
WRITES = [
    "copy (select 1) to '{out}'",
    "copy (select 42 as a) to '{file}' (format parquet, use_tmp_file false)",
    "copy (select 42 as a) to '{made_up}' (format parquet, use_tmp_file false)",
    "with x as (copy (select 1) to '{out}') select * from x",
    "with x as (copy (select 42 as a) to '{file}' (format parquet, use_tmp_file false)) select * from x",
    "with x as (copy (select 42 as a) to '{made_up}' (format parquet, use_tmp_file false)) select * from x",
    "select * from (with x as (copy (select 1) to '{out}') select * from x)",
    "attach '{out}' as other",
    "export database '{out}'",
    "install httpfs",
    "load httpfs",
    "set temp_directory = '{out}'",
    "pragma enable_profiling",
    "call enable_logging(storage = 'file', storage_config = {{'path': '{out}'}})",
    "from enable_logging(storage = 'file', storage_config = {{'path': '{out}'}})",
    "from enable_profiling(save_location = '{out}')",
    "create secret s (type s3)",
]
READS = [
    "select * from read_csv('/etc/passwd')",
    "select * from '/etc/passwd'",
    "from read_text('/etc/passwd')",
    "from read_blob('/etc/passwd')",
    "from sniff_csv('/etc/passwd')",
    "from glob('/etc/*')",
    "from read_parquet('{file}')",
    "from parquet_metadata('{file}')",
    "from parquet_schema('{file}')",
    "from '{file}'",
    "from query('from read_text(''/etc/passwd'')')",
    "from query_table('/etc/passwd')",
    "from json_execute_serialized_sql(json_serialize_sql('from read_text(''/etc/passwd'')'))",
    "select getenv('RATIOSCOPE_SECRET')",
    "select * from hidden_frame",
]
# The lock of the connection does not see these; the syntax tree does.
TELLING = [
    "checkpoint",
    "from which_secret('s3://x', 's3')",
    "from duckdb_secrets()",
    "from duckdb_settings()",
    "select current_setting('secret_directory')",
    "select list_transform([1], lambda x: current_setting('secret_directory'))",
    "from duckdb_views()",
    "select sql from duckdb_views",
    "from information_schema.tables",
    "from main.tokens",
    "from pg_catalog.pg_settings",
    "from sqlite_master",
    "with t as (select 1) select (select count(*) from duckdb_settings) from t",
    "select * from duckdb_views where exists (with duckdb_views as (select 1) select 1)",
    "with duckdb_views as (from duckdb_views) from duckdb_views",
    "show tables",
    "show all tables",
    "from test_all_types()",
    "from arrow_scan(1, 1, 1)",
    "select write_log('x')",
    "insert into tokens select * from tokens",
    "with x as (delete from tokens returning *) select * from x",
    "select 1; select 2",
    "select 1; copy (select 1) to '{out}'",
    "explain analyze select 1",
    "pivot tokens on position using count(*)",
    "prepare p as select 1",
    "begin",
    "reset all",
    "",
    "   -- nothing",
]


def filled(sql: str, run: Run, folder: Path) -> str:
    file = next(file for file in run.files["tokens"])
    made_up = f"run://tokens/{file.name}"
    path = str(file.path.resolve()).replace("'", "''")
    return sql.format(file=path, made_up=made_up, out=folder / "out.file")


@pytest.mark.parametrize("sql", [*WRITES, *READS, *TELLING])
def test_what_is_no_question_to_the_run_is_refused(
    sql: str, run: Run, locked: tuple[duckdb.DuckDBPyConnection, set[str]], untouched: Path
) -> None:
    hidden_frame = SECRET  # noqa: F841 - what a query must not find
    connection, offered = locked
    text = filled(sql, run, untouched)
    with pytest.raises((worker.Refused, duckdb.Error)) as refused:
        worker.check(connection, text, offered)
        connection.execute(text).fetchall()
    said = str(refused.value)
    assert "root:" not in said
    assert SECRET not in said


@pytest.mark.parametrize("sql", [*WRITES, *READS])
def test_the_connection_alone_withstands_what_the_syntax_tree_would_have_refused(
    sql: str, run: Run, locked: tuple[duckdb.DuckDBPyConnection, set[str]], untouched: Path
) -> None:
    connection, _ = locked
    with pytest.raises(Exception) as refused:
        connection.cursor().execute(filled(sql, run, untouched)).fetchall()
    assert "root:" not in str(refused.value)


@pytest.mark.parametrize(
    "sql",
    [
        "from tokens",
        "SELECT count(*) FROM Tokens;  -- how many",
        "describe tokens",
        "summarize select reward from sequences",
        "with tokens as (select * from tokens where step = 0) select count(*) from tokens",
        "with recursive t(n) as (select 1 union all select n + 1 from t where n < 9) select max(n) from t",
        "select * from range(3) union all select step from steps",
        "pivot tokens on clip_side in (-1, 0, 1) using count(*) group by step",
        "select (select max(u_k) from summary), list_transform([1, 2], lambda x: x + 1)",
        "select step, 'copy (select 1) to x' as text from steps",
        "values (1), (2)",
    ],
)
def test_a_question_of_any_shape_that_only_reads_passes(
    sql: str, locked: tuple[duckdb.DuckDBPyConnection, set[str]]
) -> None:
    connection, offered = locked
    worker.check(connection, sql, offered)
    assert connection.cursor().execute(sql).fetchall()


def _spied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """The processes that are started from here on, with their options."""
    processes: list[tuple[Any, dict[str, Any]]] = []
    popen = subprocess.Popen

    def spy(*args: Any, **options: Any) -> Any:
        processes.append((popen(*args, **options), options))
        return processes[-1][0]

    monkeypatch.setattr(subprocess, "Popen", spy)
    return processes


def test_the_environment_does_not_reach_the_worker(
    run: Run, summary: StepSummary, monkeypatch: pytest.MonkeyPatch, untouched: Path
) -> None:
    monkeypatch.setenv("RATIOSCOPE_SECRET", SECRET)
    processes = _spied(monkeypatch)
    assert rows(ask(run, summary, "select 1 as one")) == [(1,)]
    ((_, options),) = processes
    assert SECRET not in str(options["env"])
    assert "HOME" not in options["env"]


@pytest.mark.parametrize("sql", ["from nowhere", "select foo from tokens", "select 1 +"])
def test_a_mistake_is_one_sentence_without_paths(sql: str, run: Run, summary: StepSummary) -> None:
    with pytest.raises(QueryError) as wrong:
        ask(run, summary, sql)
    said = str(wrong.value)
    assert "/" not in said
    assert "\n" not in said
    assert "Error:" not in said
    assert "Did you mean" not in said


ENDLESS = {
    "recursion": "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
    "cross join": "select count(*) from range(1000000) a, range(1000000) b",
    "aggregate": "select sum(sin(range)) from range(1000000000000)",
    "one function call": "select levenshtein(repeat('a', 300000), repeat('b', 300000))",
}


@pytest.mark.parametrize("sql", ENDLESS.values(), ids=ENDLESS)
def test_what_does_not_end_is_ended(
    sql: str, run: Run, summary: StepSummary, monkeypatch: pytest.MonkeyPatch, untouched: Path
) -> None:
    processes = _spied(monkeypatch)
    with pytest.raises(QueryError, match=r"The query was ended after 0\.4 s"):
        ask(run, summary, sql, QueryLimits(seconds=0.4, threads=1))
    assert [process.poll() is not None for process, _ in processes] == [True]


def test_a_reader_who_goes_on_ends_the_query(run: Run, summary: StepSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    processes, threads = _spied(monkeypatch), threading.active_count()

    def gone(seconds: float) -> None:
        raise KeyboardInterrupt

    for _ in range(3):  # more often than there are places: none is lost
        with pytest.raises(KeyboardInterrupt):
            ask(run, summary, ENDLESS["cross join"], waiting=gone)
    assert all(process.poll() is not None for process, _ in processes)
    assert threading.active_count() == threads
    assert rows(ask(run, summary, "select 1")) == [(1,)]


def test_who_asks_while_all_places_are_taken_waits_no_longer_than_a_query_may(
    run: Run, summary: StepSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ratioscope.analysis.sql, "_SLOTS", threading.BoundedSemaphore(1))
    with ratioscope.analysis.sql._SLOTS, pytest.raises(QueryError, match="Other queries are running"):
        ask(run, summary, "select 1", QueryLimits(seconds=0.1))


@pytest.mark.parametrize(
    "sql", ["select len(string_agg(repeat('x', 1000000), '')) from range(100000)", "select repeat('x', 4000000000)"]
)
def test_memory_is_bounded(sql: str, run: Run, summary: StepSummary) -> None:
    with pytest.raises(QueryError, match="memory"):
        ask(run, summary, sql, QueryLimits(memory=200 * 2**20, threads=1))


def test_a_long_result_is_cut_and_says_so(run: Run, summary: StepSummary) -> None:
    answer = ask(run, summary, "select * from range(1000000000)", QueryLimits(rows=5_000))
    assert answer.table["range"].to_pylist() == list(range(5_000))
    assert answer.cut == "Only the first 5,000 rows of the result are here; aggregate, or add a limit."
    assert ask(run, summary, "select * from range(5000)", QueryLimits(rows=5_000)).cut == ""


def test_a_heavy_result_is_cut_and_says_so(run: Run, summary: StepSummary) -> None:
    limits = QueryLimits(bytes=2**20)
    answer = ask(run, summary, "select repeat('x', 10000) as text from range(100000)", limits)
    assert 0 < answer.table.nbytes <= limits.bytes
    assert "because more than 1 MB are not sent" in answer.cut
    with pytest.raises(QueryError, match="One row of the result is larger than 1 MB; shorten texts"):
        ask(run, summary, "select repeat('x', 10000000)", limits)


def test_a_wide_result_is_refused(run: Run, summary: StepSummary) -> None:
    columns = ", ".join(f"{number} as c{number}" for number in range(401))
    with pytest.raises(QueryError, match="has 401 columns; 400 are the most"):
        ask(run, summary, f"select {columns}")


def test_a_long_query_is_refused(run: Run, summary: StepSummary) -> None:
    with pytest.raises(QueryError, match="10,012 characters; 10,000 are the most"):
        ask(run, summary, "select 1 -- " + "x" * 10_000)
