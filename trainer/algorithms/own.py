"""A user's own parts and algorithms from a Python file: gate=mine.py:my_gate, algorithm=mine.py:my_algorithm.

The file runs, with its user's rights, when a run is configured, trained or resumed, and never when one is looked at. A
part's arguments are those of the built-in ones; its keyword-only arguments are its parameters. The file stands alone,
so that its hash says what ran.
"""

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ratioscope.errors import RatioscopeError, first_line
from ratioscope.rules.gates import Gate
from ratioscope.rules.ratios import LogRatios

if TYPE_CHECKING:
    from torch import Tensor

# The arguments of parts that may come from a file.
ARGUMENTS = {
    "advantage": ("reward", "kept"),
    "selection": ("reward", "generator"),
    "sample_weight": ("reward", "advantage", "kept"),
    "weight": ("ratios", "advantage", "sequence"),
    "gate": ("ratios", "advantage"),
    "aggregation": ("coefficient", "sequence", "size"),
    "regulariser": ("ratios", "places"),
}


class _File(NamedTuple):
    module: ModuleType
    digest: str


def is_own(choice: str) -> bool:
    """Whether it names something in a file."""
    return ".py:" in choice


def short(choice: str) -> str:
    """A choice for people: without the folders that its file lies in."""
    return choice.replace("\\", "/").rpartition("/")[2] if is_own(choice) else choice


def digest(path: str) -> str:
    """SHA-256 of a file's contents.

    Raises:
        RatioscopeError: it cannot be read.
    """
    return hashlib.sha256(_contents(path)).hexdigest()


def digests(choices: Mapping[str, str]) -> dict[str, str]:
    """The file of every choice that has one, and the SHA-256 of what was loaded from it."""
    paths = [choice.rpartition(":")[0] for choice in choices.values() if is_own(choice)]
    return {path: _load(path).digest for path in paths}


def forget() -> None:
    """Read files anew when they are asked for next."""
    _load.cache_clear()
    part.cache_clear()


def found(choice: str) -> Any:
    """What a file calls by that name.

    Raises:
        RatioscopeError: no such file, it fails, or it has no such name.
    """
    path, _, name = choice.rpartition(":")
    module = _load(path).module
    if not hasattr(module, name):
        raise RatioscopeError(f"{path} has nothing called {name!r}.")
    return getattr(module, name)


def has(path: str, name: str) -> bool:
    """Whether a file calls something by that name."""
    return hasattr(_load(path).module, name)


def pick(kind: str, choice: str, known: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of a part's choice: one of those known, functions or the rows that declare them, or from a file."""
    if choice not in known:
        return part(kind, choice)
    return getattr(known[choice], "function", known[choice])


@lru_cache(maxsize=64)
def part(kind: str, choice: str) -> Callable[..., Any]:
    """A part from a file; what it returns is checked whenever it is called.

    Raises:
        RatioscopeError: as `found`, or it is no function with the arguments of such a part.
    """
    if kind not in ARGUMENTS:
        raise RatioscopeError(f"algorithm.{kind} cannot come from a file; {', '.join(ARGUMENTS)} can.")
    function, name, wanted = found(choice), short(choice), ", ".join(ARGUMENTS[kind])
    if not inspect.isfunction(function):
        raise RatioscopeError(f"{name} is no function; a {kind} is a function of ({wanted}).")
    arguments = inspect.signature(function).parameters.values()
    given = ", ".join(str(a.name) for a in arguments if a.kind is not a.KEYWORD_ONLY)
    if given != wanted:
        raise RatioscopeError(f"{name} takes ({given}); a {kind} takes ({wanted}), and parameters after a star.")
    plain = next((a.name for a in arguments if a.kind is a.KEYWORD_ONLY and not _is_number(a.default)), None)
    if plain:
        raise RatioscopeError(f"{name}: its parameter {plain} needs a default that is a number: {plain}: float = 1.0.")

    @wraps(function)
    def checked(*arguments: Any, **parameters: float) -> Any:
        try:
            returned = function(*arguments, **parameters)
        except Exception as error:
            reason = first_line(error)
            raise RatioscopeError(f"{name} fails: {type(error).__name__}: {reason}.") from error
        first = arguments[0]
        _check(kind, name, returned, first.behavior if isinstance(first, LogRatios) else first)
        return returned

    return checked


def defaults(kind: str, choice: str) -> dict[str, float]:
    """The parameters of a part from a file, with its defaults."""
    arguments = inspect.signature(part(kind, choice)).parameters.values()
    return {a.name: float(a.default) for a in arguments if a.kind is a.KEYWORD_ONLY}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(kind: str, name: str, returned: Any, like: "Tensor") -> None:
    import torch  # `trainer.settings.load` asks what is in a file, and a slip does not wait for torch

    if kind == "gate" and not isinstance(returned, Gate):
        raise RatioscopeError(f"{name} must return a Gate, as ratioscope.rules.gates.hard(below, above) makes one.")
    for values in returned if kind == "gate" else [returned]:
        if not isinstance(values, torch.Tensor) or values.shape != like.shape:
            got = tuple(values.shape) if isinstance(values, torch.Tensor) else f"a {type(values).__name__}"
            raise RatioscopeError(f"{name} must return one value for each entry of {tuple(like.shape)}, not {got}.")
        if kind == "selection" and values.dtype != torch.bool:
            raise RatioscopeError(f"{name} must return true or false for each response, not {values.dtype}.")
        if not torch.isfinite(values).all():
            raise RatioscopeError(f"{name} returned values that are not finite; bound them, as with clamp(max=...).")
    if kind == "gate" and not ((returned.value >= 0) & (returned.value <= 1)).all():
        raise RatioscopeError(f"{name} must return a gate between 0 and 1; what is larger is a weight.")


@lru_cache(maxsize=16)
def _load(path: str) -> _File:
    contents = _contents(path)
    if beside := _imported_from_beside(path, contents):
        raise RatioscopeError(
            f"{path} imports {beside}, which lies beside it and could change unseen; put what it needs into {path}."
        )
    module = ModuleType(f"own_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look themselves up there
    try:
        exec(compile(contents, path, "exec"), module.__dict__)  # what was hashed is what runs
    except Exception as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        reason = first_line(error)
        raise RatioscopeError(f"{path} cannot be imported: {type(error).__name__}{line}: {reason}.") from error
    return _File(module, hashlib.sha256(contents).hexdigest())


def _imported_from_beside(path: str, contents: bytes) -> str:
    """The first import of a module in the file's folder; or nothing. A folder without `__init__.py` is none."""
    try:
        nodes = [*ast.walk(ast.parse(contents))]
    except (SyntaxError, ValueError):  # said when it is compiled
        return ""
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += ["." * node.level + (node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)]
    for name in imported:
        first = name.partition(".")[0]
        if not first:
            return name
        known = first in sys.stdlib_module_names or first == __name__.partition(".")[0]
        spec = None if known else PathFinder.find_spec(first, [str(Path(path).parent)])
        if spec and spec.origin:
            return name
    return ""


def _contents(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise RatioscopeError(f"{path} cannot be read ({error.strerror or error}).") from None
