"""How far a rule lets a token's ratio move in one update: its constraint, read off its gate's bounds.

A gate removes the gradient that moves a ratio on in the direction of the advantage. Where that happens is the token's
*reach*; between rho_k and its reach nothing holds it back, so that half the mean distance is the largest update drift
U_k that the rule permits (S0 5.2, 5.3). It is a limit on what the masked gradient asks for: weights are shared between
tokens, and the optimiser may carry a ratio further.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.tokens import Tokens, masked
from ratioscope.gates import FILTERS, GATES, Gate
from ratioscope.ratios import LogRatios


def _either(up: Tensor, high: float, low: float) -> Tensor:
    """In double: `torch.where` of plain numbers would be single precision."""
    return torch.where(up, torch.tensor(high, dtype=torch.float64), torch.tensor(low, dtype=torch.float64))


def _band(current: Tensor, up: Tensor, *, epsilon_low: float, epsilon_high: float) -> Tensor:
    return _either(up, 1 + epsilon_high, 1 - epsilon_low)


def _ring(
    current: Tensor, up: Tensor, *, epsilon_low: float, epsilon_high: float, outer_low: float, outer_high: float
) -> Tensor:
    """From outside of the ring a ratio is let back to the outer margin; without a gap it is let on into the band."""
    far_below = up & (current <= 1 - outer_low) & (outer_low > epsilon_low)
    far_above = ~up & (current >= 1 + outer_high) & (outer_high > epsilon_high)
    band, margin = _either(up, 1 + epsilon_high, 1 - epsilon_low), _either(up, 1 - outer_low, 1 + outer_high)
    return torch.where(far_below | far_above, margin, band)


REACH: dict[str, Callable[..., Tensor]] = {
    "one_side": _band,
    "two_side": _band,
    "ring": _ring,
    "adaptive": lambda current, up, *, epsilon: current + _either(up, epsilon, -epsilon),
    "incremental": lambda current, up, *, epsilon: current * _either(up, 1 + epsilon, 1 - epsilon),
    "one_side_log": lambda current, up, *, epsilon_log: _either(up, epsilon_log, -epsilon_log).exp(),
    "masked": lambda current, up, *, cap: _either(up, cap, 0.0),
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
