"""What is computed of runs that may still be written, kept for their latest states alone."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

_Value = TypeVar("_Value")

# Whoever draws a page just now may be one state behind the others.
_STATES = 2
# Of a state: ranges of steps that viewers have chosen, options of a chart.
_ARGUMENTS = 16


class Latest:
    """One thing that is known of one run or of several: a cache by the state alone would keep every state there was.

    It is shared by all sessions, and computed once for a state and what is asked of it. The steps of a run that is
    written move with its state: as part of a cache's key they would keep every state, too.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, dict[Hashable, _Once]] = {}
        self._lock = Lock()

    def get(self, state: Hashable, compute: Callable[[], _Value], asked: Hashable = ()) -> _Value:
        """What is known of this state; what `compute` raises is not kept.

        Args:
            asked: what it is computed for, beside the state.
        """
        with self._lock:
            known = _room(self._known, state, _STATES).setdefault(state, {})
            once = _room(known, asked, _ARGUMENTS).setdefault(asked, _Once())
        found: _Value = once.get(compute)
        return found


def _room(known: dict[Hashable, _Value], key: Hashable, most: int) -> dict[Hashable, _Value]:
    """The same, without its oldest where there is no room for one more."""
    while key not in known and len(known) >= most:
        del known[next(iter(known))]
    return known


class _Once:
    """A value that the first who asks for it computes, and the others wait for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._value: list[Any] = []

    def get(self, compute: Callable[[], Any]) -> Any:
        with self._lock:
            if not self._value:
                self._value.append(compute())
            return self._value[0]
