"""The SQL page: questions, the editor, table and chart of the result, and what it says when there is none."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.sql import ask, documented
from ratioscope.analysis.sql.examples import EXAMPLES, example_queries
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.figures.sql import query_figure, undrawn
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.theme import DARK, LIGHT, OKABE_ITO
from ratioscope.dashboard.views import sql as page
from tests.dashboard.conftest import make_steps
from tests.making.pages import charts, checked, sentences, visit
from tests.making.runs import write_run

Look = Callable[..., AppTest]
BY_STEP = "select step, count(*) as tokens, avg(exp(log_rho)) as ratio from tokens group by step order by step"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps, and one of two."""
    folder = tmp_path_factory.mktemp("asked")
    write_run(folder / "other", make_steps(2))
    return write_run(folder / "run", make_steps(3))


@pytest.fixture
def finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of the first, served by the app."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([folder.parent])
    return folder.name


def ran(at: AppTest, text: str) -> AppTest:
    """Type a query and press Run."""
    at.text_area(key="sql").input(text)
    run = next(button for button in at.button if button.label == "Run")
    return checked(run.click().run(), "sql")


def test_the_page_opens_with_what_there_is_to_ask_and_runs_nothing(look: Look, gallery: Path) -> None:
    at = look("sql", "finished")
    tokens = int(summarise(open_run(gallery / "finished")).values["n_tokens"].sum())
    assert f"**{tokens:,} tokens in 12 steps can be queried" in sentences(at)
    assert at.session_state["ratioscope"].sql is None


def test_questions_that_the_run_cannot_answer_are_not_offered(look: Look) -> None:
    offered = look("sql", "lean").pills(key="example").options
    assert "Do uncertain states drift more?" not in offered
    assert "Does drift grow with the age of the data?" in offered


def test_a_query_is_run_and_can_be_taken_away(finished: str) -> None:
    at = ran(visit("sql", run=finished), BY_STEP)
    assert "**3 rows, 3 columns, " in sentences(at)
    assert list(at.dataframe[-1].value["step"]) == [0, 1, 2]
    assert [button.label for button in at.get("download_button")] == ["CSV", "Parquet"]


def test_a_link_brings_query_and_chart_along(look: Look, finished: str) -> None:
    at = visit("sql", run=finished, sql=BY_STEP, show="Chart", charty="ratio", chartmark="bar", chartlogy="true")
    (chart,) = charts(at)
    assert chart["data"][0]["type"] == "bar"
    assert chart["layout"]["yaxis"]["type"] == "log"
    assert chart["layout"]["yaxis"]["title"]["text"] == "ratio"


def test_a_chart_that_a_link_cannot_ask_for_falls_back(finished: str) -> None:
    wrong = {"charty": "nothing", "chartx": "<b>", "chartmark": "pie", "chartcolour": "x", "chartlogy": "maybe"}
    at = visit("sql", run=finished, sql="select 1 as a, 2 as b", show="Chart", **wrong)
    (chart,) = charts(at)
    assert [chart["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")] == ["a", "b"]


def test_a_question_fills_the_editor_and_draws_as_it_should(finished: str) -> None:
    at = visit("sql", run=finished)
    example = next(example for example in EXAMPLES if example.question.startswith("How heavy"))
    at = checked(at.pills(key="example").select(example.question).run(), "sql")
    assert at.text_area(key="sql").value == example.text(0, 2).replace("step between 0 and 2 and ", "")
    (chart,) = charts(at)
    assert {trace["name"] for trace in chart["data"]} == {"50%", "90%", "99%", "99.9%"}
    # Another query has other columns: what was chosen for the last one does not stick.
    at = ran(at, "select 1 as a, 2 as b")
    assert charts(at)[0]["layout"]["xaxis"]["title"]["text"] == "a"


def test_a_question_has_the_steps_that_were_chosen_and_no_others(finished: str) -> None:
    at = visit("sql", run=finished, **{"from": "1", "to": "2"})
    example = next(example for example in EXAMPLES if example.question.startswith("How heavy"))
    at = checked(at.pills(key="example").select(example.question).run(), "sql")
    assert at.text_area(key="sql").value == example.text(1, 2)


@pytest.mark.parametrize("whole", [True, False])
def test_every_question_can_be_asked_of_all_steps(gallery: Path, *, whole: bool) -> None:
    """Of a long log the latest steps are asked for, and the query itself says so."""
    run = open_run(gallery / "finished")
    summary = summarise(run)
    texts = {example: page._text(example, 0, 11, chosen=False, whole=whole) for example in EXAMPLES}
    for example, text in texts.items():
        conditional = "step between" in example.sql
        assert ("step between" in text, text.startswith("-- The latest steps")) == (conditional and not whole,) * 2
    for example in example_queries(documented(run, summary)):
        assert ask(run, summary, texts[example]).table.shape == ask(run, summary, example.text(0, 11)).table.shape


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select * from '/etc/passwd'", "There is no table '/etc/passwd' in this run"),
        ("select nothing from tokens", 'Referenced column "nothing" not found'),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(finished: str, text: str, said: str) -> None:
    at = visit("sql", run=finished, sql=text)
    assert "The query has no result." in sentences(at)
    assert said in at.text[-1].value
    assert not at.dataframe[1:]


