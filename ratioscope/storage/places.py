"""A path or a URL as a `Path`: what takes a path takes `s3://bucket/runs` as well.

    folder = place("s3://bucket/runs/mine")       # place("runs/mine") is Path("runs/mine")
    (folder / "run.json").read_bytes()
    [found.name for found in scan(folder) if found.is_dir]

A listing is believed for some seconds (`listings`), and of a Parquet file only the parts that are read are moved
(`ranges`, `parquet`). What fails is tried again, and then told in one sentence (`failures`).
"""

import io
import os
import re
import stat as stat_of
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from typing import Any, Self

from ratioscope.errors import RatioscopeError
from ratioscope.storage import listings
from ratioscope.storage.clients import SCHEMES, client
from ratioscope.storage.failures import StorageError, attempted
from ratioscope.storage.ranges import RangeFile, pieces

# A path keeps one of the two slashes of a URL.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+", re.IGNORECASE)


def place(path: str | Path) -> Path:
    """The path, which is a `Remote` where it is a URL.

    Raises:
        RatioscopeError: it is a URL of a kind that cannot be read.
    """
    if isinstance(path, Remote):
        return path
    found = _URL.match(str(path))
    if found is None:
        return Path(path)
    if found[1].lower() in SCHEMES:
        return Remote(f"{found[1].lower()}:/{str(path)[found.end() :]}")
    if found[1].lower() == "file":
        return Path("/", str(path)[found.end() :])
    if Path(path).exists():
        return Path(path)
    known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
    raise RatioscopeError(f"{path}: this kind of address cannot be used; there are {known} and folders.")


