"""Whether what is evaluated takes turns: an accuracy that repeats with a period, while the training reward does not.

turns = evaluation_turns(summary)        # None: evaluations can be compared one with the next
turns.period, turns.swing                # 4, 0.33
"""

from typing import NamedTuple

import numpy as np

from ratioscope.analysis.findings.period import best_period, of_period
from ratioscope.analysis.summary.summary import StepSummary

_FEWEST_PERIODS = 5
"""Times that a period must be seen."""
_LONGEST = 8
"""Evaluations of a period that is looked for."""
_MOSTLY = 0.7
"""Share of the differences about a smooth course that a period explains."""
_CHANCE, _CHANCE_OF_REWARD = 1e-6, 1e-4
"""Of a period of the accuracy that is called one; of one of the reward, which then may be the policy's."""
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


def evaluation_turns(summary: StepSummary) -> EvaluationTurns | None:
    """The period that explains most of how evaluations differ; None: there is none, or the reward has the same one."""
    accuracy = summary.values["eval_accuracy"]
    accuracy = accuracy[np.isfinite(accuracy)]
    longest = min(_LONGEST, len(accuracy) // _FEWEST_PERIODS)
    if longest < 2 or not accuracy.nunique() > 1:
        return None
    values = accuracy.to_numpy(dtype=float)
    best = best_period(values, longest)
    half = float(np.nan_to_num((summary.high["eval_accuracy"] - summary.low["eval_accuracy"]).median() / 2))
    if best.explained < _MOSTLY or best.chance > _CHANCE or best.swing < _BEYOND * half:
        return None
    reward = summary.values["reward"].reindex(accuracy.index).to_numpy(dtype=float)
    known = bool(np.isfinite(reward).all())
    if known and of_period(reward, best.period).chance < _CHANCE_OF_REWARD:
        return None
    return EvaluationTurns(best.period, best.swing, best.explained, half, known)
