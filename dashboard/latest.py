"""What is computed of runs that may still be written, kept for their latest states alone."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

_Value = TypeVar("_Value")

# Whoever draws a page just now may be one state behind the others.
_STATES = 2


class Latest:
    """One thing that is known of one run or of several: a cache by the state alone would keep every state there was.

    It is shared by all sessions, and computed once for a state.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._lock = Lock()

    def get(self, state: Hashable, compute: Callable[[], _Value]) -> _Value:
        """What is known of this state; what `compute` raises is not kept."""
        with self._lock:
            if state not in self._known:
                value = compute()
                while len(self._known) >= _STATES:
                    del self._known[next(iter(self._known))]
                self._known[state] = value
            found: _Value = self._known[state]
            return found
