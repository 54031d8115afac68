"""Whether what is evaluated takes turns: an accuracy that repeats with a period, while the training reward does not.

turns = evaluation_turns(summary)        # None: evaluations can be compared one with the next
turns.period, turns.swing                # 4, 0.33
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from ratioscope.analysis.summary.summary import StepSummary

_FEWEST_PERIODS = 5
"""Times that a period must be seen."""
_LONGEST = 8
"""Evaluations of a period that is looked for."""
_MOSTLY = 0.7
"""Share of the differences about a smooth course that a period explains."""
_CHANCE, _CHANCE_OF_REWARD = 1e-6, 1e-4
"""Of a period of the accuracy that is called one; of one of the reward, which then may be the policy's."""
_HARDLY_LESS = 0.6
"""Of the noise that a period leaves: what a multiple of it leaves by chance, having more places."""
_BEYOND = np.sqrt(2)
"""Half widths of one value's interval by which two values differ beyond noise."""


class EvaluationTurns(NamedTuple):
    """A period of the evaluation accuracy."""

    period: int
    """In evaluations."""
    swing: float
    """Between the highest and the lowest place of the period, on average."""
    explained: float
    """Share of the differences about a smooth course."""
    noise: float
    """Half width of the 95 % interval of one value; 0: unknown."""
    reward_known: bool
    """Whether the training reward is known to have no such period."""


class _Period(NamedTuple):
    """How well a period describes some values."""

    period: int
    explained: float
    """Share of the variance about moving means that the place in the period explains."""
    chance: float
    """Of as much in values without a period."""
    swing: float
    noise: float
    """Variance of one value that it leaves."""


def evaluation_turns(summary: StepSummary) -> EvaluationTurns | None:
    """The period that explains most of how evaluations differ; None: there is none, or the reward has the same one."""
    accuracy = summary.values["eval_accuracy"]
    accuracy = accuracy[np.isfinite(accuracy)]
    longest = min(_LONGEST, len(accuracy) // _FEWEST_PERIODS)
    if longest < 2 or not accuracy.nunique() > 1:
        return None
    values = accuracy.to_numpy(dtype=float)
    best = _best_of([_of_period(values, period) for period in range(2, longest + 1)])
    half = float(np.nan_to_num((summary.high["eval_accuracy"] - summary.low["eval_accuracy"]).median() / 2))
    if best.explained < _MOSTLY or best.chance > _CHANCE or best.swing < _BEYOND * half:
        return None
    reward = summary.values["reward"].reindex(accuracy.index).to_numpy(dtype=float)
    known = bool(np.isfinite(reward).all())
    if known and _of_period(reward, best.period).chance < _CHANCE_OF_REWARD:
        return None
    return EvaluationTurns(best.period, best.swing, best.explained, half, known)


def _best_of(periods: Sequence[_Period]) -> _Period:
    """The one that leaves least: a shorter one that leaves hardly more, of which it is a multiple, goes before it."""
    least = min(periods, key=lambda each: each.noise)
    return next(
        each for each in periods if least.period % each.period == 0 and _HARDLY_LESS * each.noise <= least.noise
    )


def _of_period(values: NDArray[np.float64], period: int) -> _Period:
    means = np.convolve(values, np.full(period, 1 / period), mode="valid")
    apart = values[period // 2 :][: len(means)] - means
    n, place = len(apart), np.arange(len(apart)) % period
    of_place = np.bincount(place, apart) / np.bincount(place)
    within, total = float(((apart - of_place[place]) ** 2).sum()), float(((apart - apart.mean()) ** 2).sum())
    if not total > 0:
        return _Period(period, 0.0, 1.0, 0.0, np.inf)
    within = max(within, 1e-12 * total)
    ratio = (total - within) / (period - 1) / (within / (n - period))
    noise = within / (n - period) / (1 - 1 / period)  # a mean that holds the value takes a part of its noise away
    swing, chance = float(of_place.max() - of_place.min()), float(fdtrc(period - 1, n - period, ratio))
    return _Period(period, 1 - within / total, chance, swing, noise)
