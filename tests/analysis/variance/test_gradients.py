"""The SGA lemma's terms: on a quadratic with known gradients, on recorded probes, and where something is missing."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.variance.gradients import NOT_ADAM, TERMS, answer, best_step, probes, progress
from ratioscope.catalogue import theory
from ratioscope.errors import RatioscopeError
from ratioscope.recorder import RunRecorder
from tests.making.runs import random_step
from tests.making.samples import run_of


def probe_of(gradient: Any, bias: Any, variance: float, error: float = 0.1) -> "pd.Series[float]":
    """A probe of known vectors."""
    gradient, bias = np.asarray(gradient, dtype=float), np.asarray(bias, dtype=float)
    mean = gradient + bias
    values = (
        gradient @ gradient, gradient @ bias, bias @ bias, variance,
        gradient @ mean / np.sqrt((gradient @ gradient) * (mean @ mean)), gradient @ mean / (mean @ mean),
    )  # fmt: skip
    row = dict(zip(TERMS, values, strict=True)) | {f"{term}_se": error for term in TERMS}
    return pd.Series({**row, "batches": 4})


def recorded(folder: Path, *rows: dict[str, Any]) -> Run:
    with RunRecorder(folder) as recorder:
        for number, row in enumerate(rows):
            step = random_step(np.random.default_rng(number), number)
            recorder.record_step(
                number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars, probes=row or None
            )
    return open_run(folder)


@pytest.mark.parametrize("bias", [(0.0, 0.0), (-0.5, 0.2), (-3.0, 1.0)])
def test_the_lemma_is_exact_on_a_quadratic(bias: tuple[float, float]) -> None:
    """J = -L |theta|^2 / 2: the expected gain of theta + eta g, by enumeration of g, is A + B - C."""
    smooth, theta = 2.5, np.array([0.7, -0.4])
    gradient = -smooth * theta
    noise = np.array([[1.0, 0.5], [-1.0, -0.5], [0.2, -2.0], [-0.2, 2.0]])
    variance = float((noise**2).sum(1).mean())
    rates = np.linspace(0, 1, 7)
    found = progress(probe_of(gradient, bias, variance), rates, smooth)
    steps = theta + rates[:, None, None] * (gradient + np.array(bias) + noise)
    gain = (-smooth / 2 * (steps**2).sum(-1)).mean(-1) + smooth / 2 * theta @ theta
    np.testing.assert_allclose(found.total, gain, atol=1e-12)
    np.testing.assert_allclose(found.total, found.true_progress + found.bias_error - found.noise_penalty, atol=1e-12)


def test_grids_of_learning_rate_and_smoothness_broadcast() -> None:
    probe = probe_of([1, 2], [0.5, -1], 3)
    rates, smooths = np.geomspace(1e-4, 1, 5), np.array([[0.5], [2.0], [8.0]])
    found = progress(probe, rates, smooths)
    for name in ("true_progress", "bias_error", "noise_penalty", "noise_of_variance", "total", "total_error"):
        grid = getattr(found, name)
        assert grid.shape == (3, 5)
        for i, j in ((0, 0), (2, 4), (1, 3)):
            assert grid[i, j] == pytest.approx(float(getattr(progress(probe, rates[j], smooths[i, 0]), name)))


def test_errors_are_those_of_independent_estimates() -> None:
    """Against draws of the four terms."""
    probe, rng = probe_of([1, 2], [0.5, -1], 3), np.random.default_rng(0)
    found = progress(probe, 0.3, 1.5)
    draws = []
    for _ in range(4_000):
        moved = probe.copy()
        for term in TERMS[:4]:
            moved[term] += 0.1 * rng.standard_normal()
        drawn = progress(moved, 0.3, 1.5)
        draws.append([drawn.true_progress, drawn.bias_error, drawn.noise_penalty, drawn.total])
    expected = np.array(draws, dtype=float).std(0)
    errors = [found.true_progress_error, found.bias_error_error, found.noise_penalty_error, found.total_error]
    np.testing.assert_allclose(np.array(errors, dtype=float), expected, rtol=0.06)


@pytest.mark.parametrize("bias", [(0.0, 0.0), (-0.5, 0.5), (-2.0, 0.0)])
def test_the_best_step_is_the_maximum_over_a_grid(bias: tuple[float, float]) -> None:
    probe = probe_of([1.0, 0.5], bias, 2.0)
    rates = np.linspace(0, 2, 20_001)
    totals = progress(probe, rates, 1.3).total
    best = best_step(probe, 1.3)
    assert best.learning_rate == pytest.approx(rates[totals.argmax()], abs=1e-4)
    assert best.progress == pytest.approx(totals.max(), abs=1e-8)


def test_a_best_step_that_the_estimates_cannot_give_is_undefined() -> None:
    probe = probe_of([1.0, 0.5], (0.0, 0.0), 2.0)
    for term, value in (("variance", -9.0), ("variance", np.nan), ("gradient_dot_bias", np.nan)):
        broken = probe.copy()
        broken[term] = value
        assert np.isnan(best_step(broken, 1.0).learning_rate)


@pytest.mark.parametrize(("rate", "smooth"), [(-1, 1), (1, 0), (1, -1), (1, float("nan"))])
def test_impossible_settings_are_refused(rate: float, smooth: float) -> None:
    with pytest.raises(RatioscopeError, match=r"\.$"):
        progress(probe_of([1], [0], 1), rate, smooth)


# gradient, bias, variance: the words that the answer must have.
ANSWERS = (
    ((1.0, 0.0), (-0.9, 0.0), 0.1, "Bias dominates"),
    ((1.0, 0.0), (-0.01, 0.0), 50.0, "Variance dominates"),
    ((1.0, 0.0), (0.2, 0.0), 5.0, "bias adds"),
    ((1.0, 0.0), (0.2, 0.0), -0.1, "Neither bias nor variance"),
    ((1.0, 0.0), (-2.0, 0.0), 0.1, "points downhill"),
)


@pytest.mark.parametrize(("gradient", "bias", "variance", "words"), ANSWERS)
def test_the_answer_names_what_costs_more(gradient: Any, bias: Any, variance: float, words: str) -> None:
    text = answer(probe_of(gradient, bias, variance), 0.1, 1.0)
    assert words in text and text.endswith(NOT_ADAM)
    assert NOT_ADAM in progress(probe_of(gradient, bias, variance), 0.1, 1.0).note


def test_what_lies_within_its_errors_is_not_decided() -> None:
    text = answer(probe_of([1.0, 0.0], [0.1, 0.0], 1.0, error=10.0), 0.1, 1.0)
    assert "This probe cannot tell whether bias" in text and "not significantly different from 0" in text


def test_a_probe_without_a_term_has_no_answer() -> None:
    probe = probe_of([1], [0], 1)
    probe["variance"] = np.nan
    assert "lacks a term" in answer(probe, 0.1, 1.0)
    assert np.isnan(progress(probe, 0.1, 1.0).total)


def test_probes_are_read_with_intervals_and_reasons(tmp_path: Path) -> None:
    whole = {"estimator": "grpo", "batches": 4} | {f"{t}{e}": 1.0 for t in TERMS for e in ("", "_se")}
    unsure = whole | {"batches": 2, "cosine": float("nan")} | {f"{term}_se": float("nan") for term in TERMS}
    frame = probes(recorded(tmp_path / "run", whole, {}, unsure))
    assert frame["step"].tolist() == [0, 2]
    half = stats.t.ppf(0.975, 3)
    for term in TERMS:
        assert frame.loc[0, [f"{term}_low", f"{term}_high"]].tolist() == pytest.approx([1 - half, 1 + half])
        assert np.isnan(frame.loc[1, f"{term}_low"])
    assert frame.loc[0, "note"] == ""
    assert "undefined: cosine" in frame.loc[1, "note"] and "no standard error: gradient_norm" in frame.loc[1, "note"]


def test_a_run_without_probes_has_an_empty_frame_with_the_same_columns(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", {}, {})
    assert len(probes(run)) == 0
    assert list(probes(run).columns) == list(probes(run_of("mismatch-grpo-seed0")).columns)


def test_a_broken_file_is_left_out_and_named(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", {"estimator": "grpo"})
    next((run.folder / "probes").glob("*.parquet")).write_bytes(b"PAR1")
    run = open_run(run.folder)
    assert len(probes(run)) == 0 and "not a complete Parquet file" in run.problems[0]


def test_the_sample_run_s_probes() -> None:
    frame = probes(run_of("mismatch-grpo-seed0"))
    assert frame["step"].tolist() == [0, 50, 100]
    assert (frame["variance_low"] < frame["variance"]).all() and (frame["variance"] < frame["variance_high"]).all()
    assert "no standard error: cosine" in frame.loc[1, "note"] and "undefined: cosine" in frame.loc[2, "note"]
    assert "Variance dominates" in answer(frame.loc[0], 1e-2, 10.0)


def test_the_terms_are_in_the_catalogue() -> None:
    assert {*TERMS, "progress"} <= {metric.key for metric in theory.ENTRIES}
