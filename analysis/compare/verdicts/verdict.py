"""Is A better than B? One sentence, with interval and probability of improvement."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ratioscope.analysis.compare.alignment import End, common_end
from ratioscope.analysis.compare.contrast import MOST_SEEDS, Difference, end_difference
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.verdicts.wording import quantity
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.numbers import bracketed
from ratioscope.catalogue import CATALOGUE
from ratioscope.notes import remark


@dataclass(frozen=True)
class Answer:
    """Whether setting A ends better than setting B, by one metric; what `verdict` answers."""

    a: str
    """The setting's variant, with its schedule where the two differ in it."""
    b: str
    metric: str
    difference: Difference
    """A - B in the metric's unit, whichever way is better."""
    better: Literal["a", "b"] | None
    """Which is better (higher, for a metric that has no better way); None: the data cannot tell."""
    reason: str
    """Why they cannot, and what to do; empty when they can."""

    @property
    def probability_of_improvement(self) -> float:
        """That a run of A ends better than a run of B; NaN with fewer than two seeds of either: one says nothing."""
        if min(self.difference.seeds) < 2:
            return float("nan")
        return 1 - self.difference.probability if _direction(self.metric) == "lower" else self.difference.probability

    @property
    def sentence(self) -> str:
        """One line for the page and the terminal."""
        value, (low, high) = self.difference.value, self.difference.interval
        chance = self.probability_of_improvement
        if self.better is None:
            # Without an interval nothing says how many digits of a small difference are noise.
            size = bracketed(value, low, high) if np.isfinite(low) else quantity(value, self.metric, digits=3)
            found = f"{self.a} minus {self.b} is {size} ({self._basis(chance)}); "
            return f"cannot tell: {found if np.isfinite(value) else ''}{self.reason}"
        winner, loser = (self.a, self.b) if self.better == "a" else (self.b, self.a)
        nearest, farthest = sorted((abs(low), abs(high)))
        how = {"higher": "better", "lower": "better (lower)"}.get(_direction(self.metric), "higher")
        basis = self._basis(chance if self.better == "a" else 1 - chance)
        return f"{winner} is {how} than {loser} by {bracketed(abs(value), nearest, farthest)} ({basis})"

    def to_json(self) -> dict[str, Any]:
        """The part of `ratioscope compare --json` that this is; every estimate has value, interval and note."""
        found = self.difference
        low, high = found.probability_interval
        if _direction(self.metric) == "lower":
            low, high = 1 - high, 1 - low
        seeds = remark("bootstrap over seeds")
        value = Number(f"{self.a} minus {self.b}", found.value, *found.interval, remark("95 % t interval over seeds"))
        chance = Number(f"probability that {self.a} ends better", self.probability_of_improvement, low, high, seeds)
        return {
            "a": self.a,
            "b": self.b,
            "metric": self.metric,
            "better": self.better,
            "sentence": self.sentence,
            "reason": self.reason,
            "difference": value.to_json(),
            "bootstrap": Number(value.label, found.value, *found.bootstrap, seeds).to_json(),
            "probability_of_improvement": chance.to_json(),
            "seeds": list(found.seeds),
            "paired": found.paired,
            "seeds_needed": found.seeds_needed,
        }

    def _basis(self, chance: float) -> str:
        of_a, of_b = self.difference.seeds
        number = f"{of_a}" if of_a == of_b else f"{of_a} and {of_b}"
        seeds = f"{'paired over' if self.difference.paired else 'unpaired,'} {number} seed{'s' * (of_a + of_b > 2)}"
        if np.isnan(chance):
            return seeds
        of_what = "improvement" if _direction(self.metric) in ("higher", "lower") else "being higher"
        return f"{seeds}; probability of {of_what} {chance:.2f}"


def verdict(a: Setting, b: Setting, metric: str = "eval_accuracy", end: End | None = None) -> Answer:
    """Whether A ends better than B: yes where the 95 % t interval of the difference leaves out 0.

    Args:
        end: where the runs are compared; None: at the last step that every run of both settings reaches.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    return judge(a, b, metric, end_difference(a, b, metric, end or common_end([a, b], metric)))


def judge(a: Setting, b: Setting, metric: str, found: Difference) -> Answer:
    """`verdict` on a difference of the ends that is known already."""
    name_a, name_b = (a.variant, b.variant) if a.schedule == b.schedule else (a.label, b.label)
    reason = _why_not(found, name_a, name_b, metric)
    if reason:
        return Answer(name_a, name_b, metric, found, None, reason)
    above = found.value > 0
    return Answer(name_a, name_b, metric, found, "a" if above != (_direction(metric) == "lower") else "b", "")


def _why_not(found: Difference, a: str, b: str, metric: str) -> str:
    for name, seeds in zip((a, b), found.seeds, strict=True):
        if seeds == 0:
            return f"{name} has no value of {metric}"
    if not np.isfinite(found.value):
        return f"{metric} is not finite at the end of a run"
    if min(found.seeds) < 2:
        return "one seed says nothing about the spread; run at least 3 seeds of each"
    low, high = found.interval
    if not np.isfinite(low):
        return "every seed gives the same, so the spread is not known; run more seeds of each"
    if low > 0 or high < 0:
        return ""
    if found.seeds_needed is None:
        return f"a difference as small as this needs more than {MOST_SEEDS:,} seeds of each"
    return f"needs about {found.seeds_needed} seeds of each (power 0.8 at the observed difference and spread)"


def _direction(metric: str) -> str:
    """ "higher", "lower", or something else for a metric of which neither is better."""
    return CATALOGUE[metric].better
