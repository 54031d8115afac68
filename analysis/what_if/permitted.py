"""How far a rule lets a token's ratio move in one update: its constraint, read off its gate's bounds.

A gate removes the gradient that moves a ratio on in the direction of the advantage. Where that happens is the token's
*reach*; between rho_k and its reach nothing holds it back, so that half the mean distance is the largest update drift
U_k that the rule permits (S0 5.2, 5.3). It is a limit on what the masked gradient asks for: weights are shared between
tokens, and the optimiser may carry a ratio further.
"""

from ratioscope.analysis.what_if.rule import Rule
from ratioscope.analysis.what_if.tokens import Tokens, masked
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.gates import GATES, Gate
from ratioscope.rules.ratios import LogRatios
from ratioscope.tensors import Tensor


def why_unbounded(rule: Rule) -> str:
    """Why a rule permits any update; empty where it does not."""
    if rule.gate in FILTERS:
        return f"{rule.gate} decides which tokens are used, not how far their ratios may move"
    if GATES[rule.gate].reach is None:
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
    gate, ratios, advantage = GATES[rule.gate], tokens.rows.ratios, tokens.advantage
    assert gate.reach is not None
    closed = decision.clipped
    if ratios.behavior is not ratios.current:  # after several passes: what stops a token at the start of the update?
        at_start = LogRatios(ratios.current, ratios.current)
        closed = gate.function(at_start, advantage, **rule.gate_parameters).clipped
    reach = gate.reach(tokens.rho_k, advantage > 0, **rule.gate_parameters).clamp_(min=0)  # ratios are positive
    return masked((reach - tokens.rho_k).abs_() / 2, tokens.signal & ~closed)
