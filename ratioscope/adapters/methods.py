"""What a class's methods call, read from their code: whether what a recorder wraps will be passed at all."""

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any


def function_behind(method: Any) -> Any:
    """Return what is behind decorators and bound methods; None where it is no function of Python's."""
    before = None
    while method is not before:
        before, method = method, inspect.unwrap(getattr(method, "__func__", method))
    return method if inspect.isfunction(method) else None


def names_used(function: Any) -> set[str]:
    """Return the names that a function looks up, those of functions in it included."""
    return {*_names(function.__code__)}


def reaches(kind: type, method: str, called: tuple[str, ...], *, through: bool = False) -> bool:
    """Return whether a method of a class calls one of these, itself or by super(); what cannot be read is taken to.

    Args:
        through: by other methods of the class, too.
    """
    seen: set[str] = set()
    waiting = [method]
    while waiting:
        current = waiting.pop()
        seen.add(current)
        for owner in kind.__mro__:
            if current not in vars(owner):
                continue
            function = function_behind(vars(owner)[current])
            if function is None:
                if current == method:
                    return True
                break
            names = names_used(function)
            if names & {*called}:
                return True
            if through:
                waiting += [name for name in names - seen if inspect.isfunction(getattr(kind, name, None))]
            if current not in names:  # no super()'s either
                break
    return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
