"""What can be made again, kept on disk: one file an entry, and the least recently used go when there is too much.

    kept = entry_of("findings", run, thresholds)     # what it is, what it is made from
    contents = kept.get()                            # bytes, or None
    kept.put(contents)

Entries lie in $RATIOSCOPE_CACHE, else in the user's cache folder; where that variable is a URL, they lie in the user's
cache folder and are shared through the URL (`shared_cache`). $RATIOSCOPE_CACHE_LIMIT is how many megabytes they may
take (4000; 0 keeps none). Any number of processes may use it at once. A cache that cannot be read or written is no
reason to fail, and a broken entry is a missing one. Entries are data, never code; a folder that others may write to is
not used (`distrusted`).

An entry's key holds the code of the whole package (`code_of_package`): what another ratioscope computed is never
mistaken for what this one would. Models and what must not be forgotten are not entries: they have separate folders
(`own_folder`, with the same check of who may write there) and stay.
"""

import hashlib
import logging
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import library_versions
from ratioscope.storage.whole_files import is_a_groups, replace_atomically

DEFAULT_LIMIT_MEGABYTES = 4000

LIBRARIES = ("duckdb", "numba", "numpy", "pandas", "pyarrow", "scipy", "torch")
"""Of which another version may give another last digit."""

T = TypeVar("T")
_LOG = logging.getLogger("ratioscope")

_SUFFIX = ".entry"
_CHECKSUM_BYTES = 4
# What a small file takes on most disks.
_BLOCK_BYTES = 4096
# The folder is looked through about once for each sixteenth of the limit that is written, and entries go until there is
# room for four of them.
_LOOKS, _ROOM = 16, 4
# Seconds: a use is noted at most so often; a file that somebody is writing is not so old.
_NOTED, _LEFT_OVER = 600.0, 3600.0

_NAMES = f"*/{'[0-9a-f]' * 32}{_SUFFIX}*"
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def cache_folder(purpose: str) -> Path:
    """$RATIOSCOPE_CACHE, or the user's cache folder, for one purpose; may not exist yet."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ratioscope"
    named = os.environ.get("RATIOSCOPE_CACHE")
    return Path(named if named and not _URL.match(named) else default) / purpose


@contextmanager
def cached_in(folder: Path | None) -> Iterator[None]:
    """Keep what is kept meanwhile in another folder, or at a URL; None changes nothing."""
    before = os.environ.get("RATIOSCOPE_CACHE")
    if folder is not None:
        os.environ["RATIOSCOPE_CACHE"] = str(folder.resolve())
    try:
        yield
    finally:
        if before is not None:
            os.environ["RATIOSCOPE_CACHE"] = before
        elif folder is not None:
            del os.environ["RATIOSCOPE_CACHE"]


@dataclass(frozen=True)
class Entry:
    """Where the bytes lie that were made of some inputs by some code."""

    purpose: str
    key: str

    @property
    def path(self) -> Path:
        return cache_folder(self.purpose) / f"{self.key}{_SUFFIX}"

    @property
    def there(self) -> bool:
        """Whether something was put where `kept_in` says, which may be broken."""
        shared = _shared(self.purpose)
        if shared:
            return shared.there(self.purpose, self.path.name)
        return self.path.is_file() and not distrusted(self.path.parent)

    def get(self) -> bytes | None:
        """What was put, here or by another machine; None where nothing is, or where it broke."""
        contents, shared = self._kept_here(), _shared(self.purpose)
        if shared and contents is None:
            found = shared.get(self.purpose, self.path.name)
            if found is not None and found[:_CHECKSUM_BYTES] == _checksum(found[_CHECKSUM_BYTES:]):
                contents = found[_CHECKSUM_BYTES:]
                self._keep_here(contents)
        elif shared and contents is not None and not shared.there(self.purpose, self.path.name):
            shared.put(self.purpose, self.path.name, _checksum(contents) + contents)
        return contents

    def read(self, decode: Callable[[bytes], T]) -> T | None:
        """What was made of the bytes that were put; None, too, where they are not what `decode` takes."""
        contents = self.get()
        try:
            return decode(contents) if contents is not None else None
        except Exception:  # noqa: BLE001 - whoever wrote it
            return None

    def _kept_here(self) -> bytes | None:
        path = self.path
        if distrusted(path.parent):
            return None
        try:
            with path.open("rb") as file:
                checksum, contents = file.read(_CHECKSUM_BYTES), file.read()
                unused = time.time() - os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        with suppress(OSError):
            if checksum != _checksum(contents):
                path.unlink()
                return None
            if unused > _NOTED:
                os.utime(path)
        return contents

    def put(self, contents: bytes) -> None:
        """Keep the bytes, where that is possible; now and then, make room.

        Raises:
            RatioscopeError: $RATIOSCOPE_CACHE_LIMIT is not a number of megabytes.
        """
        self._keep_here(contents)
        if shared := _shared(self.purpose):
            shared.put(self.purpose, self.path.name, _checksum(contents) + contents)

    def _keep_here(self, contents: bytes) -> None:
        limit, path = _limit(), self.path
        size = _on_disk(len(contents))
        if size > limit or own_folder(self.purpose) is None:
            return
        with suppress(OSError):
            replace_atomically(path, _checksum(contents) + contents, lasting=False)
            # Keys are as good as dice: no process need know what the others write.
            if int(self.key[:8], 16) / 16**8 < _LOOKS * size / limit:
                _make_room(path.parents[1], limit)


@cache
def _warn(folder: Path, why: str) -> None:
    _LOG.warning("ratioscope: %s is not used as a cache, %s; see ratioscope cache --help.", folder, why)


def distrusted(folder: Path) -> str:
    """Why what lies in a folder of the cache is not believed, a clause; "" where it is. Who may write there could
    plant numbers. It is said once."""
    try:
        found = folder.stat()
    except OSError:
        return ""
    why = ""
    if hasattr(os, "geteuid"):
        groups = {os.getegid(), *os.getgroups()}
        team = found.st_mode & stat.S_IWGRP and found.st_gid in groups
        if found.st_mode & stat.S_IWOTH:
            why = "everybody may write into it"
        elif found.st_uid not in (os.geteuid(), 0) and not team:
            why = "it belongs to another user"
    if why:
        _warn(folder, why)
    return why


def own_folder(purpose: str) -> Path | None:
    """The folder of the cache for one purpose, made where it is not there; None where it cannot be made, or where what
    lies in it is not believed."""
    folder = cache_folder(purpose)
    try:
        _make(folder)
    except OSError:
        return None
    return None if distrusted(folder) else folder


def _make(folder: Path) -> None:
    """Make a folder of the cache, for this user alone; in a folder that is a group's, for the group."""
    for place in (folder.parent, folder):
        if not place.is_dir():
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_a_groups(place.parent):
                place.chmod(stat.S_IMODE(place.stat().st_mode) | stat.S_IRWXG)


