"""The one loss: a declaration's parts put together, and what they did to each token.

The coefficient of grad log pi is a constant of the pass (advantage x weight x gate), so the loss is minus the
normalised sum of coefficient x log pi. Its autograd gradient is the source equation's gradient, term by term;
for the ratio-weighted, one-sided members that is the gradient of PPO's min(rho A, clip(rho) A).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ratioscope.gates import GATES, Gate
from ratioscope.ratios import LogRatios, log_ratio
from trainer.algorithms import Algorithm


class TokenBatch(NamedTuple):
    """The response tokens of one update, flat: each field has shape (n_tokens,)."""

    logp_behavior: Tensor
    logp_current: Tensor
    advantage: Tensor
    sequence: Tensor
    """Index of the sequence that a token belongs to, from 0."""


class LossOutput(NamedTuple):
    """A scalar loss and the gate that it applied."""

    loss: Tensor
    gate: Gate


def no_weight(ratios: LogRatios) -> Tensor:
    """1: the data are taken as they are."""
    return torch.ones_like(ratios.behavior)


def ratio(ratios: LogRatios) -> Tensor:
    """rho_theta = pi_theta / behavior: importance sampling, token by token."""
    return ratios.behavior.exp()


def token_mean(coefficient: Tensor, sequence: Tensor) -> Tensor:
    """Every token of the batch weighs the same."""
    return coefficient / max(len(coefficient), 1)


WEIGHTS: dict[str, Callable[[LogRatios], Tensor]] = {"none": no_weight, "ratio": ratio}
AGGREGATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"token_mean": token_mean}


def policy_loss(algorithm: Algorithm, parameters: dict[str, float], logp: Tensor, batch: TokenBatch) -> LossOutput:
    """The loss of one gradient pass.

    Args:
        algorithm: names of the parts.
        parameters: of the gate, where they depart from the algorithm's defaults.
        logp: log pi_theta of the sampled tokens, (n_tokens,), with gradient.
        batch: the logged tokens.
    """
    frozen = logp.detach()
    ratios = LogRatios(
        behavior=log_ratio(frozen, batch.logp_behavior),
        current=log_ratio(batch.logp_current, batch.logp_behavior),
    )
    gate = GATES[algorithm.gate](ratios, batch.advantage, **{**algorithm.parameters, **parameters})
    # A weight that overflows where nothing is weighted is not applied: inf * 0 would poison the whole batch.
    active = (gate.value > 0) & (batch.advantage != 0)
    applied = torch.where(active, WEIGHTS[algorithm.weight](ratios) * gate.value, 0.0)
    coefficient = AGGREGATIONS[algorithm.aggregation](batch.advantage.double() * applied, batch.sequence)
    return LossOutput(loss=-(coefficient.to(logp.dtype) * logp).sum(), gate=gate)
