"""A fall of what a run is for from its best level: decided once, for the finding, the headline and the pages.

fall = fall_of(summary, limits)          # None: it has not fallen
fall.words                               # "Accuracy fell 38 → 2% in steps 0–45 and stayed low: 4% in step 50"
fall.since                               # "After step 0; below 28% since step 10"
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.evaluation_turns import evaluation_turns
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import capital, half_width, level_change, rounded_level
from ratioscope.analysis.findings.words import listed, some
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE

LEVEL_WORDS = {"eval_accuracy": "accuracy", "reward": "training reward"}
"""What a run is for, as short sentences name it."""

_LEAST_EVALUATIONS = 8
_LEAST_REWARDS = 30
_LEAST_AFTERWARDS = 3
_FALLEN_SHARE = 0.7
"""So many of the later values must be low: a dip is no collapse."""
# More stretches are no falls of their own, and not named.
_MOST_STRETCHES = 4
_MOST_LISTED = 2
"""Of more of them the first is named: the chart shades them all."""
_BEYOND = 2.0
"""Standard deviations above what the best of noise reaches."""
# Half of a 95 % interval in standard deviations; and of two values' difference.
_HALF = 1.96
_OF_DIFFERENCE = np.sqrt(2)
# Intervals of shares are short near 0 and 1; a fall is judged by those of its better half.
_LARGE = 0.9


@dataclass(frozen=True)
class Fall:
    """A level's fall: it began after `still_good`, and was there at `found`."""

    best: float
    best_step: int
    still_good: int
    """The last step before it at which the level was its best, up to noise."""
    found: int
    low: "pd.Series[float]"
    """The level where it is fallen; of a setback, in its longest stretch."""
    lowest: float
    """The lowest value since, and its step; of a setback, before the level last came back."""
    lowest_step: int
    after: float
    """Median of what came afterwards."""
    n_after: int
    """Values since the fall."""
    last: float
    last_step: int
    limit: float
    """Below it the level is fallen."""
    noise: float
    """Half width of the 95 % interval of one value; 0: unknown."""
    metric: str = "reward"
    window: int = 1
    """How many steps, or evaluations, a value is the mean of."""
    came_back: bool = False
    """Whether it was only for a time."""
    risen: float = float("nan")
    """Of a setback the highest value since the lowest."""
    recovered: tuple[int, ...] = ()
    """The steps after it at which the level was at its best again, up to noise."""
    lows: "pd.Series[float] | None" = None
    """Of a setback all values that are as low since the best level; None: these are in `low`."""
    stretches: tuple[tuple[int, int], ...] = ()
    """First and last step of each stretch of values that are as low; of means, which hold several steps, none."""
    times: int = 1
    """How often it fell: as many as there are stretches, where they are few and it rose above the limit between all of
    them by more than the noise of a value."""

    @property
    def low_steps(self) -> tuple[int, ...]:
        """The steps of all that is low."""
        return tuple(int(step) for step in (self.low if self.lows is None else self.lows).index)

    @property
    def fell_again(self) -> bool:
        """Whether it came back, and the run ends as low."""
        return self.came_back and self.last < self.limit

    @property
    def words(self) -> str:
        """What happened, without a full stop: where it was, how low it went, and where it is."""
        change = level_change(self.best, self.lowest, share=self.share)
        end, at_the_end = rounded_level(self.last, share=self.share), self.lowest_step == self.last_step
        if self.times > 1:
            often = "twice" if self.times == 2 else f"{self.times} times"
            return f"{capital(self._named)} fell {often}, {self._levels}"
        begun = f"{capital(self._named)} fell {change} in steps {self.best_step}–{self.lowest_step}"
        last = f"{end} in step {self.last_step}"
        if self.fell_again:
            return f"{begun}, came back to {rounded_level(self.risen, share=self.share)}, and fell again: {last}"
        if self.came_back:
            return f"{begun} and {'came back' if self.regained else 'rose again'} to {end}"
        if at_the_end:
            return begun
        return f"{begun}{' and stayed low:' if len(self.low) == self.n_after else ', then'} {last}"

    @property
    def since(self) -> str:
        """When it began, without a full stop: since when the level is low, and after which step, where that is not the
        one of the best value, which `words` names; of several falls, in which steps."""
        below = f"below {rounded_level(self.limit, share=self.share)}"
        below = capital(below) if self.still_good == self.best_step else f"After step {self.still_good}; {below}"
        if 1 < len(self.stretches) <= _MOST_LISTED:
            *earlier, (first, last) = self.stretches
            for_good = last == self.last_step
            over = [f"{a}–{b}" if b > a else str(a) for a, b in (earlier if for_good else self.stretches)]
            steps = "step" if over == [str(earlier[0][0])] else "steps"
            return f"{below} in {steps} {listed(over)}" + f", and since step {first}" * for_good
        if self.times > _MOST_LISTED:
            return f"Steps {listed([str(first) for first, _ in self.stretches])}"
        if len(self.stretches) > 1 and (self.came_back or len(self.stretches) <= _MOST_STRETCHES):
            return f"{below} first in step {self.stretches[0][0]}"
        if self.came_back:
            return f"{below} in steps {self.found}–{int(self.low.index[-1])}"
        if self.recovered and self.window > 1:
            again = f"step{'s' * (len(self.recovered) > 1)} {some(map(str, self.recovered))}"
            return f"{below} from step {self.found}, recovered in {again}"
        share = "" if len(self.low) == self.n_after else f" in {len(self.low)} of {self.n_after} values"
        return f"{below}{share} since step {self.found}"

    @property
    def _named(self) -> str:
        times = "evaluations" if self.metric == "eval_accuracy" else "steps"
        of_steps = f" (means of {self.window} {times})" if self.window > 1 else ""
        return f"{LEVEL_WORDS[self.metric]}{of_steps}"

    @property
    def last_good(self) -> int:
        """The last step at which the level was at its best, up to noise: what to go back to."""
        return max((self.still_good, *self.recovered))

    @property
    def noise_words(self) -> str:
        """How exact each value is, a clause; "" where that is unknown."""
        return f"Each value is {half_width(self.noise, share=self.share)} or less" if self.noise else ""

    @property
    def share(self) -> bool:
        """Whether the level is a share."""
        return CATALOGUE[self.metric].share

    @property
    def levels(self) -> str:
        """The best level, the lowest and the last, without a full stop: "Accuracy 78 → 21 → 64%"."""
        return f"{capital(self._named)} {self._levels}"

    @property
    def _levels(self) -> str:
        there = level_change(self.best, self.lowest, share=self.share)
        after = [self.risen] * self.fell_again + [self.last] * (self.lowest_step != self.last_step)
        return " → ".join([there, *(rounded_level(value, share=self.share) for value in after)]).replace("% →", " →")

    @property
    def regained(self) -> bool:
        """Whether it came back to the best level, up to noise."""
        return self.came_back and self.last >= self.best - float(_OF_DIFFERENCE) * self.noise


