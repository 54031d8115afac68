"""Every pair at every level: identities between metrics, and agreement with the step summary."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.drift.pairs import PAIRS
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.notes import text_of
from tests.making.runs import random_step, write_run
from tests.oracles.pairs import VIEWS, by_step, each_pair, each_view

METRIC_OF_SUMMARY = {
    ("token", "current/behavior"): {
        "tv": "s_k", "tv_bounded": "s_k_bounded", "chi2": "chi2_token", "chi2_raw": "chi2_token_raw", "kl_k1": "kl_k1",
        "kl_k2": "kl_k2", "kl_k3": "kl_k3", "kl_reverse": "kl_reverse", "ratio_mean": "ratio_mean", "ess": "ess_token",
        "khat": "khat_token",
    },
    ("token", "new/behavior"): {
        "tv": "tv_new_behavior", "tv_bounded": "tv_new_behavior_bounded", "khat": "khat_token_new",
    },
    ("token", "new/current"): {"tv": "u_k", "tv_bounded": "u_k_bounded"},
    ("token", "current/behavior_train"): {"tv": "s_k_version", "tv_bounded": "s_k_version_bounded"},
    ("token", "behavior_train/behavior"): {"tv": "s_k_engine", "tv_bounded": "s_k_engine_bounded"},
    ("sequence", "current/behavior"): {
        "chi2": "chi2_seq", "log1p_chi2": "log1p_chi2_seq", "ess": "ess_seq", "khat": "khat_seq",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], pd.DataFrame]]:
    """Random steps from nearly on-policy to far off, some with impossible actions, and two of equal policies.

    The run, and every view of it, by step, as tables.
    """
    rng, steps = np.random.default_rng(11), []
    for number, spread in enumerate([1e-7, 1e-4, 0.01, 0.3, 2.0, 6.0] * 2):
        step = random_step(rng, number, groups=int(rng.integers(1, 9)), longest=12, spread=spread)
        if number >= 6:
            impossible = rng.random(len(step.tokens["seq_id"])) < 0.03
            for name in ("logp_current", "logp_new", "logp_behavior_train")[: number % 3 + 1]:
                step = step.with_tokens(**{name: np.where(impossible, np.float32(-np.inf), step.tokens[name])})
        steps.append(step)
    step = random_step(rng, groups=9, spread=2)
    behavior, current = step.tokens["logp_behavior"], step.tokens["logp_current"].copy()
    current[3] = -np.inf
    columns = [pair.numerator for pair in PAIRS.values()]
    for number, values in ((12, behavior), (13, current)):
        steps.append(replace(step, number=number).with_tokens(**dict.fromkeys(columns, values)))
    folder = write_run(tmp_path_factory.mktemp("swept") / "run", steps)
    return folder, {view: by_step(folder, view) for view in VIEWS}


def table(swept: tuple[Path, dict[tuple[str, str], pd.DataFrame]], view: tuple[str, str], what: str) -> pd.DataFrame:
    return swept[1][view][what].unstack("metric")


def assert_close(left: pd.Series, right: pd.Series, *others: pd.Series | float) -> None:
    """To 1e-9 relative to the largest term of the equation; where a term is infinite there is nothing to compare."""
    scale = np.max([np.abs(left), np.abs(right), *(np.broadcast_to(other, left.shape) for other in others)], axis=0)
    compared = np.isfinite(scale)
    assert compared.sum() > 10
    assert (np.abs(left - right)[compared] <= 1e-9 * scale[compared]).all()


def mean_weight(swept: tuple[Path, Any], view: tuple[str, str]) -> pd.Series:
    """The mean of q/b of each (step, pair): 1, or the mean ratio of q's own pair."""
    ratio = table(swept, view, "value")["ratio_mean"].unstack("pair")
    weight = pd.DataFrame(1.0, index=ratio.index, columns=ratio.columns)
    weight["new/current"] = ratio["current/behavior"]
    weight["current/behavior_train"] = ratio["behavior_train/behavior"]
    return weight.stack()


@each_view
def test_plain_and_bounded_total_variation_differ_by_half_the_residual(swept: Any, view: tuple[str, str]) -> None:
    value, weight = table(swept, view, "value"), mean_weight(swept, view)
    assert_close(value["tv"], value["tv_bounded"] + (value["ratio_mean"] - weight) / 2, value["ratio_mean"], weight)


