"""The numbers that gates, filters and weights take: what each means and which values are allowed.

The trainer's algorithms and the what-if analysis hold theirs against the same ranges.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """Meaning and allowed range; `above` excludes `low` itself."""

    meaning: str
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    whole: bool = False

    def allows(self, value: float) -> bool:
        over = value > self.low if self.above else value >= self.low
        return over and value <= self.high and (not self.whole or value == int(value))

    @property
    def range(self) -> str:
        """The allowed values in words."""
        number = "a whole number " if self.whole else ""
        low = f"{number}{'above' if self.above else 'from'} {self.low:g}"
        return low if self.high == math.inf else f"{low} to {self.high:g}"


PARAMETERS: dict[str, Parameter] = {
    "epsilon_low": Parameter("lower clip bound: ratios below 1 - epsilon_low", high=1),
    "epsilon_high": Parameter("upper clip bound: ratios above 1 + epsilon_high"),
    "outer_low": Parameter("lower outer margin of the ring, at least epsilon_low", high=1),
    "outer_high": Parameter("upper outer margin of the ring, at least epsilon_high"),
    "epsilon": Parameter("half the width of a band centred at the current policy", above=True),
    "epsilon_log": Parameter("clip bound on the log-ratio, in nats", above=True),
    "epsilon_stale": Parameter("largest distance of rho_k from 1"),
    "cap": Parameter("largest importance weight", low=1),
    "tau_positive": Parameter("temperature of the soft gate where A > 0", above=True),
    "tau_negative": Parameter("temperature of the soft gate where A < 0", above=True),
    "delta": Parameter("largest mean divergence of a sequence with A < 0, in nats"),
    "difference_low": Parameter("how far a probability may fall", high=1),
    "difference_high": Parameter("how far a probability may rise", high=1),
    "threshold": Parameter("largest divergence that is kept, in nats"),
    "max_lag": Parameter("updates since the oldest token of a sequence was sampled, at most"),
}

# The outer margin of a ring lies outside of its band (S3 B.3): (inner, outer).
ORDERED = (("epsilon_low", "outer_low"), ("epsilon_high", "outer_high"))


def keywords_of(part: Callable[..., Any]) -> list[str]:
    """Names of a part's keyword-only arguments: the parameters that it takes."""
    arguments = inspect.signature(part).parameters.values()
    return [argument.name for argument in arguments if argument.kind is argument.KEYWORD_ONLY]