def fall_of(summary: StepSummary, limits: Limits) -> Fall | None:
    """The fall of evaluation accuracy that lasts; of the training reward, where accuracy has not fallen for any time.

    Beside an accuracy that holds, the reward has to have lost more (`Limits.reward_lost`): it moves with its prompts.
    """
    fall = _found(summary, limits)
    return None if fall is None or fall.came_back else fall


def setback_of(summary: StepSummary, limits: Limits) -> Fall | None:
    """The same of a fall that lasted for a time only, where there is none that lasts."""
    fall = _found(summary, limits)
    return fall if fall is not None and fall.came_back else None


def _found(summary: StepSummary, limits: Limits) -> Fall | None:
    share = limits.reward_fall
    for metric, series, window in levels_of(summary):
        noise = noise_of_mean(summary, metric, window)
        fall = find_fall(series, share, window, noise, metric) or find_setback(series, share, window, noise, metric)
        if fall is not None:
            return _quoted(summary, fall)
        share = limits.reward_lost
    return None


def _quoted(summary: StepSummary, fall: Fall) -> Fall:
    """With the noise that is quoted of two values: the wider of their intervals."""
    half = ((summary.high[fall.metric] - summary.low[fall.metric]) / 2).loc[[fall.best_step, fall.found]]
    return replace(fall, noise=float(half.max())) if fall.window == 1 and (half > 0).all() else fall


