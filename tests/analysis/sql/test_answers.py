"""What queries answer agrees with the analysis, and keeps NaN, infinity and null apart."""

import threading
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.sql import QueryError, ask, documented, worker
from ratioscope.analysis.sql.examples import EXAMPLES, ExampleQuery, example_queries
from ratioscope.analysis.summary.summary import StepSummary, summarise
from tests.analysis.sql.queried import N_STEPS, rows
from tests.making.runs import random_step, with_held_out, write_run


def test_metrics_made_by_hand_are_those_of_the_summary(run: Run, summary: StepSummary) -> None:
    answer = ask(
        run,
        summary,
        """
        select step, avg(abs(exp(log_rho_new) - exp(log_rho))) / 2, any_value(u_k),
               avg(abs(exp(log_rho) - 1)) / 2, avg(clipped::int), avg(tokens.version_lag), any_value(u_k_lower)
        from tokens join summary using (step) where invalid is null group by step order by step
        """,
    )
    names = ("u_k", "u_k", "s_k", "clip_fraction", "version_lag")
    for step, *numbers, lower in rows(answer):
        assert numbers == pytest.approx([summary.values[name].loc[step] for name in names], rel=1e-6)
        assert lower == pytest.approx(summary.low["u_k"].loc[step])


def test_tokens_are_those_of_the_analysis(run: Run, summary: StepSummary) -> None:
    text = "select * from {} order by step, seq_id, position"
    with relations(run) as connection:
        expected = connection.sql(text.format("token")).to_arrow_table()
    found = ask(run, summary, text.format("tokens")).table
    assert found.column_names == expected.column_names
    assert str(found.to_pylist()) == str(expected.to_pylist())  # as text, where NaN equals NaN


def test_nan_infinity_and_null_are_three_things(run: Run, summary: StepSummary) -> None:
    counted = ask(
        run,
        summary,
        """
        select count(*) filter (isnan(logp_current)), count(*) filter (logp_current > 100),
               count(*) filter (logp_current = '-inf'::float), count(*) filter (invalid = 'nan'),
               count(*) filter (logp_gate is null) = count(*)
        from tokens where step = 1
        """,
    )
    assert rows(counted) == [(2, 2, 1, 2, True)]  # NaN is above every number, as everywhere in DuckDB
    found = ask(run, summary, "select logp_current as x from tokens where not isfinite(logp_current)").table["x"]
    assert (np.isnan(found).sum(), np.isneginf(found).sum(), found.null_count) == (2, 1, 0)
    assert rows(ask(run, summary, "select count(*) from tokens where logp_current > 100")) == [(2,)]


def test_every_kind_of_value_comes_as_number_truth_date_or_text(run: Run, summary: StepSummary) -> None:
    answer = ask(
        run,
        summary,
        """
        select sum(step) as a, 1.5::decimal(9, 2) as b, [1, 2] as c, {'k': 1} as d, 'x'::blob as e, true as f,
               interval 1 day as g, date '2026-01-02' as h, 170141183460469231731687303715884105727 as i, 1 as a
        from steps
        """,
    )
    assert answer.table.column_names == ["a", "b", "c", "d", "e", "f", "g", "h", "i", "a_2"]
    row = answer.table.to_pylist()[0]
    assert (row["a"], row["b"], row["c"], row["f"], row["a_2"]) == (15, 1.5, "[1, 2]", True, 1)
    assert row["i"] == pytest.approx(2.0**127)


def test_free_columns_and_texts_of_the_log_are_there_under_their_names(run: Run, summary: StepSummary) -> None:
    free = 'select max("extra_odd ""name""") from steps union select max(reward_format) from sequences'
    assert sorted(rows(ask(run, summary, free))) == [(7.0,), (23.0,)]
    texts = ask(run, summary, "select distinct text from tokens join vocabulary using (token_id) order by 1")
    assert rows(texts) == [(f"<{token}>",) for token in range(7)]
    noted = ask(run, summary, "select distinct metric from notes order by 1")
    assert {name for (name,) in rows(noted)} == {key for notes in summary.notes.values() for key in notes}


