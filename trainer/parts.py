"""The parts that algorithms are made of, by the names of their choices; an algorithm with some of them exchanged."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from ratioscope.errors import RatioscopeError
from ratioscope.filters import FILTERS
from ratioscope.gates import GATES
from ratioscope.parameters import RuleParameter, keywords_of
from ratioscope.ratios import LEVELS
from ratioscope.trainer import elsewhere
from ratioscope.trainer.advantages import GROUP_ADVANTAGES, TOKEN_ADVANTAGES
from ratioscope.trainer.algorithm import Algorithm
from ratioscope.trainer.algorithms import ALGORITHMS
from ratioscope.trainer.losses import AGGREGATIONS
from ratioscope.trainer.parameters import PARAMETERS
from ratioscope.trainer.regularisers import REGULARISERS
from ratioscope.trainer.selection import SAMPLE_WEIGHTS, SELECTIONS
from ratioscope.trainer.trust_region import trust_region_step
from ratioscope.weights import WEIGHTS


def _nothing() -> None:
    """What needs no function: no filter, and the usual step, which is in `trainer.update`."""


CHOICES: dict[str, Mapping[str, Callable[..., Any]]] = {
    "advantage": GROUP_ADVANTAGES | TOKEN_ADVANTAGES,
    "selection": SELECTIONS,
    "sample_weight": SAMPLE_WEIGHTS,
    "level": {name: level.of for name, level in LEVELS.items()},
    "weight": {name: row.function for name, row in WEIGHTS.items()},
    "gate": {name: row.function for name, row in GATES.items()},
    "filter": {"none": _nothing} | {name: row.function for name, row in FILTERS.items()},
    "aggregation": AGGREGATIONS,
    "regulariser": REGULARISERS,
    "step": {"adamw": _nothing, "trust_region": trust_region_step},
}
"""The functions of every part's choices."""

# Parameters of terms that belong to a part and are not computed by its function.
_BESIDE = {
    "gae": ("value_coefficient",),
    "mixed_groups": ("max_rounds",),
    "adaptive_kl": ("kl_target", "kl_start"),
}
# Terms of the reward and of the loss that every algorithm can have.
FOR_ALL = ("overlong_fraction", "entropy_coefficient")


def takes(part: str, choice: str) -> list[str]:
    """The parameters of a part's choice."""
    return [*keywords_of(CHOICES[part][choice]), *_BESIDE.get(choice, ())]


def takers(parameter: str) -> list[str]:
    """The choices that take a parameter, as they are set: gate=one_side."""
    return [
        f"{part}={choice}" for part, known in CHOICES.items() for choice in known if parameter in takes(part, choice)
    ]


@lru_cache(maxsize=512)
def combined(name: str, parts: tuple[tuple[str, str], ...] = ()) -> Algorithm:
    """The algorithm of a name with some parts exchanged; parameters that a new part needs have its usual defaults.

    Raises:
        RatioscopeError: no such algorithm, or no such choice of a part.
    """
    if name not in ALGORITHMS:
        raise RatioscopeError(elsewhere.algorithm(name) or _unknown("algorithm", name, ALGORITHMS))
    row = replace(ALGORITHMS[name], **dict(parts))  # type: ignore[arg-type]
    for part, choice in row.parts().items():
        if choice not in CHOICES[part]:
            raise RatioscopeError(_unknown(part, choice, CHOICES[part]))
    needed = {key: (part, choice) for part, choice in row.parts().items() for key in takes(part, choice)}
    kept = {key: value for key, value in row.parameters.items() if key in needed or key in FOR_ALL}
    added = {key: _usual(key, *place, row) for key, place in needed.items() if key not in kept}
    return replace(row, parameters=MappingProxyType(kept | added))


def _usual(parameter: str, part: str, choice: str, wanted: Algorithm) -> float:
    """Of the algorithms with this choice, that of the most similar one; where there is none, the typical value."""
    with_it = [row for row in ALGORITHMS.values() if getattr(row, part) == choice and parameter in row.parameters]
    if with_it:
        nearest = max(with_it, key=lambda row: len(row.parts().items() & wanted.parts().items()))
        return nearest.parameters[parameter]
    known = PARAMETERS[parameter]
    assert isinstance(known, RuleParameter)  # what has no algorithm is one of the floor's
    return known.scale.typical


def _unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    return f"There is no {what} {name!r}{elsewhere.nearest(name, known)}; there are: {', '.join(known)}."
