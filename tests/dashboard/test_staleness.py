"""The Staleness page: what it answers, by age, what filters would do, versions inside responses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.staleness import age
from ratioscope.analysis.staleness import filters as age_filters
from ratioscope.analysis.staleness.versions import sampled_by
from ratioscope.analysis.summary.strata import stratify
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.what_if import load_tokens
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import staleness as figures
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import staleness
from ratioscope.dashboard.sections.model import Paragraph
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.theme import MODES
from tests.dashboard.conftest import make_steps
from tests.making.pages import charts, sentences, visit
from tests.making.runs import write_run
from tests.making.samples import SAMPLE_RUNS

Look = Callable[..., AppTest]


def titles(at: AppTest) -> list[str]:
    return [element.value for element in at.markdown if element.value.startswith("## ")]


def shares(percent: "pd.Series[str]") -> "pd.Series[float]":
    """As they are written: with one decimal of a per cent."""
    return percent.str.removesuffix("%").astype(float) / 100


def test_the_answer_is_that_of_the_analysis(gallery: Path, look: Look) -> None:
    run = open_run(gallery / "finished")
    strata = stratify(run, "lag")
    expected = age.age_sentence(sampled_by(run).lags, strata, age.age_effect(run), facts_of(summarise(run)))
    at = look("staleness", "finished")
    assert f"**{expected}**" in sentences(at)


def test_every_part_is_there(look: Look) -> None:
    at = look("staleness", "finished")
    assert len(charts(at)) == 8
    assert "## Age of the tokens by step" in titles(at)
    assert any("responses (" in door.label.replace("\\", "") for door in at.expander)  # of several versions
    by_age, *_, versions = (frame.value for frame in at.dataframe)
    assert list(by_age["Version lag"]) == ["lag 0", "lag 1", "lag 2", "lag 3", "all"]
    assert shares(by_age["Share of tokens"].iloc[:-1]).sum() == pytest.approx(1, abs=0.002)
    assert shares(versions["Share of responses"]).sum() == pytest.approx(1, abs=0.002)


def test_the_metric_by_age_is_in_the_url(gallery: Path) -> None:
    at = visit("staleness", run="finished", bylag=CATALOGUE["clip_fraction"].title)
    assert at.selectbox(key="bylag").value == "clip_fraction"
    assert f"## {CATALOGUE['clip_fraction'].title} by version lag, steps 0 to 11" in titles(at)


@pytest.fixture(autouse=True)
def served(gallery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([gallery])


def test_sliders_say_what_a_filter_would_do_and_are_in_the_url(gallery: Path) -> None:
    at = visit("staleness", run="finished", stalecut="0.2", lagcut="1")
    tokens = load_tokens(open_run(gallery / "finished"))
    for parameter, value in (("epsilon_stale", 0.2), ("max_lag", 1.0)):
        assert age_filters.filter_sentence(age_filters.effect(tokens, parameter, value)) in sentences(at)
    at.slider(key="lagcut").set_value(2)
    at.run()
    assert not at.exception
    assert age_filters.filter_sentence(age_filters.effect(tokens, "max_lag", 2.0)) in sentences(at)


def test_hostile_values_in_the_link_fall_back(gallery: Path) -> None:
    at = visit("staleness", run="finished", stalecut="nan", lagcut="99999", allaged="x", bylag="../etc")
    assert np.all(
        (np.array(at.slider(key="stalecut").value) >= 0.02) & (np.array(at.slider(key="stalecut").value) <= 2)
    )
    assert at.selectbox(key="bylag").value == "s_k_bounded"
    assert np.isin(at.slider(key="lagcut").value, range(4))


def test_steps_without_tokens_are_said(gallery: Path) -> None:
    at = visit("staleness", run="finished", **{"from": "500", "to": "600"})
    assert "No token in steps 500 to 600" in sentences(at)


def test_a_metric_that_is_not_logged_is_not_offered(gallery: Path) -> None:
    at = visit("staleness", run="lean", bylag=CATALOGUE["clip_fraction"].title)
    offered = at.selectbox(key="bylag").options
    assert CATALOGUE["clip_fraction"].title not in offered and CATALOGUE["ratio_mean"].title in offered


def test_one_age_and_one_version_are_said(root: Path) -> None:
    steps = [
        step.with_tokens(behavior_version=np.full(len(step.tokens["seq_id"]), step.number)) for step in make_steps(2)
    ]
    write_run(root / "fresh", steps)
    at = visit("staleness", run="fresh")
    assert "Every token is 0 updates old." in sentences(at)
    assert not at.expander and not charts(at)


def test_what_the_run_dropped_itself_is_said(root: Path) -> None:
    steps = [replace(step, scalars=step.scalars | {"tokens_dropped_stale": 1200}) for step in make_steps(2)]
    write_run(root / "filtered", steps, schedule={"epsilon_stale": 0.6, "sync_interval": 1})
    at = visit("staleness", run="filtered")
    assert "The run has already dropped 2.4 k tokens by its own ε_stale" in sentences(at)
    assert sum("applied" in str(chart["layout"].get("annotations")) for chart in charts(at)) == 2


@pytest.mark.parametrize("mode", MODES)
def test_long_runs_fit_into_the_heat_map(gallery: Path, mode: str) -> None:
    summary = summarise(open_run(gallery / "finished"))
    steps = np.repeat(np.arange(3000), 3)
    lags = np.tile([-2, 0, 500], 3000)
    frame = pd.DataFrame({"step": steps, "lag": lags.astype(float), "tokens": 10})
    (heat, *_) = figures.lag_heat_map(frame, summary, MODES[mode]).data
    assert heat.z.shape[0] <= figures.MOST_ROWS + 1
    assert heat.z.shape[1] <= figures.MOST_COLUMNS
    assert np.nansum(heat.z, axis=0) == pytest.approx(1)


def test_that_age_is_not_told_from_time_is_read_beside_the_bars() -> None:
    """The answer has two sentences: of a run above its limit it was in a closed fold."""
    subject = Subject(open_folder(SAMPLE_RUNS / "offline-reinforce-seed0"))
    said = [
        staleness.answer(subject),
        *(block.text for block in staleness.PAGE.main(subject) if isinstance(block, Paragraph)),
    ]
    assert sum("age cannot be separated from training time" in text for text in said) == 1


def test_what_is_filtered_has_its_interval_before_and_after(gallery: Path) -> None:
    found = age_filters.effect(load_tokens(open_run(gallery / "finished")), "epsilon_stale", 0.2)
    (_, (name, before, after)) = staleness.filtered(found).rows
    assert name == "Plain staleness" and " to " in before and " to " in after
