"""Advantages: how good a response, or a token of it, was. Pure functions.

Group advantages compare K responses to one prompt, (n_groups, K) rewards and a mask of those that count ->
(n_groups, K), 0 where the mask is false. Token advantages look at one response, (n, T) -> (n, T).
"""

from collections.abc import Callable

import torch
from torch import Tensor

# Keeps a group with equal rewards at advantage 0 instead of 0/0 (S4 eq. 90).
VARIANCE_FLOOR = 1e-8


def group_mean(reward: Tensor, kept: Tensor) -> Tensor:
    """r - r̄ (S3 eq. 1; over a subset S eq. 10)."""
    return torch.where(kept, reward - _mean(reward, kept), 0.0)


def group_normalised(reward: Tensor, kept: Tensor) -> Tensor:
    """(r - r̄) / sqrt(var + floor), population variance (S4 eq. 90)."""
    centred = group_mean(reward, kept)
    return centred / (_mean(centred**2, kept) + VARIANCE_FLOOR).sqrt()


def leave_one_out(reward: Tensor, kept: Tensor) -> Tensor:
    """r minus the mean of the others: unlike r - r̄ not shrunk by (K - 1)/K."""
    n = kept.sum(dim=1, keepdim=True)
    return group_mean(reward, kept) * n / (n - 1).clamp(min=1)


def shifted(reward: Tensor, kept: Tensor, *, baseline_shift: float) -> Tensor:
    """r - (r̄ - shift): AsymRE (S3 4.2)."""
    return torch.where(kept, group_mean(reward, kept) + baseline_shift, 0.0)


def log_mean_exp(reward: Tensor, kept: Tensor, *, tau: float) -> Tensor:
    """r - tau log of the mean of exp(r / tau): OPMD before r̄ stands in for tau log Z (S3 4.2)."""
    scaled = torch.where(kept, reward / tau, -torch.inf)
    n = kept.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(kept, reward - tau * (scaled.logsumexp(dim=1, keepdim=True) - n.log()), 0.0)


def signal_rescaled(reward: Tensor, kept: Tensor) -> Tensor:
    """r - r̄, times the responses over those of groups with unequal rewards: GPG's alpha (Chu et al. 2025)."""
    centred = group_mean(reward, kept)
    signal = kept & (centred != 0).any(dim=1, keepdim=True)
    return centred * kept.sum() / signal.sum().clamp(min=1)


def pairwise(reward: Tensor, kept: Tensor) -> Tensor:
    """r - r̄_w, with the weights of `balanced_weights` (S3 eq. 9)."""
    weight = balanced_weights(reward, kept)
    mean = (weight * reward).sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True).clamp(min=1e-12)
    return torch.where(kept, reward - mean, 0.0)


def balanced_weights(reward: Tensor, kept: Tensor) -> Tensor:
    """w_i of S3 eq. 9 such that each reward value that occurs has the same sum of squares, and all of them sum to 1.

    A rare outcome, which is in few pairs with the others, weighs more; with equally frequent outcomes
    w_i = 1/sqrt(K), which is REINFORCE.
    """
    same = (reward.unsqueeze(2) == reward.unsqueeze(1)) & kept.unsqueeze(1)
    frequency = same.sum(dim=2).clamp(min=1).to(reward.dtype)  # of a response's own reward
    outcomes = torch.where(kept, 1.0 / frequency, 0.0).sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(kept, (frequency * outcomes).rsqrt(), 0.0)


def _mean(values: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, values, 0.0).sum(dim=1, keepdim=True) / kept.sum(dim=1, keepdim=True).clamp(min=1)


GROUP_ADVANTAGES: dict[str, Callable[..., Tensor]] = {
    advantage.__name__: advantage
    for advantage in (*(group_mean, group_normalised, leave_one_out, shifted, pairwise, log_mean_exp, signal_rescaled),)
}


def reward_to_go(reward: Tensor, mask: Tensor, value: Tensor, *, gamma: float) -> Tensor:
    """G_t of the reward at a response's last token, without a baseline (S4 eq. 38)."""
    return gae(reward, mask, torch.zeros_like(value), gamma=gamma, gae_lambda=1.0)


def gae(reward: Tensor, mask: Tensor, value: Tensor, *, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimate (S4 eq. 80); with lambda = 1 it is G_t - V (S4 eq. 46).

    Args:
        reward: n of them, each given at a response's last token; the value after it is 0.
        mask: (n, T) bool, true on a response's tokens, which come first.
        value: (n, T), V of the state before each token.
    """
    reward, length = reward.flatten(), mask.sum(dim=1)
    advantage = torch.zeros_like(value)
    following = torch.zeros_like(reward)
    for place in reversed(range(mask.shape[1])):
        last = length == place + 1
        next_value = value[:, place + 1] if place + 1 < mask.shape[1] else torch.zeros_like(reward)
        target = torch.where(last, reward, gamma * next_value)
        following = target - value[:, place] + torch.where(last, 0.0, gamma * gae_lambda * following)
        following = torch.where(mask[:, place], following, 0.0)
        advantage[:, place] = following
    return advantage


def optimal_token_baseline(reward: Tensor, mask: Tensor, energy: Tensor) -> Tensor:
    """r minus, at each place, the mean reward of the group's responses that get there, weighted with the size of their
    gradients so far (verl's optimal_token_baseline); where only one gets there, the reward itself.

    Args:
        reward: (n_groups, K).
        mask: (n, T) bool.
        energy: (n, T), the squared length of a token's score: 1 - 2 pi(token) + the sum of all pi^2.
    """
    weight, shape = torch.where(mask, energy, 0.0).cumsum(dim=1), (*reward.shape, mask.shape[1])
    there = mask.view(shape)
    weight = torch.where(there, weight.view(shape), 0.0)
    baseline = (weight * reward.unsqueeze(2)).sum(dim=1, keepdim=True)
    baseline = baseline / (weight.sum(dim=1, keepdim=True) + VARIANCE_FLOOR)
    baseline = torch.where(there.sum(dim=1, keepdim=True) > 1, baseline, 0.0)
    return torch.where(there, reward.unsqueeze(2) - baseline, 0.0).view(mask.shape)


def greedy_baseline(reward: Tensor, mask: Tensor, greedy: Tensor) -> Tensor:
    """r minus the reward of the greedy response to the same prompt: ReMax (Li et al. 2023).

    Args:
        reward: n of them.
        mask: (n, T) bool.
        greedy: (n, T), the greedy response's reward at each token.
    """
    return torch.where(mask, reward.view(-1, 1) - greedy, 0.0)


def whitened(reward: Tensor, mask: Tensor, value: Tensor, *, gamma: float) -> Tensor:
    """G_t minus its mean, over its deviation, of all tokens of the batch (REINFORCE++, Hu 2025)."""
    found = reward_to_go(reward, mask, value, gamma=gamma)
    of_tokens = found[mask]
    spread = (of_tokens.var() if len(of_tokens) > 1 else of_tokens.new_zeros(())) + VARIANCE_FLOOR
    return torch.where(mask, (found - of_tokens.mean()) / spread.sqrt(), 0.0)


TOKEN_ADVANTAGES: dict[str, Callable[..., Tensor]] = {
    advantage.__name__: advantage
    for advantage in (reward_to_go, gae, whitened, greedy_baseline, optimal_token_baseline)
}
