"""What is printed after marking, on populations with known truth; the full table is that of `tests.oracles.trust`."""

import numpy as np
import pytest

from ratioscope.analysis.summary.metrics import step_table
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import Moment
from tests.oracles.populations import BENIGN, POPULATIONS, SIZES, samples, truth_of
from tests.oracles.trust import FIRST, ONE_SIDED, SECOND, Cell, Row, every, judged

STEPS = 60
# A share of so many samples is known to within three standard errors.
MARGIN = 3 * np.sqrt(0.08 * 0.92 / (STEPS * len(SIZES)))


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return list(every(STEPS, groups=(16,)))


def row(cells: list[Cell], keys: tuple[str, ...], population: str | None = None) -> Row:
    return Row(tuple(cell for cell in cells if cell.key in keys and population in (None, cell.population)))


@pytest.mark.parametrize("population", POPULATIONS)
def test_unmarked_intervals_cover(cells: list[Cell], population: str) -> None:
    for keys, least in ((FIRST, 0.92), (SECOND, 0.90)):
        found = row(cells, keys, population)
        if found.marked < 0.9:  # of what is nearly always marked, the rest is too little to be judged
            assert found.coverage(marked=False) >= least - MARGIN, keys


def test_marked_intervals_would_miss_at_least_three_times_as_often(cells: list[Cell]) -> None:
    found = row(cells, SECOND)
    assert 0.1 < found.marked < 0.6
    assert 1 - found.coverage(marked=True) >= 3 * (1 - found.coverage(marked=False))


def test_first_moments_are_never_marked_and_benign_populations_hardly_ever(cells: list[Cell]) -> None:
    assert all(CATALOGUE[key].moment is not Moment.SECOND for key in FIRST) and row(cells, FIRST).marked == 0
    for population in BENIGN:
        assert row(cells, (*FIRST, *SECOND, *ONE_SIDED), population).marked < 0.02


def test_bounds_hold_and_leave_the_other_end_open(cells: list[Cell]) -> None:
    for population in POPULATIONS:
        assert row(cells, ONE_SIDED, population).printed >= 0.95 - MARGIN
    table = step_table(samples("ordinary", "equal", 8, 2))
    assert np.isinf(table.high[["chi2_seq", "log1p_chi2_seq"]]).all(axis=None) and (table.low["ess_seq"] == 0).all()


def test_more_data_do_not_mean_more_marks_where_coverage_is_right() -> None:
    marked = [Row(tuple(c for c in judged("softmax", "Pareto", groups, STEPS) if c.key in SECOND)).marked
              for groups in (4, 16, 48)]  # fmt: skip
    assert marked[0] >= marked[1] >= marked[2] and marked[2] < 0.05


@pytest.mark.parametrize("name", ["benign, largest ratio 1.12", "ordinary", "softmax"])
def test_the_truth_is_what_all_samples_together_give(name: str) -> None:
    values, truth = step_table(samples(name, "equal", 16, 60)).values.mean(), truth_of(name)
    for key in (*FIRST, "chi2_token"):
        assert values[key] == pytest.approx(truth[key], rel=0.05), key
