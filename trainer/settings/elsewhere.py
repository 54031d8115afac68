"""Names from other programs (`elsewhere.toml`): settings called otherwise here, and algorithms that there cannot be."""

import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

_NAMES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CALLED_HERE: dict[str, str] = {name: here for here, names in _NAMES["settings"].items() for name in names}
_NOT_HERE: dict[str, str] = {name: why for why, names in _NAMES["algorithms"].items() for name in names}


def nearest(word: str, known: Iterable[str]) -> str:
    """A question with the known word that is most like `word`, or nothing."""
    match = get_close_matches(word, list(known), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


def setting(key: str) -> str:
    """What another program's setting is called here, as the end of a sentence; or nothing."""
    here = CALLED_HERE.get(key.rpartition(".")[2].lower())
    return f"; here it is {here}" if here else ""


def algorithm(name: str) -> str:
    """Why an algorithm is not among those here, in one sentence; or nothing."""
    plain = name.lower().replace("-", "_")
    why = _NOT_HERE.get(plain)
    here = "and what is here weights the gradients of the policy's own samples by their rewards"
    return f"{name!r} is not an algorithm of this trainer: it {why}, {here}." if why else ""
