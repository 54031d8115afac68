"""Names from other programs (`elsewhere.toml`): settings called otherwise here, and what there is not."""

import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

_NAMES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CALLED_HERE: dict[str, str] = {name: here for here, names in _NAMES["settings"].items() for name in names}
LACKING: dict[str, str] = {name: why for why, names in _NAMES["lacking"].items() for name in names}
_NOT_HERE: dict[str, str] = {name: why for why, names in _NAMES["algorithms"].items() for name in names}
_SIGNS = str.maketrans({"-": "_", ".": "_", " ": "_", "+": "_plus"})


def nearest(word: str, known: Iterable[str]) -> str:
    """A question with the known word that is most like `word`, whatever its case and its dashes; or nothing."""
    known, plain = list(known), word.lower().translate(_SIGNS)
    match = [plain] if plain in known else get_close_matches(word, known, n=1) or get_close_matches(plain, known, n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


def setting(key: str) -> str:
    """What another program's setting is called here, or why there is none, as the end of a sentence; or nothing."""
    words = key.lower().replace("-", "_").rsplit(".", 2)
    for name in (".".join(words[-2:]), words[-1]):  # filter_groups.enable
        if name in CALLED_HERE:
            return f"; here it is {CALLED_HERE[name]}"
        if name in LACKING:
            return f": this trainer {LACKING[name]}"
    return ""


def algorithm(name: str) -> str:
    """Why an algorithm is not among those here, in one sentence; or nothing."""
    why = _NOT_HERE.get(name.lower().replace("-", "_"))
    here = "and what is here weights the gradients of the policy's own samples by their rewards"
    return f"{name!r} is not an algorithm of this trainer: it {why}, {here}." if why else ""
