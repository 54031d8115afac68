"""Sketches: extremes and tail indices exactly, quantiles within the stated error, whatever the parts."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.summary.order_statistics import of_step
from ratioscope.analysis.summary.sketch import SKETCH_ROUNDING, StepSketch, exact_ones, of_tables, sketch, together
from ratioscope.tails import QUANTILES
from tests.making.loops import in_one_loop

N = 40_000
Draw = Callable[[np.random.Generator], NDArray[np.float64]]
LOGS: dict[str, Draw] = {
    "near_1": lambda rng: 1e-3 * rng.standard_normal(N),
    "heavy": lambda rng: rng.standard_t(1.5, N),
    "ties": lambda rng: rng.choice([-0.3, 0.0, 0.0, 0.1], N),
    "on_policy": lambda rng: np.zeros(N),
    "ratios_of_0": lambda rng: np.where(rng.random(N) < 0.02, -np.inf, rng.standard_normal(N)),
    "beyond_half_precision": lambda rng: 1e5 * rng.standard_normal(N),
    "few": lambda rng: rng.standard_normal(7),
    "none": lambda rng: np.zeros(0),
}


@in_one_loop("draw", LOGS)
def test_a_step_in_parts_is_the_step_within_the_stated_error(draw: Draw) -> None:
    rng = np.random.default_rng(1)
    logs, new = draw(rng), draw(rng)
    whole = of_step(np.sort(logs), np.sort(new), new)
    cuts = np.sort(rng.integers(0, len(logs) + 1, 3))
    largest = exact_ones(len(logs))
    parts = [
        StepSketch(*(sketch(each, largest) for each in (a, b, b)))
        for a, b in zip(np.split(logs, cuts), np.split(new, cuts), strict=True)
    ]
    streamed = StepSketch(
        *(together([getattr(part, name) for part in parts], largest) for name in ("tokens", "new", "sequences"))
    )
    kept = of_tables(pd.concat([part.table(0) for part in parts]))
    for found in (streamed.order(), kept.order()):
        assert list(found) == list(whole)
        for name, value in whole.items():
            if name not in (*QUANTILES, "top_squares"):
                assert found[name] == value or (found[name] != found[name] and value != value), name
        for name in QUANTILES:
            with np.errstate(over="ignore"):  # ratios of 0 or infinity are no further off
                low, high = np.exp([whole[name] - error(whole[name]), whole[name] + error(whole[name])])
                assert low <= np.exp(found[name]) <= high or not len(logs), name
        if len(logs) and np.isfinite(whole["top_squares"]):
            assert found["top_squares"] == pytest.approx(whole["top_squares"], abs=2 * error(whole["highest"]))


def error(log: float) -> float:
    """As stated, of a quantile between two logs of about this size."""
    return max(SKETCH_ROUNDING * abs(log) * 1.001, 2.0**-25) if np.isfinite(log) else 0.0


def test_a_sketch_is_small_and_counts_everything() -> None:
    logs = np.random.default_rng(0).standard_normal(300_000)
    one = sketch(logs, 100)
    assert one.n == len(logs)
    assert np.array_equal(one.exact, np.sort(logs)[[0, *range(-100, 0)]])
    assert np.count_nonzero(one.rounded) < 30_000
