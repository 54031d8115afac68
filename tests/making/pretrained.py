"""A tiny pretrained model in a folder: a token a byte, random weights."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers import PreTrainedTokenizerFast as FastTokenizer

TEMPLATE = (
    "{% for message in messages %}<start>{{ message['role'] }}:{{ message['content'] }}<turn>{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant:{% endif %}"
)
SPECIAL = ["<eos>", "<start>", "<turn>"]
MODEL_SIZE = 272


def tokenizer(template: str | None = TEMPLATE, eos: str | None = "<eos>") -> FastTokenizer:
    """A token a byte; the chat ends its turns with another token than texts end with."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    made = FastTokenizer(tokenizer_object=bytewise, eos_token=eos, extra_special_tokens=SPECIAL)
    made.chat_template = template
    return made


def config(**changes: int) -> LlamaConfig:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaConfig(vocab_size=MODEL_SIZE, attention_dropout=0.5, **{**sizes, **changes})


def save(folder: Path) -> LlamaForCausalLM:
    """The model that is in the folder afterwards, with its tokenizer."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(config()).eval()
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model
