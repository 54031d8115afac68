"""A fall that has begun: the level is low now, whether or not it stays there.

drop = drop_of(summary, limits)          # None: the level is not low
drop.good, drop.last                     # 0.8, 0.27

The level is followed from value to value. It is low once it is below its best by the share that counts as a fall and by
more than noise makes, and stays so until it has made up half of that: the next value, somewhat higher, is no recovery.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.fall import (
    LEVEL_WORDS,
    Fall,
    evaluated,
    fall_at,
    finite_values,
    level_of,
    noise_of_mean,
)
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import level_change, rounded_level
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE

_LEAST_EVALUATIONS = 3
_WINDOWS = {15: 5, 10: 4}
"""Steps that a training reward is averaged over, by how many it has at least: it moves with its prompts."""
_LASTING = 3
"""A level that is low for so many values has fallen; before, it is dropping."""
_MADE_UP = 0.5
"""Of what was lost: a level that has made up for so much is low no longer."""
_BEYOND = 2.0
"""Standard deviations above what the best of noise reaches."""
_HALF = 1.96
_OF_DIFFERENCE = np.sqrt(2)


@dataclass(frozen=True)
class Drop:
    """A level that is low at its end."""

    metric: str
    best: float
    good: float
    good_step: int
    """The last value before it was low, and its step."""
    lowest: float
    lowest_step: int
    last: float
    last_step: int
    steps: tuple[int, ...]
    """Since the level is low."""
    n_low: int
    """How many of them are below the limit; the others have not made up for it."""
    limit: float
    """Below it the level is low."""
    noise: float
    """Half width of the 95 % interval of one value; 0: unknown."""
    lasting: bool
    """Whether it has been low for so long that it has fallen."""
    window: int = 1
    """How many steps a value is the mean of."""

    @property
    def is_low(self) -> bool:
        """Whether the last value is below the limit; else it is on its way back."""
        return self.last < self.limit

    @property
    def since(self) -> str:
        """When it began, without a full stop: after which step, and since when the level is low."""
        below = rounded_level(self.limit, share=CATALOGUE[self.metric].share)
        return f"After step {self.good_step}; below {below} since step {self.steps[0]}"

    @property
    def change(self) -> str:
        """From where to where: "accuracy 80 → 27%"."""
        return f"{LEVEL_WORDS[self.metric]} {self._levels}"

    @property
    def words(self) -> str:
        """The same with how fast, without a full stop: "accuracy 80 → 27% in 10 steps"."""
        return f"{self.change} {self._steps}"

    @property
    def fell(self) -> str:
        """The same as a sentence of its own, without a full stop: "accuracy fell 80 → 27% in 10 steps"."""
        return f"{LEVEL_WORDS[self.metric]} fell {self._levels} {self._steps}"

    @property
    def _levels(self) -> str:
        return level_change(self.good, self.last, share=CATALOGUE[self.metric].share)

    @property
    def _steps(self) -> str:
        n = self.last_step - self.good_step
        return f"in {n} step{'s' * (n != 1)}"


def drop_of(summary: StepSummary, limits: Limits) -> Drop | None:
    """The drop of evaluation accuracy, or of the training reward; beside an accuracy that holds, a deep one.

    An accuracy that was hardly low, and is on its way back, hides no reward that is.
    """
    accuracy, over = evaluated(summary)
    if len(accuracy) < _LEAST_EVALUATIONS:
        return reward_drop_of(summary, limits.reward_fall)
    noise = noise_of_mean(summary, "eval_accuracy", over)
    found = followed(accuracy, limits.reward_fall, noise, "eval_accuracy", over)
    if found is not None and (found.is_low or found.n_low >= _LASTING):
        return found
    deep = reward_drop_of(summary, limits.reward_lost)
    return deep if found is None or (deep is not None and deep.is_low) else found


def reward_drop_of(summary: StepSummary, share: float) -> Drop | None:
    """The drop of the training reward alone, by a share of its best."""
    known = len(finite_values(summary, "reward"))
    window = next((window for least, window in _WINDOWS.items() if known >= least), None)
    if window is None:
        return None
    level = level_of(summary, "reward", window)
    return followed(level, share, noise_of_mean(summary, "reward", window), "reward", window)


def as_fall(summary: StepSummary, drop: Drop) -> Fall:
    """The same as a fall, for what looks at what came before it."""
    level = level_of(summary, drop.metric, drop.window)
    place = int(level.index.searchsorted(drop.steps[0]))
    return fall_at(level, place, drop.limit, drop.noise, drop.metric, drop.window)


def followed(level: "pd.Series[float]", share: float, noise: float, metric: str, window: int = 1) -> Drop | None:
    """The drop at the end of a level.

    Args:
        level: by step, without gaps.
        share: of its best, that it has to lose.
        noise: half width of the 95 % interval of one value; 0 where it is unknown.
        window: how many steps a value is the mean of.
    """
    steps, values = level.index.to_numpy(), level.to_numpy()
    best, since, limit = float(values[0]), None, np.nan
    for place in range(1, len(values)):
        value = values[place]
        lost, made_of_noise = share * abs(best), _chance(place) * noise / _HALF
        if since is None and place > 1 and value < best - max(lost, made_of_noise):
            since, limit = place, best - max(lost, made_of_noise)
        elif since is not None and value >= best - max(_MADE_UP * lost, _OF_DIFFERENCE * noise):
            since = None
        best = max(best, value)
    if since is None:
        return None
    low = level.iloc[since:]
    return Drop(
        metric=metric,
        best=best,
        good=float(values[since - 1]),
        good_step=int(steps[since - 1]),
        lowest=float(low.min()),
        lowest_step=int(low.index[int(low.argmin())]),
        last=float(low.iloc[-1]),
        last_step=int(low.index[-1]),
        steps=tuple(int(step) for step in low.index),
        n_low=int((low < limit).sum()),
        limit=float(limit),
        noise=noise,
        lasting=len(low) >= max(_LASTING, window),
        window=window,
    )


def _chance(n: float) -> float:
    """How many standard deviations lie between the best of n values of noise and one that is lower than chance."""
    return float(np.sqrt(2 * np.log(max(n, 2)))) + _BEYOND
