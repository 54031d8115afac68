"""The policy: a small Llama from a transformers config, its log-probabilities, and its cached warm start."""

import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from ratioscope.cache import cache_folder
from trainer.config import Model, TrainConfig
from trainer.sampling import pad_left, sample_evaluation
from trainer.tasks.addition import Addition, CharacterVocabulary

# Raise it when the warm start would come out different for the same configuration.
WARM_START_VERSION = 1


class TokenLogProbs(NamedTuple):
    """Of each response token, in the order of `mask.nonzero()`: shape (n_tokens,)."""

    logp: Tensor
    entropy: Tensor


def build(model: Model, prompt_length: int, response_length: int) -> LlamaForCausalLM:
    """An untrained policy; the caller seeds torch."""
    config = LlamaConfig(
        vocab_size=CharacterVocabulary.size,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.heads,
        max_position_embeddings=prompt_length + response_length,
        pad_token_id=CharacterVocabulary.pad_id,
        bos_token_id=None,
        eos_token_id=CharacterVocabulary.end_id,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def token_log_probs(
    model: LlamaForCausalLM,
    prompts: Tensor,
    prompt_mask: Tensor,
    responses: Tensor,
    mask: Tensor,
    *,
    entropy: bool = False,
) -> TokenLogProbs:
    """log pi(token) of every response token, at temperature 1.

    Args:
        prompts: (n, prompt_length), left-padded; `prompt_mask` is 1 on real tokens.
        responses: (n, response_length), right-padded; `mask` is true on the tokens that count.
        entropy: also compute the entropy of each state; otherwise it is empty.
    """
    # Nothing follows the last token, so the model need not see it; the last prompt token is the first response's state.
    tokens = torch.cat([prompts, responses[:, :-1]], dim=1)
    attention = torch.cat([prompt_mask, mask[:, :-1].to(prompt_mask.dtype)], dim=1)
    positions = (attention.cumsum(dim=1) - 1).clamp(min=0)
    output = model(
        input_ids=tokens,
        attention_mask=attention,
        position_ids=positions,
        logits_to_keep=responses.shape[1],
        use_cache=False,
    )
    states = output.logits[mask].float().log_softmax(dim=-1)  # (n_tokens, vocabulary)
    logp = states.gather(1, responses[mask].unsqueeze(1)).squeeze(1)
    frozen = states.detach()
    return TokenLogProbs(logp, -(frozen.exp() * frozen).sum(dim=-1) if entropy else logp.new_empty(0))


def warm_started(config: TrainConfig, task: Addition, progress: Callable[[int, float], None]) -> LlamaForCausalLM:
    """The policy that every run with this model, task and warm start begins from, trained once and cached.

    Args:
        progress: called with the supervised step and the sampled accuracy whenever that was measured.
    """
    settings = {
        "version": WARM_START_VERSION,
        "model": config.model.model_dump(),
        "task": config.task.model_dump(),
        "example": task.prompt(0) + task.answer(0),
        "warm_start": config.warm_start.model_dump(),
        "torch": torch.__version__.split("+")[0],
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_folder("warm_start") / f"{digest}.pt"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.warm_start.seed)
        model = build(config.model, task.prompt_length, task.response_length)
        if not _load_weights(model, path):
            _train_supervised(model, config, task, progress)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".tmp-{os.getpid()}")
            torch.save(model.state_dict(), temporary)
            temporary.replace(path)
    return model


def _load_weights(model: LlamaForCausalLM, path: Path) -> bool:
    """Whether `path` held weights that fit; a file that cannot be used leaves the model as it was."""
    if not path.exists():
        return False
    try:
        weights = torch.load(path, weights_only=True)
        fits = {name: value.shape for name, value in weights.items()} == {
            name: value.shape for name, value in model.state_dict().items()
        }
    except Exception:  # whatever a damaged pickle or zip archive raises
        return False
    if fits:
        model.load_state_dict(weights)
    return fits


def _train_supervised(
    model: LlamaForCausalLM, config: TrainConfig, task: Addition, progress: Callable[[int, float], None]
) -> None:
    """Maximum likelihood on right answers until the sampled accuracy on held-out prompts reaches the target."""
    settings = config.warm_start
    generator = random.Random(settings.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    model.train()
    accuracy = 0.0
    for step in range(settings.max_steps):
        # Accuracy climbs steeply in the end; a rare look would overshoot the target.
        if step % (2 if accuracy > settings.accuracy / 2 else 20) == 0:
            _, accuracy = sample_evaluation(model, task, torch.Generator().manual_seed(settings.seed))
            progress(step, accuracy)
            if accuracy >= settings.accuracy:
                return
        ids = [generator.randrange(len(task.evaluation_ids), task.size) for _ in range(settings.batch)]
        prompts, prompt_mask = pad_left([task.vocabulary.encode(task.prompt(i)) for i in ids], task.prompt_length)
        answers = torch.full((len(ids), task.response_length), CharacterVocabulary.pad_id)
        for row, prompt_id in enumerate(ids):
            answer = [*task.vocabulary.encode(task.answer(prompt_id)), CharacterVocabulary.end_id]
            answers[row, : len(answer)] = torch.tensor(answer)
        logp = token_log_probs(model, prompts, prompt_mask, answers, answers != CharacterVocabulary.pad_id).logp
        optimiser.zero_grad(set_to_none=True)
        (-logp.mean()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
