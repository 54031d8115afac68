"""The page on bias and variance: its answer, the blind spot, truncation, and the terms of the probes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.analysis.findings.facts import facts_of
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.analysis.variance import failure_mode, gradients
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures import variance as figures
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.theme import DARK, LIGHT, Mode
from tests.dashboard.conftest import make_steps
from tests.making.caveats import UNRELIABLE
from tests.making.pages import charts, sentences, visit
from tests.making.runs import plain_step, write_run

Look = Callable[..., AppTest]

PROBE = {
    "estimator": "grpo",
    "batches": 8,
    "gradient_norm_squared": 4.0,
    "gradient_norm_squared_se": 0.2,
    "gradient_dot_bias": -1.0,
    "gradient_dot_bias_se": 0.1,
    "bias_norm_squared": 1.0,
    "bias_norm_squared_se": 0.1,
    "variance": 50.0,
    "variance_se": 2.0,
    "cosine": 0.8,
    "cosine_se": 0.05,
    "rescaling": 0.9,
    "rescaling_se": 0.1,
}
_NO_BINS = pd.DataFrame({"step": [], "bin": [], "tokens": []})


def _points(n: int) -> pd.DataFrame:
    """A long blind spot with an infinite, an on-policy and a missing step."""
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.uniform(0.01, 0.5, (n, 3)), columns=["tv", "chi2_token", "chi2_seq"])
    numbers.loc[0, ["chi2_token", "chi2_seq"]] = np.inf
    numbers.loc[1, ["tv", "chi2_token", "chi2_seq"]] = 0.0
    numbers.loc[2, ["tv", "chi2_token", "chi2_seq"]] = np.nan
    for column in ("tv", "chi2_token", "chi2_seq"):
        numbers[f"{column}_trusted"] = np.arange(n) % 2 == 0
    return numbers.rename_axis("step")


def _summary(n: int, **columns: Any) -> StepSummary:
    """n steps in which nothing is far from on-policy, but for these metrics; everything can be trusted."""
    keys = [*COUNTS, *CATALOGUE]
    values = pd.DataFrame(0.0, index=pd.RangeIndex(n, name="step"), columns=keys)
    values["n_tokens"] = values["n_ratios"] = 100.0
    values[["s_k_version_bounded", "s_k_engine_bounded", "delta_max", "chi2_token_exact"]] = np.nan
    for key, column in columns.items():
        values[key] = column
    return StepSummary(values, values, values + 2, {step: {} for step in range(n)}, _NO_BINS)


def _answer(summary: StepSummary) -> failure_mode.FailureModeAnswer:
    return failure_mode.answer(facts_of(summary))


def _doubting(summary: StepSummary, *keys: str) -> StepSummary:
    notes = {step: dict.fromkeys(keys, UNRELIABLE) for step in summary.values.index}
    return StepSummary(summary.values, summary.low, summary.high, notes, summary.histogram)


@pytest.fixture
def finished(gallery: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """finished(tislevel="Whole responses") -> the page on the finished run with these parameters in its address."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([gallery])
    return partial(visit, "variance", run="finished")


@pytest.fixture
def probed(root: Path) -> str:
    """A run with gradient probes at two of its steps."""
    with RunRecorder(root / "probed", algorithm={"name": "grpo"}) as recorder:
        for step in make_steps(6):
            probe = PROBE if step.number in (0, 4) else None
            recorder.record_step(
                step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars, probes=probe
            )
    return "probed"


def test_the_page_opens_with_the_regime_and_what_to_do(look: Look, gallery: Path) -> None:
    summary = summarise(open_run(gallery / "finished"))
    found = _answer(summary)
    said = sentences(look("variance", "finished"))
    assert f"**{found.sentence}**" in said
    assert f"**What to do:** {found.remedy}" in said


def test_a_regime_that_the_tails_do_not_show_is_said_to_be_unknown() -> None:
    near = _summary(10, s_k_bounded=0.01, chi2_token=0.01, log1p_chi2_seq=0.1, ratio_mean=1.0)
    assert "Neither bias nor variance is large" in _answer(near).sentence
    doubted = _answer(_doubting(near, "log1p_chi2_seq", "log1p_chi2_seq_predicted"))
    assert "Cannot tell whether variance is" in doubted.sentence
    assert "either" not in doubted.sentence
    assert "Until the variance is known: truncate or mask the ratio" in doubted.remedy