def kept_in(purpose: str) -> str:
    """Where entries for a purpose are to be found by other processes: a folder, or a URL."""
    named = os.environ.get("RATIOSCOPE_CACHE", "").rstrip("/")
    return f"{named}/{purpose}" if _shared(purpose) else str(cache_folder(purpose))


def _shared(purpose: str) -> ModuleType | None:
    """`shared_cache` where such entries are shared by a URL; loaded only then: it brings filesystems along."""
    if not _URL.match(os.environ.get("RATIOSCOPE_CACHE", "")):
        return None
    from ratioscope.storage import shared_cache

    return shared_cache if purpose in shared_cache.PURPOSES else None


def entry_of(purpose: str, *inputs: str) -> Entry:
    """The entry of what this code makes of some inputs, for one purpose."""
    digest = hashlib.sha256("\0".join([code_of_package(), *inputs]).encode(errors="surrogatepass"))
    return Entry(purpose, digest.hexdigest()[:32])


def kept_now() -> dict[str, tuple[int, int]]:
    """By purpose: how many entries are kept, and how many bytes they take on disk."""
    found: dict[str, tuple[int, int]] = {}
    for path in cache_folder("").glob(_NAMES):
        with suppress(OSError):  # another process was faster
            entries, size = found.get(path.parent.name, (0, 0))
            found[path.parent.name] = entries + 1, size + _on_disk(path.stat().st_size)
    return dict(sorted(found.items()))


def forget(purpose: str | None = None) -> int:
    """Take entries away, all or those of one purpose; what is no entry stays.

    Returns:
        How many there were.

    Raises:
        OSError: one cannot be removed.
    """
    there = [path for path in cache_folder("").glob(_NAMES) if purpose in (None, path.parent.name)]
    for path in there:
        path.unlink(missing_ok=True)
    return len(there)


def _checksum(contents: bytes) -> bytes:
    return zlib.crc32(contents).to_bytes(_CHECKSUM_BYTES)


def _on_disk(size: int) -> int:
    return -(-(size + _CHECKSUM_BYTES) // _BLOCK_BYTES) * _BLOCK_BYTES


def _limit() -> float:
    """Bytes."""
    text = os.environ.get("RATIOSCOPE_CACHE_LIMIT") or str(DEFAULT_LIMIT_MEGABYTES)
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = -1.0
    if not megabytes >= 0:
        raise RatioscopeError(f"RATIOSCOPE_CACHE_LIMIT must be a number of megabytes, not {text!r}.")
    return megabytes * 1e6


def _make_room(folder: Path, limit: float) -> None:
    """Take away what was used longest ago, and what crashed writers left over."""
    found = []
    for path in folder.glob(_NAMES):
        with suppress(OSError):  # another process was faster
            state = path.stat()
            if path.suffix == _SUFFIX:
                found.append((state.st_mtime_ns, _on_disk(state.st_size), path))
            elif time.time() - state.st_mtime > _LEFT_OVER:
                path.unlink()
    taken = sum(size for _, size, _ in found)
    if taken <= limit:
        return
    for modified, size, path in sorted(found):
        if taken <= limit * (1 - _ROOM / _LOOKS):
            return
        with suppress(OSError):
            if path.stat().st_mtime_ns == modified:  # else it has just been used, or written anew
                path.unlink()
        taken -= size


@cache
def code_of_package() -> str:
    """A digest of the code of the whole package, and of the libraries that numbers come from: changes with any byte."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(repr(library_versions(*LIBRARIES)).encode())
    for folder, _, names in sorted(os.walk(root, followlinks=True)):
        for path in (Path(folder, name) for name in sorted(names) if name.endswith((".py", ".sql"))):
            digest.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
