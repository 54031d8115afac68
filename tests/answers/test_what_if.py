"""What-if: hand examples, a loop over tokens as the oracle, properties of every rule, replays of the sample runs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import exp, inf, isnan, log, prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.store import Run, discover, open_run
from analysis.summary import summarise
from analysis.what_if import (
    MEASURES,
    PARAMETERS,
    STOPPING,
    Outcome,
    Rule,
    Tokens,
    apply,
    load,
    own_rule,
    parse,
    sentence,
    sweep,
    tokens_of,
)
from analysis.what_if.permitted import REACH, permitted_drift
from analysis.what_if.rule import keywords
from ratioscope.errors import RatioscopeError
from ratioscope.gates import FILTERS, GATES
from ratioscope.ratios import LEVELS
from ratioscope.weights import WEIGHTS
from tests.runs import numbered_step, plain_step, random_step, write_run
from trainer.parameters import PARAMETERS as OF_TRAINER

SAMPLE_RUNS = Path(__file__).parents[2] / "sample_runs"
NAMES = sorted(run.run_id for run in discover([SAMPLE_RUNS]))

# Where a sweep of a parameter stops nothing or truncates nothing, and what a rule has elsewhere.
USUAL = {
    "epsilon_low": 0.2, "epsilon_high": 0.28, "outer_low": 0.6, "outer_high": 2.0, "epsilon": 0.2, "epsilon_log": 0.3,
    "epsilon_stale": 0.3, "cap": 1.5, "tau_positive": 1.0, "tau_negative": 1.05, "delta": 0.05, "difference_low": 0.1,
    "difference_high": 0.1, "threshold": 0.05, "max_lag": 2,
}  # fmt: skip


def rule_of(gate: str = "none", weight: str = "ratio", level: str = "token", **changed: float) -> Rule:
    values = USUAL | changed
    gate_parameters, weight_parameters = (
        {name: values[name] for name in keywords(part)} for part in (STOPPING[gate], WEIGHTS[weight])
    )
    gate_level = "token" if gate in FILTERS else level
    return Rule(gate, gate_parameters, weight, weight_parameters, gate_level, level)


def every_rule() -> Iterator[Rule]:
    """Every gate, filter and weight at every level."""
    for level in LEVELS:
        yield from (rule_of(gate, "ratio", level) for gate in STOPPING)
        yield from (rule_of("one_side", weight, level) for weight in WEIGHTS)


RULES = list({str(rule): rule for rule in every_rule()}.values())
rules = pytest.mark.parametrize("rule", RULES, ids=str)


def columns(
    rho: list[float], advantage: list[float], *, new: list[float] | None = None, b: float | list[float] = -20.0,
    sequence: list[int] | None = None, group: list[int] | None = None, step: list[int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Columns of tokens with given ratios; every token a sequence and a group of its own if not said otherwise."""
    behavior = np.broadcast_to(np.asarray(b, dtype=np.float64), len(rho))
    with np.errstate(divide="ignore"):
        found = {
            "step": np.zeros(len(rho), dtype=np.int32) if step is None else np.asarray(step),
            "seq_id": np.arange(len(rho)) if sequence is None else np.asarray(sequence),
            "logp_behavior": behavior,
            "logp_current": behavior + np.log(rho),
            "advantage": np.asarray(advantage, dtype=np.float64),
            "version_lag": np.zeros(len(rho), dtype=np.int64),
            "logp_new": None if new is None else behavior + np.log(new),
        }
    return found | {"group_id": found["seq_id"] if group is None else np.asarray(group)}


