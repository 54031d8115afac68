"""A rule over the ratio, where the ratios are, who loses gradient, and whether a replay fits the log."""

from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.clipping.quadrants import by_quadrant, quadrant_sentence
from ratioscope.analysis.clipping.rule_shape import (
    Density,
    at_the_start,
    before_the_gate,
    density,
    profile,
    replay_sentence,
)
from ratioscope.analysis.ratios.distributions import quadrants
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.what_if import Rule, apply, load_tokens, own_rule, tokens_of
from tests.making.runs import plain_step, write_run
from tests.making.samples import run_of
from tests.oracles.what_if import columns, random_columns, random_tokens, rule_of, rules

SEEN = Density(np.geomspace(0.25, 4, 9), np.ones(9), np.ones(9), -1.0)


def test_the_profile_of_ppos_clip_is_the_ratio_up_to_its_bounds() -> None:
    shape = profile(rule_of("one_side", epsilon_high=0.5), SEEN)
    assert shape.positive == pytest.approx(np.where(shape.ratio <= 1.5, shape.ratio, 0))
    assert shape.negative == pytest.approx(np.where(shape.ratio >= 0.8, shape.ratio, 0))
    assert (shape.about, shape.reason) == ("", "")
    assert shape.ratio[[0, -1]] == pytest.approx([0.25, 4])


def test_profiles_of_a_truncated_weight_a_centred_clip_and_a_filter() -> None:
    assert profile(rule_of("none", "truncated", cap=2), SEEN).positive.max() == pytest.approx(2)
    centred = profile(rule_of("adaptive", "none", epsilon=0.3), SEEN)
    assert centred.about == "for fresh tokens: ρ_k = 1"
    assert centred.positive == pytest.approx((centred.ratio <= 1.3).astype(float))
    stale = profile(rule_of("stale", "none", epsilon_stale=0.5), SEEN)
    assert stale.negative == pytest.approx((np.abs(stale.ratio - 1) <= 0.5).astype(float))
    assert "age of a response" in profile(rule_of("window"), SEEN).reason


@rules
def test_every_rule_has_a_profile_or_says_why_not(rule: Rule) -> None:
    shape = profile(rule, density(random_tokens()))
    assert shape.reason or (np.isfinite(shape.positive).all() and np.isfinite(shape.negative).all())
    assert ("response" in shape.about + shape.reason) >= (rule.weight_level == "sequence")


def test_the_density_counts_tokens_by_sign_and_ratio() -> None:
    tokens = tokens_of(columns([0.5, 1.0, 2.0, 2.0, 9.0], [1.0, 1.0, -1.0, -1.0, 0.0]))
    seen = density(tokens)
    assert (seen.positive.sum(), seen.negative.sum()) == (2, 2)
    assert seen.ratio[np.argmax(seen.negative)] == pytest.approx(2, rel=0.1)
    silent = density(tokens_of(columns([0.5], [0.0])))
    assert not len(silent.ratio) and isnan(silent.logp_behavior)
    assert len(profile(rule_of("one_side"), silent).ratio)


def test_shares_of_the_gradient_before_the_gate_by_hand() -> None:
    """Σ|ratio A| is 2 + 3 + 1 = 6; of A > 0 and ratio > 1 the gate takes the token at 2."""
    tokens = tokens_of(columns([2.0, 1.5, 0.5], [1.0, -2.0, 2.0]))
    frame = before_the_gate(apply(rule_of("one_side"), tokens)).set_index(["advantage", "ratio"])
    assert frame["before"].to_dict() == pytest.approx(
        {("A > 0", "ρ > 1"): 2 / 6, ("A > 0", "ρ ≤ 1"): 1 / 6, ("A < 0", "ρ > 1"): 3 / 6, ("A < 0", "ρ ≤ 1"): 0}
    )
    assert frame["taken"]["A > 0", "ρ > 1"] == 1 and frame["taken"]["A < 0", "ρ > 1"] == 0
    assert isnan(frame["taken"]["A < 0", "ρ ≤ 1"])


def test_without_a_gate_and_after_it_the_gradient_is_the_logged_one() -> None:
    """A run of importance-weighted policy gradient logs the coefficient of each token's gradient."""
    run = run_of("sync_interval20-rec_oneside_is-seed0")
    own = own_rule(run).rule
    assert own is not None
    outcome = apply(own, load_tokens(run))
    frame = by_quadrant(quadrants(run, 0, run.last_step), before_the_gate(outcome))
    assert len(frame) == 4 and frame["share"].sum() == pytest.approx(1)
    assert frame["before"].sum() == pytest.approx(1)
    left = frame["before"] * (1 - frame["taken"])
    assert (left / left.sum()).to_numpy() == pytest.approx(frame["gradient"].to_numpy(), abs=0.02)
    assert (frame["taken"] > 0).to_list() == (frame["clipped"] > 0).to_list()


def test_quadrants_that_hold_no_token_are_left_out(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [plain_step([-1, -1], [-0.5, -0.5])]))
    frame = by_quadrant(quadrants(run, 0, 0), None)
    assert frame[["advantage", "ratio"]].to_numpy().tolist() == [["A > 0", "ρ > 1"]]
    assert quadrant_sentence(frame) == "The gradient of single tokens is not logged in these steps."
    assert not len(by_quadrant(quadrants(run, 5, 9), None))


def test_a_gate_before_the_first_pass_sees_rho_k() -> None:
    tokens = tokens_of(random_columns(2))
    start = at_the_start(tokens)
    assert start is not None and start.rows.ratios.behavior is start.rows.ratios.current
    plain = random_columns(2)
    del plain["logp_gate"]
    assert at_the_start(tokens_of(plain)) is None


def test_a_replay_that_fits_the_log_and_one_that_does_not() -> None:
    replayed = pd.Series([0.1, 0.2, 0.3], index=[4, 5, 6])
    assert "stops what the log says" in replay_sentence(replayed, replayed)
    apart = replay_sentence(replayed + np.array([0, 0.05, 0]), replayed)
    assert "up to 5%" in apart and "step 5" in apart
    assert "no clip mask" in replay_sentence(pd.Series([np.nan] * 3, index=[4, 5, 6]), replayed)


def test_who_drives_the_gradient_in_words() -> None:
    frame = pd.DataFrame({
        "advantage": ["A > 0", "A < 0"], "ratio": ["ρ > 1", "ρ ≤ 1"], "share": [0.4, 0.6], "clipped": [0.1, 0.0],
        "gradient": [0.7, 0.3],
    })  # fmt: skip
    assert quadrant_sentence(frame) == (
        "Tokens with A > 0 and ρ > 1 carry 70% of the gradient and are 40% of the tokens with an advantage. "
        "Most is clipped where A > 0 and ρ > 1: 10%."
    )
