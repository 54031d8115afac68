"""Places of an order that is not made whole are those of a sort, whatever the numbers."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.summary.order_statistics import LAST_BIN, bin_log_ratio
from ratioscope.analysis.summary.selection import Edges
from tests.making.loops import in_one_loop

pytest.importorskip("numba")

N = 20_000
EDGES = bin_log_ratio(np.arange(-LAST_BIN, LAST_BIN, dtype=float) + 0.5)
Draw = Callable[[np.random.Generator], NDArray[np.float64]]
NUMBERS: dict[str, Draw] = {
    "usual": lambda rng: 0.1 * rng.standard_normal(N),
    "all in one bin": lambda rng: 1e-6 * rng.standard_normal(N),
    "everywhere": lambda rng: rng.standard_normal(N) * 10.0 ** rng.integers(-20, 300, N),
    "edges and their neighbours": lambda rng: np.nextafter(
        rng.permutation(np.concatenate([EDGES, EDGES, EDGES])), rng.choice([-np.inf, 0.0, np.inf], 3 * len(EDGES))
    ),
    "exactly the edges": lambda rng: rng.choice(EDGES, N),
    "infinite, absent and signed zeros": lambda rng: rng.choice([-np.inf, np.inf, np.nan, -np.nan, 0.0, -0.0, 0.3], N),
    "nothing": lambda rng: np.full(10, np.nan),
    "none": lambda rng: np.zeros(0),
}


@in_one_loop("draw", NUMBERS)
def test_places_and_bins_are_those_of_a_sort(draw: Draw) -> None:
    rng = np.random.default_rng(3)
    numbers = draw(rng)
    ordered = np.sort(numbers)
    ordered = ordered[~np.isnan(ordered)]
    binned = Edges(EDGES).bins_of(numbers)
    expected = np.diff(np.searchsorted(ordered, EDGES), prepend=0, append=len(ordered))
    np.testing.assert_array_equal(binned.counts, expected)
    places = np.unique(rng.integers(0, len(ordered), 5 if len(ordered) else 0))
    found = binned.ascending(places)
    assert len(found) == len(ordered)
    np.testing.assert_array_equal(found[places], ordered[places])