def random_columns(seed: int, groups: int = 5, steps: int = 3, spread: float = 0.35) -> dict[str, Any]:
    """Steps of prompt groups of 3 responses, with zero advantages and several passes."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, groups * 3 * steps)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    n = len(sequence)
    b = -rng.exponential(1.0, n)
    c, theta, new = (np.minimum(b + spread * rng.standard_normal(n), 0) for _ in range(3))
    signs = rng.choice([-1.2, -0.4, 0.0, 0.7, 1.5], len(lengths))
    return {
        "step": sequence // (groups * 3), "seq_id": sequence % (groups * 3), "group_id": sequence // 3 % groups,
        "logp_behavior": b, "logp_current": c, "logp_gate": theta, "logp_new": new,
        "advantage": signs[sequence], "version_lag": rng.integers(0, 4, n),
    }  # fmt: skip


def random_tokens(seed: int = 0) -> Tokens:
    return tokens_of(random_columns(seed))


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
        "staleness": 0.25 / 2, "staleness_raw": 0.75 / 4,
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
    """Metric definitions, section 5: b = (.98, .02), c = (.5, .5), epsilon = .5: kept S .245, true TV .48."""
    ratio = [0.5 / 0.98] * 98 + [0.5 / 0.02] * 2
    tokens = tokens_of(columns(ratio, [1.0] * 100))
    outcome = apply(rule_of("stale", epsilon_stale=0.5), tokens)
    assert outcome.values["staleness"] == pytest.approx(0.245, abs=2e-4)
    assert outcome.values["staleness"] <= 0.5 / 2
    assert outcome.values["staleness_raw"] == pytest.approx(0.48)
    assert outcome.values["clip_fraction"] == pytest.approx(0.02)
    assert "selection is on the action" in sentence(apply(rule_of(), tokens), outcome)


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


def brute_force(outcome: Outcome, tokens: Tokens) -> dict[str, float]:
    """Every measure by loops over tokens; gate and weight themselves have oracles of their own (tests/floor)."""
    rows = list(
        zip(
            outcome.decision.value.tolist(), outcome.decision.side.tolist(), tokens.advantage.tolist(),
            tokens.logp_behavior.tolist(), tokens.logp_current.tolist(), tokens.logp_gate.tolist(),
            tokens.logp_new.tolist(), tokens.sequence.tolist(), strict=True,
        )
    )  # fmt: skip
    assert tokens.logp_new is not None
    rho_theta = [exp(theta - b) for _, _, _, b, _, theta, _, _ in rows]
    level = outcome.rule.weight_level
    if level != "token":
        members = {row[7]: [r for r, other in zip(rho_theta, rows, strict=True) if other[7] == row[7]] for row in rows}
        power = {key: 1 / len(values) if level == "geometric" else 1.0 for key, values in members.items()}
        rho_theta = [prod(members[row[7]]) ** power[row[7]] for row in rows]
    weight = weights_by_formula(outcome.rule, rows, rho_theta)
    signal = [place for place, row in enumerate(rows) if row[2] != 0]
    kept = [place for place in signal if rows[place][0] > 0]
    clipped = [place for place, row in enumerate(rows) if row[1] != 0]
    v = {place: rows[place][0] * weight[place] for place in kept}
    n, m = len(rows), len(signal)
    rho_k = [exp(row[4] - row[3]) for row in rows]
    drift = [abs(exp(row[6] - row[3]) - rho_k[place]) / 2 for place, row in enumerate(rows)]

    def mean(terms: list[float]) -> float:
        return sum(terms) / len(terms) if terms else float("nan")

    truncated = sum(rows[i][0] * max(rho_theta[i] - weight[i], 0) for i in signal)
    masked = sum((1 - rows[i][0]) * rho_theta[i] for i in signal)
    return {
        "clip_fraction": len(clipped) / n,
        "clip_fraction_low": sum(row[1] == -1 for row in rows) / n,
        "clip_fraction_high": sum(row[1] == 1 for row in rows) / n,
        "clip_fraction_positive": mean([float(row[1] != 0) for row in rows if row[2] > 0]),
        "clip_fraction_negative": mean([float(row[1] != 0) for row in rows if row[2] < 0]),
        "gate_mean": mean([row[0] for row in rows]),
        "effective_token_fraction": sum(rows[i][0] for i in signal) / n,
        "kept_tokens": sum(rows[i][0] for i in signal) / m,
        "kept_gradient": sum(v[i] * abs(rows[i][2]) for i in kept) / sum(weight[i] * abs(rows[i][2]) for i in signal),
        "mean_weight": mean(list(v.values())),
        "mean_weight_raw": mean([rho_theta[i] for i in signal]),
        "chi2": mean([(value - 1) ** 2 for value in v.values()]),
        "chi2_raw": mean([(rho_theta[i] - 1) ** 2 for i in signal]),
        "variance_proxy": sum(value**2 for value in v.values()) / m,
        "variance_proxy_raw": mean([rho_theta[i] ** 2 for i in signal]),
        "truncated_mass": truncated / m,
        "masked_mass": masked / m,
        "bias_proxy": (truncated + masked) / m,
        "staleness": mean([abs(rho_k[i] - 1) / 2 for i in kept]),
        "staleness_raw": mean([abs(rho_k[i] - 1) / 2 for i in signal]),
        "drift_kept": mean([drift[i] for i in kept]),
        "drift_clipped": mean([drift[i] for i in clipped]),
        "ess": sum(v.values()) ** 2 / (len(v) * sum(value**2 for value in v.values())) if v else float("nan"),
        "ess_raw": sum(rho_theta[i] for i in signal) ** 2 / (m * sum(rho_theta[i] ** 2 for i in signal)),
        "max_weight": max(v.values(), default=float("nan")),
        "max_weight_raw": max(rho_theta[i] for i in signal),
    }


def weights_by_formula(rule: Rule, rows: list[Any], rho: list[float]) -> list[float]:
    """Weights other than the geometric mean of clipped ratios, of which the tensor is taken."""
    bounds = rule.weight_parameters
    if rule.weight == "incremental":
        return rho_steps(rule, rows, rho)
    return {
        "none": [1.0] * len(rho),
        "ratio": rho,
        "truncated": [min(value, bounds.get("cap", inf)) for value in rho],
        "upper_clipped": [min(value, 1 + bounds.get("epsilon_high", inf)) for value in rho],
    }[rule.weight]


def rho_steps(rule: Rule, rows: list[Any], rho: list[float]) -> list[float]:
    """pi_theta / pi_k of tokens, or aggregated over their sequences as the level says."""
    steps = [row[5] - row[4] for row in rows]
    if rule.weight_level == "token":
        return [exp(value) for value in steps]
    of = {row[7]: [step for step, other in zip(steps, rows, strict=True) if other[7] == row[7]] for row in rows}
    length = {key: len(values) if rule.weight_level == "geometric" else 1 for key, values in of.items()}
    return [exp(sum(of[row[7]]) / length[row[7]]) for row in rows]


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
    theta, count = x.sum() / n.sum(), len(n)
    error = sqrt(count / (count - 1) * ((x - theta * n) ** 2).sum()) / n.sum()
    half = stats.t.ppf(0.975, count - 1) * error
    assert outcome.overall.intervals["mean_weight"] == pytest.approx((theta - half, theta + half), rel=1e-12)


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
def test_on_policy_everything_is_kept(rule: Rule) -> None:
    plain = random_columns(7)
    for name in ("logp_current", "logp_gate", "logp_new"):
        plain[name] = plain["logp_behavior"]
    found = apply(rule, tokens_of(plain | {"version_lag": np.zeros(len(plain["step"]), dtype=np.int64)})).values
    ones = ("kept_tokens", "kept_gradient", "mean_weight", "mean_weight_raw", "ess", "ess_raw", "max_weight")
    zeros = ("clip_fraction", "chi2", "chi2_raw", "truncated_mass", "masked_mass", "staleness", "drift_kept")
    assert {key: found[key] for key in ones} == dict.fromkeys(ones, 1.0)
    assert {key: found[key] for key in zeros} == dict.fromkeys(zeros, 0.0)


# Which way a parameter opens a rule: towards the first value nothing is stopped or truncated.
OPENS = {name: [inf, 1.0, 0.3, 0.1] for name in USUAL} | {
    "epsilon_low": [1.0, 0.5, 0.3, 0.1], "difference_low": [1.0, 0.2, 0.1, 0.02],
    "difference_high": [1.0, 0.2, 0.1, 0.02], "cap": [inf, 2.0, 1.5, 1.1], "max_lag": [inf, 3, 2, 1],
    "tau_positive": [1e-9, 0.5, 1.0, 3.0], "tau_negative": [1e-9, 0.5, 1.0, 3.0],
}  # fmt: skip


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
    for name in rule.weight_parameters if rule.weight != "geometric_of_clipped" else ():
        loose = replace(rule, gate="none", gate_parameters={})
        weights = [apply(loose.with_parameter(name, value), tokens).applied for value in OPENS[name]]
        assert all(bool((later <= earlier).all()) for earlier, later in pairwise(weights))


@rules
def test_a_rule_with_open_bounds_is_the_rule_without(rule: Rule) -> None:
    tokens = random_tokens(9)
    opened = replace(
        rule,
        gate_parameters={name: OPENS[name.replace("outer", "epsilon")][0] for name in rule.gate_parameters},
        weight_parameters={name: OPENS[name][0] for name in rule.weight_parameters},
    )
    plain = Rule(weight="ratio" if opened.weight in ("truncated", "upper_clipped") else opened.weight,
                 weight_parameters=opened.weight_parameters if opened.weight == "geometric_of_clipped" else {},
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
    assert all(np.isfinite(interval).all() for interval in outcome.overall.intervals.values())


def test_every_gate_either_permits_a_drift_or_says_why_not() -> None:
    assert REACH.keys() == GATES.keys() - {"none", "soft"}
    for rule in RULES:
        numbers = apply(rule, random_tokens()).overall
        assert isnan(numbers.values["permitted_drift"]) == ("permitted_drift" in numbers.notes)
        assert isnan(numbers.values["permitted_drift"]) != (rule.gate in REACH and rule.gate_level == "token")


@pytest.mark.parametrize("gate", sorted(REACH))
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


# Notes and marks ----------------------------------------------------------------------------------------------------


def test_heavy_tails_are_marked_raw_and_not_after_truncation() -> None:
    rng = np.random.default_rng(0)
    tokens = tokens_of(columns((rng.pareto(0.8, 4000) + 0.3).tolist(), [1.0] * 4000))
    numbers = apply(rule_of(weight="truncated", cap=2.0), tokens).overall
    marked = {"chi2_raw", "variance_proxy_raw", "ess_raw", "mean_weight_raw", "bias_proxy"}
    assert marked <= numbers.notes.keys() and not marked & numbers.intervals.keys()
    assert not {"chi2", "ess", "mean_weight", "variance_proxy"} & numbers.notes.keys()
    assert "unreliable" in numbers.notes["ess_raw"]


def test_what_is_undefined_is_nan_with_a_reason() -> None:
    numbers = apply(rule_of("masked", cap=1.0), tokens_of(columns([2.0, 3.0], [1.0, 1.0]))).overall
    assert isnan(numbers.values["ess"]) and numbers.notes["ess"] == "the rule keeps no token"
    assert numbers.notes["clip_fraction_negative"] == "no token with negative advantage"
    assert numbers.notes["drift_clipped"] == "logp_new is not logged"
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
    with pytest.raises(RatioscopeError, match="has no parameter 'capp'; did you mean cap"):
        sweep(rule_of("masked"), "capp", [1.0], random_tokens())


def test_a_sentence_says_what_changes_in_numbers() -> None:
    tokens = tokens_of(columns([1.5, 1.5, 0.5, 1.0], [1.0, -2.0, -1.0, 3.0]))
    own = apply(rule_of("one_side", epsilon_high=0.2), tokens)
    other = apply(rule_of(weight="truncated", cap=1.25), tokens)
    text = sentence(own, other)
    assert "stops 0.0% of the tokens instead of 50.0%" in text
    assert "keeps 100.0% of its gradient's mass instead of 75.0%" in text
    assert "takes 0.125 of the ratio's mass away instead of 0.5" in text and "cap 1.25" in text
    assert "permits" not in text and "permits an update drift of 0.11" in sentence(other, own)
    nothing = sentence(own, apply(rule_of("masked", cap=1.0), tokens_of(columns([2.0], [1.0]))))
    assert "effective sample size of undefined instead of" in nothing and "nan" not in nothing
    silent = tokens_of(columns([1.5], [0.0]))
    text = sentence(apply(rule_of(), silent), apply(rule_of("one_side"), silent))
    assert text.startswith("No token has an advantage")


# Rules as text ------------------------------------------------------------------------------------------------------


@rules
def test_a_rule_survives_its_string(rule: Rule) -> None:
    text = str(rule)
    assert parse(text) == rule and set(text) <= set("abcdefghijklmnopqrstuvwxyz_0123456789.~-*()")
    for name in rule.parameters:
        for value in (PARAMETERS[name].high, 1.0):
            if value not in PARAMETERS[name] or (name.startswith(("epsilon", "outer")) and rule.gate == "ring"):
                continue
            changed = rule.with_parameter(name, value)
            assert parse(str(changed)) == changed and "+" not in str(changed) and hash(changed) == hash(changed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule("one_sid"), "There is no gate 'one_sid'; did you mean one_side or"),
        (lambda: Rule("none", {}, "truncate", {}), "There is no weight 'truncate'; did you mean truncated"),
        (lambda: Rule(gate_level="sequense"), "There is no level of the gate 'sequense'; did you mean sequence"),
        (lambda: Rule("masked"), "masked needs cap."),
        (lambda: Rule("masked", {"cap": 2, "kap": 3}), "masked has no parameter 'kap'; did you mean cap"),
        (lambda: Rule("none", {"cap": 2}), "none has no parameter 'cap'; it takes none."),
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


def test_parameters_are_those_of_gates_and_weights_and_fit_the_trainers() -> None:
    taken = {name for part in (*STOPPING.values(), *WEIGHTS.values()) for name in keywords(part)}
    assert taken == PARAMETERS.keys() == USUAL.keys()
    for name in taken & OF_TRAINER.keys():
        for value in (-inf, -1.0, 0.0, 0.5, 1.0, 1.5, inf):
            assert (value in PARAMETERS[name]) == OF_TRAINER[name].allows(value)


# Loading and replaying ----------------------------------------------------------------------------------------------


def test_loading_reads_the_usable_rows_of_a_range(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [numbered_step(step) for step in range(5)]))
    tokens = load(run, 1, 3)
    logged = run.read("tokens")
    assert len(tokens) == logged["step"].between(1, 3).sum() and sorted(set(tokens.step.tolist())) == [1, 2, 3]
    assert tokens.fraction == 1 and not tokens.is_sample and tokens.clipped is not None
    assert tokens.logp_gate is tokens.logp_current
    summary = summarise(run).values
    found = apply(rule_of(), load(run, 2, 2)).values
    signal = logged[(logged["step"] == 2) & (logged["advantage"] != 0)]
    assert len(signal) < (logged["step"] == 2).sum()
    assert found["effective_token_fraction"] == len(signal) / (logged["step"] == 2).sum()
    assert load(run).fraction == 1 and len(load(run)) == summary["n_tokens"].sum()


def test_without_silent_groups_raw_numbers_are_those_of_the_step_summary(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    steps = [random_step(rng, step) for step in range(2)]
    steps = [step.with_tokens(advantage=np.ones(len(step.tokens["advantage"]), dtype=np.float32)) for step in steps]
    run = open_run(write_run(tmp_path / "run", steps))
    found, summary = apply(rule_of(), load(run)).frame, summarise(run).values
    for here, there in (
        ("staleness_raw", "s_k"), ("drift_kept", "u_k"), ("chi2_raw", "chi2_token"), ("ess_raw", "ess_token"),
        ("mean_weight_raw", "ratio_mean"), ("max_weight_raw", "ratio_max"),
    ):  # fmt: skip
        assert found[here].to_numpy() == pytest.approx(summary[there].to_numpy(), rel=1e-9)


def test_a_sample_is_of_whole_prompt_groups(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", [numbered_step(step) for step in range(5)]))
    whole, sample = load(run), load(run, max_tokens=400, seed=1)
    assert sample.is_sample and len(sample) <= 400 and sample.fraction == len(sample) / len(whole)
    sizes = set(np.bincount(whole.group.numpy()).tolist())
    assert set(np.bincount(sample.group.numpy()).tolist()) <= sizes and len(set(sample.step.tolist())) > 1
    assert load(run, max_tokens=400, seed=1).logp_current.tolist() == sample.logp_current.tolist()
    assert load(run, max_tokens=400, seed=2).logp_current.tolist() != sample.logp_current.tolist()
    assert len(np.unique(load(run, max_tokens=1).group.numpy())) == 1
    assert not load(run, max_tokens=10**9).is_sample


def test_unusable_rows_break_their_sequence(tmp_path: Path) -> None:
    nan = float("nan")
    step = plain_step([-1, -1, -1, -1, -1], [-1, nan, -2, -1, -1], sequence=[0, 0, 0, 1, 2])
    run = open_run(write_run(tmp_path / "run", [step.with_tokens(logp_gate=np.array([-1, -1, -1, -1, nan]))]))
    tokens = load(run)
    assert tokens.whole.tolist() == [False, False, True] and len(tokens.complete) == 1
    with pytest.raises(RatioscopeError, match="no usable token in the steps 5 to 6"):
        load(run, 5, 6)


@cache
def sample_run(name: str) -> Run:
    return open_run(SAMPLE_RUNS / name)


@pytest.mark.parametrize("name", NAMES)
def test_the_own_rule_of_a_sample_run_gives_its_logged_clipping(name: str) -> None:
    run = sample_run(name)
    own, tokens = own_rule(run), load(run)
    assert own.rule is not None and tokens.clipped is not None and tokens.gate is not None
    outcome = apply(own.rule, tokens)
    assert bool((outcome.decision.clipped == tokens.clipped).all())
    assert tokens.clip_side is not None and bool((outcome.decision.side == tokens.clip_side).all())
    assert np.allclose(outcome.decision.value, tokens.gate, rtol=1e-6, atol=0)
    assert outcome.values["clip_fraction"] == pytest.approx(tokens.clipped.double().mean().item(), rel=1e-12)


def altered(parts: dict[str, str] | None, parameters: dict[str, float] | None) -> Run:
    run = sample_run("sync_interval20-grpo-seed0")
    algorithm = {"name": "x", "parts": parts, "parameters": parameters}
    return replace(run, manifest=replace(run.manifest, algorithm=algorithm))


PPO = {"gate": "one_side", "weight": "ratio", "level": "token"}


@pytest.mark.parametrize(
    ("parts", "parameters", "reason"),
    [
        (None, {"epsilon_low": 0.2}, "does not state its algorithm's parts and parameters"),
        (PPO, None, "does not state its algorithm's parts and parameters"),
        ({"gate": "none"}, {}, "does not state its algorithm's weight and level"),
        (PPO, {"epsilon_low": 0.2}, "'epsilon_high' of them is not known here"),
        (PPO | {"gate": "dual"}, {}, "'dual' of them is not known here"),
        (PPO, {"epsilon_low": 2.0, "epsilon_high": 0.2}, "cannot be replayed: one_side: epsilon_low=2 must be"),
        (PPO, {"epsilon_low": "wide", "epsilon_high": 0.2}, "that are no numbers"),
        (PPO, {"epsilon_low": 0.2, "epsilon_high": 0.2, "epochs": 4}, "does not log logp_gate"),
    ],
)
def test_a_run_that_does_not_say_enough_has_no_rule_but_a_reason(parts: Any, parameters: Any, reason: str) -> None:
    own = own_rule(altered(parts, parameters))
    assert own.rule is None and reason in own.reason and own.reason.endswith(".")


def test_every_measure_is_described() -> None:
    for key, measure in MEASURES.items():
        assert measure.title and measure.definition.endswith(".") and key
