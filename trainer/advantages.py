"""Advantages of K responses to one prompt, from their rewards. Pure functions, (n_groups, K) -> (n_groups, K)."""

from collections.abc import Callable

from torch import Tensor

# Keeps a group with equal rewards at advantage 0 instead of 0/0 (S4 eq. 90).
VARIANCE_FLOOR = 1e-8


def group_mean(reward: Tensor) -> Tensor:
    """r - r̄ (S3 eq. 1)."""
    return reward - reward.mean(dim=1, keepdim=True)


def group_normalised(reward: Tensor) -> Tensor:
    """(r - r̄) / sqrt(var + floor), population variance (S4 eq. 90)."""
    variance = reward.var(dim=1, keepdim=True, unbiased=False)
    return group_mean(reward) / (variance + VARIANCE_FLOOR).sqrt()


ADVANTAGES: dict[str, Callable[[Tensor], Tensor]] = {
    advantage.__name__: advantage for advantage in (group_mean, group_normalised)
}