def test_the_help_names_exactly_the_columns_that_there_are(
    run: Run, summary: StepSummary, locked: tuple[duckdb.DuckDBPyConnection, set[str]]
) -> None:
    connection, offered = locked
    helped = documented(run, summary)
    assert {table.name for table in helped} == offered
    for table in helped:
        names = {row[0] for row in connection.cursor().execute(f"describe {table.name}").fetchall()}
        intervals = {name for name in names if name.endswith(("_lower", "_upper"))}
        assert {column.name for column in table.columns} == names - intervals
        assert all(column.meaning for column in table.columns)
        assert table.logged <= names


def test_versions_that_run_ahead_of_the_steps_count_in_the_lag(tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(0), 3)
    step = replace(step, scalars=step.scalars | {"policy_version": 8})
    run = open_run(write_run(tmp_path / "ahead", [step]))
    summary = summarise(run)
    found = rows(ask(run, summary, "select avg(version_lag) from tokens"))[0][0]
    assert found == pytest.approx(summary.values["version_lag"].loc[3])
    assert found >= 5


def test_what_was_held_out_says_why_no_metric_takes_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    run = open_run(write_run(tmp_path / "run", [with_held_out(random_step(rng), random_step(rng, groups=2))]))
    summary = summarise(run)
    sql = "select invalid, count(distinct seq_id) as n from tokens group by invalid order by n"
    assert rows(ask(run, summary, sql)) == [("held out", 6), (None, 12)]
    sql = "select avg(abs(exp(log_rho) - 1)) / 2 from tokens where invalid is null"
    assert rows(ask(run, summary, sql))[0][0] == pytest.approx(summary.values["s_k"].loc[0])


def test_a_file_that_vanished_is_said(run: Run, summary: StepSummary) -> None:
    gone = replace(run.files["tokens"][0], path=run.folder / "tokens" / "gone.parquet")
    files = run.files | {"tokens": (gone, *run.files["tokens"][1:])}
    with pytest.raises(QueryError, match="A file of the run vanished or changed"):
        ask(replace(run, files=files), summary, "select 1")


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.question for example in EXAMPLES])
def test_every_example_answers_and_can_be_drawn_as_it_says(
    example: ExampleQuery, run: Run, summary: StepSummary, locked: tuple[duckdb.DuckDBPyConnection, set[str]]
) -> None:
    connection, offered = locked
    sql = example.text(0, N_STEPS - 1)
    worker.check(connection, sql, offered)
    cursor = connection.cursor()
    names = [column[0] for column in cursor.execute(sql).description]
    assert cursor.fetchall()
    if example.drawn:
        assert {example.drawn.x, example.drawn.y, example.drawn.colour} - {""} <= set(names)
    assert example in example_queries(documented(run, summary))


def test_an_example_that_the_run_cannot_answer_is_not_offered(tmp_path: Path) -> None:
    unlogged = dict.fromkeys(("logp_new", "clip_side", "clipped", "entropy"))
    run = open_run(write_run(tmp_path / "bare", [random_step(np.random.default_rng(0)).with_tokens(**unlogged)]))
    assert {example.question for example in example_queries(documented(run, summarise(run)))} == {
        "Does drift grow with the age of the data?",
        "How heavy is the tail, quantile by quantile?",
        "Do long responses leave the trust region?",
        "Does reward depend on length?",
        "Which rows cannot be used, and why?",
        "Which metrics cannot be trusted here?",
    }


def test_threads_that_read_one_file_do_not_move_each_other(tmp_path: Path) -> None:
    data = np.arange(200_000, dtype=np.int32)
    (tmp_path / "data").write_bytes(data.tobytes())
    file = worker.PositionedFile((tmp_path / "data").open("rb"))
    wrong: list[int] = []

    def read(seed: int) -> None:
        for place in np.random.default_rng(seed).integers(0, len(data) - 100, 2_000).tolist():
            file.seek(place * 4)
            if (np.frombuffer(file.read(400), np.int32) != data[place : place + 100]).any():
                wrong.append(place)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    assert wrong == []
