"""Who writes a run: at most one process a writer's number, and what run.json says where several numbers write.

A lock of the system says so (`flock`): a process that is killed loses it, so that nothing stale stays. `.writer-0.lock`
is held while writer 0 lives, `.run.lock` while run.json is exchanged. On a file system without locks, a network's say,
it is run.json alone: it is made by one process only, and its heartbeat tells whether somebody writes.
"""

import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ratioscope.errors import RunFormatError
from ratioscope.run_format.manifest import MANIFEST_NAME, Manifest, still_writing

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


class Lock:
    """An exclusive lock on a file, which is made; taken by one holder at a time, of this process or of another one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self, *, wait: bool) -> bool:
        """Whether it is held now; True, too, where there are no locks. Raises OSError where no file can be made."""
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(file)
                return False
            except OSError:  # no locks here
                pass
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), self.path.stat()):
                    self._file = file
                    _held.add(self)
                    return True
            os.close(file)  # its last holder has removed it meanwhile

    def release(self, *, remove: bool = False) -> None:
        """Let it go, if it is held."""
        if self._file is None:
            return
        if remove:
            with suppress(OSError):
                self.path.unlink()
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)  # a forked child may hold the same file
        self.forget()

    def forget(self) -> None:
        """Close the file: in a forked child the lock stays with the parent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        _held.discard(self)


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class Seat:
    """A writer's place in a run's folder, which must exist.

    Args:
        number: the writer's number.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, str(number)
        self._lock = Lock(folder / f".writer-{number}.lock")
        self.joined = False
        """Whether another writer made the run, and says what it is."""

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Nobody else writes run.json meanwhile."""
        lock = Lock(self._folder / ".run.lock")
        lock.take(wait=True)
        try:
            yield
        finally:
            lock.release()

    def approach(self, target: Path, *, resume: bool) -> Manifest | None:
        """See what is there, and so whether this writer joins others: the manifest of the run that may be joined or
        taken over; None where there is none.

        Args:
            target: where the run goes; elsewhere than this folder if that is a spool.

        Raises:
            RunFormatError: it may not, it cannot be read, or, resuming, there is none.
        """
        spooled = target != self._folder
        places = [place for place in (target, self._folder) if (place / MANIFEST_NAME).exists()]
        if not places and not resume:
            return None
        manifests = []
        for place in places or [target]:
            try:
                manifests.append(Manifest.read(place))
            except RunFormatError:
                if resume:
                    raise
                raise already_there(target) from None
        manifest = max(manifests, key=lambda manifest: manifest.heartbeat)
        self.joined = not spooled and self._may_join(manifest, resume=resume)
        if not self.joined and not resume:
            if spooled and target not in places:
                raise RunFormatError(
                    f"{self._folder} holds files of a run that did not get through to {target}; resume that run, or "
                    "delete this folder."
                )
            raise already_there(target)
        if not self.joined and manifest.live_status() == "running" and not self._has_let_go(manifest):
            raise RunFormatError(f"{target}: process {manifest.process_id} is still writing this run.")
        return manifest

    def take(self) -> bool:
        """Whether this process is the writer now."""
        return self._lock.take(wait=False)

    def leave(self) -> None:
        """Somebody else may be the writer."""
        self._lock.release(remove=True)
        if not any(self._folder.glob(".writer-*.lock")):
            lock = Lock(self._folder / ".run.lock")
            with suppress(OSError):
                lock.take(wait=True)
                lock.release(remove=True)

    def _may_join(self, manifest: Manifest, *, resume: bool) -> bool:
        """Whether others write this run now, and this writer may beside them: who has written already must resume."""
        writers = writers_of(manifest)
        mine = writers.pop(self._number, None)
        others = manifest.live_status() == "running" and any(still_writing(entry) for entry in writers.values())
        return others and (mine is None or (resume and not still_writing(mine)))

    def _has_let_go(self, manifest: Manifest) -> bool:
        """Whether this process wrote the run and has stopped, which a full disk kept it from saying."""
        ours = (manifest.process_id, manifest.host) == (os.getpid(), socket.gethostname())
        seats = {lock.path for lock in _held if lock.path.name.startswith(".writer-")}
        return ours and not any(path.parent == self._folder for path in seats)

    def has_company(self) -> bool:
        """Whether others write this run, or did."""
        latest = _latest(self._folder)
        locks = {path.name for path in self._folder.glob(".writer-*.lock")}
        return bool(locks - {f".writer-{self._number}.lock"}) or bool(latest and latest.writers)

    def write(self, manifest: Manifest, status: str, reason: str, *, new: bool = False) -> None:
        """Replace run.json by this manifest, with this writer's status, and with what the others wrote there.

        Where several write, the run ends with the last of them, and as the worst of them.

        Raises:
            FileExistsError: it is to be `new`, and there is one.
        """
        latest = None if new else _latest(self._folder)
        if latest is not None and self.joined:
            vars(manifest).update(vars(latest) | {"heartbeat": manifest.heartbeat})
        others = writers_of(latest) if latest is not None and (self.joined or latest.writers) else {}
        several = self._number != "0" or others
        manifest.process_id, manifest.host = (os.getpid(), socket.gethostname()) if status == "running" else (0, "")
        manifest.status, manifest.status_reason, manifest.writers = status, reason, {}
        if several:
            mine = writers_of(manifest)["0"]
            manifest.writers = {name: as_it_is(entry) for name, entry in others.items()} | {self._number: mine}
            worst = min(manifest.writers.values(), key=lambda entry: _FIRST.index(entry["status"]))
            manifest.status, manifest.status_reason = worst["status"], worst["reason"]
        manifest.write(self._folder, new=new)


# Exit codes after Ctrl-C and SIGTERM.
_STOPPED = (130, 143)
# Several writers' run has the first of these that one of them has.
_FIRST = ("running", "failed", "interrupted", "finished")


def writers_of(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """What is known of each writer, by its number; of a run with one writer the manifest's own state."""
    alone = {
        "status": manifest.status,
        "reason": manifest.status_reason,
        "process_id": manifest.process_id,
        "host": manifest.host,
    }
    return {name: {**alone, **entry} for name, entry in manifest.writers.items()} or {"0": alone}


def as_it_is(entry: dict[str, Any], *, ended: bool = False) -> dict[str, Any]:
    """A writer's entry; of one that is gone, without having said so, it says that.

    Args:
        ended: nobody writes this run any more, wherever its writers were.
    """
    if entry["status"] == "running" and (ended or not still_writing(entry)):
        return {"status": "interrupted", "reason": "its process ended without a word", "process_id": 0, "host": ""}
    return entry if entry["status"] in _FIRST else entry | {"status": "interrupted"}


def _latest(folder: Path) -> Manifest | None:
    try:
        return Manifest.read(folder)
    except RunFormatError:
        return None


def already_there(target: Path) -> RunFormatError:
    """The error of a new run where there is one."""
    return RunFormatError(
        f"{target}: already holds a run; choose another folder (ratioscope train: --folder), or resume it."
    )


def way_out(error: BaseException | None) -> tuple[str, str]:
    """The status and its reason of a run whose program leaves with this error."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "finished", ""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "stopped by the user"
    if isinstance(error, SystemExit) and error.code in _STOPPED:
        return "interrupted", f"stopped, with exit code {error.code}"
    return "failed", f"{type(error).__name__}: {error}"[:500]
