"""Gradient, bias and variance against all 65,536 responses, and the SGA lemma against exact expectations (S1 2)."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from ratioscope.analysis.laboratory.noise import (
    CAP,
    EXPERIMENT,
    OPTIMUM,
    SMOOTHNESS,
    START,
    courses,
    estimates,
    lemma,
    moments,
    success,
)
from ratioscope.analysis.variance.gradients import TERMS, best_step, progress
from tests.analysis.laboratory.settings import settings

RESPONSES = np.array(list(product((0.0, 1.0), repeat=16)))
REWARD = np.isin(RESPONSES.sum(axis=1), (10, 11, 12, 13)).astype(float)


def _sigmoid(theta: float) -> float:
    return float(expit(theta))


def _value(theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """J."""
    return np.asarray(binom.cdf(13, 16, expit(theta)) - binom.cdf(9, 16, expit(theta)))


@pytest.mark.parametrize(("theta", "delta"), [(0.0, 0.5), (0.0, 0.0), (1.3, 1.0), (-0.7, 0.2)])
def test_the_moments_are_those_of_all_responses(theta: float, delta: float) -> None:
    p, q = _sigmoid(theta), _sigmoid(theta - delta)
    ratios = np.where(RESPONSES == 1, p / q, (1 - p) / (1 - q))
    chances = np.where(RESPONSES == 1, q, 1 - q).prod(axis=1)
    scores = RESPONSES - p
    advantage = REWARD - chances @ REWARD
    whole = ratios.prod(axis=1)
    true = float(np.where(RESPONSES == 1, p, 1 - p).prod(axis=1) @ (REWARD * scores.sum(axis=1)))
    found = {
        0: whole * advantage * scores.sum(axis=1),
        1: np.minimum(whole, CAP) * advantage * scores.sum(axis=1),
        2: advantage * (ratios * scores).sum(axis=1),
        3: advantage * scores.sum(axis=1),
    }
    assert chances @ REWARD == pytest.approx(success(theta - delta), rel=1e-12)
    for way, gradient in found.items():
        mean = float(chances @ gradient)
        expected = [true, mean, float(chances @ (gradient - mean) ** 2)]
        assert moments(way, theta, delta) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert chances @ found[0] == pytest.approx(true)
    step = 1e-5
    assert true == pytest.approx((success(theta + step) - success(theta - step)) / (2 * step), rel=1e-6)


def test_the_curvature_and_the_optimum_are_those_of_the_curve() -> None:
    grid = np.linspace(-12, 12, 24_001)
    value = np.array([success(theta) for theta in grid])
    curvature = np.abs(np.diff(value, 2)).max() / (grid[1] - grid[0]) ** 2
    assert 0 <= SMOOTHNESS - curvature < 1e-3
    assert grid[value.argmax()] == pytest.approx(OPTIMUM, abs=1e-3)


def test_the_terms_are_those_of_the_page_of_probes() -> None:
    for at in settings(EXPERIMENT):
        found = EXPERIMENT.at(**at)
        bias = found["bias"]
        terms = (found["gradient"] ** 2, found["gradient"] * bias, bias**2, found["variance"])
        probe = pd.Series(dict(zip(TERMS[:4], terms, strict=True)) | {f"{term}_se": 0.0 for term in TERMS[:4]})
        there = progress(probe, at["eta"], SMOOTHNESS)
        expected = [float(there.true_progress), float(there.bias_error), -float(there.noise_penalty)]
        assert [found["A"], found["B"], found["C"]] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert found["best"] == pytest.approx(best_step(probe, SMOOTHNESS).learning_rate, rel=1e-9)


def test_the_lemma_holds_in_a_thousand_random_settings_and_may_be_near() -> None:
    """The expectation is exact, over all batches of one and of two responses; `left` in units of the largest term."""
    rng = np.random.default_rng(0)
    left = []
    for _ in range(1000):
        theta, delta, way = rng.uniform(-2, 3), rng.choice([0, 0.3, 1]), int(rng.integers(4))
        size, eta = int(rng.integers(1, 3)), float(np.exp(rng.uniform(np.log(1e-3), np.log(3))))
        true, mean, variance = moments(way, theta, delta)
        table, q = np.array(estimates(way, theta, delta)), _sigmoid(theta - delta)
        one = binom.pmf(np.arange(17), 16, q)
        chances = one if size == 1 else np.outer(one, one).ravel()
        steps = table if size == 1 else (table[:, None] + table[None, :]).ravel() / 2
        gained = float(chances @ _value(theta + eta * steps))
        a, b, c = lemma(eta, true, mean - true, variance / size)
        room = gained - success(theta) - (a + b - c)
        assert room >= -1e-12
        left.append(room / max(c, abs(a), abs(b)))
    assert min(left) < 1e-4
    assert np.median(left) == pytest.approx(0.28, abs=0.05)


def test_the_question() -> None:
    critical = EXPERIMENT.at()["critical"]
    assert critical == pytest.approx(41, abs=0.5)
    halves = EXPERIMENT.at(N=41)["best"] / (1 / SMOOTHNESS)
    assert halves == pytest.approx(0.5, abs=0.01)
    assert round(EXPERIMENT.at(delta=0)["critical"]) == 2
    assert EXPERIMENT.question.answers[EXPERIMENT.question.right] == "about 40"


def test_a_batch_cures_noise_and_not_bias() -> None:
    best = success(OPTIMUM)
    ends = {
        (way, size): np.mean([course[-20:] for course in courses(way, 0.5, size, 1.0)[:3]])
        for way in (0, 2)
        for size in (8, 256)
    }
    assert ends[0, 8] < 0.5 * best
    assert ends[0, 256] > 0.95 * best
    assert ends[2, 256] == pytest.approx(np.mean(courses(2, 0.5, 1, 1.0)[3][-20:]), abs=0.02)
    assert ends[2, 256] < 0.82 * best


def test_simulated_gains_are_those_of_the_exact_expectation() -> None:
    found = EXPERIMENT.at(way=3, N=1, eta=0.5)
    table, q = estimates(3, START, 0.5), _sigmoid(START - 0.5)
    chances = binom.pmf(np.arange(17), 16, q)
    gains = _value(START + 0.5 * np.array(table)) - success(START)
    exact, spread = chances @ gains, np.sqrt(chances @ gains**2 - (chances @ gains) ** 2)
    assert found["seen"] == pytest.approx(exact, abs=3 * spread / np.sqrt(100))
