"""A tokenizer of words and a policy of some thousand parameters, for what other people's trainers train."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


def tokenizer(words: Sequence[str], *, unknown: int = 0, chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """A word a token; the first pads, the second ends, and `unknown` is the place of the one for all others."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token=words[unknown]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=words[0],
        eos_token=words[1],
        unk_token=words[unknown],
        chat_template=chat_template,
    )


def policy(vocabulary: int, hidden_size: int, *, seed: int = 0, **settings: Any) -> Qwen2ForCausalLM:
    """An untrained one with two heads, which pads with 0 and ends with 1."""
    torch.manual_seed(seed)
    usual = {"intermediate_size": hidden_size * 3 // 2, "num_hidden_layers": 2}
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=hidden_size,
            num_attention_heads=2,
            num_key_value_heads=2,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            **(usual | settings),
        )
    )
