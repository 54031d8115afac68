"""Processes beside the learner: they do not import the caller's script, are deaf to Ctrl-C, and end when it ends."""

import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from ratioscope.errors import RatioscopeError

# Seconds between two looks at whether the other side is still there.
LOOK = 0.5
# Messages that may wait for the learner, a process; more of them would only make the data older.
WAITING = 2


@dataclass(frozen=True)
class LearnerLink:
    """A process's line to the learner."""

    number: int
    learner: int
    stop: Any
    messages: Any

    def is_wanted(self) -> bool:
        return not self.stop.is_set() and os.getppid() == self.learner

    def send(self, message: Any, problem: str = "") -> None:
        """Wait for room, but not for a learner that is gone."""
        while self.is_wanted():
            try:
                self.messages.put((self.number, message, problem), timeout=LOOK)
            except queue.Full:
                continue
            return
        self.messages.cancel_join_thread()


class Crew:
    """Processes that all do the same work, `work(link, *shared)`, until they are told to stop.

    Args:
        kind: what errors call one of them.
    """

    def __init__(self, kind: str, size: int, work: Callable[..., None], *shared: Any) -> None:
        self.kind = kind
        context = multiprocessing.get_context("spawn")
        self._stop, self._messages = context.Event(), context.Queue(maxsize=WAITING * size)
        links = [LearnerLink(number, os.getpid(), self._stop, self._messages) for number in range(size)]
        self._processes = [context.Process(target=_live, args=(link, work, *shared), daemon=True) for link in links]
        with _bare_children():
            for process in self._processes:
                process.start()

    def receive(self) -> tuple[int, Any]:
        """The next message, and whose it is.

        Raises:
            RatioscopeError: a process has failed or ended.
        """
        while True:
            self._check_alive()
            gone = [number for number, process in enumerate(self._processes) if not process.is_alive()]
            try:
                number, message, problem = self._messages.get(timeout=LOOK)
            except queue.Empty:
                if gone:  # and what it had to say was not in the queue any more
                    raise RatioscopeError(f"{self.kind} {gone[0]} has ended; the run stops.") from None
                continue
            if problem:
                raise RatioscopeError(f"{self.kind} {number} has failed: {problem}")
            return number, message

    @contextmanager
    def holding(self, lock: Any) -> Iterator[None]:
        """With a lock that the processes take, too: one may have died with it in its hands; raises as `receive`."""
        while not lock.acquire(timeout=LOOK):
            self._check_alive()
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        self._stop.set()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
                process.join(timeout=5)
        self._messages.cancel_join_thread()

    def _check_alive(self) -> None:
        for number, process in enumerate(self._processes):
            if process.exitcode not in (None, 0):
                raise RatioscopeError(
                    f"{self.kind} {number} has ended with exit code {process.exitcode}; the run stops."
                )


@contextmanager
def _bare_children() -> Iterator[None]:
    """Children that are started inside ignore Ctrl-C from their first moment, and do not import the caller's script.

    That script may be anything: without a guard around its body it would start another run.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if in_main_thread:
            signal.signal(signal.SIGINT, before)


def _live(link: LearnerLink, work: Callable[..., None], *shared: Any) -> None:
    """The life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        torch.set_num_threads(1)
        work(link, *shared)
    except Exception as error:  # noqa: BLE001 - whatever it is, the learner has to hear of it
        link.send(None, f"{type(error).__name__}: {error}"[:500])
