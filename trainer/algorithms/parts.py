"""The parts that algorithms are made of, by the names of their choices; an algorithm with some of them exchanged."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch

from ratioscope.errors import RatioscopeError
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.gates import GATES
from ratioscope.rules.parameters import Judged, RuleParameter, keywords_of
from ratioscope.rules.ratios import LEVELS, LogRatios
from ratioscope.rules.weights import WEIGHTS
from ratioscope.trainer.algorithms import own
from ratioscope.trainer.algorithms.advantages import GROUP_ADVANTAGES, TOKEN_ADVANTAGES
from ratioscope.trainer.algorithms.algorithm import Algorithm
from ratioscope.trainer.algorithms.losses import AGGREGATIONS, Size
from ratioscope.trainer.algorithms.parameters import ALGORITHM_PARAMETERS, FOR_ALL, taken_by
from ratioscope.trainer.algorithms.regularisers import REGULARISERS, Places
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.algorithms.selection import SAMPLE_WEIGHTS, SELECTIONS
from ratioscope.trainer.algorithms.trust_region import trust_region_step
from ratioscope.trainer.settings import elsewhere


def _nothing() -> None:
    """The usual: no filter; a step of AdamW, in `trainer.training.update`."""


CHOICES: dict[str, Mapping[str, Callable[..., Any]]] = {
    "advantage": GROUP_ADVANTAGES | TOKEN_ADVANTAGES,
    "selection": SELECTIONS,
    "sample_weight": SAMPLE_WEIGHTS,
    "level": {name: level.of for name, level in LEVELS.items()},
    "weight": {name: row.function for name, row in WEIGHTS.items()},
    "gate": {name: row.function for name, row in GATES.items()},
    # By age the schedule's window drops whole responses.
    "filter": {"none": _nothing} | {n: row.function for n, row in FILTERS.items() if row.judged is not Judged.AGE},
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


def takes(part: str, choice: str) -> list[str]:
    """The parameters of a part's choice."""
    return [*keywords_of(own.pick(part, choice, CHOICES[part])), *_BESIDE.get(choice, ())]


def takers(parameter: str) -> list[str]:
    """The choices that take a parameter, as they are set: gate=one_side."""
    return [
        f"{part}={choice}" for part, known in CHOICES.items() for choice in known if parameter in takes(part, choice)
    ]


@lru_cache(maxsize=512)
def algorithm_of_parts(name: str, parts: tuple[tuple[str, str], ...] = ()) -> Algorithm:
    """The algorithm of a name with some parts exchanged; parameters that a new part needs have its usual defaults.

    Raises:
        RatioscopeError: no such algorithm, or no such choice of a part.
    """
    row = replace(_row(name), **dict(parts))  # type: ignore[arg-type]
    for part, choice in row.parts().items():
        if choice not in CHOICES[part] and not own.is_own(choice):
            raise RatioscopeError(_unknown(part, choice, CHOICES[part]))
    needed = {key: (part, choice) for part, choice in row.parts().items() for key in takes(part, choice)}
    kept = {key: value for key, value in row.parameters.items() if key in needed or key in FOR_ALL}
    added = {key: _usual(key, *place, row) for key, place in needed.items() if key not in kept}
    if parts:
        row = replace(row, gradient=f"{row.gradient}, with {', '.join(f'{p}={own.short(c)}' for p, c in parts)}")
    return replace(row, parameters=MappingProxyType(kept | added))


def parts_table() -> str:
    """Every choice of every part, with its parameters and its sentence."""
    lines = []
    for part, choices in CHOICES.items():
        for choice, function in choices.items():
            setting = " ".join([f"{part}={choice}", *takes(part, choice)])
            lines.append(f"{setting:<52}  {(inspect.getdoc(function) or '').splitlines()[0]}")
    return "\n".join(lines)


def refresh() -> None:
    """Read users' files anew."""
    own.forget()
    algorithm_of_parts.cache_clear()


def _row(name: str) -> Algorithm:
    if not own.is_own(name):
        if name not in ALGORITHMS:
            raise RatioscopeError(elsewhere.algorithm(name) or _unknown("algorithm", name, ALGORITHMS))
        return ALGORITHMS[name]
    row, path = own.found(name), name.rpartition(":")[0]
    if not isinstance(row, Algorithm):
        what = "a function: give it as the part that it is, for example gate=" if callable(row) else "no Algorithm: "
        raise RatioscopeError(f"{own.short(name)} is {what}{own.short(name)}.")
    if row.name in ALGORITHMS or not row.name.isidentifier():
        raise RatioscopeError(f"{own.short(name)} needs a name of its own, one word; it is called {row.name!r}.")
    # A part that only the file has is meant to come from there.
    found = {p: f"{path}:{c}" for p, c in row.parts().items() if c not in CHOICES[p] and own.has(path, c)}
    return replace(row, **found)  # type: ignore[arg-type]


def try_out(part: str, choice: str, parameters: Mapping[str, float]) -> None:
    """Call a part from a file on a small batch, so that its mistakes show before a run begins.

    Raises:
        RatioscopeError: it fails, or returns something of another shape or not finite.
    """
    rng = torch.Generator().manual_seed(0)
    sequence, reward = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    advantage, steps = torch.tensor([1.0] * 3 + [-1.0] * 2 + [0.0] * 3), torch.randn(2, 8, generator=rng).double()
    examples = {
        "reward": reward, "kept": reward > -1, "generator": rng, "sequence": sequence, "coefficient": steps[0],
        "ratios": LogRatios(steps[0] / 4, steps[1] / 4), "size": Size(tokens=8, sequences=4, longest=5),
        "places": Places(sequence, sequence // 2, advantage, steps[0]),
        "advantage": torch.tensor([[0.5, -0.5], [0.0, 0.0]]) if part == "sample_weight" else advantage,
    }  # fmt: skip
    function = own.part(part, choice)
    function(*(examples[name] for name in own.ARGUMENTS[part]), **taken_by(function, parameters))


def _usual(parameter: str, part: str, choice: str, wanted: Algorithm) -> float:
    """Of the algorithms with this choice, that of the most similar one; where there is none, the typical value."""
    if own.is_own(choice):
        return own.defaults(part, choice)[parameter]
    with_it = [row for row in ALGORITHMS.values() if getattr(row, part) == choice and parameter in row.parameters]
    if with_it:
        nearest = max(with_it, key=lambda row: len(row.parts().items() & wanted.parts().items()))
        return nearest.parameters[parameter]
    known = ALGORITHM_PARAMETERS[parameter]
    assert isinstance(known, RuleParameter)  # what has no algorithm is one of the floor's
    return known.scale.typical


def _unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    return f"There is no {what} {name!r}{elsewhere.nearest(name, known)}; there are: {', '.join(known)}."