def test_an_infinite_exact_chi2_is_no_small_variance() -> None:
    summary = _summary(10, s_k_bounded=0.01, log1p_chi2_seq=0.1, chi2_token_exact=np.inf, ratio_mean=1.0)
    assert "infinite in 10 of 10 steps" in _answer(summary).sentence
    assert "Cannot tell whether variance is" in _answer(summary).sentence
    assert "truncate" not in _answer(summary).remedy  # what is never drawn has no ratio to truncate


def test_no_step_is_said_and_not_judged() -> None:
    assert _answer(_summary(4).up_to(10, 20)).sentence == "No step of this run lies in the chosen range."


def test_hidden_variance_is_counted_with_the_moved_limits() -> None:
    points = failure_mode.blind_spot(
        _summary(4, s_k_bounded=[0.01, 0.1, 0.3, 0.1], log1p_chi2_seq=[0.1, 2, 2, 3], ratio_mean=1)
    )
    assert failure_mode.blind_spot_sentence(points).startswith("In 2 of 4 steps")
    assert "in step 3" in failure_mode.blind_spot_sentence(points)
    none = failure_mode.blind_spot_sentence(points, Limits(chi2=100.0))
    assert none.startswith("In none of 4 steps")


def test_responses_are_further_from_the_sampler_than_tokens(tmp_path: Path) -> None:
    step = plain_step(np.log([0.5, 0.5, 0.5, 0.5]), np.log([0.75, 0.75, 0.25, 0.5]), sequence=[0, 0, 1, 1])
    run = open_run(write_run(tmp_path / "run", [step]))
    frame = failure_mode.response_staleness(run, 0, 0)
    ratios = np.array([2.25, 0.5])  # products over the tokens of each response
    assert frame["tv"].loc[0] == pytest.approx(np.maximum(1 - ratios, 0).mean(), rel=1e-6)
    assert failure_mode.response_staleness(run, 5, 9).empty


