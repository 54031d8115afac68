"""Weights of whole responses against every response enumerated, and the source's numbers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from ratioscope.analysis.laboratory.importance_weights import CAP, EXPERIMENT, LENGTHS, chi_square, compute, errors
from ratioscope.analysis.laboratory.tools import uniforms


@pytest.mark.parametrize(
    ("length", "source"),
    [(1, 0.64), (5, 10.8636749824), (10, 139.746784088), (50, 5.52322e10)],
)
def test_the_numbers_of_the_source(length: int, source: float) -> None:
    exact = (Fraction(9, 10) ** 2 * 2 + Fraction(1, 10) ** 2 * 2) ** length - 1
    assert chi_square(0.9, length) == pytest.approx(float(exact), rel=1e-12)
    assert chi_square(0.9, length) == pytest.approx(source, rel=1e-6)


def _all_responses(q: float, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability, token ratios and reward of every response."""
    tokens = np.array(list(itertools.product((0, 1), repeat=length)))
    ratios = np.where(tokens == 1, q / 0.5, (1 - q) / 0.5)
    return np.full(len(tokens), 0.5**length), ratios, (tokens.mean(axis=1) >= 0.75).astype(float)


@pytest.mark.parametrize("length", [1, 3, 8, 12])
def test_the_four_estimates_are_those_of_all_responses(length: int) -> None:
    behavior, ratios, right = _all_responses(0.8, length)
    whole = ratios.prod(axis=1)
    assert (behavior * whole**2).sum() - 1 == pytest.approx(chi_square(0.8, length))
    before = (behavior * right).sum()
    gain = (behavior * whole * right).sum() - before
    weights = [whole, np.minimum(whole, CAP), np.exp(np.log(ratios).mean(axis=1)), 1 + (ratios - 1).sum(axis=1)]
    found = errors(0.8, length)
    for place, weight in enumerate(weights):
        said = (weight - 1) * (right - before)
        mean = (behavior * said).sum()
        assert found[2 * place] == pytest.approx(mean - gain, abs=1e-12)
        assert found[2 * place + 1] == pytest.approx(math.sqrt((behavior * (said - mean) ** 2).sum()), abs=1e-9)


def test_the_sample_is_one_of_responses() -> None:
    """Drawn token by token instead, by inverting the distribution of the number of right tokens."""
    drawn = np.sort(np.cumsum(-np.log(uniforms(1001, 1)))[:-1] / np.cumsum(-np.log(uniforms(1001, 1)))[-1])
    ways = np.array([math.comb(12, k) for k in range(13)]) * 0.5**12
    right = np.searchsorted(np.cumsum(ways), drawn)
    weights = 1.8**right * 0.2 ** (12 - right)
    found = compute(0.9, 12, 1000)
    assert found["ess"] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert found["said"] == pytest.approx(1000 / found["ess"] - 1)


def test_the_guess() -> None:
    def has_the_truth(length: int) -> bool:
        found = compute(0.9, length, 1000)
        return bool(found["said_low"] <= found["chi2"] <= found["said_high"])

    assert [has_the_truth(length) for length in LENGTHS[:7]] == [True] * 5 + [False] * 2
    assert EXPERIMENT.question.answers[EXPERIMENT.question.right] == "about 8 tokens"
