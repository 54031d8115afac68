"""Rows of a table in SQLite, of a file that another program may be writing and of which nothing is known.

Nothing is created beside the file, nothing in it changes, and no lock is held for longer than a page of rows takes: the
program that writes never waits for an import. It must be another process: locks on a file are a process's, and one that
closes the file gives up all of them. What the schema could run (views, virtual tables, generated columns) is left
alone.
"""

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ratioscope.analysis.importers.source import ImportProblem
from ratioscope.errors import first_line
from ratioscope.storage import bounds

SUFFIXES = (".db", ".sqlite", ".sqlite3")

# Rows that are read under one lock; a row may hold a response with all its lists.
_PAGE = 64
# The bytes 18 and 19 of a database whose changes are in a file of their own (-wal) at first.
_WRITE_AHEAD = b"\x02\x02"
# How often something is read that changed meanwhile, and seconds between: a clock of files may be as slow.
_TRIES, _PAUSE = 8, 0.02

_State = list[tuple[int, int, int] | None]


class _ChangedError(ImportProblem):
    """What was read may be torn: the file or one beside it changed meanwhile."""


@contextmanager
def connected(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading alone.

    Raises:
        ImportProblem: it is no database, or damaged, or cannot be read; also for what is done with the connection, and
            where a writer came meanwhile.
    """
    with _opened(file) as (connection, check):
        yield connection
        check()


@contextmanager
def _opened(file: Path) -> Iterator[tuple[sqlite3.Connection, Callable[[], None]]]:
    """A connection, and what raises `_ChangedError` where that which was read of it may be torn."""
    before = _state(file)
    try:
        with (
            _undisturbed(file, before) as (uri, check),
            closing(sqlite3.connect(uri, uri=True)) as connection,
        ):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.longest_line())
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            yield connection, check
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        if _state(file) != before:
            raise _changed(file) from None
        why = "a text in it is not UTF-8" if isinstance(error, UnicodeDecodeError) else first_line(error)
        raise ImportProblem(f"{file}: cannot be read as a SQLite database ({why}).") from None
    except OSError as error:
        raise ImportProblem(f"{file}: cannot be read ({error.strerror or error}).") from None


def tables(file: Path) -> dict[str, list[str]]:
    """Names of the tables of a database, and of the columns that each stores.

    Raises:
        ImportProblem: see `connected`.
    """
    tries = 0
    while True:
        try:
            with connected(file) as connection:
                return {name: _columns(connection, name) for name in _names(connection)}
        except _ChangedError:
            tries += 1
            if tries == _TRIES:
                raise
            time.sleep(_PAUSE)


def rows(file: Path, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table by the names of its columns, in the order in which they were written first.

    Args:
        table: a name from `tables`.

    Raises:
        ImportProblem: there is no such table, or see `connected`.
    """
    last, tries = -(2**63), 0
    while True:
        try:
            with _opened(file) as (connection, check):
                there = _names(connection)
                names = _columns(connection, table) if table in there else []
                check()
                if table not in there:
                    raise ImportProblem(f"{file}: has no table {table}.")
                for numbers, page in _pages(connection, table, names, last):
                    check()
                    if any(number <= before for before, number in zip([last, *numbers], numbers, strict=False)):
                        raise ImportProblem(f"{file}: is damaged; the rows of {table} are not in their order.")
                    last, tries = (numbers[-1] if numbers else last), 0
                    for values in page:
                        yield dict(zip(names, values, strict=True))
            return
        except _ChangedError:  # on from the last row, as from a file that is being written
            tries += 1
            if tries == _TRIES:
                raise
            time.sleep(_PAUSE)


def _pages(
    connection: sqlite3.Connection, table: str, names: list[str], last: int
) -> Iterator[tuple[list[int], list[tuple[Any, ...]]]]:
    """Some rows after the last at a time with their numbers, each page under a lock of its own; the last one is empty.

    A table without numbers of rows is one page.
    """
    number = next((name for name in ("rowid", "_rowid_", "oid") if name not in map(str.lower, names)), "")
    wanted = ", ".join(map(_quoted, names))
    if not number or not _numbered(connection, table, number):
        yield [], connection.execute(f"SELECT {wanted} FROM {_quoted(table)}").fetchall()
        return
    query = f"SELECT {number}, {wanted} FROM {_quoted(table)} WHERE {number} > ? ORDER BY {number} LIMIT {_PAGE}"
    page: list[tuple[Any, ...]] | None = None
    while page is None or page:
        page = connection.execute(query, (last,)).fetchall()
        last = page[-1][0] if page else last
        yield [row[0] for row in page], [row[1:] for row in page]


def _numbered(connection: sqlite3.Connection, table: str, number: str) -> bool:
    try:
        connection.execute(f"SELECT {number} FROM {_quoted(table)} LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def _names(connection: sqlite3.Connection) -> list[str]:
    """Tables that hold their rows themselves: no views, and nothing that a module of SQLite makes up."""
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    named = [(name, sql) for name, sql in found if not name.lower().startswith("sqlite_")]
    return [name for name, sql in named if not str(sql).lstrip().lower().startswith("create virtual")]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _state(file: Path) -> _State:
    """When the file and those beside it changed, how large they are, and which; None: there is none."""
    found: _State = []
    for ending in ("", "-wal", "-shm"):
        try:
            said = Path(f"{file.resolve()}{ending}").stat()
        except OSError:
            found.append(None)
        else:
            found.append((said.st_mtime_ns, said.st_size, said.st_ino))
    return found


def _changed(file: Path) -> _ChangedError:
    return _ChangedError(f"{file}: was written while it was read; import it again.")


@contextmanager
def _undisturbed(file: Path, before: _State) -> Iterator[tuple[str, Callable[[], None]]]:
    """An address by which SQLite opens the file without creating one beside it, and a check of what is read from it.

    A database with a write-ahead log needs that file and another one for what its readers share: where both are there,
    they are read; where neither is, nobody writes unless the check says so; where it is copied without the latter, a
    copy elsewhere gets one.
    """
    with bounds.opened(file) as opened:
        header = opened.read(20)
    place = file.resolve()
    whole, log, shared = before

    def check() -> None:
        if _state(file) != before:
            raise _changed(file)

    if header[18:] != _WRITE_AHEAD or (log and shared):
        yield f"{place.as_uri()}?mode=ro&readonly_shm=1", lambda: None
    elif not log or not log[1]:
        if whole and abs(time.time() - whole[0] / 1e9) < _PAUSE:  # or a later change could have the same time
            time.sleep(_PAUSE)
        check()
        yield f"{place.as_uri()}?immutable=1", check
    else:
        with TemporaryDirectory(prefix="ratioscope-") as folder:
            copy = Path(folder) / "copy.db"
            shutil.copyfile(place, copy)
            shutil.copyfile(f"{place}-wal", copy.with_name("copy.db-wal"))
            check()
            yield f"{copy.as_uri()}?mode=ro", lambda: None
