"""Batched sampling with a key-value cache, recording the log-probability that each token was really drawn with."""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from trainer.tasks.addition import Addition, CharacterVocabulary


class Rollout(NamedTuple):
    """n sampled responses."""

    prompts: Tensor
    """(n, prompt_length) token ids, left-padded."""
    prompt_mask: Tensor
    """(n, prompt_length), 1 on real tokens."""
    responses: Tensor
    """(n, response_length) token ids, padded after the end mark."""
    mask: Tensor
    """(n, response_length) bool: tokens that were sampled, the end mark included."""
    logp: Tensor
    """(n, response_length) log-probability under the sampling distribution (after temperature)."""


def pad_left(sequences: list[list[int]], length: int) -> tuple[Tensor, Tensor]:
    """Token ids and mask, each (n, length)."""
    tokens = torch.full((len(sequences), length), CharacterVocabulary.pad_id)
    mask = torch.zeros((len(sequences), length), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        tokens[row, length - len(sequence) :] = torch.tensor(sequence)
        mask[row, length - len(sequence) :] = 1
    return tokens, mask


@torch.no_grad()
def sample(
    model: LlamaForCausalLM,
    prompts: Tensor,
    prompt_mask: Tensor,
    *,
    copies: int = 1,
    length: int,
    temperature: float = 1.0,
    generator: torch.Generator,
) -> Rollout:
    """Draw `copies` responses a prompt, each until its end mark or `length` tokens.

    The prompts are read once; their keys and values are then repeated for the copies, which become neighbours.
    """
    n = len(prompts) * copies
    cache = DynamicCache(config=model.config)
    attention, inputs = prompt_mask, prompts
    positions = (prompt_mask.cumsum(dim=1) - 1).clamp(min=0)
    prompts, prompt_mask = prompts.repeat_interleave(copies, dim=0), prompt_mask.repeat_interleave(copies, dim=0)
    alive = torch.ones(n, dtype=torch.bool)
    responses = torch.full((n, length), CharacterVocabulary.pad_id)
    logp, mask = torch.zeros(n, length), torch.zeros(n, length, dtype=torch.bool)
    for place in range(length):
        output = model(
            input_ids=inputs,
            attention_mask=attention,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        log_probs = (output.logits[:, -1].float() / temperature).log_softmax(dim=-1)
        if place == 0 and copies > 1:
            cache.batch_repeat_interleave(copies)
            log_probs = log_probs.repeat_interleave(copies, dim=0)
            attention, positions = prompt_mask, positions.repeat_interleave(copies, dim=0)
        drawn = torch.multinomial(log_probs.exp(), 1, generator=generator)  # (n, 1)
        responses[:, place] = torch.where(alive, drawn.squeeze(1), responses[:, place])
        logp[:, place] = log_probs.gather(1, drawn).squeeze(1)
        mask[:, place] = alive
        alive = alive & (drawn.squeeze(1) != CharacterVocabulary.end_id)
        if not alive.any():
            break
        inputs, positions = drawn, positions[:, -1:] + 1
        attention = torch.cat([attention, torch.ones(n, 1, dtype=attention.dtype)], dim=1)
    return Rollout(prompts, prompt_mask, responses, mask, logp)


def texts(rollout: Rollout) -> list[str]:
    """The responses as text, end mark included."""
    return [
        CharacterVocabulary.decode(row[kept].tolist())
        for row, kept in zip(rollout.responses, rollout.mask, strict=True)
    ]


def sample_evaluation(model: LlamaForCausalLM, task: Addition, generator: torch.Generator) -> tuple[Rollout, float]:
    """One sample at temperature 1 for each held-out prompt (as S3 table 1), and the share that is right."""
    encoded = [task.vocabulary.encode(task.prompt(i)) for i in task.evaluation_ids]
    prompts, prompt_mask = pad_left(encoded, task.prompt_length)
    rollout = sample(model, prompts, prompt_mask, length=task.response_length, generator=generator)
    rewards = [task.reward(i, text) for i, text in zip(task.evaluation_ids, texts(rollout), strict=True)]
    return rollout, sum(rewards) / len(rewards)
