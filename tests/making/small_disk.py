"""A disk of a few hundred kilobytes that can really be full: `with small_disk(folder, kilobytes): ...`."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_DETACH = 2


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mount a tmpfs of that size; the test is skipped where that is not allowed."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    place = os.fsencode(folder)
    if not hasattr(libc, "mount") or libc.mount(b"tmpfs", place, b"tmpfs", 0, f"size={kilobytes}k".encode()):
        pytest.skip("a disk that is really full needs root on Linux and the right to mount a tmpfs")
    try:
        yield folder
    finally:
        libc.umount2(place, _DETACH)


def fill(folder: Path, free: int = 0) -> Path:
    """Take all of the disk but so many kilobytes; returns the file that does."""
    filler = folder / "filler"
    left = os.statvfs(folder)
    with filler.open("wb") as file:
        file.write(bytes(left.f_bavail * left.f_frsize - free * 1024))
    return filler