def test_no_row_and_no_number_are_said(finished: str) -> None:
    assert "The query returns no rows." in sentences(visit("sql", run=finished, sql="select 1 where false"))
    at = visit("sql", run=finished, sql="select 'text' as t", show="Chart")
    assert "A chart needs a numeric column." in sentences(at)


def test_a_cut_result_says_so(finished: str) -> None:
    at = visit("sql", run=finished, sql="from range(20000)")
    assert "Only the first 10,000 rows of the result are here" in sentences(at)


def test_a_result_stands_until_run_is_pressed_again(live: RunRecorder) -> None:
    text = "select count(distinct step) as steps from tokens"
    at = visit("sql", run=live.folder.name, sql=text)
    assert at.dataframe[-1].value["steps"][0] == 5
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    at = checked(at.run(), "sql")
    assert at.dataframe[-1].value["steps"][0] == 5
    assert "on the steps up to 4" in sentences(at)
    assert ran(at, text).dataframe[-1].value["steps"][0] == 6


def test_another_run_is_asked_anew(finished: str) -> None:
    text = "select count(distinct step) as steps from tokens"
    at = visit("sql", run=finished, sql=text)
    assert at.dataframe[-1].value["steps"][0] == 3
    at.query_params["run"] = "other"
    assert checked(at.run(), "sql").dataframe[-1].value["steps"][0] == 2


def test_downloads_hold_every_digit_and_keep_nan_apart_from_null(gallery: Path) -> None:
    run = open_run(gallery / "finished")
    table = ask(
        run, summarise(run), "select 1/3::double as a, 'nan'::double as b, null::double as c, 'x,\"y' as d"
    ).table
    assert page._csv(table).decode().splitlines() == ['"a","b","c","d"', '0.3333333333333333,nan,,"x,""y"']
    assert str(pq.read_table(io.BytesIO(page._parquet(table))).to_pylist()) == str(table.to_pylist())


def test_a_figure_keeps_the_extremes_within_two_thousand_points() -> None:
    values = np.zeros(50_000)
    values[[777, 31_111]] = 5.0, -7.0
    frame = pd.DataFrame({"x": np.arange(50_000), "y": values, "c": ["a", "b"] * 25_000})
    for mark in ("line", "bar", "scatter"):
        fig = query_figure(frame, LIGHT, mark=mark, x="x", y="y", colour="c")
        assert all(len(trace.x) <= 2_000 for trace in fig.data)
        assert max(max(trace.y) for trace in fig.data) == 5
        assert min(min(trace.y) for trace in fig.data) == -7


def test_a_figure_has_as_many_series_as_colours_and_drops_none() -> None:
    frame = pd.DataFrame({"x": range(100), "y": 1.0, "c": [min(number, 30) for number in range(100)]})
    fig = query_figure(frame, DARK, mark="scatter", x="x", y="y", colour="c")
    assert len(fig.data) == len(OKABE_ITO)
    assert fig.data[-1].name == "others"
    assert sum(len(trace.x) for trace in fig.data) == 100


def test_what_a_figure_cannot_show_is_counted_or_marked_on_the_edge() -> None:
    frame = pd.DataFrame({"x": [0, 1, 2, 3, 4, 5], "y": [1.0, np.nan, np.inf, -np.inf, -2.0, 3.0]})
    fig = query_figure(frame, LIGHT, mark="line", x="x", y="y")
    assert list(fig.data[0].y) == [1.0, -2.0, 3.0]
    assert [(trace.name, list(trace.x)) for trace in fig.data[1:]] == [("+∞ in 1 rows", [2]), ("-∞ in 1 rows", [3])]
    assert undrawn(frame, "x", "y") == 1
    assert undrawn(frame, "x", "y", (False, True)) == 3
    assert undrawn(frame, "x", "y", (True, False)) == 2


def test_names_from_a_log_are_not_markup_in_a_figure() -> None:
    frame = pd.DataFrame({"<b>x</b>": ["<i>one</i>", "two"], "<a>": [1.0, 2.0]})
    fig = query_figure(frame, LIGHT, mark="bar", x="<b>x</b>", y="<a>", colour="<b>x</b>")
    assert "<b>" not in fig.to_json()
    assert "<i>" not in fig.to_json()


def test_long_texts_are_shortened_and_stay_apart() -> None:
    frame = pd.DataFrame({"x": ["a" * 50 + "1", "a" * 50 + "2", '"', " "], "y": [1.0, 2.0, 3.0, 4.0]})
    fig = query_figure(frame, LIGHT, mark="bar", x="x", y="y")
    assert list(fig.data[0].x) == ["a" * 39 + "…", "a" * 39 + "… (2)", '"', "' '"]