@each_view
def test_effective_sample_size_is_the_self_normalised_chi_square(swept: Any, view: tuple[str, str]) -> None:
    value, weight, n = table(swept, view, "value"), mean_weight(swept, view), table(swept, view, "n")["ess"]
    square = (value["chi2_raw"] + 1) * weight / value["ratio_mean"] ** 2
    assert_close(1 / value["ess"], square)
    ess = value["ess"].dropna()
    assert len(ess) > 40 and (ess <= 1 + 1e-9).all()
    if view == ("token", "sequence"):  # n counts sequences, the weights are those of tokens
        return
    plain = [pair for pair in PAIRS if not PAIRS[pair].weighted]
    among = ess[ess.index.get_level_values("pair").isin(plain)]
    assert (among >= (1 - 1e-9) / n[among.index]).all()


@each_view
def test_total_variation_is_at_most_half_the_root_of_chi_square(swept: Any, view: tuple[str, str]) -> None:
    """Identity 4; under a weight, by Cauchy and Schwarz, with the mean weight."""
    value, weight = table(swept, view, "value"), mean_weight(swept, view)
    finite = np.isfinite(value["chi2"])
    bound = (value["chi2"] * weight)[finite]
    assert ((2 * value["tv"][finite]) ** 2 <= bound * (1 + 1e-9)).all()
    assert (np.isinf(value["chi2"]) == np.isinf(value["log1p_chi2"])).all()
    assert_close(value["log1p_chi2"], np.log1p(value["chi2"]))


@each_view
def test_divergences_are_never_negative_and_agree_up_to_the_residual(swept: Any, view: tuple[str, str]) -> None:
    value, weight = table(swept, view, "value"), mean_weight(swept, view)
    assert (value[["kl_k2", "kl_k3", "kl_reverse", "tv", "tv_bounded", "chi2", "log1p_chi2"]] >= 0).all(axis=None)
    assert_close(value["kl_k1"], value["kl_k3"] + weight - value["ratio_mean"], value["ratio_mean"], weight)
    assert (np.isinf(value["kl_k1"]) == np.isinf(value["kl_k3"])).all()


@each_view
def test_equal_policies_are_exactly_at_no_distance(swept: Any, view: tuple[str, str]) -> None:
    """Step 12: every policy is the behavior policy. Step 13: all others are one policy, far from it."""
    found = table(swept, view, "value")
    distances = ["tv", "tv_bounded", "chi2", "log1p_chi2", "kl_k1", "kl_k2", "kl_k3", "kl_reverse"]
    assert (found.loc[12, [*distances, "chi2_raw"]] == 0).all(axis=None)
    assert (found.loc[12, ["ratio_mean", "ess"]] == 1).all(axis=None)
    assert found.loc[12, "khat"].isna().all()
    equal = found.loc[[(13, "new/current"), (13, "current/behavior_train")]]
    assert (equal[distances] == 0).all(axis=None) and (equal["ess"] == 1).all()


@each_pair
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_pairs_agree_with_the_step_summary(swept: Any, level: str, pair: str) -> None:
    folder, frames = swept
    summary: StepSummary = summarise(open_run(folder))
    found = frames[level, "token"].xs(pair, level="pair")
    for metric, key in METRIC_OF_SUMMARY.get((level, pair), {}).items():
        ours = found.xs(metric, level="metric")
        # The summary leaves rows out whose logp_behavior_train is -inf; here they are ratios of 0.
        same = (summary.values.index < 6) | ("train" not in pair)
        scale = 1e-9 if metric == "chi2_raw" else 1e-13
        for step in summary.values.index[same]:
            theirs = [frame.loc[step, key] for frame in (summary.values, summary.low, summary.high)]
            compared = 3 if pair in ("current/behavior", "new/behavior") else 1  # others it judges by these two's tails
            if re.search(r"in \d+ of \d+ steps", text_of(summary.note(step, key))):
                compared = 1  # by what other steps show
            mine = ours.loc[step, ["value", "low", "high"]].tolist()[:compared]
            expected = pytest.approx(theirs[:compared], rel=1e-9, abs=scale, nan_ok=True)
            assert mine == expected, (step, metric)
