"""Which values of a parameter are worth looking at, and how a rule is changed part by part.

Ranges and scales are those of `ratioscope.rules.parameters`.
"""

import math
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from ratioscope.analysis.what_if.rule import STOPPING, Rule
from ratioscope.errors import RatioscopeError
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.parameters import PARAMETERS
from ratioscope.rules.weights import WEIGHTS

# Steps of a slider in each power of ten: fine where values are usual, few enough for the arrow keys.
_FINE, _COARSE = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9), (1, 2, 3, 5)
_USUAL = (0.05, 10)


def stops(parameter: str, *also: float) -> list[float]:
    """The positions of a parameter's slider, ascending; `also` holds values that must be among them."""
    allowed = PARAMETERS[parameter]
    scale = allowed.scale
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
    scale = PARAMETERS[parameter].scale
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
    values = {name: row.scale.typical for name, row in PARAMETERS.items()} | dict(known or {})
    values |= {**rule.weight_parameters, **rule.gate_parameters}
    for name, row in PARAMETERS.items():
        if row.at_least:
            values[name] = max(values[name], values[row.at_least])
    gate_parameters, weight_parameters = (
        {name: values[name] for name in part.parameters} for part in (STOPPING[gate], WEIGHTS[weight])
    )
    level = "token" if gate in FILTERS else gate_level or rule.gate_level
    of_weight = "token" if WEIGHTS[weight].sequences else weight_level or rule.weight_level
    return Rule(gate, gate_parameters, weight, weight_parameters, level, of_weight)
