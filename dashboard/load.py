"""How often a page that follows a live run may be drawn again, so that many viewers leave each other the processor.

Python draws one page at a time, whatever the cores: twenty viewers who each draw as soon as there is a step would keep
it busy for good, and who opens a page would wait for all of them.
"""

import time
from collections.abc import Hashable
from threading import Lock
from typing import NamedTuple

# Of one processor's time, what this process may take between two states of a run.
_SHARE = 0.5
# Up to so many viewers each one's own rest is enough.
_FEW = 3
# So many pages are drawn again at a time.
_AT_ONCE = 2
# Seconds: many are shown a state for so long at least, and for so long at most while there is a newer one.
_SHORTEST, _LONGEST = 5.0, 60.0
# Seconds: who has not drawn for so long has left; what takes so long was broken off.
_LEFT, BROKEN_OFF = 120.0, 30.0


class TwoClocks(NamedTuple):
    """On two clocks, in seconds."""

    clock: float
    """The monotonic one."""
    used: float
    """The processor time of this process."""


NEVER = TwoClocks(0.0, 0.0)


def both_clocks() -> TwoClocks:
    """This moment."""
    return TwoClocks(time.monotonic(), time.process_time())


class Load:
    """The pages of all sessions that follow a run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._begun: dict[Hashable, float] = {}
        self._followers: dict[Hashable, float] = {}
        """When a session drew its page last."""

    def begin(self, who: Hashable) -> None:
        """A session draws a page."""
        with self._lock:
            self._begun[who] = time.monotonic()

    def end(self, who: Hashable, *, follows: bool) -> None:
        """It has drawn it.

        Args:
            follows: whether the page will be drawn again whenever there are new steps.
        """
        clock = time.monotonic()
        with self._lock:
            self._begun.pop(who, None)
            self._followers.pop(who, None)
            if follows:
                self._followers[who] = clock
            self._followers = {who: drew for who, drew in self._followers.items() if clock - drew < _LEFT}

    def has_spare(self, since: TwoClocks) -> bool:
        """Whether the next state may be shown, by what has been taken since the last one.

        Args:
            since: when that one began to be read, or was drawn.
        """
        with self._lock:
            few = len(self._followers) <= _FEW
        clock, used = both_clocks()
        waited = clock - since.clock
        spare = waited > _SHORTEST and used - since.used < _SHARE * waited
        return few or waited > _LONGEST or spare

    def has_turn(self) -> bool:
        """Whether one more page may be drawn again just now."""
        clock = time.monotonic()
        with self._lock:
            self._begun = {who: begun for who, begun in self._begun.items() if clock - begun < BROKEN_OFF}
            return len(self._begun) < _AT_ONCE


server_load = Load()
