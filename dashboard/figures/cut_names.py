"""Names that are too long for a plot, cut so that each stays different from the others."""

import re
from collections import Counter
from collections.abc import Sequence

LONGEST_NAME = 44
"""Signs of a name beside a plot."""
_PARTS = re.compile(r", | \(|\)")


def _cut(name: str, longest: int) -> str:
    """A name that leaves room for the plot; what tells it from others is mostly at its end."""
    return name if len(name) <= longest else f"{name[: longest // 2 - 1]}…{name[-longest // 2 :]}"


def cut_apart(names: Sequence[str], longest: int) -> list[str]:
    """Names that leave room for the plot, each different from the others.

    They are cut where they are like another one, or in the middle, where more of them stay different; those that would
    still be the same keep the parts in which they differ.
    """
    known = list(dict.fromkeys(names))
    around = {name: name if len(name) <= longest else _around(name, _shared(name, known), longest) for name in known}
    middle = {name: _cut(name, longest) for name in known}
    cut = max(around, middle, key=lambda each: len({*each.values()}))
    taken = Counter(cut.values())
    for name in [name for name in known if taken[cut[name]] > 1]:
        told = _telling(name, known)
        tries = (_cut(told, longest), *(f"{_cut(told, longest - 6)} ({number})" for number in range(2, len(known) + 2)))
        cut[name] = next(text for text in tries if text not in taken)
        taken[cut[name]] += 1
    return [cut[name] for name in names]


def _telling(name: str, names: Sequence[str]) -> str:
    """A name without what all names that begin with the same word have."""
    parts = {other: _PARTS.split(other) for other in names}
    alike = [own for own in parts.values() if own[0] == parts[name][0]]
    first, *rest = (part for part in parts[name] if part)
    return f"{first} ({', '.join(part for part in rest if not all(part in own for own in alike))})"


def _shared(name: str, names: Sequence[str]) -> int:
    """How many signs at its start the name has in common with the one that is most like it."""
    others = ([one == another for one, another in zip(name, other, strict=False)] for other in names if other != name)
    return max(([*same, False].index(False) for same in others), default=0)


def _around(name: str, place: int, longest: int) -> str:
    """A name with what follows this place."""
    if place < longest - 8:
        return f"{name[: longest - 1]}…"
    start = longest // 3
    first = min(place - 2, len(name) - (longest - start - 1))
    rest = name[first : first + longest - start - 1]
    return f"{name[:start]}…{rest if first + len(rest) >= len(name) else f'{rest[:-1]}…'}"
