"""Ratios: the link says which ratio is shown, every chart of which tokens it is, and what is missing says why."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.ratios import sentences as heavy_tails
from ratioscope.analysis.ratios.distributions import survival
from ratioscope.analysis.ratios.growth import growth
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.dashboard.figures import ratios, tails
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.theme import DARK, LIGHT
from ratioscope.metric import Moment, khat_limit
from ratioscope.notes import Kind, Note
from tests.dashboard.conftest import make_steps
from tests.making.caveats import UNRELIABLE
from tests.making.figure_cases import long_summary
from tests.making.pages import charts, query, sentences, visit
from tests.making.runs import random_step, write_run

Look = Callable[..., AppTest]


@pytest.fixture
def spoilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with NaN log-probabilities in two steps and ratios of 0 in one, served by the app."""
    rng, steps = np.random.default_rng(0), []
    for number in range(6):
        step = random_step(rng, number, groups=6, responses=4, longest=12, spread=0.3)
        behavior, current = (step.tokens[name].copy() for name in ("logp_behavior", "logp_current"))
        if number in (1, 4):
            behavior[:2] = np.nan
        if number == 3:
            current[5:8] = -np.inf
        steps.append(step.with_tokens(logp_behavior=behavior, logp_current=current))
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([tmp_path])
    return write_run(tmp_path / "spoilt", steps)


def test_the_page_opens_with_the_tails_and_says_which_tokens_it_reads(look: Look, gallery: Path) -> None:
    said = sentences(look("ratios", "finished"))
    run = open_run(gallery / "finished")
    summary = summarise(run)
    assert f"**{heavy_tails.answer(summary)}**" in said
    assert f"Tails of token ratios, {int(summary.values['n_tokens'].sum())} tokens\n" in said
    assert survival(run, 0, 11).answer in said
    assert survival(run, 0, 11, level="sequence").answer in said
    assert growth(run, 0, 11).answer in said
    assert "No row was left out in these 12 steps" in said


@pytest.mark.parametrize("pair", ["new/current", "behavior_train/behavior"])
def test_the_ratio_of_the_link_is_the_one_that_is_shown(look: Look, gallery: Path, pair: str) -> None:
    del look  # serves the gallery
    at = visit("ratios", run="finished", ratio=pair)
    assert query(at, "ratio") == [pair]
    assert survival(open_run(gallery / "finished"), 0, 11, pair=pair).answer in sentences(at)
    assert f"Where the ratios {pair} are" in sentences(at)


def test_a_senseless_ratio_in_the_link_is_the_default_one(look: Look) -> None:
    del look
    assert "Where the ratios current/behavior are" in sentences(visit("ratios", run="finished", ratio="<b>x</b>"))


def test_a_ratio_that_is_not_logged_is_not_offered_and_a_link_to_it_opens_the_usual_one(look: Look) -> None:
    del look
    at = visit("ratios", run="lean", ratio="new/current")
    assert at.button_group(key="ratio").options == [
        "current/behavior",
        "current/behavior_train",
        "behavior_train/behavior",
    ]
    assert "Where the ratios current/behavior are" in sentences(at)
    assert len(at.metric) == 2


def test_brushed_steps_are_the_ones_that_tokens_are_read_of(look: Look, gallery: Path) -> None:
    del look
    said = sentences(visit("ratios", run="finished", **{"from": "3", "to": "7"}))
    assert survival(open_run(gallery / "finished"), 3, 7).answer in said
    assert ", steps 3 to 7\n" in said


def test_steps_without_data_say_so(look: Look) -> None:
    del look
    said = sentences(visit("ratios", run="finished", **{"from": "500", "to": "900"}))
    assert "No ratio in these steps: there is no token." in said
    assert "No sequence ratio in these steps: there is no token." in said


def test_what_is_left_out_is_counted_on_the_page(spoilt: Path) -> None:
    at = visit("ratios", run="spoilt")
    said = sentences(at)
    assert "Rows without a usable ratio" in said
    assert "Left out of every ratio, in 2 steps: 4 tokens: NaN" in said
    names = [trace.get("name") for chart in charts(at) for trace in chart["data"]]
    assert "ratio 0: 3 tokens in 1 step" in names
    assert "3 are 0" in said


def _summary(khat: list[float], top: float | list[float], n: int = 400) -> StepSummary:
    """A summary of steps with these tail indices and a share of the top 1 %."""
    index = pd.RangeIndex(len(khat), name="step")
    summary = _halves(index)
    summary["khat_token"], summary["top1pct_share"], summary["n_tokens"], summary["n_ratios"] = khat, top, n, n
    limit = khat_limit(Moment.FIRST, n) or 0
    notes = {
        step: {key: UNRELIABLE for key, share in (("ratio_mean", 1), ("chi2_token", 2)) if value * share > limit}
        for step, value in enumerate(khat)
    }
    return StepSummary(summary, summary, summary, notes, pd.DataFrame())


def _halves(index: "pd.Index[int]") -> pd.DataFrame:
    names = long_summary().values.columns
    return pd.DataFrame(0.5, index=index, columns=names).assign(version_lag=0.0)


