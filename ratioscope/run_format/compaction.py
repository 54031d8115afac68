"""Many small files of a run become few: `compact(folder)`.

New files of a table are written beside it, and the two folders change places at once, by the system. A listing of the
table shows the old files or the new ones, never both; a crash at any moment leaves one of the two. Rows, their order by
the table's key, and what footers say of them stay as they are.
"""

import ctypes
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import RatioscopeError, RunFormatError, first_line
from ratioscope.run_format import schema
from ratioscope.run_format.manifest import Manifest
from ratioscope.run_format.table_files import write_table_file
from ratioscope.storage.parquet import read_table
from ratioscope.storage.places import Remote
from ratioscope.storage.whole_files import naming

# A file is full with so many rows, or bytes on disk: texts take more than numbers.
FULL_ROWS, FULL_BYTES = schema.ROW_GROUP_ROWS, 64 * 2**20

_BESIDE = ".compact-"
_AT_FDCWD, _EXCHANGE = -100, 2


@dataclass(frozen=True)
class Compacted:
    """How many files a run had, and has."""

    before: int
    after: int


def compact(
    folder: Path, *, ended: bool = False, progress: Callable[[int, int], None] = lambda done, of: None
) -> Compacted:
    """Make few files of the many of each table.

    Args:
        folder: a run, on a file system that can exchange two folders.
        ended: an interrupted or failed run will not be resumed. To go on from a checkpoint, files of later steps are
            set aside, which a file of many steps cannot be.
        progress: hears of files read and of all.

    Raises:
        RunFormatError: it is no run, somebody writes it, it may be resumed, or a file in it cannot be read.
        RatioscopeError: it cannot be written, or the file system cannot exchange folders. The run is as it was.
    """
    if isinstance(folder, Remote):
        raise RatioscopeError(f"{folder}: only runs on a disk can be compacted; compact it before it is copied there.")
    _check(folder, ended=ended)
    with _locked(folder):
        for leftover in folder.glob(f"{_BESIDE}*"):  # of one that was killed: the run is whole without it
            shutil.rmtree(leftover)
        tables = [name for name in schema.ALL_TABLES if (folder / name).is_dir()]
        plans = {name: _plan(folder / name) for name in tables}
        before = sum(len(group) for groups in plans.values() for group in groups)
        done = 0
        for name, groups in plans.items():
            if all(len(group) == 1 for group in groups):
                done += len(groups)
                continue
            beside = folder / f"{_BESIDE}{name}"
            try:
                with naming(folder / name, beside):
                    beside.mkdir()
                for group in groups:
                    _write(schema.ALL_TABLES[name], group, beside)
                    done += len(group)
                    progress(done, before)
                _check(folder, ended=ended)  # nobody has begun to write it meanwhile
                _exchange(folder / name, beside, [path for group in groups for path in group])
            finally:
                if beside.exists():
                    shutil.rmtree(beside)
    return Compacted(before, sum(len(groups) for groups in plans.values()))


def _check(folder: Path, *, ended: bool) -> None:
    status = Manifest.read(folder).live_status()
    if status in ("running", "stalled"):
        raise RunFormatError(f"{folder}: the run is {status}; compact it when its writer has ended.")
    if status != "finished" and not ended:
        raise RunFormatError(
            f"{folder}: the run is {status} and may be resumed, which needs its files as they are; "
            "--ended says that it will not be."
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time; the system lets go of it whatever happens."""
    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RatioscopeError(f"{folder}: another process compacts this run.") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(place)


def _plan(folder: Path) -> list[list[Path]]:
    """Which files of a table become one. Files of one writer are joined in step order; those that share a step stay
    together, and what is no file of a table stays as it is."""
    named: dict[Path, schema.FileName | None] = {}
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file():
            raise RunFormatError(f"{path}: is not a file of a run; take it out of the folder first.")
        named[path] = schema.FileName.parse(path.name)
    groups = [[path] for path, name in named.items() if name is None]
    ours = sorted((name.writer, name.first_step, name.last_step, path) for path, name in named.items() if name)
    group: list[Path] = []
    writer, last, rows, size = -1, -1, 0, 0
    for of, first_step, last_step, path in ours:
        full = (rows >= FULL_ROWS or size >= FULL_BYTES) and first_step > last
        if group and (of != writer or full):
            groups.append(group)
            group, rows, size, last = [], 0, 0, -1
        group.append(path)
        writer, last = of, max(last, last_step)
        rows, size = rows + _rows(path), size + path.stat().st_size
    return [*groups, group] if group else groups


def _rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid) as error:
        reason = first_line(error, 120)
        raise RunFormatError(f"{path}: is not a complete Parquet file ({reason}); take it out first.") from None


def _write(table: schema.DeclaredTable, group: list[Path], beside: Path) -> None:
    """One file of several; a single one is linked."""
    if len(group) == 1:
        os.link(group[0], beside / group[0].name)
        return
    parts = [read_table(path).replace_schema_metadata() for path in group]
    try:
        joined = pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        reason = first_line(error)
        raise RunFormatError(f"{group[0].parent}: files have columns of different kinds ({reason}).") from None
    keys = [(name, "ascending") for name in table.key if name in joined.column_names]
    names = [name for path in group if (name := schema.FileName.parse(path.name))]
    path = beside / str(
        schema.FileName(min(name.first_step for name in names), max(name.last_step for name in names), names[0].writer)
    )
    with naming(group[0].with_name(path.name), path):
        write_table_file(path, joined.sort_by(keys))
    if _rows(path) != sum(map(_rows, group)):
        raise RatioscopeError(f"{path}: does not hold all rows; nothing was changed.")


def _exchange(folder: Path, beside: Path, known: list[Path]) -> None:
    """Let two folders change places, then remove the known files of the old one."""
    if sorted(folder.iterdir()) != sorted(known):
        raise RunFormatError(f"{folder}: changed while it was compacted; nothing was changed, try again.")
    libc = ctypes.CDLL(None, use_errno=True)
    swapped = hasattr(libc, "renameat2") and not libc.renameat2(
        _AT_FDCWD, os.fsencode(folder), _AT_FDCWD, os.fsencode(beside), _EXCHANGE
    )
    if not swapped:
        raise RatioscopeError(
            f"{folder}: this file system cannot exchange two folders at once; compact the run on a local disk of Linux."
        )
    run = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(run)
    finally:
        os.close(run)
    for path in sorted(beside.iterdir()):
        if folder / path.name not in known:  # came between looking and exchanging
            path.rename(folder / path.name)
