"""Sampled responses as tensors, and what is known about each of them."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

EXPERT = -1
"""The version of tokens that no version of the policy sampled."""


class Rollout(NamedTuple):
    """n sampled responses; the `copies` responses to a prompt are neighbours."""

    prompts: Tensor
    """(n, prompt_length) token ids, left-padded."""
    prompt_mask: Tensor
    """(n, prompt_length), 1 on real tokens."""
    responses: Tensor
    """(n, response_length) token ids, padded after the end mark."""
    mask: Tensor
    """(n, response_length) bool: tokens that were sampled, the end mark included."""
    logp: Tensor
    """(n, response_length) log-probability under the distribution that each token was drawn from; NaN: not known."""
    version: Tensor
    """(n, response_length) policy version that sampled each token."""
    copies: int = 1
    distribution: Tensor | None = None
    """(n, response_length, vocabulary) log-probabilities that the tokens were drawn from, where they were kept."""
    greedy_reward: Tensor | None = None
    """(n,) float32, what the same version's likeliest response, token by token, to the same prompt gets."""

    def rows(self, rows: Tensor | slice) -> "Rollout":
        """The responses of whole groups."""
        return Rollout(
            self.prompts[rows],
            self.prompt_mask[rows],
            self.responses[rows],
            self.mask[rows],
            self.logp[rows],
            self.version[rows],
            self.copies,
            None if self.distribution is None else self.distribution[rows],
            None if self.greedy_reward is None else self.greedy_reward[rows],
        )


def pad_left(sequences: list[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Token ids and mask, each (n, longest)."""
    length = max(map(len, sequences))
    tokens = torch.tensor([[pad_id] * (length - len(sequence)) + sequence for sequence in sequences])
    mask = torch.tensor([[0] * (length - len(sequence)) + [1] * len(sequence) for sequence in sequences])
    return tokens, mask


def join(rollouts: list[Rollout], pad_id: int) -> Rollout:
    """One rollout of several; prompts are padded to the longest."""
    if len(rollouts) == 1:
        return rollouts[0]
    longest = max(rollout.prompts.shape[1] for rollout in rollouts)

    def widen(tokens: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(tokens, (longest - tokens.shape[1], 0), value=value)

    kept = [rollout.distribution for rollout in rollouts if rollout.distribution is not None]
    greedy = [rollout.greedy_reward for rollout in rollouts if rollout.greedy_reward is not None]
    return Rollout(
        prompts=torch.cat([widen(rollout.prompts, pad_id) for rollout in rollouts]),
        prompt_mask=torch.cat([widen(rollout.prompt_mask, 0) for rollout in rollouts]),
        responses=torch.cat([rollout.responses for rollout in rollouts]),
        mask=torch.cat([rollout.mask for rollout in rollouts]),
        logp=torch.cat([rollout.logp for rollout in rollouts]),
        version=torch.cat([rollout.version for rollout in rollouts]),
        copies=rollouts[0].copies,
        distribution=torch.cat(kept) if len(kept) == len(rollouts) else None,
        greedy_reward=torch.cat(greedy) if len(greedy) == len(rollouts) else None,
    )


@dataclass(frozen=True)
class TrainingBatch:
    """What one update trains on: a rollout with prompts, texts and rewards, a row a response."""

    rollout: Rollout
    prompt_ids: list[int]
    responses: list[str]
    ended: Tensor
    """(n,) bool: the end mark was sampled."""
    reward: Tensor
    """(n,) float32, as the task scored it."""
    left_out: int | None = None
    """Tokens of groups without signal that were sampled and not taken; None where such groups are kept."""


class Evaluated(NamedTuple):
    """Of each selected response token, in the order of `select.nonzero()`."""

    logp: Tensor
    """(n_tokens,) log pi(token) at temperature 1."""
    distribution: Tensor
    """(n_tokens, vocabulary) log pi of all tokens."""
    value: Tensor | None
    """(n_tokens,) of the value head, where there is one."""
