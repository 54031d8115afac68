"""Which values of a parameter are worth looking at, and how a rule is changed part by part.

The allowed ranges are those of `ratioscope.parameters`; many of them have no upper end, a slider must.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ratioscope.analysis.what_if.rule import STOPPING, Rule
from ratioscope.errors import RatioscopeError
from ratioscope.gates import FILTERS
from ratioscope.parameters import ORDERED, PARAMETERS, keywords_of
from ratioscope.weights import WEIGHTS


@dataclass(frozen=True)
class Scale:
    """The values of a parameter that people choose from."""

    low: float
    high: float
    typical: float
    """Where a rule starts that has not had the parameter before."""
    logarithmic: bool = True


# Sequence rules have bounds of 1e-4.
SCALES: dict[str, Scale] = {
    "epsilon_low": Scale(1e-4, 1, 0.2),
    "epsilon_high": Scale(1e-4, 10, 0.2),
    "outer_low": Scale(1e-2, 1, 0.6),
    "outer_high": Scale(1e-2, 20, 2.0),
    "epsilon": Scale(1e-4, 10, 0.2),
    "epsilon_log": Scale(1e-4, 10, 0.4),
    "epsilon_stale": Scale(1e-4, 10, 0.4),
    "cap": Scale(1, 100, 2.0),
    "tau_positive": Scale(1e-2, 100, 1.0),
    "tau_negative": Scale(1e-2, 100, 1.05),
    "delta": Scale(1e-4, 10, 0.1),
    "difference_low": Scale(1e-4, 1, 0.2),
    "difference_high": Scale(1e-4, 1, 0.2),
    "threshold": Scale(1e-4, 10, 0.01),
    "max_lag": Scale(0, 64, 8, logarithmic=False),
}

# Steps of a slider in each power of ten: fine where values are usual, few enough for the arrow keys.
_FINE, _COARSE = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9), (1, 2, 3, 5)
_USUAL = (0.05, 10)


def stops(parameter: str, *also: float) -> list[float]:
    """The positions of a parameter's slider, ascending; `also` holds values that must be among them."""
    scale, allowed = SCALES[parameter], PARAMETERS[parameter]
    if not scale.logarithmic:
        values = {float(value) for value in np.arange(scale.low, scale.high + 1)}
    else:
        powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
        fine, coarse = ({round(step * 10.0**power, 12) for power in powers for step in s} for s in (_FINE, _COARSE))
        values = {value for value in fine if _USUAL[0] <= value <= _USUAL[1]} | coarse
        values = {value for value in values if scale.low <= value <= scale.high}
    if allowed.low == 0:
        values.add(0.0)
    return sorted(value for value in values | set(also) if allowed.allows(value))


def sweep_values(rule: Rule, parameter: str, n: int = 25) -> list[float]:
    """About n values over the whole scale of a rule's parameter, ascending, as far as the rule allows them.

    They do not depend on the value that it has: a sweep stays the same when its own parameter moves.

    Raises:
        RatioscopeError: the rule has no such parameter.
    """
    value_of(rule, parameter)  # or it has none
    scale = SCALES[parameter]
    if scale.logarithmic:
        spaced = np.geomspace(scale.low, scale.high, n)
    else:
        spaced = np.linspace(scale.low, scale.high, n).round()
    values = set()
    for value in {float(f"{value:.3g}") for value in spaced}:
        with suppress(RatioscopeError):  # a ring's inner margin beyond its outer one
            rule.with_parameter(parameter, value)
            values.add(value)
    return sorted(values)


def value_of(rule: Rule, parameter: str) -> float:
    """The value of a rule's parameter.

    Raises:
        RatioscopeError: the rule has no such parameter.
    """
    values = {**rule.weight_parameters, **rule.gate_parameters}
    if parameter not in values:
        raise RatioscopeError(f"{rule} has no parameter {parameter!r}.")
    return float(values[parameter])


def rebuilt(
    rule: Rule,
    *,
    gate: str | None = None,
    weight: str | None = None,
    gate_level: str | None = None,
    weight_level: str | None = None,
    known: Mapping[str, float] | None = None,
) -> Rule:
    """A rule with other parts; parameters that it has not had take their `known` value, or the usual one."""
    gate, weight = gate or rule.gate, weight or rule.weight
    values = {name: scale.typical for name, scale in SCALES.items()} | dict(known or {})
    values |= {**rule.weight_parameters, **rule.gate_parameters}
    for inner, outer in ORDERED:
        values[outer] = max(values[outer], values[inner])
    gate_parameters, weight_parameters = (
        {name: values[name] for name in keywords_of(part)} for part in (STOPPING[gate], WEIGHTS[weight])
    )
    level = "token" if gate in FILTERS else gate_level or rule.gate_level
    return Rule(gate, gate_parameters, weight, weight_parameters, level, weight_level or rule.weight_level)
