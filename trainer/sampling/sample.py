"""Batched sampling with a key-value cache, recording the log-probability that each token was really drawn with."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, TopKLogitsWarper, TopPLogitsWarper

from ratioscope.trainer.model.policy import CACHE
from ratioscope.trainer.model.vocabulary import Vocabulary
from ratioscope.trainer.sampling.rollout import Rollout, pad_left
from ratioscope.trainer.tasks.task import Task


class Decoding(NamedTuple):
    """How logits become the distribution that is sampled from."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    smoothing: float = 0.0
    """Share of the policy's own distribution, whole and at temperature 1, in the mixture that is sampled from."""

    def log_probs(self, logits: Tensor) -> Tensor:
        """(n, vocabulary) logits -> log-probabilities; -inf for what top-k and top-p leave out, without smoothing."""
        scores = logits.float() / self.temperature
        if 0 < self.top_k < scores.shape[-1]:
            scores = TopKLogitsWarper(self.top_k)(None, scores)
        if self.top_p < 1:
            scores = TopPLogitsWarper(self.top_p)(None, scores)
        drawn = scores.log_softmax(dim=-1)
        if not self.smoothing:
            return drawn
        own = logits.float().log_softmax(dim=-1) + math.log(self.smoothing)
        return torch.logaddexp(drawn + math.log1p(-self.smoothing), own)


PLAIN = Decoding()


GREEDY = Decoding(top_k=1)


class Version(NamedTuple):
    """A policy that samples, and its number."""

    model: PreTrainedModel
    number: int = 0


class Switch(NamedTuple):
    """Going on with a newer version inside a response (S0 4.2): a chance after each segment."""

    to: Version
    probability: float
    segment_length: int


@torch.no_grad()
def sample(
    policy: Version,
    prompts: Tensor,
    prompt_mask: Tensor,
    vocabulary: Vocabulary,
    *,
    copies: int = 1,
    length: int,
    decoding: Decoding = PLAIN,
    generator: torch.Generator,
    switch: Switch | None = None,
    keep_distribution: bool = False,
) -> Rollout:
    """Draw `copies` responses a prompt, each until its end mark or `length` tokens.

    The prompts are read once; their keys and values are then repeated for the copies, which become neighbours. With a
    `switch` both policies read every token, so that a response goes on exactly as the newer one would.
    """
    versions = [policy] if switch is None else [policy, switch.to]
    n, device = len(prompts) * copies, prompts.device
    caches = [DynamicCache(config=version.model.config) for version in versions]
    attention, inputs = prompt_mask, prompts
    positions = (prompt_mask.cumsum(dim=1) - 1).clamp(min=0)
    prompts, prompt_mask = prompts.repeat_interleave(copies, dim=0), prompt_mask.repeat_interleave(copies, dim=0)
    alive = torch.ones(n, dtype=torch.bool, device=device)
    switched = torch.zeros(n, dtype=torch.bool, device=device)
    responses = torch.full((n, length), vocabulary.pad_id, device=device)
    logp, mask = torch.zeros(n, length, device=device), torch.zeros(n, length, dtype=torch.bool, device=device)
    version = torch.full((n, length), policy.number, device=device)
    distributions: list[Tensor] = []
    for place in range(length):
        states = [
            candidate.model(
                input_ids=inputs,
                attention_mask=attention,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **{CACHE: cache},
            ).logits[:, -1]
            for candidate, cache in zip(versions, caches, strict=True)
        ]
        if place == 0 and copies > 1:
            for cache in caches:
                cache.batch_repeat_interleave(copies)
            states = [logits.repeat_interleave(copies, dim=0) for logits in states]
            attention, positions = prompt_mask, positions.repeat_interleave(copies, dim=0)
        if switch is not None:
            if place and place % switch.segment_length == 0:
                chance = torch.rand(n, generator=generator, device=device)
                switched = switched | (chance < switch.probability)
            version[:, place] = torch.where(switched, switch.to.number, policy.number)
            states = [torch.where(switched.unsqueeze(1), states[1], states[0])]
        log_probs = decoding.log_probs(states[0])
        drawn = torch.multinomial(log_probs.exp(), 1, generator=generator)  # (n, 1)
        responses[:, place] = torch.where(alive, drawn.squeeze(1), responses[:, place])
        logp[:, place] = log_probs.gather(1, drawn).squeeze(1)
        mask[:, place] = alive
        if keep_distribution:
            distributions.append(log_probs)
        alive = alive & (drawn.squeeze(1) != vocabulary.end_id)
        if not alive.any():
            break
        inputs, positions = drawn, positions[:, -1:] + 1
        attention = torch.cat([attention, torch.ones(n, 1, dtype=attention.dtype, device=device)], dim=1)
    distribution = None
    if keep_distribution:
        distributions += [torch.zeros_like(distributions[0])] * (length - len(distributions))
        distribution = torch.stack(distributions, dim=1)
    return Rollout(prompts, prompt_mask, responses, mask, logp, version, copies, distribution)


def encoded(
    task: Task, vocabulary: Vocabulary, prompt_ids: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Token ids and mask of prompts, (n, longest prompt)."""
    tokens, mask = pad_left([vocabulary.encode(task.prompt(i)) for i in prompt_ids], vocabulary.pad_id)
    return tokens.to(device), mask.to(device)


class Scored(NamedTuple):
    """What the task says of sampled responses, a row each."""

    responses: list[str]
    ended: Tensor
    reward: Tensor


def scored(rollout: Rollout, task: Task, vocabulary: Vocabulary, prompt_ids: Sequence[int]) -> Scored:
    """Texts, whether the end mark was sampled (bool), and rewards (float32)."""
    length = rollout.mask.sum(dim=1).tolist()
    tokens = [row[:n] for row, n in zip(rollout.responses.tolist(), length, strict=True)]
    responses = [vocabulary.decode(row) for row in tokens]
    ended = [bool(row) and row[-1] == vocabulary.end_id for row in tokens]
    rewards = [task.reward(i, text, ended=end) for i, text, end in zip(prompt_ids, responses, ended, strict=True)]
    return Scored(responses, torch.tensor(ended), torch.tensor(rewards))


def with_greedy_reward(
    rollout: Rollout, policy: Version, task: Task, vocabulary: Vocabulary, prompt_ids: Sequence[int]
) -> Rollout:
    """The rollout with what the policy's greedy response to each of its prompts gets; nothing is drawn at random."""
    first = slice(None, None, rollout.copies)
    prompts, prompt_mask = rollout.prompts[first], rollout.prompt_mask[first]
    generator = torch.Generator(prompts.device)  # of one choice each
    greedy = sample(
        *(policy, prompts, prompt_mask, vocabulary),
        length=task.response_length, decoding=GREEDY, generator=generator,
    )  # fmt: skip
    reward = scored(greedy, task, vocabulary, prompt_ids).reward
    return rollout._replace(greedy_reward=reward.repeat_interleave(rollout.copies).to(prompts.device))


def sample_evaluation(
    model: PreTrainedModel, task: Task, vocabulary: Vocabulary, generator: torch.Generator, length: int | None = None
) -> tuple[Rollout, float]:
    """One sample at temperature 1 for each held-out prompt (as S3 table 1), and their mean reward.

    Args:
        length: most tokens of a response; None: those of the task.
    """
    prompts, prompt_mask = encoded(task, vocabulary, task.evaluation_ids, model.device)
    length = length or task.response_length
    rollout = sample(Version(model), prompts, prompt_mask, vocabulary, length=length, generator=generator)
    return rollout, float(scored(rollout, task, vocabulary, task.evaluation_ids).reward.mean())
