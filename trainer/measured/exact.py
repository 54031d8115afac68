"""Exact per-state distances from full distributions: the Rao-Blackwellised companions of the sampled estimates."""

from collections.abc import Callable

import torch
from torch import Tensor

# States whose full distributions are in memory at once, in float64.
CHUNK = 4_096 * 16


def exact_total_variation(p: Tensor, q: Tensor) -> Tensor:
    """(n_tokens, vocabulary) log-probabilities -> (n_tokens,): half the sum of |p - q| (S1 4.1)."""
    return _by_state(lambda a, b: (a.exp() - b.exp()).abs().sum(dim=-1) / 2, p, q)


def chi_square(p: Tensor, q: Tensor) -> Tensor:
    """sum (p - q)^2 / q (S1 4.2); infinite where q leaves out what p may do."""

    def of(a: Tensor, b: Tensor) -> Tensor:
        covered = b.exp() * torch.expm1(a - b) ** 2
        outside = torch.where(a > -torch.inf, torch.inf, 0.0)
        return torch.where(b > -torch.inf, covered, outside).sum(dim=-1)

    return _by_state(of, p, q)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q), nats; what p never does counts 0."""
    return _by_state(lambda a, b: torch.where(a > -torch.inf, a.exp() * (a - b), 0.0).sum(dim=-1), p, q)


def _by_state(of: Callable[[Tensor, Tensor], Tensor], p: Tensor, q: Tensor) -> Tensor:
    rows = max(1, CHUNK // p.shape[-1])
    parts = [of(a.double(), b.double()) for a, b in zip(torch.split(p, rows), torch.split(q, rows), strict=True)]
    return torch.cat(parts) if parts else p.new_zeros(0)
