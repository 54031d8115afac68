"""Recording into an object storage: files are written here, sent in the background, and stay until they are through.

    spool = Spool(place("s3://bucket/runs/mine"))
    ... write a run into spool.folder ...
    spool.close()               # waits, and says what is not through

The folder is below $RATIOSCOPE_SPOOL, or the user's data folder, and named by the URL: who records there again finds
what a crash or an outage left. A table's file is removed when it is through; steps go last, so that a reader sees whole
ones only.
"""

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import MANIFEST_NAME, Manifest
from ratioscope.storage.failures import StorageError
from ratioscope.storage.places import Remote

# Seconds: between two looks for new files, between two copies of what changes all the time, and after a failure.
_LOOK, _CHANGING, _PAUSE = 0.2, 5.0, 2.0
CLOSE_SECONDS = 60.0
"""How long `close` waits for a storage that takes nothing."""


class Spool:
    """A folder here whose files go to a URL.

    Args:
        target: the folder there.
    """

    def __init__(self, target: Remote) -> None:
        self.target, self.folder = target, spool_folder(target)
        self.problem = ""
        """Why the last attempt failed; empty while there is no failure."""
        self._sent: dict[Path, tuple[int, int]] = {}
        self._when: dict[Path, float] = {}
        self._progress = time.monotonic()
        self._ending = threading.Event()
        self._done = threading.Event()
        """Of the thread, at its end: `is_alive` is False after a KeyboardInterrupt in `join`, until Python 3.13."""
        self._thread = threading.Thread(target=self._work, name="ratioscope-spool", daemon=True)

    def latest(self) -> Path:
        """Where the newer manifest lies: here, where the last word is not through."""
        held = [folder for folder in (self.target, self.folder) if (folder / MANIFEST_NAME).exists()]
        return max(held, key=lambda folder: Manifest.read(folder).heartbeat, default=self.target)

    def start(self, *, anew: bool) -> None:
        """Begin to send.

        Args:
            anew: it is a new run, of which nothing stays where it cannot be sent.

        Raises:
            StorageError: the storage does not take the manifest, the first file that is sent.
        """
        try:
            (self.target / MANIFEST_NAME).write_bytes((self.folder / MANIFEST_NAME).read_bytes())
        except StorageError:
            if anew:
                shutil.rmtree(self.folder)
            raise
        self._thread.start()

    def left(self) -> list[Path]:
        """The files that are not through, in the order in which they go."""
        found = []
        for path in self.folder.rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file() and not _stays(path) and self._sent.get(path) != _state(path):
                    found.append(path)
        return sorted(found, key=lambda path: (path.name == MANIFEST_NAME, path.parent.name == "steps", path))

    def close(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Send what is left.

        Args:
            interrupted: whether somebody does not want to wait any more.

        Raises:
            RatioscopeError: the storage took nothing for a minute, or nobody waits; what is not through, where it lies.
        """
        self._progress = time.monotonic()
        self._ending.set()
        while self._thread.ident is not None and not self._done.wait(0.2) and not interrupted():
            pass
        if left := self.left():
            size = 0
            for path in left:
                with suppress(FileNotFoundError):  # it is through now
                    size += path.stat().st_size
            raise RatioscopeError(
                f"{self.target}: {len(left)} file{'s' * (len(left) != 1)} ({size / 1e6:.1f} MB) are not there yet "
                f"({self.problem or 'interrupted.'}) They are kept in {self.folder}: RunRecorder(..., resume=True) "
                "sends them."
            )
        shutil.rmtree(self.folder)

    def _work(self) -> None:
        try:
            self._send_until_the_end()
        finally:
            self._done.set()

    def _send_until_the_end(self) -> None:
        while True:
            ending = self._ending.is_set()
            if ending and time.monotonic() - self._progress > CLOSE_SECONDS:
                return
            try:
                done = self._send_all(ending)
            except OSError as error:  # too many open files, say: in a while it may be otherwise
                self.problem, done = f"{self.folder}: cannot be read ({error}).", False
            if ending and done:
                return
            if ending:
                time.sleep(_PAUSE)
            else:
                self._ending.wait(_LOOK if done else _PAUSE)

    def _send_all(self, ending: bool) -> bool:
        """Whether everything that is due is through."""
        for path in self.left():
            changes = path.parent == self.folder  # the manifest and the vocabulary
            if changes and not ending and time.monotonic() - self._when.get(path, float("-inf")) < _CHANGING:
                continue
            try:
                state = _state(path)
                (self.target / path.relative_to(self.folder)).write_bytes(path.read_bytes())
            except RatioscopeError as error:
                self.problem = str(error)
                return False
            except OSError as error:
                self.problem = f"{path}: cannot be read ({error})."
                return False
            self.problem, self._progress = "", time.monotonic()
            if changes:
                self._sent[path], self._when[path] = state, time.monotonic()
            else:
                path.unlink()
        return True


def spool_folder(target: Remote) -> Path:
    """Where files wait that go to a URL; may not exist yet."""
    default = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ratioscope" / "spool"
    key = hashlib.sha256(str(target).encode(errors="surrogatepass")).hexdigest()[:16]
    return Path(os.environ.get("RATIOSCOPE_SPOOL") or default).absolute() / f"{target.name}-{key}"


def _stays(path: Path) -> bool:
    """Whether it is of use here only: half a file, or a lock."""
    return ".tmp-" in path.name or path.suffix == ".lock"


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size
