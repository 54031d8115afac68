"""Is A better than B? Whether these runs differ, and apart from it whether other seeds would repeat it."""

from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any, Literal

import numpy as np

from ratioscope.analysis.compare.aggregates import FEWEST_RESAMPLED
from ratioscope.analysis.compare.alignment import End, common_end
from ratioscope.analysis.compare.contrast import MOST_SEEDS, Difference, end_difference
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.prompts import PromptDifference, pairs_by_seed, prompt_difference
from ratioscope.analysis.compare.run_noise import Noise, RunDifference, noise_of_runs, run_difference
from ratioscope.analysis.compare.verdicts.wording import MORE_SEEDS, by_how_much, capital, measured
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.numbers import bracketed
from ratioscope.analysis.summary.intervals import Interval
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import remark

Side = Literal["a", "b"]
# An interval over fewer prompts is not quoted beside that of hundreds of evaluations.
_FEWEST_PROMPTS = 20


@dataclass(frozen=True)
class ComparisonAnswer:
    """Whether setting A ends better than setting B, by one metric; what `ends_better` answers."""

    a: str
    """The setting's variant, with its schedule where the two differ in it."""
    b: str
    metric: str
    ends: tuple[float, float]
    """Of A and of B: the mean over the runs of each."""
    runs: RunDifference
    """A - B of these runs, with the noise of their prompts."""
    difference: Difference
    """A - B over seeds, in the metric's unit, whichever way is better."""
    better: Side | None
    """Which would be better with other seeds (higher, for a metric that has no better way): the 95 % t interval over
    seeds leaves out 0; None: the data cannot tell."""
    reason: str
    """Why they cannot, and what to do; empty when they can."""
    prompts: PromptDifference | None = None
    """Training reward of A minus B on the prompts that both saw at the end; None: not asked."""

    @property
    def better_here(self) -> Side | None:
        """Which of these runs is better, beyond the noise of their prompts; None: neither, or the noise is unknown."""
        return self._side(self.runs.value) if self.runs.differs else None

    @property
    def probability_of_improvement(self) -> float:
        """That a run of A ends better than a run of B; NaN with fewer than 4 seeds of either: two say nothing of it."""
        found = self.difference.probability
        return 1 - found if _direction(self.metric) == "lower" else found

    @property
    def sentence(self) -> str:
        """Both answers, for the page and the terminal."""
        return f"{self.here}. {capital(self.with_other_seeds)}" if isfinite(self.runs.value) else self.here

    @property
    def here(self) -> str:
        """Whether these runs differ."""
        return f"{self._by_prompts_noise}{self._on_common_prompts}"

    @property
    def _on_common_prompts(self) -> str:
        """What the training reward says, whose prompts both runs saw: their difficulty is no noise then."""
        found = self.prompts
        if found is None or not isfinite(found.interval.low) or found.prompts < _FEWEST_PROMPTS:
            return ""
        if not any((found.value, *found.interval)):  # the same responses: recorded ones, which both learn from
            return ""
        side: Side = "a" if found.value >= 0 else "b"
        value, interval = _seen_from(side, found.value, found.interval)
        size = f"{by_how_much(value, 'reward', interval)} more for {self._names(side)[0]}"
        return f"; training reward on {found.prompts:,} prompts that both saw {found.where}: {size}"

    @property
    def _basis(self) -> str:
        return f" (noise of {self.runs.basis})"

    @property
    def _by_prompts_noise(self) -> str:
        found, metric = self.runs, self.metric
        if not isfinite(found.value):
            return f"Cannot tell: {self.reason}"
        side = self.better_here or self._side(found.value)
        first, second = self._names(side)
        ends = [measured(end, metric, found.interval) for end in self.ends[:: 1 if side == "a" else -1]]
        if found.reason:
            unknown = "whether these runs differ by more than the noise of their prompts is unknown"
            return f"{first} ends with {ends[0]}, {second} with {ends[1]}; {unknown}: {found.reason}"
        value, interval = _seen_from(side, found.value, found.interval)
        way = "higher" if value >= 0 else "lower"
        told = f"{' against '.join(ends)}, {by_how_much(value, metric, interval)} {way}{self._basis}"
        if found.differs:
            return f"{first} ends {_how(metric) or way} than {second} in these runs: {told}"
        return f"{first} and {second} are not told apart in these runs: {told}"

    @property
    def with_other_seeds(self) -> str:
        """Whether other seeds would repeat it."""
        found, metric = self.difference, self.metric
        if min(found.seeds) < 2 or not isfinite(found.value):
            return f"whether other seeds would repeat it is unknown: {self.reason}"
        side = self.better or self._side(found.value)
        value, interval = _seen_from(side, found.value, found.interval)
        wins = found.wins[0 if found.value >= 0 else 1]
        pairs = "pairs of seeds" if found.paired else "pairs of runs, which share no seeds"
        told = f"{self._names(side)[0]} is ahead in {wins} of {found.wins[2]} {pairs}, by "
        told += by_how_much(value, metric, interval) + self._chance(side)
        return f"with other seeds: {told}" if self.better else f"with other seeds, unknown: {told}; {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """The part of `ratioscope compare --json` that this is; every estimate has value, interval and note."""
        found = self.difference
        low, high = found.probability_interval
        if _direction(self.metric) == "lower":
            low, high = 1 - high, 1 - low
        seeds = remark("bootstrap over seeds")
        label = f"{self.a} minus {self.b}"
        value = Number(label, found.value, *found.interval, remark("95% t interval over seeds"))
        chance = Number(f"probability that {self.a} ends better", self.probability_of_improvement, low, high, seeds)
        needed = found.seeds_needed
        return {
            "a": self.a,
            "b": self.b,
            "metric": self.metric,
            "sentence": self.sentence,
            "ends": list(self.ends),
            "better_here": self.better_here,
            "here": self.runs.to_json(label),
            "better": self.better,
            "reason": self.reason,
            "difference": value.to_json(),
            "bootstrap": Number(value.label, found.value, *found.bootstrap, seeds).to_json(),
            "probability_of_improvement": chance.to_json(),
            "seeds": list(found.seeds),
            "paired": found.paired,
            "pairs_of_seeds": dict(zip(("a_above", "b_above", "all"), found.wins, strict=True)),
            "seeds_needed": None if needed is None else needed._asdict(),
        }

    def _side(self, difference: float) -> Side:
        return "a" if (difference >= 0) != (_direction(self.metric) == "lower") else "b"

    def _names(self, side: Side) -> tuple[str, str]:
        """This side first."""
        return (self.a, self.b) if side == "a" else (self.b, self.a)

    def _chance(self, side: Side) -> str:
        """The probability that a run of this side ends better; nothing from too few seeds."""
        chance, interval = self.difference.probability, self.difference.probability_interval
        if isnan(chance):
            return ""
        if (side == "a") == (_direction(self.metric) == "lower"):
            chance, interval = 1 - chance, Interval(1 - interval.high, 1 - interval.low)
        return f"; probability of ending {_how(self.metric) or 'higher'} {bracketed(chance, *interval)}"


def _seen_from(side: Side, value: float, interval: Interval) -> tuple[float, Interval]:
    """A difference A - B as this side minus the other."""
    return (value, interval) if side == "a" else (-value, Interval(-interval.high, -interval.low))


def ends_better(a: Setting, b: Setting, metric: str = "eval_accuracy", end: End | None = None) -> ComparisonAnswer:
    """Whether A ends better than B: these runs, and with other seeds.

    Args:
        end: where the runs are compared; None: at the last step that every run of both settings reaches.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    end = end or common_end([a, b], metric)
    noise = noise_of_runs(a, metric, end), noise_of_runs(b, metric, end)
    return judge_difference(a, b, metric, end_difference(a, b, metric, end), run_difference(*noise), noise)


