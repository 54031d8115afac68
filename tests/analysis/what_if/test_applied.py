"""What-if: hand examples, a loop over tokens as the oracle, what is marked or undefined; sweeps and sentences."""

from dataclasses import replace
from math import inf, isnan, log

import numpy as np
import pytest

from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.what_if import (
    MEASURES,
    Rule,
    apply,
    change_sentence,
    changed_most,
    described,
    sweep,
    tokens_of,
)
from ratioscope.errors import RatioscopeError
from tests.oracles.brute_force import rate_interval
from tests.oracles.what_if import RULES, brute_force, columns, random_columns, random_tokens, rule_of

# Examples by hand ---------------------------------------------------------------------------------------------------


def test_ppos_clip_by_hand() -> None:
    """A > 0 at 1.5 and A < 0 at 0.5 are stopped; A < 0 at 1.5 and A = 0 at 4 are not."""
    tokens = tokens_of(columns([1.5, 1.5, 0.5, 1.0, 4.0], [1.0, -2.0, -1.0, 3.0, 0.0]))
    found = apply(rule_of("one_side", epsilon_high=0.2), tokens).values
    expected = {
        "clip_fraction": 2 / 5, "clip_fraction_low": 1 / 5, "clip_fraction_high": 1 / 5,
        "clip_fraction_positive": 1 / 2, "clip_fraction_negative": 1 / 2, "gate_mean": 3 / 5,
        "effective_token_fraction": 2 / 5, "kept_tokens": 2 / 4, "kept_gradient": (3 + 3) / (1.5 + 3 + 0.5 + 3),
        "mean_weight": 1.25, "mean_weight_raw": 4.5 / 4, "max_weight": 1.5, "max_weight_raw": 1.5,
        "ess": 2.5**2 / (2 * 3.25), "ess_raw": 4.5**2 / (4 * 5.75), "chi2": 0.125, "chi2_raw": 0.75 / 4,
        "variance_proxy": 3.25 / 4, "variance_proxy_raw": 5.75 / 4,
        "truncated_mass": 0.0, "masked_mass": 2 / 4, "bias_proxy": 2 / 4,
        "staleness": 0.5 / 2 / 2, "staleness_raw": 1.5 / 2 / 4,
        # 1.5 with A < 0 may fall to 0.8, 1 with A > 0 may rise to 1.2.
        "permitted_drift": (0.7 + 0.2) / 2 / 4,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-12)
    assert isnan(found["drift_kept"]) and isnan(found["drift_clipped"])


def test_truncation_by_hand() -> None:
    tokens = tokens_of(columns([0.5, 1.0, 3.0, 5.5], [1.0, 1.0, -1.0, 1.0], new=[0.5, 1.5, 2.0, 5.5]))
    found = apply(rule_of(weight="truncated", cap=2.0), tokens).values
    expected = {
        "clip_fraction": 0.0, "kept_gradient": 1.0, "mean_weight": 5.5 / 4, "max_weight": 2.0, "max_weight_raw": 5.5,
        "truncated_mass": 4.5 / 4, "masked_mass": 0.0, "bias_proxy": 4.5 / 4, "chi2": (0.25 + 1 + 1) / 4,
        "chi2_raw": (0.25 + 4 + 20.25) / 4, "ess": 5.5**2 / (4 * 9.25), "drift_kept": 1.5 / 8,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-12)


def test_a_sequence_mask_by_hand() -> None:
    """Ratios 2 and 2: product 4, geometric mean 2; 4 and 0.25: both 1."""
    tokens = tokens_of(columns([2, 2, 4, 0.25], [1.0, 1.0, 1.0, 1.0], sequence=[0, 0, 1, 1]))
    masked = Rule("masked", {"cap": 3}, "ratio", {}, "sequence", "sequence")
    assert apply(masked, tokens).decision.side.tolist() == [1, 1, 0, 0]
    assert apply(masked, tokens).values["masked_mass"] == pytest.approx(2.0)
    geometric = replace(masked, gate_level="geometric", weight_level="token")
    assert apply(geometric, tokens).decision.side.tolist() == [0, 0, 0, 0]
    assert apply(geometric.with_parameter("cap", 1.9), tokens).values["mean_weight"] == pytest.approx(4.25 / 2)


