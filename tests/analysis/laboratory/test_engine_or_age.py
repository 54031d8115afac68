"""Engine and age: what is said to be known, against estimates from drawn log ratios."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import optimize, special

from ratioscope.analysis.laboratory.engine_or_age import AGES, EXPERIMENT, known_share, total_variation


def test_total_variation_is_that_of_drawn_ratios() -> None:
    for spread in (0.001, 0.1, 0.5, 1.2):
        assert total_variation(spread) == pytest.approx(float(special.erf(spread / np.sqrt(8))))
    rng = np.random.default_rng(0)
    found = EXPERIMENT.at()
    lags = rng.integers(0, 20, 1_000_000)
    variances = np.array([0.1**2 + 0.03**2 * lags, 0.03**2 * lags, np.full(len(lags), 0.1**2)])
    ratios = np.exp(np.sqrt(variances) * rng.standard_normal(variances.shape) - variances / 2)
    drawn = np.maximum(1 - ratios, 0).mean(axis=1)
    assert drawn == pytest.approx([found["tv"], found["tv_age"], found["tv_engine"]], rel=5e-3)


def _estimated(lags: list[int], columns: int, tokens: int, logs: int) -> np.ndarray:
    """The engine's share as most likely in drawn logs: s .1, d .03."""
    rng = np.random.default_rng(1)
    at, each, mean = np.array(lags, dtype=float), tokens // len(lags), float(np.mean(lags))
    shares = []
    for _ in range(logs):
        engine = 0.1 * rng.standard_normal((len(at), each))
        age = 0.03 * np.sqrt(at)[:, None] * rng.standard_normal((len(at), each))
        if columns == 2:
            old = at > 0
            parts = (engine**2).mean(), mean * (age[old] ** 2 / at[old, None]).mean()
        else:
            squares = ((engine + age) ** 2).mean(axis=1)

            def misfit(of: np.ndarray, squares: np.ndarray = squares) -> float:
                variances = np.exp(of[0]) + np.exp(of[1]) * at / mean
                return float((np.log(variances) + squares / variances).sum())

            best = optimize.minimize(misfit, np.log([0.01, 0.0009 * mean]), method="Nelder-Mead")
            parts = tuple(np.exp(best.x))
        shares.append(parts[0] / (parts[0] + parts[1]))
    return np.array(shares)


@pytest.mark.parametrize(("ages", "columns"), [(1, 1), (2, 1), (4, 1), (2, 2), (3, 2)])
def test_what_is_known_is_what_drawn_logs_scatter(ages: int, columns: int) -> None:
    youngest, oldest = AGES[ages]
    lags = list(range(youngest, oldest + 1))
    tokens = 20_000
    low, high = known_share(0.01, 0.0009 * float(np.mean(lags)), lags, tokens, columns)
    shares = _estimated(lags, columns, tokens, 120)
    assert 0 < low < np.mean(shares) < high < 1
    assert (high - low) / 3.92 == pytest.approx(float(np.std(shares)), rel=0.25)
    assert np.mean((shares >= low) & (shares <= high)) > 0.88


def test_a_ring_fits_two_columns_whatever_their_number() -> None:
    for tokens in (1_000, 1_000_000):
        found = EXPERIMENT.at(N=tokens)
        assert (found["low"], found["high"]) == (0, 1), "the question's right answer"
        radii = np.hypot(found["region_x"], found["region_y"])
        assert radii.min() < np.hypot(found["dot_x"], found["dot_y"])[0] < radii.max()
        assert radii.max() / radii.min() - 1 < 8 / math.sqrt(tokens)
    assert EXPERIMENT.question.answers[EXPERIMENT.question.right] == "not at all"
    assert (EXPERIMENT.at(columns=1, ages=3)["low"], EXPERIMENT.at(columns=1, ages=3)["high"]) == (0, 1)


def test_more_columns_know_more() -> None:
    for ages in range(len(AGES)):
        widths = [(found := EXPERIMENT.at(columns=columns, ages=ages))["high"] - found["low"] for columns in range(3)]
        assert all(less >= more for less, more in pairwise(widths)), widths
    assert all(EXPERIMENT.at(columns=c, ages=0)["low"] == 1 for c in (1, 2))


def test_the_region_has_the_truth_in_it() -> None:
    for at in ({"columns": 1}, {"columns": 2}, {"columns": 1, "ages": 4}, {"columns": 1, "s": 0.005}):
        found = EXPERIMENT.at(**at)
        x, y = np.array(found["region_x"]), np.array(found["region_y"])
        assert (x >= 0).all()
        assert (y >= 0).all()
        # The winding number of its edge around the truth.
        angles = np.unwrap(np.angle(x - found["dot_x"][0] + 1j * (y - found["dot_y"][0])))
        closing = np.angle(np.exp(1j * (angles[0] - angles[-1])))
        assert abs(angles[-1] - angles[0] + closing) == pytest.approx(2 * np.pi), at


def test_sentences_have_conditions() -> None:
    said = {(columns, ages): str(EXPERIMENT.at(columns=columns, ages=ages)["says"])
            for columns in range(3) for ages in range(5)}  # fmt: skip
    assert all("cannot tell" in said[0, ages] for ages in range(1, 5))
    assert "all is the engine" in said[1, 0]
    assert "equally old" in said[1, 3]
    assert "No token is fresh" in said[1, 4]
    assert "Fresh tokens show" in said[1, 2]
    assert all("shows each part by itself" in said[2, ages] for ages in range(1, 5))
