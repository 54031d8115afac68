"""Which of several settings are told apart from which, all pairs judged together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite

from ratioscope.analysis.compare.run_noise import holm

Pair = tuple[int, int]
PValues = Callable[[int, int], float]
"""Of the difference of two settings, by their places among them."""


@dataclass(frozen=True)
class Separation:
    """Settings of one contest, and which pairs of them differ by more than chance."""

    order: tuple[int, ...]
    """Places of the settings, best first."""
    apart: frozenset[Pair]
    """Better and worse of each pair that differs by more than chance."""
    tested: int
    """Pairs of this contest that could be tested."""
    family: int
    """Pairs that were tested together, those of other contests included: Holm's correction is over them."""
    unknown: frozenset[Pair] = frozenset()
    """Pairs of which no test can be made."""

    @property
    def leaders(self) -> tuple[int, ...]:
        """The best, and those that are not told apart from it."""
        return tuple(place for place in self.order if (self.order[0], place) not in self.apart)

    @property
    def letters(self) -> Mapping[int, str]:
        """Settings that share a letter are not told apart (compact letter display, Piepho 2004)."""
        columns: list[set[int]] = [set(self.order)]
        for pair in sorted(self.apart):
            for column in [column for column in columns if column.issuperset(pair)]:
                columns.remove(column)
                columns += [column - {place} for place in pair]
            columns = [column for column in columns if not any(column < other for other in columns)]
            columns = [column for place, column in enumerate(columns) if column not in columns[:place]]
        columns.sort(key=lambda column: sorted(map(self.order.index, column)))
        named = [(chr(ord("a") + number % 26), column) for number, column in enumerate(columns)]
        return {place: "".join(letter for letter, column in named if place in column) for place in self.order}


def separations(orders: Sequence[Sequence[int]], p_values: PValues) -> list[Separation]:
    """Each contest's settings against each other; Holm's correction is over the pairs of all contests together.

    Args:
        orders: of each contest the places of its settings, best first.
    """
    pairs = [(number, pair) for number, order in enumerate(orders) for pair in combinations(order, 2)]
    tests = [p_values(*pair) for _, pair in pairs]
    rejected = holm(tests)
    family = sum(map(isfinite, tests))
    found = []
    for number, order in enumerate(orders):
        mine = [place for place, (contest, _) in enumerate(pairs) if contest == number]
        apart = frozenset(pairs[place][1] for place in mine if rejected[place])
        unknown = frozenset(pairs[place][1] for place in mine if not isfinite(tests[place]))
        found.append(Separation(tuple(order), apart, len(mine) - len(unknown), family, unknown))
    return found
