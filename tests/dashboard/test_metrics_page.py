"""Metrics: what can be pinned, that the link keeps it, and one number over another."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.formats import metric_label
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import metrics
from ratioscope.dashboard.sections.model import has_content
from ratioscope.dashboard.sections.subject import Subject
from tests.dashboard.conftest import make_steps
from tests.making.pages import charts, sentences, visit
from tests.making.runs import write_run

EVIL = "extra_<b>$x$</b>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a column of its own that falls as the steps rise, and one under a hostile name."""
    folder = tmp_path_factory.mktemp("own") / "run"
    steps = make_steps(9)
    for step in steps:
        step.scalars.update({"extra_temperature": 9.0 - step.number, EVIL: float(step.number), "extra_nothing": np.nan})
    write_run(folder, steps)
    return folder


def test_metrics_with_values_and_columns_of_ones_own_can_be_chosen(folder: Path) -> None:
    choices = metrics.choices(open_folder(folder).summary)
    assert choices[metric_label("s_k_bounded")] == "s_k_bounded"
    assert choices["column extra_temperature"] == "extra_temperature" and f"column {EVIL}" in choices
    assert "column extra_nothing" not in choices
    assert len(set(choices.values())) == len(choices)


def test_each_choice_is_a_chart_of_its_own_numbers(folder: Path) -> None:
    subject = Subject(open_folder(folder), (2, 6))
    drawn = metrics.pinned(subject, {"T": "extra_temperature", "S": "s_k_bounded"})
    assert [(chart.title, chart.symbol) for chart in drawn] == [("T", ""), ("Sampling staleness", "S_k^{+}")]
    assert all(map(has_content, drawn))
    assert drawn[0].takeaway == "Lowest 3 in step 6, highest 7 in step 2."
    np.testing.assert_array_equal(drawn[0].data["extra_temperature"], 9.0 - np.arange(2, 7))


def test_one_over_another_says_how_they_go_together(folder: Path) -> None:
    subject = Subject(open_folder(folder))
    opposite = metrics.against(subject, ("T", "extra_temperature"), ("E", EVIL))
    assert opposite.takeaway.startswith("Rank correlation -1.00 over 9 steps")
    assert len(opposite.data.columns) == 2
    short = metrics.against(Subject(subject.opened, (1, 2)), ("T", "extra_temperature"), ("E", EVIL))
    assert "too few" in short.takeaway


def test_the_link_holds_the_view(folder: Path) -> None:
    serve_from([folder.parent])
    own = "column extra_temperature"
    at = visit("metrics", run="run", match="(?-i:T)emp|^extra_TEMP")
    assert len(charts(at)) == 2 and "1 of " in sentences(at)
    assert "match “(?-i:T)emp|^extra_TEMP”." in sentences(at)
    all_of_them = sentences(visit("metrics", run="run", match="."))
    assert f" match “.”; the first {metrics.MOST_MATCHES} are drawn." in all_of_them
    wrong = sentences(visit("metrics", run="run", match="(<b>"))  # it said how many are pinned, in bold
    assert "**“(<b>” is not a regular expression: missing ).**" in wrong and wrong.count("is not a regular") == 1
    at = visit("metrics", run="run", pin=[own, f"column {EVIL}"], x=own, y=metric_label("s_k_bounded"))
    assert at.multiselect(key="pin").value == [own, f"column {EVIL}"]
    assert len(charts(at)) == 3 and "<b>" not in str([chart["layout"] for chart in charts(at)])
    assert "Rank correlation" in sentences(at)
