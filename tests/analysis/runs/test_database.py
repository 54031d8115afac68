"""SQL templates: every placeholder has a value, and every value a placeholder. Connections share nothing but code."""

import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.runs import database
from ratioscope.analysis.runs.database import connect, filled, one_thread


def test_a_template_is_filled_everywhere() -> None:
    text = filled("drift/certificate_tokens", log_gamma="-0.5")
    assert "position * -0.5::double" in text and "$" not in text


@pytest.mark.parametrize("values", [{}, {"gamma": "-0.5"}, {"log_gamma": "-0.5", "other": "1"}])
def test_placeholders_and_values_that_do_not_match_are_an_error(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"drift/certificate_tokens\.sql has the placeholders \['log_gamma'\]"):
        filled("drift/certificate_tokens", **values)


def test_nothing_that_was_made_in_a_connection_is_in_the_next(tmp_path: Path) -> None:
    made = "create table t as select 1 as x", "create view v as select 1 as x", "create temp table p as select 1 as x"
    with connect([tmp_path]) as connection, connect([tmp_path]) as beside:
        for statement in (*made, "create macro m() as 1"):
            connection.execute(statement)
        connection.register("r", pa.table({"x": [1]}))
        for name in ("t", "v", "p", "r"):
            assert connection.execute(f"select x from {name}").fetchall() == [(1,)]
            with pytest.raises(duckdb.CatalogException):
                beside.execute(f"select x from {name}")
    for _ in range(2):
        with connect([tmp_path]) as connection:
            for query in ("from t", "from v", "from p", "from r", "select m()"):
                with pytest.raises(duckdb.CatalogException):
                    connection.execute(query)
            assert connection.execute("select expm1(0.0)").fetchall() == [(0.0,)]


def test_a_kept_database_reads_what_it_was_opened_for_and_as_it_is_now(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    for number in range(3):
        for folder in (ours, theirs):
            pq.write_table(pa.table({"x": [number]}), folder / "x.parquet")
        with connect([ours]) as connection:
            assert connection.execute(f"from '{ours}/x.parquet'").fetchall() == [(number,)]
            for forbidden in (f"from '{theirs}/x.parquet'", f"attach '{theirs}/x.db'", "set threads = 2"):
                with pytest.raises(duckdb.Error):
                    connection.execute(forbidden)
    with one_thread(), connect([ours]) as connection:
        assert connection.execute("select current_setting('threads')").fetchall() == [(1,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_few_are_kept_and_none_by_a_forked_child(tmp_path: Path) -> None:
    for number in range(9):
        with connect([tmp_path / str(number)]):
            pass
    assert len(database._kept) == database._MOST_KEPT
    if not (child := os.fork()):
        os._exit(len(database._kept))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
