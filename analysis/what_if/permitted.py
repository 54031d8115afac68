"""How far a rule lets a token's ratio move in one update: its constraint, read off its gate's bounds.

A gate removes the gradient that moves a ratio on in the direction of the advantage. Where that happens is the token's
*reach*; between rho_k and its reach nothing holds it back, so that half the mean distance is the largest update drift
U_k that the rule permits (S0 5.2, 5.3). It is a limit on what the masked gradient asks for: weights are shared between
tokens, and the optimiser may carry a ratio further.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from analysis.what_if.rule import Rule
from analysis.what_if.tokens import Tokens, masked
from ratioscope.gates import FILTERS, GATES, Gate
from ratioscope.ratios import LogRatios


def _one_of(bounds: list[float], which: Tensor) -> Tensor:
    """In double: `torch.where` of plain numbers would be single precision."""
    return torch.tensor(bounds, dtype=torch.float64)[which]


def _band(current: Tensor, up: Tensor, *, epsilon_low: float, epsilon_high: float) -> Tensor:
    return _one_of([1 - epsilon_low, 1 + epsilon_high], up.long())


def _ring(
    current: Tensor, up: Tensor, *, epsilon_low: float, epsilon_high: float, outer_low: float, outer_high: float
) -> Tensor:
    """From outside of the ring a ratio is let back to the outer margin; without a gap it is let on into the band."""
    far_below = up & (current <= 1 - outer_low) & (outer_low > epsilon_low)
    far_above = ~up & (current >= 1 + outer_high) & (outer_high > epsilon_high)
    bounds = [1 - epsilon_low, 1 + epsilon_high, 1 - outer_low, 1 + outer_high]
    return _one_of(bounds, up.long() + far_below.long() + 3 * far_above.long())


REACH: dict[str, Callable[..., Tensor]] = {
    "one_side": _band,
    "two_side": _band,
    "ring": _ring,
    "adaptive": lambda current, up, *, epsilon: current + _one_of([-epsilon, epsilon], up.long()),
    "incremental": lambda current, up, *, epsilon: current * _one_of([1 - epsilon, 1 + epsilon], up.long()),
    "one_side_log": lambda current, up, *, epsilon_log: _one_of([-epsilon_log, epsilon_log], up.long()).exp(),
    "masked": lambda current, up, *, cap: _one_of([0.0, cap], up.long()),
}
"""gate -> (rho_k, whether A > 0, **parameters) -> the ratio at which its gradient stops."""


def why_unbounded(rule: Rule) -> str:
    """Why a rule permits any update; empty where it does not."""
    if rule.gate in FILTERS:
        return f"{rule.gate} decides which tokens are used, not how far their ratios may move"
    if rule.gate not in REACH:
        return f"the gate {rule.gate} has no bound: any update is permitted"
    if rule.gate_level != "token":
        return f"a bound on {rule.gate_level} ratios does not bound the ratio of a token"
    return ""


def permitted_drift(rule: Rule, tokens: Tokens, decision: Gate) -> Tensor:
    """Half the distance that each token's ratio may move, (n_tokens,); 0 without an advantage or where it is stopped.

    Args:
        rule: with a bound: `why_unbounded` is empty.
        decision: of the rule's gate at the gradient pass.
    """
    ratios, advantage = tokens.rows.ratios, tokens.advantage
    closed = decision.clipped
    if ratios.behavior is not ratios.current:  # after several passes: what stops a token at the start of the update?
        at_start = LogRatios(ratios.current, ratios.current)
        closed = GATES[rule.gate](at_start, advantage, **rule.gate_parameters).clipped
    reach = REACH[rule.gate](tokens.rho_k, advantage > 0, **rule.gate_parameters).clamp_(min=0)  # ratios are positive
    return masked((reach - tokens.rho_k).abs_() / 2, tokens.signal & ~closed)
