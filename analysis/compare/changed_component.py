"""In which component two settings differ: a part of the algorithm, a parameter, or another key of the configuration."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ratioscope.analysis.compare.configuration import ABSENT, BOUND_SIDE, UNSET, configuration_of
from ratioscope.analysis.compare.tasks import is_task_key
from ratioscope.run_format.manifest import Manifest

ComponentKind = Literal["part", "parameters", "setting"]

_PARTS, PARAMETERS = "algorithm.parts.", "algorithm.parameters."


class Component(NamedTuple):
    """What differs between two settings, in the direction of the change."""

    kind: ComponentKind
    names: tuple[str, ...]
    """Keys that change together, such as both sides of a bound; without the words that all of the kind begin with."""
    before: tuple[str, ...]
    """Of each name its value; `UNSET` where it is not set."""
    after: tuple[str, ...]

    @property
    def words(self) -> str:
        """The component, from what, to what; text as in the logs."""
        before, after = (_value(side) for side in (self.before, self.after))
        return f"{', '.join(self.names)}: {before} → {after}"


def configured_in(manifest: Manifest) -> dict[str, str]:
    """What was set, as text by key. A length makes no other algorithm, for runs are compared where all have been."""
    flat = configuration_of(manifest)
    return {key: str(value) for key, value in flat.items() if key not in ("updates", "algorithm.name")}


def changed_component(before: Mapping[str, str], after: Mapping[str, str]) -> Component | None:
    """The one component in which two settings (`configured_in`) differ; None where it is none or several.

    A change has one direction: from what does something to what does not, and from small numbers to large ones. The
    other way round it is none.
    """
    keys = differing_settings(before, after)
    parts = [key for key in keys if key.startswith(_PARTS)]
    parameters = [key for key in keys if key.startswith(PARAMETERS)]
    rest = [key for key in keys if key not in parts and key not in parameters]
    if any(key.startswith("schedule.") or is_task_key(key) for key in rest):
        return None
    if parts:
        # A parameter that only one side has comes and goes with the part.
        of_both = [key for key in parameters if key in before and key in after]
        known = all(any(key.startswith(_PARTS) for key in side) for side in (before, after))
        if not known or parts[1:] or of_both or rest:
            return None
        return _in_order("part", _PARTS, parts, before, after)
    if parameters:
        bounds = {BOUND_SIDE.sub("", key) for key in parameters}
        return None if rest or len(bounds) > 1 else _in_order("parameters", PARAMETERS, parameters, before, after)
    return _in_order("setting", "", rest, before, after) if len(rest) == 1 else None


def differing_settings(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """The keys in which two settings (`configured_in`) differ."""
    return [key for key in dict.fromkeys((*a, *b)) if _differs(key, a.get(key, UNSET), b.get(key, UNSET))]


def _differs(key: str, a: str, b: str) -> bool:
    """Whether two values differ. What one log does not state, because it is older, does not separate settings: that
    holds for parts that do nothing, and for all that is neither part nor parameter."""
    if UNSET in (a, b) and not key.startswith(PARAMETERS):
        return key.startswith(_PARTS) and not {a, b} <= ABSENT
    return a != b


def _in_order(
    kind: ComponentKind, prefix: str, keys: Sequence[str], before: Mapping[str, str], after: Mapping[str, str]
) -> Component | None:
    """The component of these keys, unless the change goes the other way."""
    sides = [tuple(side.get(key, UNSET) for key in keys) for side in (before, after)]
    if _rank(sides[0], kind) >= _rank(sides[1], kind):
        return None
    return Component(kind, tuple(key.removeprefix(prefix) for key in keys), *sides)


def _rank(values: tuple[str, ...], kind: ComponentKind) -> tuple[bool, tuple[float, ...], tuple[str, ...]]:
    """Which side comes first: parts that do nothing last; numbers by size, other text by letters."""
    numbers = tuple(map(number_in, values))
    return kind == "part" and values[0] in ABSENT, () if None in numbers else numbers, values  # type: ignore[return-value]


def number_in(text: str) -> float | None:
    """A configured value as a number; None where it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _value(values: tuple[str, ...]) -> str:
    return values[0] if len(values) == 1 else f"({', '.join(values)})"
