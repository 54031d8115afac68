"""What a reader takes into memory at once: one limit for all that others wrote, which RATIOSCOPE_LARGEST_GB raises.

A link may lead to a device that never ends, a line may have no end, and Parquet unpacks: a file of some kilobytes may
hold terabytes, which its footer says. Such a file is opened here. What is refused is an OSError whose
`strerror` is a clause.
"""

import errno
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq

from ratioscope.errors import RatioscopeError

LARGEST = "RATIOSCOPE_LARGEST_GB"
_DEFAULT_GB = 1.0
# What is read of a file of settings, whatever the limit.
SETTINGS_BYTES = 2**24
# Python's values take more than JSON or Arrow by about so much.
_AS_PYTHON = 4
# Measured numbers are never packed so well; copies of one value are.
_PACKED = 1_000
_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_NO_FILES = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def largest_bytes() -> int:
    """Bytes that one file, or the part of it that is read at once, may take in memory.

    Raises:
        RatioscopeError: the environment has another thing than a number above 0.
    """
    text = os.environ.get(LARGEST, "")
    try:
        found = float(text or _DEFAULT_GB) * 2**30
    except ValueError:
        found = 0.0
    if not 1 <= found < 2**63:
        raise RatioscopeError(f"{LARGEST} is {text!r}; it takes a number of GB above 0, such as 4.")
    return int(found)


def check_kind(path: Path) -> None:
    """Make sure that a path can be read to an end.

    Raises:
        OSError: it is a pipe, a device or a socket, or cannot be looked at.
    """
    if kind := _NO_FILES.get(stat.S_IFMT(path.stat().st_mode)):
        raise OSError(errno.EINVAL, f"it is {kind}, no file", str(path))


def opened(path: Path, buffering: int = -1) -> IO[bytes]:
    """A file for reading its bytes.

    Raises:
        OSError: it cannot be opened, or is no file.
    """
    check_kind(path)
    return path.open("rb", buffering)


def read_whole(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file.

    Args:
        most: how many there may be; None: `largest()`.

    Raises:
        OSError: it cannot be read, is no file, or is larger.
    """
    most = largest_bytes() if most is None else most
    with opened(path) as file:
        if path.stat().st_size <= most and len(contents := file.read(most + 1)) <= most:
            return contents
    raise OSError(errno.EFBIG, f"it is larger than {_size(most)}", str(path))


def lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """The lines of a file with their ends; None for one that is longer than `longest_line()`."""
    most = longest_line()
    while line := file.readline(most + 1):
        if len(line) <= most:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(most + 1)
        yield None


def longest_line() -> int:
    """Bytes that a line may have."""
    return max(largest_bytes() // _AS_PYTHON, 1)


def too_long() -> str:
    """What is wrong with a line that `lines` has no bytes of, a clause."""
    return f"longer than {_size(longest_line())}; {LARGEST} raises the limit"


def too_large(metadata: pq.FileMetaData, columns: Collection[str] | None = None, *, as_python: bool = False) -> str:
    """What forbids to read a Parquet file, or some of its columns, whole: a clause; "": nothing.

    Args:
        as_python: as Python's values, which are several times as large.
    """
    return _over(metadata, sum(_unpacked(metadata, columns)) * (_AS_PYTHON if as_python else 1))


def bomb(metadata: pq.FileMetaData, size: int) -> str:
    """What forbids to read a Parquet file row group by row group, a clause; "": nothing.

    Args:
        size: of the file in bytes.
    """
    groups = _unpacked(metadata)
    return _over(metadata, sum(groups) if sum(groups) > _PACKED * size else max(groups, default=0))


def refuse(path: Path, why: str) -> None:
    """Raise the OSError of a clause, where it is one."""
    if why:
        raise OSError(errno.EFBIG, why, str(path))


def _over(metadata: pq.FileMetaData, unpacked: int) -> str:
    if unpacked <= largest_bytes():
        return ""
    rows = f"{metadata.num_rows:,} rows" if metadata.num_rows != 1 else "one row"
    return f"its {rows} would take {_size(unpacked)} of memory, {LARGEST} allows {_size(largest_bytes())}"


def _unpacked(metadata: pq.FileMetaData, columns: Collection[str] | None = None) -> list[int]:
    """Bytes of each row group in memory, by the footer: what packs well counts as what it unpacks to."""
    leaves = [metadata.schema.column(place) for place in range(metadata.num_columns)]
    wanted = [
        (place, _BYTES.get(leaf.physical_type, max(leaf.length, 4)))  # of a text at least where it begins
        for place, leaf in enumerate(leaves)
        if columns is None or leaf.path in columns or leaf.path.split(".")[0] in columns
    ]
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    found = [[(group.column(place), width) for place, width in wanted] for group in groups]
    return [sum(max(chunk.total_uncompressed_size, chunk.num_values * width) for chunk, width in of) for of in found]


def _size(n: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if n < 1024:
            return f"{n:.3g} {unit}"
        n /= 1024
    return f"{n:,.3g} GB" if n < 1000 else f"{n:,.0f} GB"
