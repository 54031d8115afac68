"""Pairs of bad logs: extreme ratios, what is not logged or cannot be used, and intervals that are withheld."""

import warnings
from math import log, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.drift.pairs import COLUMNS, METRICS, PAIRS, measure_pairs
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.errors import RatioscopeError
from ratioscope.metric import Moment
from ratioscope.notes import Kind
from tests.making.runs import plain_step, random_step, write_run
from tests.oracles.pairs import each_view


def one_line(frame: pd.DataFrame, pair: str, metric: str) -> pd.Series:
    return frame[(frame["pair"] == pair) & (frame["metric"] == metric)].iloc[0]


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_thousand_nats_stay_in_log_space(tmp_path: Path, level: str) -> None:
    """Ten tokens of ±100 nats make a sequence, or one token has ±1,000; the other seven are on-policy."""
    tokens = 10 if level == "sequence" else 1
    far, near = np.full(tokens, -1000.0 / tokens), np.full(7, -1.0)
    sequence = [0] * tokens + list(range(1, 8))
    high, low = np.concatenate([np.zeros(tokens), near]), np.concatenate([far, near])
    steps = [
        plain_step(behavior, current, behavior, number=number, sequence=sequence)
        for number, (behavior, current) in enumerate([(low, high), (high, low)])
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = measure_pairs(open_run(write_run(tmp_path / "run", steps)), level=level, by_step=True)  # type: ignore[arg-type]
    lines = frame.set_index(["step", "pair", "metric"])
    of, update = lines.loc[(0, "current/behavior")], lines.loc[(0, "new/current")]
    assert of.loc["log1p_chi2", "value"] == pytest.approx(2000 - log(8), rel=1e-12)
    assert of.loc["ess", "value"] == pytest.approx(1 / 8)
    assert of.loc["kl_k1", "value"] == -125 and of.loc["kl_k2", "value"] == 62500
    for metric in ("tv", "chi2", "chi2_raw", "kl_k3", "kl_reverse", "ratio_mean"):
        assert of.loc[metric, "value"] == np.inf and of.loc[metric, "note_kind"] == Kind.INFINITE
        assert np.isnan(of.loc[metric, "low"])
    assert update.loc["tv", "value"] == update.loc["kl_k1", "value"] == np.inf
    assert update.loc["log1p_chi2", "value"] == pytest.approx(1000 - log(8), rel=1e-12)

    of, update = lines.loc[(1, "current/behavior")], lines.loc[(1, "new/current")]
    assert of.loc["tv", "value"] == of.loc["tv_bounded", "value"] / 2 == 1 / 16
    assert of.loc["chi2", "value"] == of.loc["kl_reverse", "value"] == 1 / 8
    assert of.loc["kl_k1", "value"] == 125 and of.loc["kl_k3", "value"] == (1000 - 1) / 8
    assert of.loc["ess", "value"] == pytest.approx(7 / 8)
    assert update.loc["chi2", "value"] == np.inf and update.loc["chi2", "note_kind"] == Kind.INFINITE
    assert update.loc["log1p_chi2", "value"] == pytest.approx(1000 - log(8), rel=1e-12)
    assert update.loc["kl_k1", "value"] == 0  # e^-1000 times 1,000


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Nothing but the required columns."""
    return open_run(write_run(tmp_path_factory.mktemp("imported") / "run", [plain_step([-1, -2], [-1.1, -1.9])]))


@each_view
def test_a_pair_that_is_not_logged_says_so_and_so_does_a_description(imported: Run, view: Any) -> None:
    frame = measure_pairs(imported, level=view[0], aggregation=view[1])
    assert tuple(frame.columns) == COLUMNS and len(frame) == len(PAIRS) * len(METRICS)
    for pair, column in (
        ("new/behavior", "logp_new"), ("new/current", "logp_new"),
        ("current/behavior_train", "logp_behavior_train"), ("behavior_train/behavior", "logp_behavior_train"),
    ):  # fmt: skip
        lines = frame[frame["pair"] == pair]
        assert lines[["value", "low", "high"]].isna().all(axis=None)
        assert set(lines["note"]) == {f"{column} is not logged"}
        assert set(lines["n"]) == {0} and set(lines["n_undefined"]) == {2}
    logged = frame[frame["pair"] == "current/behavior"]
    assert set(logged["n"]) == {2}
    describes = view in (("token", "sequence"), ("geometric", "token"))
    assert all(("a description" in note) == describes for note in logged["note"])


def test_steps_without_the_new_policy_count_as_undefined(tmp_path: Path) -> None:
    steps = [plain_step([-1, -2], [-1.1, -1.9], [-1, -2]), plain_step([-1] * 3, [-1.1] * 3, number=1)]
    frame = measure_pairs(open_run(write_run(tmp_path / "run", steps, flush_seconds=0)))
    line = one_line(frame, "new/behavior", "tv")
    assert (line["value"], line["n"], line["n_undefined"], line["n_groups"]) == (0, 2, 3, 2)


def test_an_unusable_token_leaves_its_sequence_undefined(tmp_path: Path) -> None:
    step = plain_step([-1] * 4, [-1, nan, -1.1, -1.2], sequence=[0, 0, 1, 1])
    run = open_run(write_run(tmp_path / "run", [step]))
    token, sequence = (
        one_line(measure_pairs(run, level=level), "current/behavior", "ratio_mean") for level in ("token", "sequence")
    )
    assert (token["n"], token["n_undefined"], token["n_groups"]) == (3, 1, 2)
    assert (sequence["n"], sequence["n_undefined"], sequence["n_groups"]) == (1, 1, 1)
    assert sequence["value"] == pytest.approx(np.exp(-0.3), rel=1e-6)
    spoilt = step.with_tokens(logp_current=np.full(4, nan, np.float32))
    nothing = measure_pairs(open_run(write_run(tmp_path / "spoilt", [spoilt])), level="sequence")
    line = one_line(nothing, "current/behavior", "tv")
    assert np.isnan(line["value"]) and line["note"] == "no token or response is usable"


def test_one_group_has_no_interval(tmp_path: Path) -> None:
    step = plain_step([-1, -2, -1], [-1.1, -1.9, -1.3], group=[4, 4, 4])
    frame = measure_pairs(open_run(write_run(tmp_path / "run", [step])))
    lines = frame[(frame["pair"] == "current/behavior") & (frame["metric"] != "khat")]
    assert lines["value"].notna().all() and lines[["low", "high"]].isna().all(axis=None)
    assert set(lines["note"]) == {"no interval: one prompt group"}


def test_an_empty_range_is_nothing_and_not_an_error(imported: Run) -> None:
    frame = measure_pairs(imported, 5, 9)
    assert tuple(frame.columns) == COLUMNS and len(frame) == len(PAIRS) * len(METRICS)
    assert frame["value"].isna().all() and set(frame["note"]) == {"no token in this range of steps"}
    assert set(frame["n"]) == {0}
    assert measure_pairs(imported, 5, 9, by_step=True).empty


def test_a_range_pools_its_steps(tmp_path: Path) -> None:
    steps = [random_step(np.random.default_rng(number), number) for number in range(4)]
    run = open_run(write_run(tmp_path / "run", steps))
    each = measure_pairs(run, by_step=True)
    pooled, pair = measure_pairs(run, 1, 2), "new/current"
    parts = [one_line(each[each["step"] == step], pair, "chi2") for step in (1, 2)]
    line = one_line(pooled, pair, "chi2")
    assert line["n"] == sum(part["n"] for part in parts) and line["n_groups"] == sum(part["n_groups"] for part in parts)
    assert line["value"] == pytest.approx(sum(part["n"] * part["value"] for part in parts) / line["n"], rel=1e-12)


def test_a_second_moment_that_rests_on_the_largest_ratio_has_only_one_end(tmp_path: Path) -> None:
    """Weights with a Pareto tail of index .5 have a mean and no variance: first moments keep their intervals."""
    rng = np.random.default_rng(4)
    behavior = -np.full(4000, 40.0)
    step = plain_step(behavior, behavior + 0.5 * rng.exponential(size=4000), behavior, group=np.arange(4000) // 10)
    frame = measure_pairs(open_run(write_run(tmp_path / "run", [step])))
    lines = frame[frame["pair"] == "current/behavior"].set_index("metric")
    for metric, moment in METRICS.items():
        second = moment is Moment.SECOND
        assert (lines["note_kind"][metric] == Kind.UNRELIABLE) == second
        if metric != "khat":
            assert np.isinf(lines["high"][metric]) == (second and metric != "ess") and np.isfinite(lines["low"][metric])
    assert lines["low"]["ess"] == 0 < lines["high"]["ess"] < 1


@pytest.mark.parametrize(
    ("level", "aggregation"), [("sequence", "sequence"), ("geometric", "sequence"), ("word", "token")]
)
def test_what_has_no_meaning_is_refused(imported: Run, level: Any, aggregation: Any) -> None:
    with pytest.raises(RatioscopeError, match="is not a level/aggregation of pairs"):
        measure_pairs(imported, level=level, aggregation=aggregation)
