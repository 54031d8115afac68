"""Texts of token ids, for sources that keep ids alone."""

from collections.abc import Callable
from pathlib import Path

from ratioscope.errors import RatioscopeError, first_line
from ratioscope.extras import needing


def token_texts(tokenizer: str) -> Callable[[int], str]:
    """The text of a token id.

    Args:
        tokenizer: a folder or a name that transformers knows. A folder is read offline.

    Raises:
        MissingPackageError: transformers is not installed.
        RatioscopeError: there is no such tokenizer.
    """
    with needing("--tokenizer", "ratioscope[trainer]"):
        from transformers import AutoTokenizer
    is_folder = Path(tokenizer).is_dir()
    try:
        # Code that a model brings along is never run.
        loaded = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False, local_files_only=is_folder)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = first_line(error)
        raise RatioscopeError(f"--tokenizer {tokenizer}: no tokenizer can be read there ({reason[:200]}).") from None
    size = len(loaded)

    def text(token: int) -> str:
        if not 0 <= token < size:
            return f"<{token}>"
        # One at a time: what a token adds to a text, with its leading space.
        return str(loaded.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return text