@pytest.mark.parametrize("mode", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("column", ["chi2_token", "chi2_seq"])
def test_the_blind_spot_keeps_its_extremes_and_marks_what_has_no_place(column: str, mode: Mode) -> None:
    points = _points(7_000)
    axes = figures.blind_spot_axes(points, 0.2, 1.0)
    figure = figures.blind_spot(points, column, mode, axes=axes, tv_limit=0.2, chi2_limit=1.0)
    assert all(len(trace.x) <= base.MOST_POINTS for trace in figure.data)
    names = {trace.name for trace in figure.data}
    assert {"reliable", "unreliable", "infinite in 1 steps", "on-policy in 1 steps"} <= names
    drawn = np.concatenate([trace.y for trace in figure.data if trace.name in ("reliable", "unreliable")])
    known = points[column][np.isfinite(points[column]) & (points[column] > 0)]
    assert (np.nanmin(drawn), np.nanmax(drawn)) == pytest.approx((known.min(), known.max()))
    assert (figure.layout.xaxis.range, figure.layout.yaxis.range) == axes


@pytest.mark.parametrize("fill", [np.nan, np.inf, 0.0], ids=str)
def test_a_blind_spot_without_one_number_is_drawn(fill: float) -> None:
    points = _points(20).assign(tv=fill, chi2_token=fill, chi2_seq=fill)
    axes = figures.blind_spot_axes(points, 0.2, 1.0)
    assert np.isfinite(axes).all()
    figures.blind_spot(points, "chi2_seq", LIGHT, axes=axes, tv_limit=0.2, chi2_limit=1.0).to_json()


def test_no_chi2_lies_below_what_its_distance_needs(gallery: Path) -> None:
    points = failure_mode.blind_spot(summarise(open_run(gallery / "finished")))
    assert (points["tv"] ** 2 * 4 <= points["chi2_token"] * (1 + 1e-9)).all()


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_larger_cap_takes_less_away_and_varies_more(gallery: Path, level: str) -> None:
    from ratioscope.analysis.variance.truncation import CAPS, truncation

    run = open_run(gallery / "finished")
    found = truncation(run, 0, 11, level)
    assert list(found.caps.index) == list(CAPS)
    assert (np.diff(found.caps["bias_proxy"]) <= 0).all()
    assert (np.diff(found.caps["variance_proxy"]) >= 0).all()
    assert found.caps["bias_proxy"].iloc[-1] == 0
    assert found.fraction == 1
    assert 0 < truncation(run, 0, 11, level, 50).fraction < 1
    assert "does not state its algorithm's parts" in found.own_words
    figure = figures.truncation_curve(found.caps, found.doubted("variance_proxy"), found.own, LIGHT)
    (labels,) = [trace.text for trace in figure.data if trace.mode == "text"]
    assert labels[0] == "C = 1"


def test_the_own_rule_has_a_mark_of_its_own() -> None:
    caps = pd.DataFrame(
        {"bias_proxy": [0.2, 0.0], "variance_proxy": [1.0, 40.0], "ess": [0.9, 0.1]}, index=[1.0, np.inf]
    )
    doubted = pd.Series([False, True], index=caps.index)
    figure = figures.truncation_curve(caps, doubted, {"bias_proxy": 0.1, "variance_proxy": 1.2}, DARK)
    assert "this run's rule" in {trace.name for trace in figure.data}
    assert "variance unreliable" in {trace.name for trace in figure.data}
    assert figure.layout.yaxis.type == "log"
    without = figures.truncation_curve(caps * np.nan, doubted, {}, LIGHT)
    assert "this run's rule" not in {trace.name for trace in without.data}


def test_steps_without_tokens_and_nonsense_in_the_url_are_survived(finished: Look) -> None:
    nonsense = {"tislevel": "../../x", "eta": "1e9", "lipschitz": "<b>", "alltokens": "perhaps"}
    at = finished(**nonsense, **{"from": "500", "to": "900"})
    assert "No step of this run lies in the chosen range." in sentences(at)
    assert "no usable token in the steps 500 to 900" in sentences(at)
    assert at.selectbox(key="tislevel").value == "Tokens"
    assert at.checkbox(key="alltokens").value is False


def test_the_level_of_the_url_is_swept(look: Look, finished: Look) -> None:
    assert "Truncating the ratio of tokens" in sentences(look("variance", "finished"))
    assert "Truncating the ratio of whole responses" in sentences(finished(tislevel="Whole responses"))


def test_without_probes_the_page_says_how_to_record_them(look: Look) -> None:
    at = look("variance", "finished")
    assert "No gradient probe in these steps" in sentences(at)
    assert "probe_every=10" in sentences(at)
    assert "eta" not in {slider.key for slider in at.select_slider}


def test_probes_are_weighed_at_the_learning_rate_of_the_url(probed: str, root: Path) -> None:
    row = gradients.probes(open_run(root / probed)).iloc[-1]
    at = visit("variance", run=probed, eta="0.1", lipschitz="1")
    assert gradients.answer(row, 0.1, 1.0) in sentences(at)
    at.select_slider(key="eta").set_value(0.01).run()
    assert gradients.answer(row, 0.01, 1.0) in sentences(at)
    (bars,) = [chart for chart in charts(at) if chart["data"][0]["type"] == "bar"]
    assert [trace["name"] for trace in bars["data"]][:4] == [name for name, _ in figures.TERMS.values()]


def test_the_bars_add_up_to_what_the_bound_promises(probed: str, root: Path) -> None:
    terms = failure_mode.lemma_terms(gradients.probes(open_run(root / probed)), 0.1, 1.0)
    assert list(terms["step"]) == [0, 4]
    figure = figures.lemma_bars(terms, LIGHT, (None, None))
    total = sum(np.asarray(trace.y, dtype=float) for trace in figure.data if trace.type == "bar")
    np.testing.assert_allclose(total, terms["total"], rtol=1e-6)
    assert list(figure.data[-1].error_y.array) == pytest.approx(terms["total_error"])


def test_the_curve_over_learning_rates_holds_the_best_and_the_chosen_one(probed: str, root: Path) -> None:
    probe = gradients.probes(open_run(root / probed)).iloc[0]
    best = gradients.best_step(probe, 1.0)
    curve = failure_mode.lemma_curve(probe, 0.5, 1.0)
    assert curve["total"].max() == pytest.approx(best.progress, rel=1e-2)
    assert curve["total"].iloc[-1] < 0
    assert curve.index.min() < best.learning_rate < curve.index.max()
    assert curve.index.min() < 0.5 <= curve.index.max() * (1 + 1e-9)
    figures.lemma_over_learning_rates(curve, 0.5, DARK).to_json()


def test_probes_outside_of_the_brush_are_left_out(probed: str) -> None:
    assert "No gradient probe in these steps" in sentences(visit("variance", run=probed, **{"from": "1", "to": "3"}))


def test_responses_with_unusable_tokens_have_no_distance(tmp_path: Path) -> None:
    first, second = make_steps(2)
    unusable = second.with_tokens(logp_current=np.full(len(second.tokens["seq_id"]), np.nan))
    run = open_run(write_run(tmp_path / "unusable", [first, unusable]))
    assert list(failure_mode.response_staleness(run, 0, 1).index) == [0]
    assert failure_mode.response_staleness(run, 1, 1).empty
    unknown = _answer(_summary(2, s_k_bounded=np.nan))
    assert unknown.sentence == "The regime is unknown: no step has a usable token."
    assert unknown.remedy == ""
