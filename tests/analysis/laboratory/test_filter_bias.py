"""Filters of stale data, held against S0's numbers, enumeration of whole responses and drawn ones."""

import itertools
import math

import numpy as np
import pytest

from ratioscope.analysis.laboratory.filter_bias import EXPERIMENT, LENGTHS, common_tokens, compute, kept


def test_the_numbers_of_the_design() -> None:
    found = EXPERIMENT.at()
    assert found["staleness"] == pytest.approx(0.245, abs=5e-4)
    assert found["true"] == pytest.approx(0.48)
    assert found["share"] == pytest.approx(0.98)
    assert found["staleness"] <= found["half"] < found["true"], "S0 7.3's bound holds of what is kept alone"


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize(("b", "c", "epsilon"), [(0.9, 0.7, 0.5), (0.98, 0.5, 0.5), (0.6, 0.7, 0.2), (0.7, 0.72, 2.0)])
def test_what_is_kept_of_responses_is_their_enumeration(b: float, c: float, epsilon: float, which: int) -> None:
    length = 9
    ratios = {True: c / b, False: (1 - c) / (1 - b)}
    chance, stale, ratio = 0.0, 0.0, 0.0
    for response in itertools.product((True, False), repeat=length):
        own = [ratios[common] for common in response]
        of_response = math.prod(own) if which == 2 else math.prod(own) ** (1 / length)
        if abs(of_response - 1) <= epsilon:
            probability = math.prod(b if common else 1 - b for common in response)
            chance += probability
            stale += probability * float(np.mean(np.abs(np.array(own) - 1))) / 2
            ratio += probability * float(np.mean(own))
    assert kept(b, c, epsilon, which, length, common_tokens(b, length)) == pytest.approx([chance, stale, ratio])


def test_kept_responses_are_as_drawn_ones() -> None:
    found = EXPERIMENT.at(which=2, b=0.9, c=0.8)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, LENGTHS + 1, 200_000) * 64 // LENGTHS
    rare = rng.binomial(lengths, 0.1)
    keeps = abs(np.exp((lengths - rare) * np.log(0.8 / 0.9) + rare * np.log(2)) - 1) <= 0.5
    assert lengths[keeps].mean() == pytest.approx(found["length"], rel=0.02)
    assert lengths[keeps].sum() / lengths.sum() == pytest.approx(found["share"], rel=0.02)
    assert found["length"] < 0.8 * found["length_all"], "the long are dropped"


def test_no_kept_token_shows_more_than_half_of_epsilon() -> None:
    """On random policies of many tokens: the bound holds of what is kept, is reached, and says nothing of the truth."""
    rng = np.random.default_rng(1)
    shown, true = [], []
    for _ in range(1_000):
        behavior, current = rng.dirichlet(np.full(20, 0.3), 2)
        ratio = current / np.maximum(behavior, 1e-300)
        keeps = abs(ratio - 1) <= 0.5
        if behavior[keeps].sum() > 0:
            shown.append((behavior * abs(ratio - 1))[keeps].sum() / behavior[keeps].sum() / 2)
            true.append(abs(behavior - current).sum() / 2)
    assert max(shown) <= 0.25
    assert max(shown) > 0.24, "how tight"
    assert np.mean(np.array(true) > 0.25) > 0.9


def test_the_right_answer_is_computed() -> None:
    said = [compute(0.98, c / 100, 0.5, 64, 0) for c in range(49, 99)]
    assert all(of["staleness"] <= 0.25 + 1e-12 for of in said)
    assert "at most" in EXPERIMENT.question.answers[EXPERIMENT.question.right]
    assert "0.245" in said[1]["says"]


def test_sentences_have_conditions() -> None:
    assert "gives it away: 0.51 instead of 1" in EXPERIMENT.at()["says"]
    assert "little is hidden" in EXPERIMENT.at(c=0.96, epsilon=2)["says"]
    assert EXPERIMENT.at(c=0.01, epsilon=0.05)["says"].endswith("The filter drops everything.")
