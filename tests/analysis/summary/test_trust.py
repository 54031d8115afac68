"""What is printed after marking, on populations with known truth; the full table is that of `tests.oracles.trust`."""

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.summary.metrics import step_table
from ratioscope.analysis.summary.over_run import FEWEST_STEPS, UNEQUAL_STEPS, judge_over_run
from ratioscope.metric import MOST_SPREAD
from tests.making.samples import summary_of
from tests.oracles.populations import BENIGN, POPULATIONS, SIZES, samples, truth_of
from tests.oracles.resampled import coverage
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


@pytest.mark.parametrize(("keys", "least", "most"), [(FIRST, 0.1, 0.2), (SECOND, 0.4, 0.6)])
def test_marked_intervals_would_miss_at_least_three_times_as_often(
    cells: list[Cell], keys: tuple[str, ...], least: float, most: float
) -> None:
    found = row(cells, keys)
    assert least < found.marked < most
    assert 1 - found.coverage(marked=True) >= 3 * (1 - found.coverage(marked=False))


def test_staleness_is_never_marked_and_benign_populations_hardly_ever(cells: list[Cell]) -> None:
    assert row(cells, ("s_k", "s_k_bounded", "ratio_mean")).marked == 0
    for population in BENIGN:
        assert row(cells, (*FIRST, *SECOND, *ONE_SIDED), population).marked < 0.02


@pytest.mark.parametrize("population", ["softmax, top-p .95", "unequal groups"])
def test_kl_is_marked_in_every_step_of_a_run_whose_groups_show_in_some_that_it_would_miss(
    cells: list[Cell], population: str
) -> None:
    kl = row(cells, ("kl_k1", "kl_k2", "kl_k3"), population)
    assert kl.marked == 1 and kl.coverage(marked=True) < 0.88 and kl.printed > 0.95 - MARGIN


@pytest.mark.parametrize("groups", [4, 8])
def test_few_benign_groups_of_unequal_sizes_are_not_taken_for_unequal_ones(groups: int) -> None:
    for population in BENIGN:
        assert Row(tuple(judged(population, "Pareto", groups, STEPS, seed=1))).marked < 0.02


def test_steps_judge_each_other_only_where_there_are_enough_of_them() -> None:
    table = step_table(samples("unequal groups", "equal", 16, 40))
    for steps, judge in ((2, False), (40, True)):
        values, low, high = (frame.iloc[:steps].copy() for frame in (table.values, table.low, table.high))
        shown = int((values["group_spread_kl"] > MOST_SPREAD).sum())
        assert shown > UNEQUAL_STEPS * steps and (shown >= FEWEST_STEPS) is judge
        notes = pd.concat([pd.DataFrame({"key": []}), *judge_over_run(values, low, high)])
        assert (notes["key"] == "kl_k3").sum() == steps * judge
        assert np.isinf(high["kl_k3"]).all() == judge and np.isfinite(low["kl_k3"]).all()
        assert np.isfinite(high["s_k_bounded"]).all()


def test_runs_are_marked_whose_intervals_would_miss_if_their_groups_were_drawn_again() -> None:
    for name, marked in (("offline-grpo-seed0", False), ("sync_interval20-grpo-seed0", True)):
        unreliable = summary_of(name).unreliable("kl_k3")
        assert unreliable.all() == unreliable.any() == marked == (coverage(name, "kl_k3") < 0.9)


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
    for key in (*FIRST, *SECOND):
        # k1 has the noise of the mean ratio, which near on-policy is far larger than KL.
        assert values[key] == pytest.approx(truth[key], rel=0.05, abs=3e-4 if key == "kl_k1" else 0), key