def test_the_answer_tells_light_harmless_and_heavy_tails_apart() -> None:
    assert heavy_tails.answer(_summary([0.1] * 20, 0.01)).startswith("The tails are light: a tail index of 0.10")
    harmless = heavy_tails.answer(_summary([0.9] * 20, 0.01))
    assert harmless.startswith("The tail index is 0.7 or more in 20 of 20 steps and reaches 0.90 in step 0")
    assert harmless.endswith("hold 1% of Σρ² (median). Nothing to truncate.")
    tops = [0.01] * 18 + [0.2, 0.9]
    beside = heavy_tails.answer(_summary([0.9] * 5 + [0.1] * 15, tops))
    assert beside.endswith("In 2 steps the top 1% of the tokens hold 10% or more, 90% in step 19.")
    heavy = heavy_tails.answer(_summary([0.9] * 20, 0.5))
    assert heavy.startswith("The tails are heavy (tail index 0.7 or more) in 20 of 20 steps. ")
    assert "the top 1% of the tokens hold 50% of Σρ²" in heavy_tails.rests_on(_summary([0.9] * 20, 0.5))
    assert "Truncate or mask the ratio, if the loss multiplies by it." in heavy
    assert heavy_tails.answer(_summary([np.nan] * 3, 0.5)).startswith("No step has enough spread")


def test_the_answer_says_since_when() -> None:
    late = heavy_tails.answer(_summary([0.1] * 12 + [1.2] * 8, 0.5))
    assert "in 8 of 20 steps, most of them since step 12. " in late
    now_and_then = heavy_tails.answer(_summary([0.1, 0.1, 1.2, 0.1] * 5, 0.5))
    assert "in 5 of 20 steps, first in step 2" in now_and_then


def test_the_answer_says_when_tails_come_with_age() -> None:
    summary = _summary([0.1, 0.1, 0.1, 1.2] * 5, 0.5)
    summary.values["version_lag"] = [0.0, 1, 2, 3] * 5
    assert "in 5 of 20 steps, mostly on stale data. " in heavy_tails.answer(summary)


def test_the_place_of_a_tail_index_rises_with_it_and_is_linear_between_0_and_1() -> None:
    khat = np.linspace(-9, 70, 2_000)
    assert (np.diff(tails.khat_place(khat)) > 0).all()
    assert tails.khat_place(np.array([0, 0.35, 1, 4, -3])).tolist() == pytest.approx([0, 0.35, 1, 2, -1])


def test_zones_of_the_tail_index_are_shaded_and_named() -> None:
    figure = tails.tail_index(_summary([0.2, 0.6, 3.0], 0.5), DARK)
    named = [words.text for words in figure.layout.annotations]
    assert named == [name for _, name in tails.ZONES]
    tops = [shape.y1 for shape in figure.layout.shapes if shape.type == "rect"]
    assert tops[:4] == pytest.approx([0.35, 0.5, 0.7, 1.0])
    limit = next(trace for trace in figure.data if trace.name == "limit for means, n = tokens")
    assert limit.y[0] == pytest.approx(khat_limit(Moment.FIRST, 400))


def test_a_step_without_a_tail_index_is_an_open_circle_with_the_reason() -> None:
    summary = _summary([0.2, np.nan, 0.3], 0.5)
    notes = {1: {"khat_token": Note(Kind.NOT_ESTIMABLE, "not estimable: the tail is tied")}}
    spoilt = StepSummary(summary.values, summary.low, summary.high, notes, summary.histogram)
    (circle,) = [trace for trace in tails.tail_index(spoilt, LIGHT).data if trace.name == "not fitted"]
    assert (list(circle.x), list(circle.text)) == ([1], ["the tail is tied"])
    assert circle.marker.symbol == "circle-open"
    assert heavy_tails.why_unfitted(spoilt, "khat_token") == "not fitted in 1 of 3 steps: the tail is tied (1)"


def test_infinite_and_zero_ratios_are_marks_on_the_edges_of_the_heat_map() -> None:
    histogram = pd.DataFrame({"step": [0, 0, 1, 2], "bin": [0, -100, 0, 100], "tokens": [5, 2, 5, 3]})
    base = long_summary().up_to(0, 2)
    figure = ratios.heat_map(StepSummary(base.values, base.low, base.high, {}, histogram), LIGHT)
    named = {trace.name: list(trace.x) for trace in figure.data if trace.name}
    assert named["ratio 0: 2 tokens in 1 step"] == [0]
    assert named["infinite: 3 tokens in 1 step"] == [2]
    assert figure.layout.yaxis.range[0] > -10, "they do not stretch the axis"


def test_steps_without_tokens_are_gaps_of_the_heat_map() -> None:
    histogram = pd.DataFrame({"step": [0, 3], "bin": [0, 0], "tokens": [5, 5]})
    base = long_summary().up_to(0, 3)
    heat = ratios.heat_map(StepSummary(base.values, base.low, base.high, {}, histogram), LIGHT).data[0]
    assert list(heat.x) == [0, 1, 2, 3]
    assert np.isnan(np.asarray(heat.z)[:, 1:3]).all()


def test_slopes_of_both_tails_are_drawn_on_one_axis(tmp_path: Path) -> None:
    both = survival(open_run(write_run(tmp_path / "run", make_steps(12))), 0, 11)
    figure = ratios.survival_curve(both, LIGHT)
    upper, lower = (
        next(trace for trace in figure.data if trace.name == name) for name in ("at or above x", "at or below x")
    )
    assert max(lower.x) <= min(upper.x) * 1.01  # both start at the median
    assert max(upper.x) == pytest.approx(both.upper.weight[-1])
    assert min(lower.x) == pytest.approx(1 / both.lower.weight[-1])
    said = " ".join(words.text for words in figure.layout.annotations)
    assert all(f"k̂ = {tail.khat:.2f}" in said for tail in (both.upper, both.lower))
    for tail, words in zip((both.upper, both.lower), figure.layout.annotations, strict=False):  # a curve struck it out
        assert words.yanchor == "bottom" and f"{tail.khat:.2f}" in words.text
        for weight, share in ((tail.weight, tail.share), (tail.fit_weight, tail.fit_share)):
            assert np.interp(abs(words.x), np.log10(weight), np.log10(share)) <= words.y + 1e-6
