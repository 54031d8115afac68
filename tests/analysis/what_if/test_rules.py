"""What every rule of the what-if analysis has in common, and rules as text."""

from dataclasses import replace
from itertools import pairwise
from math import inf, isnan
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.what_if import STOPPING, Rule, apply, decide, parse, tokens_of
from ratioscope.analysis.what_if.judging import multiplier, weighted
from ratioscope.analysis.what_if.permitted import permitted_drift
from ratioscope.analysis.what_if.tokens import rows_of
from ratioscope.errors import RatioscopeError
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.gates import GATES
from ratioscope.rules.parameters import PARAMETERS
from ratioscope.rules.weights import WEIGHTS
from tests.oracles.what_if import RULES, USUAL, columns, has_mass, random_columns, random_tokens, rule_of, rules

# Properties of every rule -------------------------------------------------------------------------------------------


@rules
def test_a_gate_is_between_0_and_1_and_sides_are_signs(rule: Rule) -> None:
    decision = apply(rule, random_tokens()).decision
    assert bool(((decision.value >= 0) & (decision.value <= 1)).all()) and set(decision.side.tolist()) <= {-1, 0, 1}


@rules
def test_the_order_of_the_rows_does_not_matter(rule: Rule) -> None:
    plain = random_columns(6)
    order = np.random.default_rng(0).permutation(len(plain["step"]))
    shuffled = tokens_of({name: values[order] for name, values in plain.items()})
    expected = apply(rule, tokens_of(plain))
    found = apply(rule, shuffled)
    assert found.values == pytest.approx(expected.values, rel=1e-11, abs=1e-14, nan_ok=True)
    assert found.overall.notes == expected.overall.notes


@rules
def test_a_rule_of_arrays_is_that_of_tensors(rule: Rule) -> None:
    tokens = random_tokens(4)
    names = ("step", "logp_behavior", "logp_current", "logp_gate", "advantage", "version_lag")
    arrays = {name: getattr(tokens, name).numpy() for name in names}
    rows = rows_of(arrays | {"group_id": tokens.group.numpy(), "seq_id": tokens.sequence.numpy()})
    found, signal = multiplier(rule, rows), tokens.signal.numpy()
    expected = (weighted(rule, tokens).weight * decide(rule, tokens).value).numpy()
    assert found.dtype == np.float64 and found[signal] == pytest.approx(expected[signal], rel=1e-13, abs=1e-300)


@rules
def test_the_size_of_the_blocks_does_not_matter(rule: Rule) -> None:
    expected = apply(rule, random_tokens())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratioscope.analysis.what_if.tokens.BLOCK_TOKENS", 10)
        found = apply(rule, random_tokens())
    assert len(found.blocks) > 5 and len(expected.blocks) == 1
    row, expected_row = found.overall.row, expected.overall.row
    assert row.pop("unreliable") == expected_row.pop("unreliable")
    assert row == pytest.approx(expected_row, rel=1e-9, abs=1e-12, nan_ok=True)
    assert found.decision.side.tolist() == expected.decision.side.tolist()
    assert found.applied.tolist() == pytest.approx(expected.applied.tolist(), rel=1e-12)


@rules
def test_on_policy_everything_is_kept(rule: Rule) -> None:
    plain = random_columns(7)
    for name in ("logp_current", "logp_gate", "logp_new"):
        plain[name] = plain["logp_behavior"]
    found = apply(rule, tokens_of(plain | {"version_lag": np.zeros(len(plain["step"]), dtype=np.int64)})).values
    ones = ("kept_tokens", "kept_gradient", "mean_weight", "mean_weight_raw", "ess", "ess_raw", "max_weight")
    zeros = ["clip_fraction", "chi2", "chi2_raw", "staleness", "drift_kept"]
    zeros += ["truncated_mass", "masked_mass"] if has_mass(rule) else []
    assert {key: found[key] for key in ones} == dict.fromkeys(ones, 1.0)
    assert {key: found[key] for key in zeros} == dict.fromkeys(zeros, 0.0)


