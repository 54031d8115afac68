"""The figures: plain functions of a summary that stay small, keep the extremes and survive what is not a number."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import ratioscope.dashboard.figures
from ratioscope.analysis.compare.curves import curves
from ratioscope.analysis.compare.grouping import Member, Setting
from ratioscope.analysis.compare.grouping import grouped_settings as group
from ratioscope.analysis.ratios.distributions import survival
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import COUNTS, StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import base, ratios, series
from ratioscope.dashboard.figures import compare as comparison
from ratioscope.dashboard.figures.cut_names import cut_apart
from ratioscope.dashboard.theme import DARK, LIGHT, PALETTE, Mode, as_text, contrast
from tests.dashboard.conftest import make_steps
from tests.making.caveats import UNRELIABLE
from tests.making.runs import write_run

LONG = 7_000
ALL_KEYS = ("s_k", "eval_accuracy", "clip_fraction", "chi2_seq", "khat_token", "version_lag")


def _summary(n: int, rng: np.random.Generator, fill: float | None = None) -> StepSummary:
    """A summary of n steps with every metric at every step; half of them cannot be trusted."""
    index, keys = pd.RangeIndex(n, name="step"), [*COUNTS, *CATALOGUE]
    numbers = rng.uniform(0.01, 1, (n, len(keys)))
    values = pd.DataFrame(numbers if fill is None else np.full_like(numbers, fill), index=index, columns=keys)
    values["version_lag"] = np.arange(n) % 10.0  # whole numbers, whatever the log-probabilities
    bins = pd.DataFrame({"step": np.repeat(index, 3), "bin": np.tile([-7, 0, 9], n), "tokens": 5})
    notes = {int(step): dict.fromkeys(CATALOGUE, UNRELIABLE) for step in index[::2]}
    return StepSummary(values, values - 0.01, values + 0.01, notes, bins)


def _settings(root: Path, summary: StepSummary) -> list[Setting]:
    """Two seeds of one setting with this summary."""
    runs = [open_run(write_run(root / f"seed{seed}", make_steps(1), seed=seed)) for seed in (0, 1)]
    moved = StepSummary(summary.values + 0.1, summary.low, summary.high, summary.notes, summary.histogram)
    return group([Member(run.folder.name, run, each) for run, each in zip(runs, (summary, moved), strict=True)])


def _all_figures(summary: StepSummary, mode: Mode, root: Path) -> dict[str, go.Figure]:
    found = {key: series.over_steps(summary, [key], mode, limits=[series.Limit(0.2, "limit")]) for key in ALL_KEYS}
    drawn = comparison.lines(curves(_settings(root, summary), "eval_accuracy", window=3))
    return found | {
        "logarithmic": series.over_steps(summary, ["chi2_token", "chi2_seq"], mode, logarithmic=True),
        "heat": ratios.heat_map(summary, mode),
        "fan": ratios.quantile_fan(summary, mode),
        "multiples": comparison.small_multiples({"one": drawn, "two": drawn}, "eval_accuracy", mode),
    }


def test_figures_are_drawn_where_streamlit_is_not_installed() -> None:
    modules = [
        f"ratioscope.dashboard.figures.{path.stem}"
        for path in Path(ratioscope.dashboard.figures.__path__[0]).glob("[!_]*.py")
    ]
    assert len(modules) >= 4
    program = f"import sys; sys.modules['streamlit'] = None; import {', '.join(modules)}"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("mode", [LIGHT, DARK], ids=["light", "dark"])
def test_no_trace_has_more_points_than_a_screen_has_pixels(tmp_path: Path, mode: Mode) -> None:
    for name, figure in _all_figures(_summary(LONG, np.random.default_rng(0)), mode, tmp_path).items():
        assert figure.data, name
        for trace in figure.data:
            assert len(trace.x) <= base.MOST_POINTS, f"{name}: {trace.name}"


@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf, 0.0], ids=str)
def test_a_metric_without_one_number_is_drawn_as_an_empty_chart(tmp_path: Path, fill: float) -> None:
    for name, figure in _all_figures(_summary(50, np.random.default_rng(0), fill), LIGHT, tmp_path).items():
        figure.to_json()
        for trace in figure.data:
            if trace.type == "scatter" and not (trace.name or "").startswith("infinite"):
                assert not np.isinf(np.asarray(trace.y, dtype=float)).any(), f"{name}: {trace.name}"


def test_infinite_values_are_marked_at_the_edge_and_counted() -> None:
    summary = _summary(40, np.random.default_rng(0))
    summary.values.loc[[3, 30], "chi2_seq"] = np.inf
    figure = series.over_steps(summary, ["chi2_seq"], LIGHT)
    (marks,) = [trace for trace in figure.data if trace.name == "infinite in 2 steps"]
    assert list(marks.x) == [3, 30]
    assert figure.layout.yaxis2.range == (0, 1)


def test_many_infinite_values_are_thinned_and_still_all_counted() -> None:
    summary = _summary(LONG, np.random.default_rng(0))
    summary.values["chi2_seq"] = np.inf
    figure = series.over_steps(summary, ["chi2_seq"], LIGHT)
    (marks,) = [trace for trace in figure.data if trace.name == f"infinite in {LONG} steps"]
    assert 0 < len(marks.x) <= base.MOST_POINTS


def test_what_cannot_be_trusted_is_an_open_circle_named_once() -> None:
    figure = series.over_steps(_summary(20, np.random.default_rng(0)), ["s_k", "u_k"], LIGHT)
    circles = [trace for trace in figure.data if trace.name == "unreliable"]
    assert [list(trace.x) for trace in circles] == [list(range(0, 20, 2))] * 2
    assert [trace.showlegend is not False for trace in circles] == [True, False]


def test_a_band_never_spans_a_gap() -> None:
    low = pd.Series([0.1, 0.2, np.nan, np.nan, 0.3, 0.4])
    figure = base.figure(LIGHT)
    base.add_band(figure, low, low + 0.1, "#000000")
    (trace,) = figure.data
    stretches = np.split(trace.x, np.flatnonzero(np.isnan(trace.x)))
    assert [sorted({*part} - {np.nan}) for part in (part[~np.isnan(part)] for part in stretches) if len(part)] == [
        [0, 1],
        [4, 5],
    ]


_NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)
_SERIES = arrays.arrays(np.float64, st.integers(1, 400), elements=_NUMBERS).map(pd.Series)


@settings(deadline=None)
@given(_SERIES, st.integers(2, 60))
def test_a_reduction_keeps_the_extremes(values: "pd.Series[float]", most: int) -> None:
    reduced = base.reduce(values, most)
    assert 0 < len(reduced) <= max(most, 2)
    assert reduced.index.is_monotonic_increasing
    pd.testing.assert_series_equal(reduced, values.loc[reduced.index])
    known = values.dropna()
    if len(known):
        assert (reduced.min(), reduced.max()) == (known.min(), known.max())
    else:
        assert reduced.isna().all()


@settings(deadline=None)
@given(_SERIES)
def test_a_short_series_is_left_as_it_is(values: "pd.Series[float]") -> None:
    pd.testing.assert_series_equal(base.reduce(values), values)


@pytest.mark.parametrize("text", ["<b>x</b>", "<a href='http://127.0.0.2'>a</a>", "a < b & c", "<script>"])
def test_text_of_a_log_is_no_markup_in_a_figure(text: str) -> None:
    assert "<" not in base.plotly_text(text)


@pytest.mark.parametrize("steps", [(0, 11), (3, 3), (500, 900)])
def test_the_survival_curve_falls_from_all_to_few(tmp_path: Path, steps: tuple[int, int]) -> None:
    run = open_run(write_run(tmp_path / "run", make_steps(12)))
    observed = ratios.survival_curve(survival(run, *steps), LIGHT).data[0]
    assert len(observed.x) <= base.MOST_POINTS
    assert (np.diff(observed.x) >= 0).all()
    assert (np.diff(observed.y) <= 0).all()


def test_a_step_range_is_what_every_figure_shows(tmp_path: Path) -> None:
    summary = _summary(30, np.random.default_rng(0))
    drawers: list[Callable[..., go.Figure]] = [ratios.heat_map, ratios.quantile_fan]
    figures = [draw(summary, LIGHT, (4, 9)) for draw in drawers]
    figures.append(series.over_steps(summary, ["s_k"], LIGHT, steps=(4, 9)))
    facets = {"one": comparison.lines(curves(_settings(tmp_path, summary), "s_k"))}
    figures.append(comparison.small_multiples(facets, "s_k", LIGHT, steps=(4, 9)))
    assert [figure.layout.xaxis.range for figure in figures] == [(3.5, 9.5)] * 4


def test_what_single_precision_cannot_hold_is_infinite_without_a_warning() -> None:
    values = pd.Series([1.0, 1e300, -1e300, np.nan, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = base.single(values)
        base.band(np.arange(5), values.to_numpy(), values.to_numpy(), "#ff0000")
    assert drawn.dtype == np.float32
    assert drawn.tolist()[:3] == [1.0, np.inf, -np.inf] and np.isnan(drawn[3])


def test_many_unreliable_values_are_a_strip_on_the_upper_edge_in_stretches() -> None:
    summary = _summary(100, np.random.default_rng(0))
    notes = {step: dict.fromkeys(CATALOGUE, UNRELIABLE) for step in (*range(10, 40), *range(60, 70))}
    summary = replace(summary, notes=notes)
    figure = series.over_steps(summary, ["ess_token"], LIGHT)
    (strip,) = [trace for trace in figure.data if (trace.name or "").startswith("unreliable")]
    assert strip.yaxis == "y2"
    assert strip.showlegend and strip.name == "unreliable steps: bar at the top"
    assert strip.x[~np.isnan(strip.x)].tolist() == [9.5, 39.5, 59.5, 69.5]


def test_an_interval_that_is_open_has_no_band() -> None:
    summary = _summary(20, np.random.default_rng(0))
    summary.low.loc[::2, "ess_token"] = 0.0
    figure = series.over_steps(summary, ["ess_token"], LIGHT)
    (band,) = [trace for trace in figure.data if trace.fill == "toself"]
    assert not np.isfinite(band.y).any()


def test_what_begins_in_a_step_is_marked_there_with_its_words() -> None:
    marks = [(3, "warning <b>", LIGHT.muted), (99, "outside", LIGHT.muted)]
    figure = series.over_steps(_summary(20, np.random.default_rng(0)), ["s_k"], LIGHT, marks=marks)
    (mark,) = [trace for trace in figure.data if trace.text is not None]
    assert (list(mark.x), list(mark.text)) == ([3], ["warning &lt;b&gt;"])
    assert "▲: a finding begins" in figure.layout.xaxis.title.text


def test_a_running_mean_shows_the_extremes_that_it_hides() -> None:
    summary = _summary(60, np.random.default_rng(3))
    summary.values.loc[30, "u_k"], summary.values.loc[40, "u_k"] = 9.0, np.nan
    drawn = series.over_steps(summary, ["u_k", "s_k"], LIGHT, smoothing=5)
    bands = [trace for trace in drawn.data if trace.name == "lowest to highest of 5 steps"]
    assert [trace.showlegend for trace in bands] == [True, False]
    (line,) = [trace for trace in drawn.data if trace.name == series.label("u_k")]
    assert line.meta == "u_k" and "customdata[1]" in line.hovertemplate
    around = summary.values["u_k"].loc[28:32]
    assert line.y[30] == pytest.approx(around.mean(), rel=1e-6)
    np.testing.assert_allclose(line.customdata[30], [around.min(), 9.0], rtol=1e-6)
    assert bands[0].y[np.isfinite(bands[0].y)].max() == 9.0
    assert np.isnan(line.y[40])


def test_names_of_a_grid_are_cut_so_that_they_stay_different() -> None:
    """What is like the most similar one hides what tells it from the others."""
    names = [
        f"grpo (learning_rate {rate}, epsilon_low 0.2, epsilon_high 0.28, weight_decay {decay})"
        for rate in ("1e-5", "3e-5")
        for decay in (0, 0.1)
    ]
    cut = cut_apart(names, 44)
    assert len(set(cut)) == 4 and max(map(len, cut)) <= 44
    grid = [
        f"grpo (a {a}, temperature 0.7, top_p 0.95, b {b}, kl_coefficient 0.001, weight_decay 0.01, c {c}, lr 1e-6)"
        for a in range(3)
        for b in range(3)
        for c in range(3)
    ]
    long = [f"{'x' * 60}{number:03d}{'y' * 60}" for number in range(30)]
    for names in (grid, long, [*grid, *long], [*grid, grid[0]]):
        cut = cut_apart(names, 40)
        assert len(set(zip(names, cut, strict=True))) == len(set(cut)) == len(set(names)), cut
        assert max(map(len, cut)) <= 40
    assert cut_apart(grid, 40)[:3] == [f"grpo (a 0, b 0, c {c})" for c in range(3)]


@pytest.mark.parametrize("mode", [LIGHT, DARK])
def test_a_colour_of_words_can_be_read(mode: Mode) -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21) and contrast("#777777", "#FFFFFF") < 4.5
    for colour in PALETTE.values():
        found = as_text(colour, mode)
        assert contrast(found, mode.surface) >= 4.5
        assert found == colour or contrast(colour, mode.surface) < 4.5
