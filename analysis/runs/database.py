"""DuckDB, hardened: reads the named folders, writes nothing, leaks nothing of the process into SQL."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from string import Template

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


def connect(readable: Sequence[Path], *, memory_limit: str = "2GB") -> duckdb.DuckDBPyConnection:
    """A connection that can read Parquet files below `readable`, and nothing else.

    One thread at a time may use it: take `.cursor()` for each query.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "python_enable_replacements": False,  # SQL must not see Python variables of the calling frame
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "memory_limit": memory_limit,
            **({"threads": 1} if _one_thread.get() else {}),
        },
    )
    # Progress would be printed into the command line's output. A notebook without ipywidgets has it off and refuses to
    # hear of it.
    if connection.execute("select current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("set enable_progress_bar = false")
    connection.execute(query("runs/macros"))
    if any(isinstance(folder, Remote) for folder in readable):
        elsewhere.register(connection)
    folders = ", ".join("'" + str(folder.resolve()).replace("'", "''") + "/'" for folder in readable)
    connection.execute(f"set allowed_directories = [{folders}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection
