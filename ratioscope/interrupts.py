"""Ctrl-C while something must not be cut short: it waits until the block is through, and then does what it does."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Held:
    """Interrupts that wait."""

    def __init__(self) -> None:
        self.first: float | None = None
        """When the first one came, by `time.monotonic`; None: none did."""

    def since(self, seconds: float) -> bool:
        """Whether somebody has waited for so long after pressing Ctrl-C."""
        return self.first is not None and time.monotonic() - self.first >= seconds


@contextmanager
def held_interrupts() -> Iterator[Held]:
    """Hold SIGINT back while the block runs; afterwards the program's own handler gets the last one.

    Nothing is held outside of the main thread, to which Python gives signals, or where another language handles them.
    """
    held = Held()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield held
        return
    last: list[tuple[int, Any]] = []

    def hold(number: int, frame: Any) -> None:
        held.first = held.first if held.first is not None else time.monotonic()
        last[:] = [(number, frame)]

    signal.signal(signal.SIGINT, hold)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
        if last and callable(before):
            before(*last[0])
        elif last and before == signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGINT)
