"""Which of the sampled responses count, and how much each: the data-weighting part of an algorithm (S3 4.3).

All functions are over groups: K responses to each of n_groups prompts.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ratioscope.trainer.algorithms.advantages import balanced_weights


def all_responses(reward: Tensor, generator: torch.Generator) -> Tensor:
    """Every response counts: (n_groups, K) rewards -> bool."""
    return torch.ones_like(reward, dtype=torch.bool)


def finished(reward: Tensor, generator: torch.Generator) -> Tensor:
    """Overlong filtering: every response with an end mark; the others still count in advantages (S4 5.4.2)."""
    return all_responses(reward, generator)


def balanced(reward: Tensor, generator: torch.Generator) -> Tensor:
    """RED-Drop: as many responses below the group's mean as above it, the excess dropped at random (S3 4.3).

    A group without responses above or below its mean is left as it is.
    """
    mean = reward.mean(dim=1, keepdim=True)
    negative, positive = reward < mean, reward > mean
    allowed = torch.where(positive.any(dim=1), positive.sum(dim=1), reward.shape[1]).unsqueeze(1)
    # The place of each negative response in a random order of its group's negative ones.
    order = torch.where(negative, torch.rand(reward.shape, generator=generator), 2.0).argsort(dim=1).argsort(dim=1)
    return ~negative | (order < allowed)


def mixed_groups(reward: Tensor, generator: torch.Generator) -> Tensor:
    """DAPO: every response of a batch that was sampled again until its groups had a signal (S4 5.4.2)."""
    return all_responses(reward, generator)


SELECTIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "all": all_responses,
    "balanced": balanced,
    "finished": finished,
    "mixed_groups": mixed_groups,
}


def equal(reward: Tensor, advantage: Tensor, kept: Tensor) -> Tensor:
    """1 for every response."""
    return torch.ones_like(reward)


def exponential(reward: Tensor, advantage: Tensor, kept: Tensor, *, tau: float) -> Tensor:
    """RED-Weight: exp(A / tau) (S3 4.3)."""
    return (advantage / tau).exp()


def pair_sums(reward: Tensor, advantage: Tensor, kept: Tensor) -> Tensor:
    """(sum_j w_j) w_i: how much the pairs of a response weigh together (S3 eq. 9)."""
    weight = balanced_weights(reward, kept)
    return weight.sum(dim=1, keepdim=True) * weight


def consistency(reward: Tensor, advantage: Tensor, kept: Tensor, *, tau: float) -> Tensor:
    """2 tau / (1 + tau)^2: the step size of the pairwise consistency loss (S3 eq. 7)."""
    return torch.full_like(reward, 2 * tau / (1 + tau) ** 2)


SAMPLE_WEIGHTS: dict[str, Callable[..., Tensor]] = {
    weight.__name__: weight for weight in (equal, exponential, pair_sums, consistency)
}


def overlong_penalty(length: Tensor, ended: Tensor, longest: int, *, overlong_fraction: float) -> Tensor:
    """DAPO's soft punishment of long responses, in [-1, 0]: it grows over the last part of the allowed length.

    Args:
        length: (n,) sampled tokens; the end mark is not counted as content.
        ended: (n,) bool, whether the end mark was sampled.
        longest: most tokens of a response.
        overlong_fraction: the last part of `longest` in which the penalty grows, at least one token.
    """
    part = max(1, round(overlong_fraction * longest))
    content = length - ended.long()
    return -((content - (longest - part)) / part).clamp(0, 1)
