"""The numbers that algorithms take: of gates and weights (`ratioscope.rules.parameters`) and of the other parts."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ratioscope.errors import RatioscopeError
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.gates import GATES
from ratioscope.rules.parameters import Parameter, inside_out, keywords_of
from ratioscope.rules.weights import WEIGHTS

_OF_PARTS = {
    name: row
    for part in (*GATES.values(), *FILTERS.values(), *WEIGHTS.values())
    for name, row in part.parameters.items()
}

ALGORITHM_PARAMETERS: dict[str, Parameter] = _OF_PARTS | {
    "tau": Parameter("temperature, or strength of the pull", above=True),
    "baseline_shift": Parameter("how far the baseline is moved down", low=-math.inf),
    "gamma": Parameter("discount per token", high=1),
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
    "covariance_pull": Parameter("strength of the pull on the tokens of high covariance"),
    "max_rounds": Parameter(
        "largest number of times that a batch is sampled to fill it with mixed groups", low=1, whole=True
    ),
}

# Terms of the reward and of the loss that every algorithm can have.
FOR_ALL = ("overlong_fraction", "entropy_coefficient")


def taken_by(part: Callable[..., Any], parameters: Mapping[str, float]) -> dict[str, float]:
    """The parameters that a part declares: its keyword-only arguments."""
    return {name: parameters[name] for name in keywords_of(part)}


def check(algorithm: str, parameters: Mapping[str, float]) -> None:
    """Hold an algorithm's parameters, defaults filled in, against their ranges.

    Raises:
        RatioscopeError: a value outside of its range, or a ring inside out.
    """
    for name, value in parameters.items():
        known = ALGORITHM_PARAMETERS.get(name)  # a user's own part may have any other
        if known and not known.allows(value):
            raise RatioscopeError(
                f"algorithm.parameters.{name}={value:g} does not fit {algorithm}: it must be {known.range} "
                f"({known.meaning})."
            )
    if crossed := inside_out(parameters):
        inner, outer = crossed
        raise RatioscopeError(
            f"algorithm.parameters.{outer}={parameters[outer]:g} must not be less than "
            f"{inner}={parameters[inner]:g}: the ring's outer margin lies outside of its band (S3 B.3)."
        )
