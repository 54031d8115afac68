"""Whether a clip around 1 can be met: Observation 3.1 itself, exact columns, lower bounds, and what cannot be known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.drift.feasibility import EXACT, LOWER_BOUND, UNKNOWN, feasibility, recommendation
from ratioscope.analysis.runs.store import open_run
from ratioscope.errors import RatioscopeError
from tests.making.runs import Step, plain_step, write_run
from tests.making.samples import run_of


def found(folder: Path, step: Step, epsilon: float = 0.2) -> "pd.Series":
    return feasibility(open_run(write_run(folder, [step])), epsilon=epsilon).loc[step.number]


def mixed(**columns: object) -> Step:
    """Two prompts of two responses of two tokens each, by two versions."""
    version = np.repeat([3, 4, 3, 4], 2).astype(np.int32)
    return plain_step(
        *[np.full(8, -1.0)] * 2, number=5, sequence=np.repeat(range(4), 2), group=np.repeat([0, 1], 4),
        behavior_version=version, **columns,
    )  # fmt: skip


def test_the_observation_by_enumeration() -> None:
    """No policy of a fine grid is within epsilon / 2 of two versions exactly where these are over epsilon apart."""
    grid = np.array([(i, j, 40 - i - j) for i in range(41) for j in range(41 - i)]) / 40
    rng = np.random.default_rng(0)
    epsilon = 0.2
    for _ in range(300):
        one, two = grid[rng.integers(len(grid), size=2)]
        near = (np.abs(grid - one).sum(1) / 2 <= epsilon / 2 + 1e-12) & (
            np.abs(grid - two).sum(1) / 2 <= epsilon / 2 + 1e-12
        )
        if np.abs(one - two).sum() / 2 > epsilon + 1e-12:
            assert not near.any()
        elif np.abs(one - two).sum() / 2 <= epsilon - 0.05:  # a policy of the grid is near the middle
            assert near.any()


def test_the_exact_column_is_counted_as_it_is(tmp_path: Path) -> None:
    spread = np.array([0, 0.1, 0.3, 0.5, 0.2, 0.1, np.nan, 0.21], dtype=np.float32)
    row = found(tmp_path / "run", mixed(tv_version_spread=spread), 0.205)
    assert (row["kind"], row["n_states"], row["n_versions"]) == (LOWER_BOUND, 7, 2)
    assert "one of the oldest compares nothing" in row["note"]
    assert row["infeasible_share"] == pytest.approx(3 / 7)
    assert row["version_spread_max"] == pytest.approx(0.5)
    assert 0 <= row["infeasible_low"] < 3 / 7 < row["infeasible_high"] <= 1


def test_without_it_shared_states_give_a_lower_bound(tmp_path: Path) -> None:
    """Three policies of one state: the bound holds for any of them as the current one."""
    rng = np.random.default_rng(1)
    for trial in range(5):
        current, old, older = rng.dirichlet(np.ones(4), 3)
        to_old, to_older = (float(np.abs(current - version).sum() / 2) for version in (old, older))
        distance = np.array([to_old, 0.9, to_older, 0.0, to_old, 0.9, to_old, 0.9], dtype=np.float32)
        row = found(tmp_path / str(trial), mixed(tv_current_behavior=distance), epsilon=0.05)
        assert (row["kind"], row["n_states"]) == (LOWER_BOUND, 2)
        assert row["version_spread_max"] == pytest.approx(abs(to_old - to_older), abs=1e-6)
        assert row["version_spread_max"] <= np.abs(old - older).sum() / 2 + 1e-6
        assert row["infeasible_share"] == (abs(to_old - to_older) > 0.05) / 2
        assert "|TV(c, i) - TV(c, j)|" in row["note"]


def test_what_cannot_be_known_is_said(tmp_path: Path) -> None:
    row = found(tmp_path / "nothing", mixed())
    assert row["kind"] == UNKNOWN and np.isnan(row["infeasible_share"]) and np.isnan(row["version_spread_max"])
    assert row["note"].endswith("tv_version_spread is not logged, nor is tv_current_behavior")
    apart = mixed(tv_current_behavior=np.full(8, 0.1)).with_tokens(group_id=np.repeat(range(4), 2))
    apart.sequences["group_id"] = np.arange(4)
    row = found(tmp_path / "apart", apart)
    assert row["kind"] == UNKNOWN and row["note"].endswith("no prompt group was answered by several versions")


def test_a_single_version_is_always_feasible(tmp_path: Path) -> None:
    row = found(tmp_path / "run", plain_step([-1.0, -2.0], [-1.0, -1.0]))
    assert (row["kind"], row["infeasible_share"], row["n_versions"]) == (EXACT, 0, 1)
    assert "one behavior version" in row["note"] and np.isnan(row["infeasible_low"])


@pytest.mark.parametrize("epsilon", [0, 1, -0.1, float("nan")])
def test_an_impossible_width_is_refused(epsilon: float, tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match=r"between 0 and 1\.$"):
        found(tmp_path / "run", mixed(), epsilon)


def test_a_tenth_of_the_states_of_a_mixture_run_is_infeasible() -> None:
    run = run_of("sync_interval5_mixture4-adaptive_clip-seed0")
    frame = feasibility(run)
    warm = frame[frame["n_versions"] > 1]
    assert len(frame) == 150 and (warm["kind"] == LOWER_BOUND).all()
    assert 0.05 < warm["infeasible_share"].mean() < 0.15 and warm["version_spread_max"].max() > 0.5
    part, wider = (feasibility(run, 10, 20, epsilon=epsilon) for epsilon in (0.2, 0.4))
    pd.testing.assert_frame_equal(part, frame.loc[10:20])
    assert (wider["infeasible_share"] <= part["infeasible_share"]).all()


def test_a_run_with_one_version_a_step_is_feasible_without_any_exact_column() -> None:
    frame = feasibility(run_of("sync_interval20-grpo-seed0"), first=20, last=40)
    assert (frame["infeasible_share"] == 0).all() and (frame["n_versions"] == 1).all()


# infeasible share, staleness, large vocabulary: method, and what its reason says (S0's table, line by line).
TABLE = (
    (0.1, 0.3, False, "Method One", "Staleness is 0.3"),
    (0.1, 0.3, True, "Method One", "cannot be met in some states"),
    (0.0, 0.01, True, "Method One", "large vocabulary"),
    (0.0, 0.01, False, "Method Two", "can be met here"),
    (float("nan"), 0.01, False, "Method Two", "unknown"),
    (0.1, float("nan"), True, "Method One", "large vocabulary"),
)


@pytest.mark.parametrize(("share", "staleness", "large", "method", "words"), TABLE)
def test_the_method_is_that_of_the_table(share: float, staleness: float, large: bool, method: str, words: str) -> None:
    advice = recommendation(share, staleness, large)
    assert advice is not None and advice.method == method and words in advice.sentence
    assert advice.algorithm == {"Method One": "adaptive_clip", "Method Two": "incremental_clip"}[method]
    assert "S0" in advice.source


def test_without_staleness_nothing_is_recommended() -> None:
    assert recommendation(0.1, float("nan"), False) is None


def test_a_moved_limit_moves_the_recommendation() -> None:
    usual, loose = (recommendation(0.1, 0.3, False, **moved) for moved in ({}, {"epsilon_stale": 1.0}))
    assert usual is not None and usual.method == "Method One"
    assert loose is not None and loose.method == "Method Two" and "at most 0.5" in loose.sentence
