"""The numbers that algorithms take: what each means and which values are allowed."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import RatioscopeError


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
    "cap": Parameter("largest importance weight", low=1),
    "tau": Parameter("temperature, or strength of the pull", above=True),
    "tau_positive": Parameter("temperature of the soft gate where A > 0", above=True),
    "tau_negative": Parameter("temperature of the soft gate where A < 0", above=True),
    "baseline_shift": Parameter("how far the baseline is moved down", low=-math.inf),
    "gamma": Parameter("discount a token", high=1),
    "gae_lambda": Parameter("lambda of the generalised advantage estimate", high=1),
    "value_coefficient": Parameter("weight of the value loss"),
    "entropy_coefficient": Parameter("weight of the entropy bonus"),
    "kl_target": Parameter("KL(pi_k || pi_theta) that the penalty is steered to, in nats", above=True),
    "kl_start": Parameter("coefficient of the KL penalty in the first update", above=True),
    "max_kl": Parameter("bound on the mean KL(pi_k || pi_theta) of a step, in nats", above=True),
    "cg_steps": Parameter("conjugate gradient steps", low=1, whole=True),
    "damping": Parameter("added to the diagonal of the Fisher matrix"),
    "shrink": Parameter("factor from one trial of the line search to the next", above=True, high=0.99),
    "line_search_steps": Parameter("trials of the line search", low=1, whole=True),
    "overlong_fraction": Parameter("last part of the allowed length that is punished", above=True, high=1),
    "max_rounds": Parameter("times that a batch is sampled at most to fill it with mixed groups", low=1, whole=True),
}

# The outer margin of a ring lies outside of its band.
_ORDERED = (("epsilon_low", "outer_low"), ("epsilon_high", "outer_high"))


def taken_by(part: Callable[..., Any], parameters: Mapping[str, float]) -> dict[str, float]:
    """The parameters that a part declares: its keyword-only arguments."""
    return {name: parameters[name] for name in keywords_of(part)}


def keywords_of(part: Callable[..., Any]) -> list[str]:
    """Names of a part's keyword-only arguments."""
    arguments = inspect.signature(part).parameters.values()
    return [argument.name for argument in arguments if argument.kind is argument.KEYWORD_ONLY]


def check(algorithm: str, parameters: Mapping[str, float]) -> None:
    """Hold an algorithm's parameters, defaults filled in, against their ranges.

    Raises:
        RatioscopeError: a value outside of its range, or a ring inside out.
    """
    for name, value in parameters.items():
        if not PARAMETERS[name].allows(value):
            raise RatioscopeError(
                f"algorithm.parameters.{name}={value:g} does not fit {algorithm}: it must be {PARAMETERS[name].range} "
                f"({PARAMETERS[name].meaning})."
            )
    for inner, outer in _ORDERED:
        if outer in parameters and parameters[outer] < parameters[inner]:
            raise RatioscopeError(
                f"algorithm.parameters.{outer}={parameters[outer]:g} must not be less than "
                f"{inner}={parameters[inner]:g}: the ring's outer margin lies outside of its band (S3 B.3)."
            )
