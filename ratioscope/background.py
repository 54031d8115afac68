"""A thread that does what it is handed, in order: writing that nobody waits for, and that a disk may put off.

    background = Background(folder, write, idle, waiting, stop_on_error=True)
    background.hand(partial(buffer, rows))
    background.write_all()
    background.finish(gives_up)

Its queue is bounded, so a slow disk slows down who hands things over. What a file system refuses for a while, as
a disk that is full, is tried again with the next write; any other error ends the writing, and is kept.
"""

import errno
import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ratioscope.run_format.manifest import HEARTBEAT_SECONDS
from ratioscope.storage.whole_files import reason_of

# What a file system says that may be otherwise in a while: no room, too many open files, a server that is away.
PASSING = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EIO, errno.EAGAIN, errno.EINTR,
    errno.EBUSY, errno.ENOLCK, errno.ENOMEM, errno.ETIMEDOUT,
})  # fmt: skip
# Bytes that wait for such a disk; more, and the writing ends.
MOST_WAITING = 1 << 30
# Seconds between the last tries, at the end.
_LAST_TRIES = (0.2, 1.0, 3.0)
_LOG = logging.getLogger("ratioscope")

Action = Callable[[], object]
_Item = Action | threading.Event | None
"""For the thread: what to do, a wish to have all on disk, or the end."""


class Background:
    """The thread, from its start to `finish`.

    Args:
        where: what is written, as errors name it.
        write: writes all that waits.
        idle: done where nothing has come for a heartbeat.
        waiting: bytes that wait to be written.
        stop_on_error: whether somebody raises `error`; otherwise it is warned of here.
    """

    def __init__(
        self, where: object, write: Action, idle: Action, waiting: Callable[[], int], *, stop_on_error: bool
    ) -> None:
        self._where, self._write, self._idle, self._waiting = where, write, idle, waiting
        self._stop_on_error = stop_on_error
        self.error: BaseException | None = None
        """What ended the writing."""
        self.put_off: OSError | None = None
        """Why the last try to write failed, where it is tried again."""
        self._last_try = float("-inf")  # the first thing is written at once: a live reader waits for it
        self._done = threading.Event()
        """Of the thread, at its end: `is_alive` is False after a KeyboardInterrupt in `join`, until Python 3.13."""
        self.queue: queue.Queue[_Item] = queue.Queue(maxsize=8)
        threading.Thread(target=self._work, name="ratioscope-recorder", daemon=True).start()

    def hand(self, action: Action) -> None:
        """Do this in the thread, after what was handed over before; waits where the queue is full."""
        self.queue.put(action)

    def write_all(self) -> None:
        """Wait until what was handed over is written, or was put off."""
        written = threading.Event()
        self.queue.put(written)
        while not written.wait(0.2) and not self._done.is_set():
            pass

    def finish(self, gives_up: Callable[[], bool]) -> bool:
        """Let the thread write the rest; whether it has, before nobody wants to wait any more."""
        asked = False
        while not self._done.wait(0.2 if asked else 0) and not gives_up():
            if not asked:
                with suppress(queue.Full):  # of a disk that hangs
                    self.queue.put(None, timeout=0.2)
                    asked = True
        return self._done.is_set()

    # What follows is called in the thread.

    def is_due(self, seconds: float) -> bool:
        """Whether the last try to write is so long ago."""
        return time.monotonic() - self._last_try >= seconds

    def write(self) -> None:
        """Write all that waits, now."""
        self._write()
        self._last_try = time.monotonic()
        self.put_off = None

    def _work(self) -> None:
        try:
            while self._take():
                pass
        finally:
            self._done.set()

    def _take(self) -> bool:
        """Take what is next in the queue; whether there is more to come."""
        try:
            item = self.queue.get(timeout=HEARTBEAT_SECONDS)
        except queue.Empty:
            self._attempt(self._idle)
            return True
        if isinstance(item, threading.Event):
            self._attempt(self.write)
            item.set()
        elif item is not None:
            self._attempt(item)
        else:
            self._attempt(self.write)
            for seconds in _LAST_TRIES:
                if self.put_off is None or self.error is not None:
                    break
                time.sleep(seconds)
                self._attempt(self.write)
            self.error = self.error or self.put_off
        self.queue.task_done()
        return item is not None

    def _attempt(self, action: Action) -> None:
        """Run an action; after an error that does not pass nothing more is done: what is on disk stays as it is."""
        if self.error is not None:
            return
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - this is the thread's own: what ends it is said by others
            if isinstance(error, OSError) and error.errno in PASSING and self._waiting() <= MOST_WAITING:
                self._put_it_off(error)
                return
            self.error = error
            if not self._stop_on_error:
                _LOG.warning("%s: recording stopped (%s); the program goes on.", self._where, reason_of(error))

    def _put_it_off(self, error: OSError) -> None:
        if self.put_off is None:
            _LOG.warning(
                "%s: cannot be written now (%s); steps wait in memory, %d MB at most, and it is tried again.",
                self._where, reason_of(error), MOST_WAITING // 10**6,
            )  # fmt: skip
        self.put_off = error
        self._last_try = time.monotonic()
