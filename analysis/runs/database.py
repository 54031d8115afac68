"""DuckDB, hardened: reads the named folders, writes nothing, leaks nothing of the process into SQL."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from string import Template
from threading import Lock

import duckdb

from ratioscope.storage.places import Remote

_ROOMS = Path(__file__).parents[1]

PIECE = 122_880
"""Rows that DuckDB gives to a thread: where there are no more, all other threads only wait."""

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
def connect(
    readable: Sequence[Path], *, memory_limit: str = "2GB", few: bool = False
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that can read Parquet files below `readable`, and nothing else; what is made in it goes with it.

    To open a database takes twenty times as long as most queries of a small run, and a run is asked many times: the
    databases of the last few are kept, empty, and each serves one connection at a time.

    Args:
        few: no table has more rows than one `PIECE`.
    """
    folders = tuple(str(folder.resolve()) for folder in readable)
    elsewhere_too = any(isinstance(folder, Remote) for folder in readable)
    key = (folders, memory_limit, few or _one_thread.get())
    database = None if elsewhere_too else _taken(key)
    database = database or _opened(*key, elsewhere_too=elsewhere_too)
    connection = database.cursor()
    try:
        connection.execute("attach ':memory:' as own")
        connection.execute("set search_path = 'own.main,memory.main'")
        yield connection
    finally:
        with suppress(duckdb.Error):  # one that has failed for good is not kept
            connection.execute("use memory")
            connection.execute("detach own")
            if not elsewhere_too:
                _keep(key, database)
        connection.close()


_Key = tuple[tuple[str, ...], str, bool]
_kept: list[tuple[_Key, duckdb.DuckDBPyConnection]] = []
_lock = Lock()
_MOST_KEPT = 4
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_kept.clear)  # their threads would be missing in the child


def _taken(key: _Key) -> duckdb.DuckDBPyConnection | None:
    """A database that was opened for the same, which nobody else then has."""
    with _lock:
        place = next((place for place, (of, _) in enumerate(_kept) if of == key), None)
        return None if place is None else _kept.pop(place)[1]


def _keep(key: _Key, database: duckdb.DuckDBPyConnection) -> None:
    with _lock:
        _kept.append((key, database))
        del _kept[:-_MOST_KEPT]


def _opened(
    folders: tuple[str, ...], memory_limit: str, one_thread: bool, *, elsewhere_too: bool
) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "python_enable_replacements": False,  # SQL must not see Python variables of the calling frame
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "memory_limit": memory_limit,
            **({"threads": 1} if one_thread else {}),
            # It would outlive the connection; the system keeps files of this machine in memory anyway.
            **({} if elsewhere_too else {"enable_external_file_cache": False}),
        },
    )
    # Progress would be printed into the command line's output. A notebook without ipywidgets has it off and refuses to
    # hear of it.
    if connection.execute("select current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("set enable_progress_bar = false")
    connection.execute(query("runs/macros"))
    if elsewhere_too:
        from ratioscope.analysis.runs import elsewhere  # whose packages take their time, and most runs are here

        elsewhere.register(connection)
    readable = ", ".join("'" + folder.replace("'", "''") + "/'" for folder in folders)
    connection.execute(f"set allowed_directories = [{readable}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection
