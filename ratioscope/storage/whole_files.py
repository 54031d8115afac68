"""Files that appear, and lines that are added, whole or not at all; errors name the file that was meant."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace_atomically(
    path: Path, contents: bytes, *, lasting: bool = True, new: bool = False, private: bool = False
) -> None:
    """Write a file so that a crash at any moment leaves the old or the new one whole.

    Args:
        lasting: a crash of the machine, too, which takes time; without, only one of the process.
        new: of several that make it at once one succeeds.
        private: for this user alone, in a folder that is a group's for the group; else the umask says for whom.

    Raises:
        FileExistsError: it is to be `new`, and there is one.
    """
    temporary = path.with_name(f"{path.name}.tmp-{secrets.token_hex(8)}")  # machines may share the folder
    with instead_of(path, temporary):
        mode = 0o666 if not private else 0o660 if is_a_groups(path.parent) else 0o600
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            if mode == 0o660:
                temporary.chmod(mode)  # whatever the umask: the folder says that its group writes here
            file.write(contents)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        if new:
            try:
                os.link(temporary, path)
                temporary.unlink()
                return
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                pass
        temporary.replace(path)


def is_a_groups(folder: Path) -> bool:
    """Whether a folder is for the people of a group: they may write into it, and others may not."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWGRP) and not mode & stat.S_IWOTH


@contextmanager
def instead_of(path: Path, temporary: Path) -> Iterator[None]:
    """While a file is written under a temporary name: what goes wrong leaves nothing there."""
    try:
        with naming(path, temporary):
            yield
    except BaseException:
        with suppress(OSError):  # its folder is gone
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: Path, *other: Path) -> Iterator[None]:
    """An OSError names this file, where it names none, as of a full disk, or one of the others."""
    try:
        yield
    except OSError as error:
        if error.errno and (error.filename is None or error.filename in map(str, other)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def append_whole(path: Path, contents: bytes) -> None:
    """Add to the end of a file; where that fails, the file ends as it did.

    Raises:
        OSError: it cannot be written.
    """
    with naming(path), path.open("ab", buffering=0) as file:
        end = file.tell()
        try:
            left = memoryview(contents)
            while left:
                left = left[file.write(left) :]
        except BaseException:
            with suppress(OSError):
                file.truncate(end)
            raise


def reason_of(error: BaseException) -> str:
    """What went wrong, as a clause: of a file, its name and the system's words."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error).rstrip(".")
