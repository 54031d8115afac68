"""Evaluations that take turns are told from noise, from a policy that goes up and down, and from a fall."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.findings.drop import drop_of
from ratioscope.analysis.findings.evaluation_turns import evaluation_turns
from ratioscope.analysis.findings.fall import fall_of, setback_of
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.summary.intervals import of_share
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE

N, PROMPTS = 48, 200
Series = NDArray[np.floating[Any]]


def evaluated(chance: Series, reward: Series | None = None, seed: int = 0) -> StepSummary:
    """Each step is evaluated on 200 prompts; the reward is that of 48 responses, and flat unless it is given."""
    rng = np.random.default_rng(seed)
    n = len(chance)
    values = pd.DataFrame(np.nan, index=pd.Index(range(n), name="step"), columns=[*CATALOGUE])
    values["eval_accuracy"] = rng.binomial(PROMPTS, np.clip(chance, 0, 1)) / PROMPTS
    values["reward"] = rng.binomial(48, np.full(n, 0.5) if reward is None else reward) / 48
    low, high = values.copy(), values.copy()
    low["eval_accuracy"], high["eval_accuracy"] = of_share(values["eval_accuracy"].to_numpy(), PROMPTS)
    return StepSummary(values, low, high, {}, pd.DataFrame(), pd.DataFrame(index=values.index))


def repeating(*ease: float, n: int = N) -> Series:
    return np.tile(ease, n)[:n]


@pytest.mark.parametrize("ease", [(0.15, -0.15), (0.2, 0.0, -0.2), (0.17, -0.06, 0.03, -0.16)])
def test_a_period_is_found_and_is_no_fall(ease: tuple[float, ...]) -> None:
    summary = evaluated(0.4 + repeating(*ease) + np.linspace(0, 0.1, N))
    turns = evaluation_turns(summary)
    assert turns is not None and turns.period == len(ease) and turns.reward_known
    assert turns.swing == pytest.approx(max(ease) - min(ease), abs=0.05)
    for look in (fall_of, setback_of, drop_of):
        assert look(summary, Limits()) is None


def test_a_fall_under_a_period_is_still_one() -> None:
    summary = evaluated(0.6 + repeating(0.15, -0.15) - 0.4 * (np.arange(N) >= 30))
    fall = fall_of(summary, Limits())
    assert fall is not None and 28 <= fall.found <= 33
    assert fall.words.startswith("Accuracy (means of 2 evaluations) fell")


def test_a_policy_that_goes_up_and_down_is_no_evaluation_that_does() -> None:
    turning = 0.4 + repeating(0.17, -0.06, 0.03, -0.16)
    assert evaluation_turns(evaluated(turning, turning)) is None


def test_noise_and_slow_courses_have_no_period() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(16, 120))
        walk = np.clip(0.5 + 0.05 * np.cumsum(rng.standard_normal(n)), 0.05, 0.95)
        for chance in (np.full(n, 0.5), np.linspace(0.2, 0.8, n), walk, 0.5 - 0.4 * (np.arange(n) > n // 2)):
            assert evaluation_turns(evaluated(chance, seed=seed)) is None, (seed, n)
