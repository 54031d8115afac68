"""SQL templates: every placeholder has a value, and every value a placeholder. Databases serve one question after the
other, and nobody sees what another question made or may read."""

import weakref
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from ratioscope.analysis.runs.database import connect, filled, one_thread


def test_a_template_is_filled_everywhere() -> None:
    text = filled("drift/certificate_tokens", log_gamma="-0.5")
    assert "position * -0.5::double" in text and "$" not in text


@pytest.mark.parametrize("values", [{}, {"gamma": "-0.5"}, {"log_gamma": "-0.5", "other": "1"}])
def test_placeholders_and_values_that_do_not_match_are_an_error(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"drift/certificate_tokens\.sql has the placeholders \['log_gamma'\]"):
        filled("drift/certificate_tokens", **values)


MADE = "select view_name from duckdb_views() where not internal union all select table_name from duckdb_tables()"


def test_the_next_question_gets_the_same_database_without_what_was_made_in_it(tmp_path: Path) -> None:
    with connect([tmp_path]) as first:
        frame = pd.DataFrame({"one": [1]})
        first.register("frame", frame)
        first.execute("create view view_of as select * from frame")
        first.execute("create temp view of_it as select * from view_of")
        first.execute('create temp table "a ""table""" as select * from of_it')
        assert len(first.execute(MADE).fetchall()) == 4
    kept = weakref.ref(frame)
    del frame
    assert kept() is None
    with connect([tmp_path]) as second:
        assert second is first
        assert second.execute(MADE).fetchall() == []
        with connect([tmp_path]) as inside:
            assert inside is not second
        with one_thread(), connect([tmp_path]) as other:
            assert other not in (second, inside)


def test_a_question_that_failed_leaves_no_database_behind(tmp_path: Path) -> None:
    with pytest.raises(duckdb.Error), connect([tmp_path]) as failed:
        failed.execute("select nothing")
    with connect([tmp_path]) as next_one:
        assert next_one is not failed


def test_a_database_reads_the_folders_of_its_question_alone(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        pd.DataFrame({"one": [1]}).to_parquet(tmp_path / name / "rows.parquet")
    for name, denied in (("mine", "other"), ("other", "mine"), ("mine", "other")):
        with connect([tmp_path / name]) as connection:
            read = "select * from read_parquet('{}')"
            assert connection.execute(read.format(tmp_path / name / "rows.parquet")).fetchall() == [(1,)]
            with pytest.raises(duckdb.PermissionException):
                connection.execute(read.format(tmp_path / denied / "rows.parquet"))
