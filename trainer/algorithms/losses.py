"""The one loss: a declaration's parts put together, and what they did to each token.

The coefficient of grad log pi is a constant of the pass (advantage x weight x gate, and what the regulariser adds), and
the loss has the gradient of minus the normalised sum of coefficient x log pi: the source equation's, term by term. Its
value is what the source prints (`trainer.algorithms.surrogate`).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ratioscope.rules.filters import FILTERS, Rows
from ratioscope.rules.gates import GATES, Gate, both
from ratioscope.rules.ratios import LEVELS, LogRatios, log_ratio
from ratioscope.rules.weights import WEIGHTS
from ratioscope.trainer.algorithms import surrogate
from ratioscope.trainer.algorithms.algorithm import Algorithm
from ratioscope.trainer.algorithms.own import pick
from ratioscope.trainer.algorithms.parameters import taken_by
from ratioscope.trainer.algorithms.regularisers import KL_ESTIMATORS, REGULARISERS, Places


class TokenBatch(NamedTuple):
    """The response tokens of whole groups, flat: each field has shape (n_tokens,)."""

    logp_behavior: Tensor
    logp_current: Tensor
    advantage: Tensor
    sequence: Tensor
    """Index of the sequence that a token belongs to, from 0."""
    group: Tensor
    """Index of the prompt group that a token belongs to, from 0."""
    sample_weight: Tensor
    """Weight of the token's sequence."""
    logp_reference: Tensor | None = None
    entropy: Tensor | None = None
    """Of pi_k in the token's state."""


class Size(NamedTuple):
    """What a loss is divided by: of the whole batch of one optimiser step, however it is split for memory."""

    tokens: int
    sequences: int
    longest: int
    """Most tokens that a response may have, T_max."""
    weight: float = 0.0
    """Sum of the importance weights of the tokens; the loss itself fills it in."""


class ReferenceKL(NamedTuple):
    """The penalty on the distance to the reference policy; `estimator` is a key of `KL_ESTIMATORS`."""

    coefficient: float
    estimator: str


class LossOutput(NamedTuple):
    """A scalar loss and the gate that it applied."""

    loss: Tensor
    gate: Gate


def token_mean(coefficient: Tensor, sequence: Tensor, size: Size) -> Tensor:
    """Every token of the batch weighs the same (S4 eq. 102)."""
    return coefficient / max(size.tokens, 1)


def sequence_mean(coefficient: Tensor, sequence: Tensor, size: Size) -> Tensor:
    """The mean inside a sequence first, then over sequences (S4 eq. 97)."""
    length = torch.bincount(sequence) if len(sequence) else sequence
    return coefficient / (max(size.sequences, 1) * length[sequence])


def sequence_sum(coefficient: Tensor, sequence: Tensor, size: Size) -> Tensor:
    """The sum inside a sequence, then the mean over sequences (S3 eq. 1, S4 eq. 39)."""
    return coefficient / max(size.sequences, 1)


def longest_mean(coefficient: Tensor, sequence: Tensor, size: Size) -> Tensor:
    """The sum inside a sequence over T_max, then the mean over sequences (S4 eq. 100)."""
    return coefficient / (max(size.sequences, 1) * size.longest)


def self_normalised(coefficient: Tensor, sequence: Tensor, size: Size) -> Tensor:
    """Over the sum of the importance weights instead of the number of tokens (S4 remark 1.3)."""
    return coefficient / max(size.weight, torch.finfo(torch.float64).tiny)


AGGREGATIONS: dict[str, Callable[[Tensor, Tensor, Size], Tensor]] = {
    aggregation.__name__: aggregation
    for aggregation in (token_mean, sequence_mean, sequence_sum, longest_mean, self_normalised)
}


def policy_loss(
    algorithm: Algorithm,
    parameters: Mapping[str, float],
    logp: Tensor,
    batch: TokenBatch,
    size: Size,
    reference_kl: ReferenceKL | None = None,
) -> LossOutput:
    """The loss of one gradient pass over whole groups.

    Args:
        algorithm: names of the parts.
        parameters: of the parts, where they depart from the algorithm's defaults.
        logp: log pi_theta of the sampled tokens, (n_tokens,), with gradient.
        batch: the logged tokens.
        size: what to divide by; losses of a batch's parts add up to that of the whole.
        reference_kl: a penalty that any algorithm can have; it needs `batch.logp_reference`.
    """
    frozen = logp.detach()
    settings = {**algorithm.parameters, **parameters}
    tokens = LogRatios(
        behavior=log_ratio(frozen, batch.logp_behavior),
        current=log_ratio(batch.logp_current, batch.logp_behavior),
    )
    ratios = LEVELS[algorithm.level].of(tokens, batch.sequence)
    make_gate, make_weight = pick("gate", algorithm.gate, GATES), pick("weight", algorithm.weight, WEIGHTS)
    gate: Gate = make_gate(ratios, batch.advantage, **taken_by(make_gate, settings))
    own_gate, dropped = gate, torch.zeros_like(gate.clipped)
    if algorithm.filter != "none":
        rows = Rows(tokens, batch.advantage, batch.sequence, batch.logp_behavior, None, batch.entropy)
        keep = FILTERS[algorithm.filter].function
        kept: Gate = keep(rows, **taken_by(keep, settings))
        gate, dropped = both(gate, kept), kept.clipped
    weight: Tensor = make_weight(ratios, batch.advantage, batch.sequence, **taken_by(make_weight, settings))
    # A weight that overflows where nothing is weighted is not applied: inf * 0 would poison the whole batch.
    active = (gate.value > 0) & (batch.advantage != 0) & (batch.sample_weight != 0)
    coefficient = (batch.advantage.double() * batch.sample_weight) * torch.where(active, weight * gate.value, 0.0)
    printed = surrogate.of_policy(
        algorithm, settings, frozen, ratios, batch.advantage.double(), batch.sequence, own_gate, weight
    )
    counts = (batch.advantage != 0) & (batch.sample_weight != 0) & ~dropped
    printed = torch.where(counts, batch.sample_weight * printed, 0.0)

    regularise = pick("regulariser", algorithm.regulariser, REGULARISERS)
    places = Places(batch.sequence, batch.group, batch.advantage, frozen)
    added = regularise(tokens, places, **taken_by(regularise, settings))
    coefficient = coefficient + added
    printed = surrogate.with_regulariser(
        algorithm, settings, printed, added, tokens.behavior, frozen, batch.advantage, batch.sequence
    )
    if reference_kl is not None and batch.logp_reference is not None:
        moved, pull = log_ratio(frozen, batch.logp_reference), reference_kl.coefficient * tokens.behavior.exp()
        coefficient = coefficient - pull * KL_ESTIMATORS[reference_kl.estimator](moved)
        printed = printed - pull * surrogate.KL_ESTIMATES[reference_kl.estimator](moved)

    if algorithm.aggregation == "self_normalised":
        size = size._replace(weight=float(weight.sum()))
    aggregate = pick("aggregation", algorithm.aggregation, AGGREGATIONS)
    coefficient = aggregate(coefficient, batch.sequence, size, **taken_by(aggregate, settings))
    loss = -(coefficient.to(logp.dtype) * logp).sum()
    value = -aggregate(printed, batch.sequence, size, **taken_by(aggregate, settings)).sum()
    return LossOutput(loss + (value.to(logp.dtype) - loss).detach(), gate)
