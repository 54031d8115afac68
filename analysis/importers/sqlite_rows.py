"""Rows of a table in SQLite, of a file that another program may be writing and of which nothing is known.

Nothing is created beside the file, nothing in it changes, and no lock is held for longer than a page of rows takes: the
program that writes never waits for an import. What the schema could run (views, virtual tables, generated columns) is
left alone.
"""

import shutil
import sqlite3
from collections.abc import Iterator
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


@contextmanager
def connected(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading alone.

    Raises:
        ImportProblem: it is no database, or damaged, or cannot be read; also for what is done with the connection.
    """
    try:
        with _undisturbed(file) as uri, closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.longest_line())
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            yield connection
    except (sqlite3.Error, OverflowError) as error:
        raise ImportProblem(f"{file}: cannot be read as a SQLite database ({first_line(error)}).") from None
    except UnicodeDecodeError:
        raise ImportProblem(f"{file}: cannot be read as a SQLite database (a text in it is not UTF-8).") from None
    except OSError as error:
        raise ImportProblem(f"{file}: cannot be read ({error.strerror or error}).") from None


def tables(file: Path) -> dict[str, list[str]]:
    """Names of the tables of a database, and of the columns that each stores.

    Raises:
        ImportProblem: see `connected`.
    """
    with connected(file) as connection:
        return {name: _columns(connection, name) for name in _names(connection)}


def rows(file: Path, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table by the names of its columns, in the order in which they were written first.

    Args:
        table: a name from `tables`.

    Raises:
        ImportProblem: there is no such table, or see `connected`.
    """
    with connected(file) as connection:
        if table not in _names(connection):
            raise ImportProblem(f"{file}: has no table {table}.")
        names = _columns(connection, table)
        wanted = ", ".join(map(_quoted, names))
        for page in _pages(connection, table, wanted, names):
            for values in page:
                yield dict(zip(names, values, strict=True))


def _pages(
    connection: sqlite3.Connection, table: str, wanted: str, names: list[str]
) -> Iterator[list[tuple[Any, ...]]]:
    """Some rows at a time, each page under a lock of its own; a table without numbers of rows as one."""
    number = next((name for name in ("rowid", "_rowid_", "oid") if name not in map(str.lower, names)), "")
    if not number or not _numbered(connection, table, number):
        yield connection.execute(f"SELECT {wanted} FROM {_quoted(table)}").fetchall()
        return
    query = f"SELECT {number}, {wanted} FROM {_quoted(table)} WHERE {number} > ? ORDER BY {number} LIMIT {_PAGE}"
    last = -(2**63)
    while page := connection.execute(query, (last,)).fetchall():
        last = page[-1][0]
        yield [row[1:] for row in page]


def _numbered(connection: sqlite3.Connection, table: str, number: str) -> bool:
    try:
        connection.execute(f"SELECT {number} FROM {_quoted(table)} LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        return False
    return True


def _names(connection: sqlite3.Connection) -> list[str]:
    """Tables that hold their rows themselves: no views, and nothing that a module of SQLite makes up."""
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [name for name, sql in found if not str(sql).lstrip().lower().startswith("create virtual")]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _undisturbed(file: Path) -> Iterator[str]:
    """An address by which SQLite opens the file without creating one beside it.

    A database with a write-ahead log needs that file and another one for what its readers share: where both are there,
    they are read; where neither is, nobody writes; where it is copied without the latter, a copy elsewhere gets one.
    """
    with bounds.opened(file) as opened:
        header = opened.read(20)
    place = file.resolve()
    log, shared = (place.with_name(place.name + ending) for ending in ("-wal", "-shm"))
    if header[18:] != _WRITE_AHEAD or (log.exists() and shared.exists()):
        yield f"{place.as_uri()}?mode=ro&readonly_shm=1"
    elif not log.exists() or not log.stat().st_size:
        yield f"{place.as_uri()}?immutable=1"
    else:
        with TemporaryDirectory(prefix="ratioscope-") as folder:
            copy = Path(folder) / "copy.db"
            shutil.copyfile(place, copy)
            shutil.copyfile(log, copy.with_name("copy.db-wal"))
            yield f"{copy.as_uri()}?mode=ro"