def levels_of(summary: StepSummary) -> list[tuple[str, "pd.Series[float]", int]]:
    """What the run is for, as far as there is enough of it: metric, values, and how many steps each is the mean of.

    Evaluation accuracy first: the training reward lags behind it by the age of the data.
    """
    found = []
    (accuracy, over), reward = evaluated(summary), finite_values(summary, "reward")
    if len(accuracy) >= _LEAST_EVALUATIONS:
        found.append(("eval_accuracy", accuracy, over))
    if len(reward) >= _LEAST_REWARDS:
        window = averaged_over("reward", len(reward))
        found.append(("reward", level_of(summary, "reward", window), window))
    return found


def evaluated(summary: StepSummary) -> "tuple[pd.Series[float], int]":
    """Evaluation accuracy as a level, and how many evaluations a value is the mean of.

    Where what is evaluated takes turns, one evaluation cannot be compared with the next: values are of whole periods.
    """
    turns = evaluation_turns(summary)
    window = turns.period if turns else 1
    return level_of(summary, "eval_accuracy", window), window


def averaged_over(metric: str, n: int) -> int:
    """Steps that a level of so many values is averaged over: a training reward moves with its prompts."""
    return max(5, n // 15) if metric == "reward" else 1


def level_of(summary: StepSummary, metric: str, window: int) -> "pd.Series[float]":
    """A metric as a level: its means over so many steps, without gaps."""
    values = finite_values(summary, metric)
    return values if window == 1 else values.rolling(window).mean().dropna()


def finite_values(summary: StepSummary, key: str) -> "pd.Series[float]":
    """The values that are numbers, by step."""
    values = summary.values[key]
    return values[np.isfinite(values)]


def noise_of_mean(summary: StepSummary, metric: str, window: int = 1) -> float:
    """Half width of the 95 % interval of a mean over so many steps.

    By the metric's own intervals (of evaluation accuracy: by the number of prompts) where it has any, else by how much
    successive values differ; 0 where neither is known.
    """
    half = float((summary.high[metric] - summary.low[metric]).quantile(_LARGE) / 2)
    if not half > 0:
        half = _HALF * own_noise(finite_values(summary, metric))
    return float(np.nan_to_num(half)) / np.sqrt(window)


def own_noise(values: "pd.Series[float]") -> float:
    """Standard deviation of one value about a smooth course, by successive differences; NaN for fewer than 6."""
    if len(values) < 6:
        return float("nan")
    steps = values.diff().dropna()
    return float(1.4826 * (steps - steps.median()).abs().median() / _OF_DIFFERENCE)


def _is_more_than_chance(level: "pd.Series[float]", low: slice, window: int, noise: float) -> bool:
    """Whether the mean of some values is lower than the best before it by more than noise makes of so many values.

    The best of n values of pure noise lies sqrt(2 ln n) standard deviations above their mean; so do the best three
    successive ones, in theirs.
    """
    if not noise:
        return True
    before, after = level.iloc[: low.start], level.iloc[low]
    three = min(3, len(before)) if window == 1 else 1
    best = float(before.rolling(three).mean().max())
    n_before, n_after = max(len(level) / window, 2), max(len(after) / window, 1)
    deviation = noise / _HALF * np.sqrt(1 / three + 1 / n_after)
    return best - float(after.mean()) > (np.sqrt(2 * np.log(n_before)) + _BEYOND) * deviation


def find_fall(
    level: "pd.Series[float]", share: float, window: int = 1, noise: float = 0.0, metric: str = "reward"
) -> Fall | None:
    """The first fall below the best level so far by `share` of it and beyond the noise, from which it did not recover.

    It did where a later value is above that best, beyond the noise.

    Args:
        level: by step, without gaps.
        window: how many steps a value is the mean of; so many values at least must follow the fall.
        noise: half width of the 95 % interval of one value; 0 where it is unknown.
    """
    best, allowed, limits = _limits(level, share, noise)
    for position in map(int, np.flatnonzero(level < limits)):
        after, top = level.iloc[position:], float(best.iloc[position])
        limit = float(limits.iloc[position])
        if (
            len(after) >= max(_LEAST_AFTERWARDS, window)
            and (after < limit).mean() >= _FALLEN_SHARE
            and after.iloc[-1] < top
            and after.max() <= top + allowed
            and _is_more_than_chance(level, slice(position, None), window, noise)
        ):
            fall = fall_at(level, position, limit, noise, metric, window)
            low, good = after[after < limit], after[after >= best.iloc[position:] - allowed]
            stretches = _stretches(after, limit)
            fall = replace(fall, low=low, after=float(after.median()), n_after=len(after))
            if window == 1:
                risen = [after.loc[end:start].max() for (_, end), (start, _) in pairwise(stretches)]
                often = len(stretches) <= _MOST_STRETCHES and min(risen, default=limit) > limit + noise
                fall = replace(fall, stretches=stretches, times=len(stretches) if often else 1)
            if len(good) and good.index[-1] < low.index[-1]:
                fall = replace(fall, recovered=tuple(map(int, good.index)))
            return fall
    return None


def find_setback(
    level: "pd.Series[float]", share: float, window: int = 1, noise: float = 0.0, metric: str = "reward"
) -> Fall | None:
    """The longest stretch of successive values as low as after a fall, where values above it follow.

    Args: as of `find_fall`.
    """
    _, _, limits = _limits(level, share, noise)
    stretches = [
        slice(start, end)
        for start, end in _low(level < limits)
        if end - start >= max(_LEAST_AFTERWARDS, window)
        and end < len(level)
        and _is_more_than_chance(level, slice(int(start), int(end)), window, noise)
    ]
    if not stretches:
        return None
    longest = max(stretches, key=lambda stretch: stretch.stop - stretch.start)
    low = level.iloc[longest]
    fall = fall_at(level, longest.start, float(limits.iloc[longest.start]), noise, metric, window)
    # Of all that is so low since the best level, not of the longest stretch alone.
    since, back = level.loc[fall.best_step :], level.index[level >= fall.limit][-1]
    good = since.index[since >= fall.best - float(_OF_DIFFERENCE) * noise]
    lowest, lowest_step = _lowest(since.loc[:back])
    return replace(
        fall, low=low, lowest=lowest, lowest_step=lowest_step, after=float(low.median()), n_after=len(low),
        came_back=True, risen=float(since.loc[lowest_step:].max()),
        recovered=tuple(int(step) for step in good if step > low.index[-1]),
        lows=since[since < fall.limit] if window == 1 else None,
        stretches=_stretches(since, fall.limit) if window == 1 else (),
    )  # fmt: skip


def _lowest(level: "pd.Series[float]") -> tuple[float, int]:
    """Its lowest value, and the step of it."""
    place = int(level.argmin())
    return float(level.iloc[place]), int(level.index[place])


def _stretches(level: "pd.Series[float]", limit: float) -> tuple[tuple[int, int], ...]:
    """First and last step of each stretch of values below the limit."""
    return tuple((int(level.index[start]), int(level.index[end - 1])) for start, end in _low(level < limit))


def _low(is_low: "pd.Series[bool]") -> list[tuple[int, int]]:
    """The positions where each stretch of low values begins and where it is over."""
    ends = np.flatnonzero(np.diff(is_low.to_numpy().astype(int), prepend=0, append=0))
    return [(int(start), int(end)) for start, end in ends.reshape(-1, 2)]


def _limits(
    level: "pd.Series[float]", share: float, noise: float
) -> "tuple[pd.Series[float], float, pd.Series[float]]":
    """The best so far, how much of a difference is noise, and what is fallen below."""
    best, allowed = level.cummax(), float(_OF_DIFFERENCE * noise)
    return best, allowed, best - np.maximum(share * best.abs(), allowed)


def fall_at(level: "pd.Series[float]", position: int, limit: float, noise: float, metric: str, window: int) -> Fall:
    """A fall that is there from a position on.

    Args: as of `find_fall`; `limit` is what the level is below there.
    """
    before = level.iloc[:position]
    good = int(np.flatnonzero(before >= before.max() - _OF_DIFFERENCE * noise)[-1])
    low = level.iloc[position:]
    lowest, lowest_step = _lowest(low)
    return Fall(
        best=float(before.max()),
        best_step=int(before.index[int(before.argmax())]),
        # A mean that is still good may hold the first of the steps that are not.
        still_good=int(level.index[max(good - window + 1, 0)]),
        found=int(level.index[position]),
        low=low,
        lowest=lowest,
        lowest_step=lowest_step,
        after=float(low.median()),
        n_after=len(low),
        last=float(level.iloc[-1]),
        last_step=int(level.index[-1]),
        limit=limit,
        noise=noise,
        metric=metric,
        window=window,
    )
