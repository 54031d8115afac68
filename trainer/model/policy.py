"""The policy: a small Llama from a transformers config or a pretrained model, its log-probabilities, its value head."""

import inspect
from contextlib import nullcontext

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from ratioscope.trainer.model import adapters, pretrained
from ratioscope.trainer.model.precision import recomputing
from ratioscope.trainer.model.vocabulary import CharacterVocabulary, Vocabulary
from ratioscope.trainer.sampling.rollout import Evaluated, Rollout
from ratioscope.trainer.settings.config import Model
from ratioscope.trainer.tasks.task import Task, TaughtTask

CACHE = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"
"""What models call their keys and values of earlier tokens: transformers 5.24 gave it another name."""


class ValueHead(torch.nn.Module):
    """V(s): one number from the policy's last hidden state; 0 until it has learned something."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(hidden_size, 1)
        torch.nn.init.zeros_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.linear(hidden.float()).squeeze(-1)


def entropy_of(distribution: Tensor) -> Tensor:
    """(n_tokens, vocabulary) log-probabilities -> (n_tokens,) nats."""
    return -(distribution.exp() * distribution).sum(dim=-1)


def make(model: Model, task: Task) -> tuple[PreTrainedModel, Vocabulary]:
    """The policy before any training, in float32, and what it reads and writes; the caller seeds torch.

    Raises:
        RatioscopeError: a pretrained model that cannot be loaded.
    """
    if model.path:
        loaded, vocabulary = pretrained.load_pretrained(model.path, chat_template=model.chat_template)
        if model.lora_rank:
            adapters.attach(loaded, model.lora_rank, model.lora_alpha)
        return loaded.to(device_of(model)), vocabulary
    assert isinstance(task, TaughtTask)  # the settings are refused with another
    characters = CharacterVocabulary(task.characters)
    length = task.prompt_length + max(task.response_length, task.lesson_length)
    return build(model, characters, length).to(device_of(model)), characters


def device_of(model: Model) -> torch.device:
    """Where a run's model lives: a CUDA device where there is one, unless the configuration says otherwise."""
    if model.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(model.device)


def dtype_of(model: Model) -> torch.dtype:
    """What the policy computes in."""
    return torch.bfloat16 if model.dtype == "bfloat16" else torch.float32


def build(model: Model, vocabulary: Vocabulary, length: int) -> LlamaForCausalLM:
    """An untrained policy of the built-in architecture."""
    config = LlamaConfig(
        vocab_size=vocabulary.size,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.heads,
        max_position_embeddings=length,
        pad_token_id=vocabulary.pad_id,
        bos_token_id=None,
        eos_token_id=vocabulary.end_id,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def evaluate(
    model: PreTrainedModel,
    rollout: Rollout,
    select: Tensor | None = None,
    *,
    critic: ValueHead | None = None,
    checkpointing: bool = False,
) -> Evaluated:
    """The policy's distributions in the states of sampled tokens, at temperature 1.

    A prompt is read once for all of its responses, as in sampling; gradients flow through it all the same.

    Args:
        rollout: whole groups.
        select: (n, response_length) bool, the tokens that are asked for; default: all that were sampled.
        critic: also give its value of each state.
        checkpointing: recompute activations in the backward pass; prompts are then read once for each response.
    """
    select = rollout.mask if select is None else select
    # Nothing follows the last token, so the model need not see it; the last prompt token is the first response's state.
    attention = torch.cat([rollout.prompt_mask, rollout.mask[:, :-1].to(rollout.prompt_mask.dtype)], dim=1)
    positions = (attention.cumsum(dim=1) - 1).clamp(min=0)
    read = rollout.prompts.shape[1] - 1
    cache = None
    if rollout.copies > 1 and read > 0 and not checkpointing:
        cache = DynamicCache(config=model.config)
        first = slice(None, None, rollout.copies)
        model.base_model(
            input_ids=rollout.prompts[first, :read],
            attention_mask=rollout.prompt_mask[first, :read],
            position_ids=positions[first, :read],
            **{CACHE: cache},
            use_cache=True,
        )
        cache.batch_repeat_interleave(rollout.copies)
    else:
        read = 0
    tokens = torch.cat([rollout.prompts, rollout.responses[:, :-1]], dim=1)
    with recomputing(model) if checkpointing else nullcontext():
        output = model(
            input_ids=tokens[:, read:],
            attention_mask=attention,
            position_ids=positions[:, read:],
            **{CACHE: cache},
            use_cache=cache is not None,
            logits_to_keep=rollout.responses.shape[1],
            output_hidden_states=critic is not None,
        )
    distribution = output.logits[select].float().log_softmax(dim=-1)
    logp = distribution.gather(1, rollout.responses[select].unsqueeze(1)).squeeze(1)
    value = None
    if critic is not None:
        value = critic(output.hidden_states[-1][:, -rollout.responses.shape[1] :][select])
    return Evaluated(logp, distribution, value)