def test_an_icepop_mask_keeps_the_band_whatever_the_sign() -> None:
    tokens = tokens_of(columns([0.49, 0.5, 5.0, 5.01, 0.4], [1.0, -1.0, 1.0, -1.0, 0.0]))
    outcome = apply(Rule("two_side", {"epsilon_low": 0.5, "epsilon_high": 4.0}), tokens)
    assert outcome.decision.side.tolist() == [-1, 0, 0, 1, 0]


def test_selection_by_staleness_says_less_than_the_policies_differ() -> None:
    """`docs/metrics.md`, gates: b = (.8, .2), c = (.95, .05), epsilon = .5: kept S .09, true TV .15."""
    tokens = tokens_of(columns([0.95 / 0.8] * 80 + [0.05 / 0.2] * 20, [1.0] * 100))
    outcome = apply(rule_of("stale", epsilon_stale=0.5), tokens)
    assert outcome.values["staleness"] == pytest.approx(0.15 / 0.8 / 2)
    assert outcome.values["staleness_raw"] == pytest.approx(0.15)
    assert outcome.values["clip_fraction"] == pytest.approx(0.2)
    assert "selection is by the sampled token" in change_sentence(apply(rule_of(), tokens), outcome)


def test_staleness_of_what_is_kept_counts_both_sides_of_1() -> None:
    """Every token by its probability: b = (.5, .3, .2), c = (.2, .3, .5), whose total variation is .3."""
    tokens = tokens_of(columns([0.4] * 50 + [1.0] * 30 + [2.5] * 20, [1.0] * 100))
    for cap, expected in {1.2: 0.3 * 50 / 80, 3.0: 0.3}.items():
        found = apply(rule_of("two_side", epsilon_low=1.0, epsilon_high=cap - 1), tokens).values
        assert found["staleness"] == pytest.approx(expected) and found["staleness_raw"] == pytest.approx(0.3), cap
    lowest = apply(rule_of("two_side", epsilon_low=0.01, epsilon_high=2.0), tokens).values
    assert lowest["staleness"] == pytest.approx(1.5 / 2 * 20 / 50)  # the bounded form would be 0


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.7])
def test_what_the_seeds_say_of_permitted_drift(epsilon: float) -> None:
    """S0 5.2, 5.3: Method One permits epsilon / 2; Method Two epsilon / 2 times the mean of rho_k."""
    base = random_columns(1)
    base["logp_gate"] = None
    base["logp_current"] = base["logp_behavior"] + np.maximum(base["logp_current"] - base["logp_behavior"], log(0.8))
    tokens = tokens_of(base)
    one, two = (apply(rule_of(gate, epsilon=epsilon), tokens).values for gate in ("adaptive", "incremental"))
    assert one["permitted_drift"] <= epsilon / 2 * (1 + 1e-12)
    if epsilon < 0.8:
        assert one["permitted_drift"] == pytest.approx(epsilon / 2)
    assert two["permitted_drift"] == pytest.approx(epsilon / 2 * two["mean_weight_raw"])
    fresh = tokens_of(base | {"logp_current": base["logp_behavior"]})
    ppo = apply(rule_of("one_side", epsilon_low=epsilon, epsilon_high=epsilon), fresh).values
    assert ppo["permitted_drift"] == pytest.approx(epsilon / 2)


def test_the_ring_permits_the_way_back_to_its_outer_margin() -> None:
    rho = [0.3, 0.3, 0.7, 1.1, 1.1, 3.5, 3.5, 2.0]
    sign = [1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0]
    tokens = tokens_of(columns(rho, sign))
    far = [0.1, 0, 0, 0.1, 0.3, 0.5, 0, 0]
    ring = rule_of("ring", epsilon_high=0.2)
    assert apply(ring, tokens).values["permitted_drift"] == pytest.approx(sum(far) / 2 / 8)
    without_gap = rule_of("ring", epsilon_low=0.2, outer_low=0.2, epsilon_high=0.2, outer_high=0.2)
    ppo = rule_of("one_side", epsilon_high=0.2)
    assert apply(without_gap, tokens).values["permitted_drift"] == apply(ppo, tokens).values["permitted_drift"]