# Which way a parameter opens a rule: towards the first value nothing is stopped or truncated.
OPENS = {name: [inf, 1.0, 0.3, 0.1] for name in USUAL} | {
    "epsilon_low": [1.0, 0.5, 0.3, 0.1], "difference_low": [1.0, 0.2, 0.1, 0.02],
    "difference_high": [1.0, 0.2, 0.1, 0.02], "cap": [inf, 2.0, 1.5, 1.1], "max_lag": [inf, 3, 2, 1],
    "tau_positive": [1e-9, 0.5, 1.0, 3.0], "tau_negative": [1e-9, 0.5, 1.0, 3.0],
    "difference": [1.0, 0.2, 0.1, 0.02], "dual": [inf, 3.0, 2.0, 1.5], "floor": [0.0, 0.3, 0.6, 0.9],
    **{f"{name}_{sign}": [2.0] for name in ("power", "decay") for sign in ("positive", "negative")},
}  # fmt: skip


# Weights that are the ratio without their bound, and those that are something else.
TRUNCATED = ("truncated", "upper_clipped", "clamped", "truncated_staleness")
SHAPED = ("geometric_of_clipped", "gamma_kernel", "truncated_sequence_staleness")


@rules
def test_a_rule_is_monotone_in_its_bounds(rule: Rule) -> None:
    tokens = random_tokens(8)
    for name in rule.gate_parameters:
        if name.startswith("outer"):
            values = [0.3, 0.6, 1.0]  # wider outer margins of a ring stop more
        else:
            values = [value for value in OPENS[name] if rule.gate != "ring" or value <= USUAL[f"outer_{name[8:]}"]]
        kept = [apply(rule.with_parameter(name, value), tokens).decision.value for value in values]
        assert all(bool((later <= earlier + 1e-12).all()) for earlier, later in pairwise(kept))
    for name in rule.weight_parameters if rule.weight not in SHAPED else ():
        loose = replace(rule, gate="none", gate_parameters={})
        values = sorted(OPENS[name], reverse=True)  # a higher floor is more weight, like a higher cap
        weights = [apply(loose.with_parameter(name, value), tokens).applied for value in values]
        assert all(bool((later <= earlier).all()) for earlier, later in pairwise(weights))


@rules
def test_a_rule_with_open_bounds_is_the_rule_without(rule: Rule) -> None:
    tokens = random_tokens(9)
    opened = replace(
        rule,
        gate_parameters={name: OPENS[name.replace("outer", "epsilon")][0] for name in rule.gate_parameters},
        weight_parameters={name: OPENS[name][0] for name in rule.weight_parameters},
    )
    plain = Rule(weight="ratio" if opened.weight in TRUNCATED else opened.weight,
                 weight_parameters=opened.weight_parameters if opened.weight in SHAPED else {},
                 weight_level=rule.weight_level)  # fmt: skip
    found, expected = apply(opened, tokens).values, apply(plain, tokens).values
    assert {key: found[key] for key in expected if key != "permitted_drift"} == pytest.approx(
        {key: expected[key] for key in expected if key != "permitted_drift"}, rel=1e-12, abs=1e-15, nan_ok=True
    )


@rules
def test_no_ratio_is_too_large_for_a_rule(rule: Rule) -> None:
    plain = columns([1.0] * 6, [1.0, -1.0, 0.0, 1.0, -1.0, 1.0], sequence=[0, 0, 1, 1, 2, 2])
    plain["logp_current"] = np.array([-20 - 1000.0, -20 + 1000.0, -20 + 1000.0, -inf, -20.0, -19.0])
    outcome = apply(rule, tokens_of(plain | {"logp_new": plain["logp_current"]}))
    for key, value in outcome.values.items():
        assert np.isfinite(value) or outcome.overall.notes[key]
    for key, (low, high) in outcome.overall.intervals.items():
        assert np.isfinite(low) and (np.isfinite(high) or outcome.overall.unreliable(key))


BOUNDED = {name for name, gate in GATES.items() if gate.reach}


