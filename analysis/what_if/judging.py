"""Applying a rule to a block of tokens: tensor operations, then sums by prompt group."""

from collections.abc import Callable, Set
from functools import cache
from typing import NamedTuple

import numpy as np

from ratioscope.analysis.what_if.permitted import permitted_drift, why_unbounded
from ratioscope.analysis.what_if.rule import STOPPING, Rule
from ratioscope.analysis.what_if.tokens import Tokens, Weighted, gated, masked
from ratioscope.rules.filters import FILTERS, Rows
from ratioscope.rules.gates import Gate
from ratioscope.rules.ratios import LEVELS, LogRatios
from ratioscope.rules.weights import WEIGHTS
from ratioscope.tails import Array
from ratioscope.tensors import Tensor, torch


class JudgedBlock(NamedTuple):
    """What a rule makes of a block of tokens."""

    tokens: Tokens
    decision: Gate
    weight: Tensor
    applied: Tensor
    kept: Tensor
    """Bool: a signal token whose gate is above 0."""
    hard: bool
    """Whether the gate is 0 or 1 on every token, 0 exactly on those that it stops."""
    full: Weighted
    sums: dict[str, Array]


def decide(rule: Rule, tokens: Tokens) -> Gate:
    """The gate or filter of a rule, on every token."""
    return _gate(rule, tokens.rows, lambda level: tokens.level(level).ratios)


def multiplier(rule: Rule, rows: Rows) -> Array:
    """What a rule multiplies every token's advantage with, weight x gate, (n_tokens,), of rows that are NumPy arrays:
    without PyTorch, which takes longer to be there than a small log to be read."""

    @cache
    def at(level: str) -> LogRatios:
        return LEVELS[level].of(rows.ratios, rows.sequence)

    with np.errstate(all="ignore"):  # ratios that overflow, or are none
        return np.asarray(_weight(rule, rows, at) * _gate(rule, rows, at).value)


def _gate(rule: Rule, rows: Rows, at: Callable[[str], LogRatios]) -> Gate:
    stop = STOPPING[rule.gate].function
    if rule.gate in FILTERS:
        return stop(rows, **rule.gate_parameters)
    return stop(at(rule.gate_level), rows.advantage, **rule.gate_parameters)


def _weight(rule: Rule, rows: Rows, at: Callable[[str], LogRatios]) -> Tensor:
    weight = WEIGHTS[rule.weight].function
    return weight(at(rule.weight_level), rows.advantage, rows.sequence, **rule.weight_parameters)


def judge_tokens(rule: Rule, tokens: Tokens, wanted: Set[str] | None = None) -> JudgedBlock:
    """Decision, weights, and those of the sums that are `wanted`; None: all."""
    decision = decide(rule, tokens)
    full = weighted(rule, tokens)
    weight = full.weight
    opened = decision.side == 0
    hard = bool((decision.value == opened).all())
    kept = tokens.signal & (opened if hard else decision.value > 0)
    applied = masked(weight, opened) if hard else gated(weight, decision.value)
    judged = JudgedBlock(tokens, decision, weight, applied, kept, hard, full, {})
    formulas = _formulas(rule, judged)
    sums = tokens.sums | tokens.level(rule.weight_level).sums
    sums |= {name: formula() for name, formula in formulas.items() if wanted is None or name in wanted}
    return judged._replace(sums=sums)


def weighted(rule: Rule, tokens: Tokens) -> Weighted:
    """The weights of a rule; those without parameters are kept with the tokens."""
    key = f"{rule.weight} {rule.weight_level}"
    if key in tokens.weighted:
        return tokens.weighted[key]
    level = tokens.level(rule.weight_level)
    full = _weight(rule, tokens.rows, lambda _: level.ratios)
    weight = masked(full, tokens.signal)
    found = Weighted(weight, torch.equal(full, level.rho), tokens.sum_by_group(weight * tokens.size))
    if not rule.weight_parameters:
        tokens.weighted[key] = found
    return found


def _is_geometric(rule: Rule) -> bool:
    """Whether the weight is a geometric mean, which is no importance ratio: what it leaves out has no mass."""
    return rule.weight_level == "geometric" or WEIGHTS[rule.weight].geometric


def _formulas(rule: Rule, block: JudgedBlock) -> dict[str, Callable[[], Array]]:
    """How the sums by prompt group of every numerator and denominator of the measures are computed.

    Behind a hard gate a product with it is a choice, which is cheaper: a slider has no time for products.
    """
    tokens, kept, applied, weight = block.tokens, block.kept, block.applied, block.weight
    by_group, value, side, clipped = (
        tokens.sum_by_group,
        block.decision.value,
        block.decision.side,
        block.decision.clipped,
    )
    level = tokens.level(rule.weight_level)

    def through(values: Tensor) -> Tensor:
        return masked(values, kept) if block.hard else masked(gated(values, value), tokens.signal)

    def lost(values: Tensor) -> Tensor:
        if block.hard:
            return masked(values, tokens.signal & clipped)
        return masked(gated(values, 1 - value), tokens.signal)

    def beyond() -> Tensor:
        # A ratio and a weight that both overflow are the same one: inf - inf is no mass that was truncated.
        return (level.rho - weight).nan_to_num_(nan=0.0, posinf=torch.inf).clamp_(min=0)

    @cache
    def truncated() -> Array:
        return np.zeros(len(tokens.group_starts)) if block.full.is_ratio else by_group(through(beyond()))

    @cache
    def missing() -> Array:
        return by_group(lost(level.rho))

    @cache
    def stopped() -> Array:
        return by_group(clipped)

    @cache
    def below() -> Array:
        return by_group(side < 0)

    @cache
    def stopped_positive() -> Array:
        return by_group(clipped & (tokens.advantage > 0))

    @cache
    def left() -> Array:
        return by_group(kept)

    formulas: dict[str, Callable[[], Array]] = {}
    formulas |= {
        "clipped": stopped,
        "clipped_low": below,
        "clipped_high": lambda: stopped() - below(),
        "clipped_positive": stopped_positive,
        "clipped_negative": lambda: stopped() - stopped_positive(),
        "gate": lambda: tokens.sums["tokens"] - stopped() if block.hard else by_group(value),
        "effective": lambda: left() if block.hard else by_group(masked(value, tokens.signal)),
        "kept": left,
        "v": lambda: by_group(applied),
        "v_squared": lambda: by_group(applied.square()),
        "v_advantage": lambda: by_group(applied * tokens.size),
        "w_advantage": lambda: block.full.mass,
        "v_deviation": lambda: by_group(masked((applied - 1).square_(), kept)),
        "kept_staleness": lambda: by_group(masked(tokens.staleness, kept)),
    }  # fmt: skip
    if not _is_geometric(rule):
        formulas |= {"truncated": truncated, "masked": missing, "taken": lambda: truncated() + missing()}
    if tokens.drift is not None:
        drift = tokens.drift
        formulas["kept_drift"] = lambda: by_group(masked(drift, kept))
        formulas["clipped_drift"] = lambda: by_group(masked(drift, clipped))
    if not why_unbounded(rule):
        formulas["permitted"] = lambda: by_group(permitted_drift(rule, tokens, block.decision))
    return formulas