# The oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.weight != "geometric_of_clipped"], ids=str)
def test_an_outcome_is_its_definition(rule: Rule) -> None:
    tokens = random_tokens(3)
    outcome = apply(rule, tokens)
    expected = brute_force(outcome, tokens)
    found = {key: outcome.values[key] for key in expected}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)
    assert outcome.values.keys() == expected.keys() | {"permitted_drift"}


def test_an_interval_is_cluster_robust_over_prompt_groups() -> None:
    tokens = random_tokens(4)
    outcome = apply(rule_of(weight="truncated"), tokens)
    v, group = outcome.applied.numpy(), tokens.group.numpy()
    signal = tokens.signal.numpy()
    x = np.array([v[group == g].sum() for g in np.unique(group)])
    n = np.array([signal[group == g].sum() for g in np.unique(group)])
    x, n = x[n > 0], n[n > 0]
    expected = rate_interval(x.tolist(), n.astype(float).tolist())
    assert outcome.overall.intervals["mean_weight"] == pytest.approx(expected, rel=1e-9)


def test_a_step_has_the_numbers_of_its_own_tokens() -> None:
    every = random_columns(5)
    whole = apply(rule_of("one_side"), tokens_of(every))
    assert list(whole.frame.index) == [0, 1, 2] == list(whole.by_step)
    for step in range(3):
        inside = every["step"] == step
        alone = apply(rule_of("one_side"), tokens_of({name: values[inside] for name, values in every.items()}))
        assert whole.by_step[step].values == pytest.approx(alone.values, rel=1e-12, nan_ok=True)
        assert whole.by_step[step].intervals == alone.overall.intervals
        assert whole.by_step[step].notes == alone.overall.notes
        row = alone.overall.row
        assert whole.frame.loc[step].drop("unreliable").to_list() == pytest.approx(
            [value for key, value in row.items() if key != "unreliable"], rel=1e-12, nan_ok=True
        )
        assert whole.frame.loc[step, "unreliable"] == row["unreliable"]


# Notes and marks ----------------------------------------------------------------------------------------------------


def test_heavy_tails_are_marked_raw_and_not_after_truncation() -> None:
    rng = np.random.default_rng(0)
    tokens = tokens_of(columns((rng.pareto(0.8, 4000) + 0.3).tolist(), [1.0] * 4000))
    numbers = apply(rule_of(weight="truncated", cap=2.0), tokens).overall
    marked = {"chi2_raw", "variance_proxy_raw"}  # of which a sample can only say "at least"
    assert marked <= numbers.notes.keys() and all(np.isinf(numbers.intervals[key].high) for key in marked)
    first = {"mean_weight_raw", "bias_proxy", "mean_weight"}
    assert not {"chi2", "ess", "variance_proxy", *first} & numbers.notes.keys() and first <= numbers.intervals.keys()
    assert numbers.unreliable("ess_raw") and not numbers.unreliable("ess")


def test_what_is_undefined_is_nan_with_a_reason() -> None:
    numbers = apply(rule_of("masked", cap=1.0), tokens_of(columns([2.0, 3.0], [1.0, 1.0]))).overall
    assert isnan(numbers.values["ess"]) and numbers.notes["ess"].text == "the rule keeps no token"
    assert numbers.notes["clip_fraction_negative"].text == "no token with negative advantage"
    assert numbers.notes["drift_clipped"].text == "logp_new is not logged"
    silent = apply(rule_of("one_side"), tokens_of(columns([2.0, 3.0], [0.0, 0.0]))).overall
    assert isnan(silent.values["kept_tokens"]) and silent.values["clip_fraction"] == 0
    for found in (numbers, silent):
        assert all(key in found.notes for key, value in found.values.items() if isnan(value))


def test_no_tokens_at_all_have_no_numbers() -> None:
    nothing = tokens_of({name: values[:0] for name, values in random_columns(0).items()})
    for rule in RULES:
        numbers = apply(rule, nothing).overall
        assert all(isnan(value) for value in numbers.values.values()) and numbers.notes.keys() == numbers.values.keys()