def on_common_prompts(a: Setting, b: Setting, end: End) -> PromptDifference:
    """Training reward of A minus B over the steps of the end; by tokens and time over all steps.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    steps = (int(end.places[0]), int(end.until)) if end.by == "step" and len(end.places) else (None, None)
    return prompt_difference(pairs_by_seed(a, b), *steps)


def judge_difference(
    a: Setting,
    b: Setting,
    metric: str,
    found: Difference,
    runs: RunDifference,
    noise: tuple[Noise, Noise],
    prompts: PromptDifference | None = None,
) -> ComparisonAnswer:
    """`ends_better` on differences of the ends that are known already."""
    name_a, name_b = setting_names(a, b)
    reason, ends = why_not(found, name_a, name_b, metric), (noise[0].value, noise[1].value)
    better: Side | None = None
    if not reason:
        better = "a" if (found.value > 0) != (_direction(metric) == "lower") else "b"
    return ComparisonAnswer(name_a, name_b, metric, ends, runs, found, better, reason, prompts)


def setting_names(a: Setting, b: Setting) -> tuple[str, str]:
    """What two settings are called beside each other."""
    return (a.variant, b.variant) if a.schedule == b.schedule else (a.label, b.label)


def why_not(found: Difference, a: str, b: str, metric: str) -> str:
    """Why the seeds cannot tell the settings A and B apart, and what to do; empty when they can."""
    for name, seeds in zip((a, b), found.seeds, strict=True):
        if seeds == 0:
            return f"{name} has no value of {metric}"
    if not np.isfinite(found.value):
        return f"{metric} is not finite at the end of a run"
    if min(found.seeds) < 2:
        return f"there is one seed of each; {MORE_SEEDS}" if max(found.seeds) < 2 else "one of them has a single seed"
    low, high = found.interval
    if not np.isfinite(low):
        return "every seed gives the same, so the spread is not known; run more seeds of each"
    if low > 0 or high < 0:
        return ""
    if min(found.seeds) < FEWEST_RESAMPLED:
        return f"{min(found.seeds)} seeds leave that interval; run more of each"
    if found.seeds_needed is None:
        return f"a difference as small as this needs more than {MOST_SEEDS:,} seeds of each"
    needed = found.seeds_needed
    most = f"more than {MOST_SEEDS:,}" if needed.high is None else f"{needed.high:,}"
    return (
        f"a difference of this size needs about {needed.about:,} seeds of each, {needed.low:,} to {most} as the spread "
        "is known (power 0.8)"
    )


def _how(metric: str) -> str:
    """ "better", with "(lower)" where that is not what one expects; empty for a metric of which neither is better."""
    return {"higher": "better", "lower": "better (lower)"}.get(_direction(metric), "")


def _direction(metric: str) -> str:
    """ "higher", "lower", or something else for a metric of which neither is better."""
    return CATALOGUE[metric].better