class Remote(PosixPath):
    """A `Path` in an object storage. `str` of it is the URL, which `place` takes back."""

    __slots__ = ()

    def __str__(self) -> str:
        first, *rest = self.parts or (".",)
        return f"{first}//{'/'.join(rest)}" if first[:-1] in SCHEMES and first[-1:] == ":" else super().__str__()

    def __fspath__(self) -> str:
        return str(self)

    def as_posix(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def resolve(self, strict: bool = False) -> Self:
        return self

    def absolute(self) -> Self:
        return self

    def is_absolute(self) -> bool:
        return True

    def expanduser(self) -> Self:
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size and time of change; the rest is nothing.

        Raises:
            FileNotFoundError, StorageError.
        """
        found = listings.found(str(self))
        if found is None:
            raise FileNotFoundError(str(self))
        mode = stat_of.S_IFDIR if found.is_dir else stat_of.S_IFREG
        seconds = found.modified_ns // 1_000_000_000
        values: tuple[int, ...] = (mode, 0, 0, 1, 0, 0, found.size, seconds, seconds, seconds)
        return os.stat_result(values, {"st_mtime": found.modified_ns / 1e9, "st_mtime_ns": found.modified_ns})

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return listings.found(str(self)) is not None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        found = listings.found(str(self))
        return found is not None and not found.is_dir

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        try:
            listings.children(str(self))
        except FileNotFoundError:
            return False
        return True

    def is_symlink(self) -> bool:
        return False

    def iterdir(self) -> Iterator[Self]:  # type: ignore[override]
        for child in listings.children(str(self)):
            yield self / child

    def glob(self, pattern: str, **options: Any) -> Iterator[Self]:  # type: ignore[override]
        """Paths by a pattern of names with *, level by level."""
        first, _, rest = str(pattern).partition("/")
        try:
            names = [name for name in listings.children(str(self)) if fnmatchcase(name, first)]
        except FileNotFoundError:
            return
        for name in names:
            if rest:
                yield from (self / name).glob(rest)
            else:
                yield self / name

    def open(self, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """The object for reading, in ranges."""
        if mode != "rb":
            raise ValueError(f"{self} can be opened for reading bytes, not in mode {mode!r}.")
        return RangeFile(_pieces(self))

    def read_bytes(self) -> bytes:
        """The whole object as it is now.

        Raises:
            FileNotFoundError, StorageError.
        """
        filesystem, path = client(str(self))

        def action() -> bytes:
            with filesystem.open_input_stream(path) as stream:
                return stream.read()

        return attempted(str(self), action)

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        return io.TextIOWrapper(io.BytesIO(self.read_bytes()), encoding or "utf-8", errors, newline).read()

    def write_bytes(self, data: Any) -> int:
        """Replace the object: readers see the old or the new one.

        Raises:
            StorageError: it cannot be written; a repository of hf:// is only read, where each file would be a commit.
        """
        if str(self).startswith("hf://"):
            raise StorageError(f"{self}: hf:// is only read here; write to a folder, and upload that.")
        filesystem, path = client(str(self))

        def action() -> None:
            with filesystem.open_output_stream(path) as stream:
                stream.write(data)

        attempted(str(self), action)
        listings.forget(str(self))
        return len(data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a folder is there when something lies in it."""

    def rename(self, target: str | os.PathLike[str]) -> Self:
        """Move the object to another address, by way of this machine; a crash may leave both, never neither."""
        to = type(self)(str(target).replace("://", ":/", 1))
        to.write_bytes(self.read_bytes())
        self.unlink()
        return to

    def unlink(self, missing_ok: bool = False) -> None:
        filesystem, path = client(str(self))
        try:
            attempted(str(self), lambda: filesystem.delete_file(path))
        except FileNotFoundError:
            if not missing_ok:
                raise
        finally:
            listings.forget(str(self))


@dataclass(frozen=True)
class Child:
    """What lies in a folder: a file, or a folder. A link is what it leads to, where that may be followed."""

    path: Path
    is_dir: bool
    is_file: bool
    size: int = 0
    modified_ns: int = 0
    """Size and time are of files that `scan` was asked for `sizes` of."""
    link: str = ""
    """Of a link that is not followed: why, a clause."""
    is_link: bool = False

    @property
    def name(self) -> str:
        return self.path.name


def scan(folder: Path, *, sizes: bool = False) -> list[Child]:
    """What lies in a folder, sorted by name.

    Args:
        sizes: files with size and time, too.

    Raises:
        OSError: there is no such folder, or it cannot be listed.
        StorageError: it is elsewhere and cannot be listed.
    """
    if isinstance(folder, Remote):
        return [
            Child(folder / name, found.is_dir, not found.is_dir, found.size, found.modified_ns)
            for name, found in listings.children(str(folder)).items()
        ]
    children = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                if entry.is_symlink():
                    children.append(_linked(entry, sizes=sizes))
                    continue
                is_file = entry.is_file()
                stat = entry.stat() if sizes and is_file else None
            except FileNotFoundError:  # it has gone since it was listed
                continue
            size, modified = (stat.st_size, stat.st_mtime_ns) if stat else (0, 0)
            children.append(Child(Path(entry.path), entry.is_dir(), is_file, size, modified))
    return children


def unfollowed(path: Path) -> str:
    """Why a link is not followed, a clause; "" where it is, or where there is none.

    A link counts as what it leads to where both have one owner, or the link has the system's: a link that somebody puts
    among the runs shows nothing that is not theirs.
    """
    if isinstance(path, Remote) or not path.is_symlink():
        return ""
    try:
        link, target = path.lstat(), path.stat()
    except OSError as error:
        return f"a link that cannot be followed ({error.strerror})"
    if link.st_uid not in (0, target.st_uid):
        return "a link to a file or folder of another user"
    return ""


def _linked(entry: "os.DirEntry[str]", *, sizes: bool) -> Child:
    path = Path(entry.path)
    if why := unfollowed(path):
        return Child(path, False, False, link=why, is_link=True)
    stat = path.stat()
    is_file = stat_of.S_ISREG(stat.st_mode)
    size, modified = (stat.st_size, stat.st_mtime_ns) if sizes and is_file else (0, 0)
    return Child(path, stat_of.S_ISDIR(stat.st_mode), is_file, size, modified, is_link=True)


def scan_below(folder: Path) -> None:
    """Say that a whole folder will be scanned: of one that is elsewhere, this is one request and not one a folder."""
    if isinstance(folder, Remote):
        listings.below(str(folder))


def _pieces(path: Remote) -> Any:
    found = listings.last_seen(str(path))
    if found is None or found.is_dir:
        raise FileNotFoundError(str(path))
    return pieces(str(path), found.size, found.modified_ns)