def test_every_gate_either_permits_a_drift_or_says_why_not() -> None:
    assert GATES.keys() - BOUNDED >= {"none", "soft"}
    assert all(gate.stops == (name in BOUNDED) for name, gate in GATES.items())
    for rule in RULES:
        numbers = apply(rule, random_tokens()).overall
        assert isnan(numbers.values["permitted_drift"]) == ("permitted_drift" in numbers.notes)
        assert isnan(numbers.values["permitted_drift"]) != (rule.gate in BOUNDED and rule.gate_level == "token")


@pytest.mark.parametrize("gate", sorted(BOUNDED))
def test_the_gate_is_open_up_to_its_reach_and_closed_beyond(gate: str) -> None:
    """Moving on in the direction of the advantage, the gradient stops where the permitted drift ends."""
    rule, rng = rule_of(gate), np.random.default_rng(2)
    rho, sign = np.exp(rng.normal(0, 0.7, 200)), rng.choice([-1.0, 1.0], 200)
    plain = columns(rho.tolist(), sign.tolist())
    tokens = tokens_of(plain)
    distance = 2 * permitted_drift(rule, tokens, apply(rule, tokens).decision).numpy()
    assert (distance > 0).any()
    for share, is_open in ((0.0, True), (0.999, True), (1.001, False)):
        at = rho + sign * distance * share
        reached = (distance > 0) & (at > 0)
        moved = plain | {"logp_gate": plain["logp_behavior"] + np.log(np.where(reached, at, 1.0))}
        clipped = apply(rule, tokens_of(moved)).decision.clipped.numpy()
        assert (clipped[reached] != is_open).all()


# Rules as text ------------------------------------------------------------------------------------------------------


@rules
def test_a_rule_survives_its_string(rule: Rule) -> None:
    text = str(rule)
    assert parse(text) == rule and set(text) <= set("abcdefghijklmnopqrstuvwxyz_0123456789.~-*()")
    for name in rule.parameters:
        for value in (PARAMETERS[name].high, 1.0):
            if not PARAMETERS[name].allows(value) or (name.startswith(("epsilon", "outer")) and rule.gate == "ring"):
                continue
            changed = rule.with_parameter(name, value)
            assert parse(str(changed)) == changed and "+" not in str(changed) and hash(changed) == hash(changed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule("one_sid"), "'one_sid' is not a gate or filter; did you mean one_side or"),
        (lambda: Rule("none", {}, "truncate", {}), "'truncate' is not a weight; did you mean truncated"),
        (lambda: Rule(gate_level="sequense"), "'sequense' is not a level of a gate; did you mean sequence"),
        (lambda: Rule("masked"), "masked needs cap."),
        (lambda: Rule("masked", {"cap": 2, "kap": 3}), "'kap' is not a parameter of masked; did you mean cap"),
        (lambda: Rule("none", {"cap": 2}), "'cap' is not a parameter of none, which takes none;"),
        (lambda: Rule("masked", {"cap": 0.5}), "cap=0.5 must be from 1"),
        (lambda: Rule("masked", {"cap": float("nan")}), "cap=nan must be from 1"),
        (lambda: rule_of("ring", outer_low=0.1), "outer_low=0.1 is inside of epsilon_low=0.2"),
        (lambda: replace(rule_of("stale"), gate_level="sequence"), "leave its level at 'token'"),
        (lambda: parse("masked(cap~2)"), "is not a rule; write it like"),
        (lambda: parse("masked(cap~2~3)*ratio"), "does not alternate names and numbers"),
        (lambda: parse("masked(cap~two)*ratio"), "does not alternate names and numbers"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_in_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(RatioscopeError) as error:
        make()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_floor_knows_the_parameters_of_gates_filters_and_weights_and_no_others() -> None:
    taken = {name for part in (*STOPPING.values(), *WEIGHTS.values()) for name in part.parameters}
    assert taken == USUAL.keys()
    assert PARAMETERS.keys() == {name for part in FILTERS.values() for name in part.parameters} | taken
