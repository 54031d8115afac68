"""Tokens and rules for the tests of the what-if analysis, and every measure by loops over tokens."""

from collections.abc import Iterator
from itertools import cycle
from math import exp, inf, prod
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.what_if import STOPPING, Rule, RuleOutcome, Tokens, tokens_of
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.gates import GATES
from ratioscope.rules.ratios import LEVELS
from ratioscope.rules.weights import WEIGHTS
from tests.making.loops import in_one_loop

# Where a sweep of a parameter stops nothing or truncates nothing, and what a rule has elsewhere.
USUAL = {
    "epsilon_low": 0.2, "epsilon_high": 0.28, "outer_low": 0.6, "outer_high": 2.0, "epsilon": 0.2, "epsilon_log": 0.3,
    "epsilon_stale": 0.3, "cap": 1.5, "tau_positive": 1.0, "tau_negative": 1.05, "delta": 0.05, "difference_low": 0.1,
    "difference_high": 0.1, "threshold": 0.05, "max_lag": 2, "floor": 0.6, "dual": 1.8, "difference": 0.1,
    "power_positive": 2.0, "decay_positive": 3.0, "power_negative": 3.0, "decay_negative": 2.0,
}  # fmt: skip


def rule_of(gate: str = "none", weight: str = "ratio", level: str = "token", **changed: float) -> Rule:
    values = USUAL | changed
    gate_parameters, weight_parameters = (
        {name: values[name] for name in part.parameters} for part in (STOPPING[gate], WEIGHTS[weight])
    )
    gate_level = "token" if gate in FILTERS else level
    weight_level = "token" if WEIGHTS[weight].sequences else level
    return Rule(gate, gate_parameters, weight, weight_parameters, gate_level, weight_level)


def every_rule() -> Iterator[Rule]:
    """Every gate and weight at every level, and every filter, which looks at tokens itself, with a weight of each."""
    for level in LEVELS:
        yield from (rule_of(gate, "ratio", level) for gate in GATES)
        yield from (rule_of("one_side", weight, level) for weight in WEIGHTS)
    filters = [stop for stop in FILTERS if stop in STOPPING]
    yield from (rule_of(stop, "ratio", level) for stop, level in zip(filters, cycle(LEVELS), strict=False))


RULES = list(dict.fromkeys(every_rule()))
rules = in_one_loop("rule", {str(rule): rule for rule in RULES})


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


def logged(run: Run, tokens: Tokens) -> pd.DataFrame:
    """The rows of the log that a run's tokens are, in their order; every row of these steps is usable."""
    rows = run.read("tokens")
    rows = rows[rows["step"].isin(tokens.step.tolist())].sort_values(["step", "group_id", "seq_id", "position"])
    assert rows["logp_current"].to_numpy() == pytest.approx(tokens.logp_current.numpy(), abs=0)
    return rows


def random_tokens(seed: int = 0) -> Tokens:
    return tokens_of(random_columns(seed))


def brute_force(outcome: RuleOutcome, tokens: Tokens) -> dict[str, float]:
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
        "truncated_mass": truncated / m if has_mass(outcome.rule) else float("nan"),
        "masked_mass": masked / m if has_mass(outcome.rule) else float("nan"),
        "bias_proxy": (truncated + masked) / m if has_mass(outcome.rule) else float("nan"),
        "staleness": mean([abs(rho_k[i] - 1) / 2 for i in kept]),
        "staleness_raw": mean([abs(rho_k[i] - 1) / 2 for i in signal]),
        "drift_kept": mean([drift[i] for i in kept]),
        "drift_clipped": mean([drift[i] for i in clipped]),
        "ess": sum(v.values()) ** 2 / (len(v) * sum(value**2 for value in v.values())) if v else float("nan"),
        "ess_raw": sum(rho_theta[i] for i in signal) ** 2 / (m * sum(rho_theta[i] ** 2 for i in signal)),
        "max_weight": max(v.values(), default=float("nan")),
        "max_weight_raw": max(rho_theta[i] for i in signal),
    }


def has_mass(rule: Rule) -> bool:
    """A geometric mean is no importance ratio: nothing of it can be missed."""
    return rule.weight_level != "geometric" and rule.weight != "geometric_of_clipped"


def weights_by_formula(rule: Rule, rows: list[Any], rho: list[float]) -> list[float]:
    """Weights other than the geometric mean of clipped ratios, of which the tensor is taken."""
    bounds = rule.weight_parameters
    steps = aggregated([row[5] - row[4] for row in rows], rows, rule.weight_level)
    if rule.weight == "incremental":
        return steps
    if rule.weight.endswith("staleness"):
        level = "sequence" if "sequence" in rule.weight else rule.weight_level
        old = aggregated([row[4] - row[3] for row in rows], rows, level)
        return [step * min(value, bounds["cap"]) for step, value in zip(steps, old, strict=True)]
    advantage = [row[2] for row in rows]
    if rule.weight == "gamma_kernel":
        sign = ["positive" if a >= 0 else "negative" for a in advantage]
        k, decay = ([bounds[f"{name}_{s}"] for s in sign] for name in ("power", "decay"))
        return [value ** k[i] * exp(decay[i] * (1 - value)) for i, value in enumerate(rho)]
    return {
        "none": [1.0] * len(rho),
        "tapered": [min(value, 1.0) if a < 0 else 1.0 for value, a in zip(rho, advantage, strict=True)],
        "clamped": [min(max(value, bounds.get("floor", 0.0)), bounds.get("cap", inf)) for value in rho],
        "ratio": rho,
        "truncated": [min(value, bounds.get("cap", inf)) for value in rho],
        "upper_clipped": [min(value, 1 + bounds.get("epsilon_high", inf)) for value in rho],
    }[rule.weight]


def aggregated(steps: list[float], rows: list[Any], level: str) -> list[float]:
    """Ratios of tokens, or aggregated over their sequences as the level says."""
    if level == "token":
        return [exp(value) for value in steps]
    of = {row[7]: [step for step, other in zip(steps, rows, strict=True) if other[7] == row[7]] for row in rows}
    length = {key: len(values) if level == "geometric" else 1 for key, values in of.items()}
    return [exp(sum(of[row[7]]) / length[row[7]]) for row in rows]
