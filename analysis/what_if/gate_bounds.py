"""The bounds of a rule's gate: which tokens each of them stops, and whether together they hold all large ratios.

bounds_of(rule, rows, margin)     # of each parameter, the tokens that it stops
ends_above(rule)                  # the log-ratio from which on nothing is kept, by the sign of the advantage
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.what_if.rule import Rule
from ratioscope.rules.filters import Rows
from ratioscope.rules.gates import GATES
from ratioscope.rules.parameters import PARAMETERS, Judged
from ratioscope.rules.ratios import LEVELS, LogRatios

Bools = NDArray[np.bool_]

_LOOSE = 1e30
"""A bound without an upper end, when it is as wide as it can be."""
_FARTHEST = 60.0
"""Nats: a ratio that every bound stops, if it has one."""
_PROBES = 6001


class BoundOfGate(NamedTuple):
    """One parameter of a gate on one side of 1, for one sign of the advantage."""

    parameter: str
    value: float
    good: bool
    """Whether for positive advantages."""
    above: bool
    stops: Bools
    """The tokens that this parameter stops, (n_tokens,)."""


def bounds_of(rule: Rule, rows: Rows, margin: float) -> list[BoundOfGate]:
    """The bounds of a rule's gate: what a parameter stops is what is kept where it is as wide as it can be.

    Args:
        rows: NumPy arrays.
        margin: nats by which the tokens that are given are beyond the bounds, so that no rounding put them there.
    """
    row = GATES.get(rule.gate)
    if row is None or not row.stops:
        return []
    with np.errstate(all="ignore"):
        ratios = LEVELS[rule.gate_level].of(rows.ratios, rows.sequence)
        moved = [LogRatios(ratios.behavior + by, ratios.current) for by in (-margin, 0.0, margin)]
        sides = [np.asarray(row.function(each, rows.advantage, **rule.gate_parameters).side) for each in moved]
        stopped = np.logical_and.reduce([side != 0 for side in sides])
        found = []
        for name, value in rule.gate_parameters.items():
            if PARAMETERS[name].at_least:  # an outer margin lets tokens in
                continue
            widest = [PARAMETERS[name].low, min(PARAMETERS[name].high, _LOOSE)]
            loose = [
                np.asarray(row.function(ratios, rows.advantage, **{**rule.gate_parameters, name: each}).side) != 0
                for each in widest
            ]
            alone = stopped & ~min(loose, key=lambda each: int(each.sum()))
            for good in (True, False):
                for above in (True, False):
                    own = alone & ((rows.advantage > 0) == good) & ((sides[1] > 0) == above)
                    found.append(BoundOfGate(name, value, good, above, own))
    return found


def ends_above(rule: Rule) -> tuple[float, float] | None:
    """The log-ratios above which the gate keeps no token, (A > 0, A < 0); None where it has no such end for either."""
    row = GATES.get(rule.gate)
    if row is None or not row.stops or row.judged is not Judged.RATIO:
        return None
    ends = []
    probes = np.linspace(-_FARTHEST, _FARTHEST, 2 * _PROBES)
    for sign in (1.0, -1.0):

        def kept(at: Any, sign: float = sign) -> Bools:
            gate = row.function(LogRatios(at, at), np.full(len(at), sign), **rule.gate_parameters)
            return np.asarray(gate.side) == 0

        inside = np.flatnonzero(kept(probes))
        if not len(inside) or inside[-1] == len(probes) - 1:
            return None
        low, high = probes[inside[-1]], probes[inside[-1] + 1]
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if kept(np.array([middle]))[0] else (low, middle)
        ends.append(float(high))
    return ends[0], ends[1]
