"""Parquet files wherever they lie: of those that are elsewhere, only the parts that are asked for are moved."""

import errno
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import RatioscopeError, VanishedError
from ratioscope.storage.bounds import check_kind, refuse, too_large
from ratioscope.storage.places import Remote
from ratioscope.storage.ranges import RangeFile

_AT_A_TIME = 16
# The last is how a network's file system says it.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def footer(path: Path) -> pq.FileMetaData:
    """Row groups, columns and statistics.

    Raises:
        VanishedError: there is no such file any more.
        OSError, pa.ArrowInvalid: it cannot be read, or is not a complete Parquet file.
        StorageError: it is elsewhere and cannot be read.
    """
    if not isinstance(path, Remote):
        with _listed(path):
            check_kind(path)
            return pq.read_metadata(path)
    pieces = path.open("rb").pieces
    return pieces.footer or pq.read_metadata(RangeFile(pieces))


def read_schema(path: Path) -> pa.Schema:
    """Columns and types, with the file's own remarks; raises as `footer`."""
    return footer(path).schema.to_arrow_schema()


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows, of all columns or of those of some that the file has; raises as `footer`, and where they are too many
    for memory (`bounds`)."""
    names = None if columns is None else list(columns)
    metadata = footer(path)
    refuse(path, too_large(metadata, names))
    with _listed(path):
        source = path.open("rb") if isinstance(path, Remote) else path
        with pq.ParquetFile(source, metadata=metadata) as file:
            return file.read(columns=names)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows as Python's values; raises as `read_table`, and a UnicodeDecodeError where text is not UTF-8."""
    refuse(path, too_large(footer(path), as_python=True))
    return read_table(path).to_pylist()


@contextmanager
def _listed(path: Path) -> Iterator[None]:
    """A file that was in its folder a moment ago may have gone: the run was compacted, moved or deleted."""
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise
        raise VanishedError(f"{path}: vanished or changed while it was read; try again.") from None


def fetch_footers(paths: Iterable[Path]) -> None:
    """Read the footers of those files that are elsewhere, many at a time. One that fails, fails when it is used."""
    remote = [path for path in paths if isinstance(path, Remote)]
    if remote:
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="footers") as pool:
            list(pool.map(_footer, remote))


def _footer(path: Path) -> None:
    with suppress(OSError, pa.ArrowException, RatioscopeError):
        footer(path)