def test_a_sequence_with_an_unusable_token_is_left_out_of_sequence_rules_only() -> None:
    plain = columns([2.0, 0.5, 3.0], [1.0, 1.0, 1.0], sequence=[0, 0, 1])
    tokens = tokens_of(plain | {"whole": np.array([True, True, False])})
    by_sequence, by_token = apply(rule_of(level="sequence"), tokens), apply(rule_of(), tokens)
    assert (by_sequence.left_out, len(by_sequence.tokens)) == (1, 2) and by_token.left_out == 0
    assert by_sequence.values["mean_weight"] == pytest.approx(1.0)


# Sweeps and sentences -----------------------------------------------------------------------------------------------


def test_a_sweep_is_the_rule_at_each_value() -> None:
    tokens, rule, caps = random_tokens(10), rule_of(weight="truncated"), [1.0, 1.2, 2.0, inf]
    frame = sweep(rule, "cap", caps, tokens)
    assert frame.index.tolist() == caps and frame.index.name == "cap"
    for cap in caps:
        numbers = apply(rule.with_parameter("cap", cap), tokens).overall
        assert {key: frame.loc[cap, key] for key in numbers.values} == pytest.approx(numbers.values, nan_ok=True)
        for key, interval in numbers.intervals.items():
            assert (frame.loc[cap, f"{key}_lower"], frame.loc[cap, f"{key}_upper"]) == pytest.approx(interval)
    assert frame["bias_proxy"].is_monotonic_decreasing and frame["variance_proxy"].is_monotonic_increasing
    assert frame["bias_proxy"].iloc[-1] == 0


def test_a_parameter_that_gate_and_weight_share_is_one_number() -> None:
    rule = rule_of("one_side_log", "geometric_of_clipped").with_parameter("epsilon_log", 0.7)
    assert rule.gate_parameters == rule.weight_parameters == {"epsilon_log": 0.7}
    with pytest.raises(RatioscopeError, match="'capp' is not a parameter of masked"):
        sweep(rule_of("masked"), "capp", [1.0], random_tokens())


def test_a_sentence_says_what_changes_in_numbers() -> None:
    tokens = tokens_of(columns([1.5, 1.5, 0.5, 1.0], [1.0, -2.0, -1.0, 3.0]))
    own = apply(rule_of("one_side", epsilon_high=0.2), tokens)
    other = apply(rule_of(weight="truncated", cap=1.25), tokens)
    text = change_sentence(own, other)
    assert "stops 0% of the tokens instead of 50%" in text
    assert "keeps 100% of its gradient's mass instead of 75%" in text
    assert "removes 0.125 of the ratio's mass instead of 0.5" in text and "cap 1.25" in text
    assert "permits" not in text and "permits an update drift of 0.11" in change_sentence(other, own)
    nothing = change_sentence(own, apply(rule_of("masked", cap=1.0), tokens_of(columns([2.0], [1.0]))))
    assert "effective sample size of undefined instead of" in nothing and "nan" not in nothing
    silent = tokens_of(columns([1.5], [0.0]))
    text = change_sentence(apply(rule_of(), silent), apply(rule_of("one_side"), silent))
    assert text.startswith("No token has an advantage")


def test_every_measure_is_described() -> None:
    for key, measure in MEASURES.items():
        assert measure.title and measure.definition.endswith(".") and key


def test_the_one_number_that_changes_most_is_quoted_with_both_values() -> None:
    tokens = tokens_of(columns([2.0, 1.0, 0.5, 1.1], [1.0, 1.0, -1.0, -1.0]))
    own, other = apply(rule_of("none"), tokens), apply(rule_of("one_side", epsilon_low=0.2, epsilon_high=0.2), tokens)
    moved = {key: abs(other.values[key] - own.values[key]) for key in ("clip_fraction", "kept_gradient", "ess")}
    key = max(moved, key=lambda key: moved[key])
    text = changed_most(own, other)
    assert text.startswith(
        f"Changed most: {described(key)[0].lower()}, {percent(other.values[key])} instead of {percent(own.values[key])}"
    )
    assert changed_most(own, own).startswith("It changes next to nothing")
    silent = tokens_of(columns([2.0], [0.0]))
    assert "no gradient" in changed_most(apply(rule_of("none"), silent), apply(rule_of("none"), silent))
