"""DuckDB, hardened: reads the named folders, writes nothing, leaks nothing of the process into SQL."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from string import Template
from threading import Lock

import duckdb

from ratioscope.analysis.runs import elsewhere
from ratioscope.storage.places import Remote

_ROOMS = Path(__file__).parents[1]

_one_thread: ContextVar[bool] = ContextVar("_one_thread", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Connections that are made inside add up in the same order each time: what is written down stays the same to its
    last digit."""
    token = _one_thread.set(True)
    try:
        yield
    finally:
        _one_thread.reset(token)


@cache
def query(name: str) -> str:
    """The text of `<name>.sql`, where name is room/file."""
    return (_ROOMS / f"{name}.sql").read_text(encoding="utf-8")


def filled(name: str, **values: str) -> str:
    """The text of `<name>.sql` with each $placeholder replaced by its value, which is SQL.

    Raises:
        ValueError: the placeholders in the text are not exactly those that have a value.
    """
    template = Template(query(name))
    placeholders = set(template.get_identifiers())
    if placeholders != values.keys():
        raise ValueError(f"{name}.sql has the placeholders {sorted(placeholders)}, values are for {sorted(values)}.")
    return template.substitute(values)


@contextmanager
def connect(readable: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that can read Parquet files below `readable`, and nothing else, for as long as the block lasts.

    One thread at a time may use it. Views, tables and what is registered are gone afterwards; the database may serve
    the next question of the same files, because to make one takes longer than to answer most questions.
    """
    kind = (_listed(readable), _one_thread.get())
    connection = _taken(kind) or _made(readable)
    try:
        yield connection
        _clear(connection)
    except BaseException:
        connection.close()
        raise
    _put_back(kind, connection)


Kind = tuple[str, bool]
"""What a database may read, and whether it uses one thread alone."""

_MOST_IDLE = 2
# By process: a fork has no threads of the database that it copies.
_idle: defaultdict[int, list[tuple[Kind, duckdb.DuckDBPyConnection]]] = defaultdict(list)
_moving = Lock()


def _taken(kind: Kind) -> duckdb.DuckDBPyConnection | None:
    """An idle connection of this kind, which is idle no more."""
    with _moving:
        idle = _idle[os.getpid()]
        found = next((place for place, (other, _) in enumerate(idle) if other == kind), None)
        return None if found is None else idle.pop(found)[1]


def _put_back(kind: Kind, connection: duckdb.DuckDBPyConnection) -> None:
    """Keep a connection; the one that has been idle for longest is closed where there are too many."""
    with _moving:
        idle = _idle[os.getpid()]
        idle.append((kind, connection))
        oldest = idle.pop(0)[1] if len(idle) > _MOST_IDLE else None
    if oldest:
        oldest.close()


def _clear(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop whatever a question has made."""
    made = connection.execute(
        "select 'view', view_name from duckdb_views() where not internal "
        "union all select 'table', table_name from duckdb_tables()"
    ).fetchall()
    for kind, name in made:
        if kind == "view":
            connection.unregister(name)  # lets go of a frame; of any other view it does nothing
        quoted = name.replace('"', '""')
        connection.execute(f'drop {kind} if exists "{quoted}"')


def _made(readable: Sequence[Path]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "python_enable_replacements": False,  # SQL must not see Python variables of the calling frame
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "memory_limit": "2GB",
            **({"threads": 1} if _one_thread.get() else {}),
        },
    )
    # Progress would be printed into the command line's output. A notebook without ipywidgets has it off and refuses to
    # hear of it.
    if connection.execute("select current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("set enable_progress_bar = false")
    connection.execute(query("runs/macros"))
    # DuckDB's own cache would keep in memory what an idle database has read; at a URL it reads small files whole and of
    # others whole blocks: without it, column chunks to the byte.
    connection.execute("set enable_external_file_cache = false")
    if any(isinstance(folder, Remote) for folder in readable):
        elsewhere.register(connection)
    connection.execute(f"set allowed_directories = [{_listed(readable)}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def _listed(folders: Sequence[Path]) -> str:
    """Folders as SQL."""
    return ", ".join("'" + str(folder.resolve()).replace("'", "''") + "/'" for folder in folders)
