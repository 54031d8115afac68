"""The process that a query runs in: reads a request from stdin, answers on stdout, and ends.

It imports nothing of ratioscope and starts as a bare interpreter (no environment, no site), so that it is up in a
fraction of a second and there is nothing in it to leak. What keeps a query harmless, from the outside in:

- the kernel: no file can grow (`RLIMIT_FSIZE`), memory and time end (`RLIMIT_AS`, an alarm);
- DuckDB: its local file system is off; the only one there is knows the run's files, by made-up names, to read;
- the syntax tree of the statement: nothing but SELECT, over the tables offered, without functions that act.

Each holds without the others; `analysis.sql` says why there are several.
"""

import io
import json
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

SCHEME = "run"

# Query nodes that only read. COPY, INSERT, UPDATE, DELETE and MERGE have nodes of their own inside of WITH.
_READING = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_TABLE_FUNCTIONS = {"range", "generate_series", "unnest"}
# These do something besides computing, or tell of the process rather than of the run.
_FUNCTIONS_THAT_ACT = {
    "current_setting",
    "getvariable",
    "nextval",
    "currval",
    "setval",
    "setseed",
    "sleep_ms",
    "write_log",
    "parse_duckdb_log_message",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


class PositionedFile:
    """A file that several threads read at once.

    DuckDB reads at a place by seek and then read, two calls between which another thread may do the same: with an
    ordinary file object the numbers come out wrong. Here each thread has a place of its own.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._places: dict[int, int] = {}

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise OSError("places are counted from the beginning")
        self._places[threading.get_ident()] = place
        return place

    def tell(self) -> int:
        thread = threading.get_ident()
        if thread not in self._places and self._places:  # going on where another thread stopped is a place unknown
            raise OSError("read without a place")
        return self._places.setdefault(thread, 0)

    def read(self, size: int = -1) -> bytes:
        place = self.tell()
        with self._lock:
            self._file.seek(place)
            data = self._file.read(size)
        self._places[threading.get_ident()] = place + len(data)
        return data

    def close(self) -> None:
        self.closed = True
        self._file.close()


class Refused(Exception):
    """The statement is not one that this process runs; the message is for the user."""


def main() -> None:
    """Answer one request: a line of JSON, then the contents of the small tables one after the other."""
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request["limits"])
    contents = {name: sys.stdin.buffer.read(size) for name, size in request["contents"].items()}
    sys.path[:] = request["import_path"]
    import duckdb

    try:
        connection = connect(request["setup"], request["files"], contents, request["limits"])
        check(connection, request["sql"], set(request["tables"]))
        started = time.perf_counter()
        table, cut = _fetch(connection, request["sql"], request["limits"])
        answer = {"seconds": time.perf_counter() - started, "cut": cut}
        _reply(answer, table)
    except Refused as refusal:
        _reply({"refused": str(refusal)})
    except (duckdb.Error, MemoryError) as error:
        _reply({"error": type(error).__name__, "message": str(error)})
    except Exception as error:  # noqa: BLE001 - the user sees a sentence, whatever DuckDB's bindings raise
        _reply({"error": "Error", "message": str(error)})


def _limit(limits: dict[str, Any]) -> None:
    """Bounds that the kernel holds, where it can (not on Windows; macOS has no limit of the address space)."""
    with suppress(ImportError, AttributeError, ValueError, OSError):
        signal.alarm(int(limits["seconds"]) + 5)  # also when whoever asked is gone
        import resource

        # A file that cannot grow cannot be written, and neither can the image of a crash.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # DuckDB counts its buffers, not the strings that functions make: those end here.
        resource.setrlimit(resource.RLIMIT_AS, (limits["address_space"], limits["address_space"]))


def connect(
    setup: list[str], files: dict[str, str], contents: dict[str, bytes], limits: dict[str, Any]
) -> "duckdb.DuckDBPyConnection":
    """A connection with the views that `setup` makes, locked.

    Args:
        setup: statements that make the views over files called run://<name>.
        files: path of each of these names.
        contents: what is in those names that are no files.
        limits: see `analysis.sql.Limits`.
    """
    import duckdb
    import fsspec  # type: ignore[import-untyped]

    class RunFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
        """The run's files under made-up names; they can be read."""

        protocol = SCHEME

        def open(self, path: str, mode: str = "rb", **_: Any) -> PositionedFile:
            name = _name(path)
            if mode != "rb" or (name not in files and name not in contents):
                raise PermissionError("the tables of a run can be read and nothing else")
            return PositionedFile(io.BytesIO(contents[name]) if name in contents else Path(files[name]).open("rb"))

        def exists(self, path: str, **_: Any) -> bool:
            return _name(path) in files or _name(path) in contents

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            name = _name(path)
            size = len(contents[name]) if name in contents else Path(files[name]).stat().st_size
            return {"name": path, "size": size, "type": "file"}

        def glob(self, path: str, **_: Any) -> list[str]:
            return [path] if self.exists(path) else []

        def modified(self, path: str) -> datetime:
            return datetime(2000, 1, 1)  # what is read once cannot change

    connection = duckdb.connect(
        ":memory:",
        config={
            "python_enable_replacements": False,  # SQL must not see Python variables of the calling frame
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_persistent_secrets": False,
            "temp_directory": "",  # nothing is spilled
            "memory_limit": f"{limits['memory']}B",
            "threads": limits["threads"],
            "max_execution_time": int(limits["seconds"] * 1000),
        },
    )
    connection.execute("set enable_progress_bar = false")  # it would be printed into the answer
    connection.register_filesystem(RunFiles(skip_instance_cache=True))
    for statement in setup:
        connection.execute(statement)
    names = ", ".join("'" + f"{SCHEME}://{name}".replace("'", "''") + "'" for name in (*files, *contents))
    connection.execute(f"set allowed_paths = [{names}]")
    connection.execute("set disabled_filesystems = 'LocalFileSystem'")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def _name(path: str) -> str:
    return path.removeprefix(f"{SCHEME}://")


def check(connection: "duckdb.DuckDBPyConnection", sql: str, tables: set[str]) -> None:
    """Hold the statement's syntax tree against what a query may do.

    The type of a statement does not tell: WITH x AS (COPY ... TO 'file') SELECT ... is a SELECT for DuckDB.

    Raises:
        Refused: it is more than one statement, or does something else than read the tables.
        duckdb.Error: it is not SQL.
    """
    statements = connection.extract_statements(sql)
    if not statements:
        raise Refused("There is no statement to run; write a SELECT.")
    if len(statements) > 1:
        raise Refused(f"These are {len(statements)} statements; one SELECT at a time runs here.")
    kind = str(statements[0].type).rsplit(".", 1)[-1]
    if kind == "MULTI":
        raise Refused("A PIVOT must name its columns here: PIVOT ... ON column IN (value, ...) USING ...")
    if kind != "SELECT":
        raise Refused(f"{kind} is not possible here: queries read, so only SELECT runs.")
    row = connection.execute("select json_serialize_sql(?)", [sql]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True}
    if tree["error"]:
        raise Refused("Only SELECT runs here.")
    _check_tree(tree["statements"], tables, _catalog(connection))


def _catalog(connection: "duckdb.DuckDBPyConnection") -> set[str]:
    """Names that mean something without being one of the run's tables."""
    rows = connection.execute(
        "select lower(view_name) from duckdb_views() union select lower(table_name) from duckdb_tables()"
    ).fetchall()
    return {name for (name,) in rows}


def _check_tree(tree: Any, tables: set[str], catalog: set[str]) -> None:
    nodes = list(_dictionaries(tree))
    # A name that WITH gives may stand for a table; it must not hide that elsewhere the same name is the catalog's.
    given = {entry["key"].lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", [])}
    for name in sorted(given - tables):
        if name in catalog or not _PLAIN_NAME.fullmatch(name):
            raise Refused(f"WITH cannot give the name {name} here; choose another.")
    for node in nodes:
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _READING:
            raise Refused(f"{kind.split('_')[0]} is not possible here: queries read, so only SELECT runs.")
        if kind == "BASE_TABLE":
            _check_table(node, tables | given, tables)
        elif kind == "SHOW_REF" and not node.get("query"):
            raise Refused("SHOW is not possible here; DESCRIBE tokens lists the columns of a table.")
        elif kind == "TABLE_FUNCTION" and node["function"].get("function_name", "").lower() not in _TABLE_FUNCTIONS:
            name = node["function"].get("function_name", "")
            raise Refused(f"{name}() is not possible after FROM; there are {_listed(tables)}, and range().")
        elif node.get("class") == "FUNCTION" and node.get("function_name", "").lower() in _FUNCTIONS_THAT_ACT:
            raise Refused(f"{node['function_name']}() is not possible here: it does more than compute.")


def _check_table(node: dict[str, Any], known: set[str], tables: set[str]) -> None:
    path = (node.get("qualified_name") or {}).get("path") or [node.get("table_name", "")]
    name = ".".join(map(str, path))
    qualified = len(path) > 1 or node.get("schema_name") or node.get("catalog_name")
    if qualified or name.lower() not in known:
        raise Refused(f"There is no table {name!r} in this run; there are {_listed(tables)}.")


def _listed(tables: set[str]) -> str:
    return ", ".join(sorted(tables))


def _dictionaries(tree: Any) -> "list[dict[str, Any]]":
    """Every dictionary in a tree of JSON; a loop, because a query may nest deeper than Python's stack."""
    found, waiting = [], [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            found.append(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found


def _fetch(connection: "duckdb.DuckDBPyConnection", sql: str, limits: dict[str, Any]) -> "tuple[pa.Table, str]":
    """The first rows of the result, as many as the limits allow, and which limit cut it ("", "rows", "bytes")."""
    import pyarrow as pa

    relation = connection.sql(sql)
    if relation is None:
        raise Refused("Only SELECT runs here.")
    if len(relation.columns) > limits["columns"]:
        raise Refused(f"The result has {len(relation.columns)} columns; {limits['columns']} are the most shown here.")
    reader = relation.to_arrow_reader(2048)
    batches, rows, size, cut = [], 0, 0, ""
    while not cut:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        if rows + batch.num_rows > limits["rows"]:
            batch, cut = batch.slice(0, limits["rows"] - rows), "rows"
        if size + batch.nbytes > limits["bytes"]:
            batch, cut = _fitting(batch, limits["bytes"] - size), "bytes"
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if cut == "bytes" and not rows:
        raise Refused(
            f"One row of the result is larger than {limits['bytes'] // 2**20} MB; shorten texts with left(column, 500)."
        )
    table = pa.Table.from_batches(batches, reader.schema)
    return pa.table([_plain(column) for column in table.columns], names=_unique(table.column_names)), cut


def _fitting(batch: "pa.RecordBatch", size: int) -> "pa.RecordBatch":
    """As many of the first rows as take `size` bytes, by halving."""
    rows = batch.num_rows
    while rows and batch.slice(0, rows).nbytes > size:
        rows //= 2
    return batch.slice(0, rows)


def _plain(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Numbers, truth values, dates and texts stay; whatever else there is becomes text, as tables and CSV show it."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if types.is_decimal(kind):
        values = column.to_pylist()
        whole = kind.scale == 0 and all(value is None or abs(value) < 2**63 for value in values)
        return pa.chunked_array([[_number(value, whole) for value in values]], pa.int64() if whole else pa.float64())
    kept = (types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_date, types.is_timestamp)
    if any(test(kind) for test in kept):
        return column
    return pa.chunked_array([[None if value is None else str(value) for value in column.to_pylist()]], pa.string())


def _number(value: Decimal | None, whole: bool) -> int | float | None:
    return None if value is None else int(value) if whole else float(value)


def _unique(names: list[str]) -> list[str]:
    """Names that can be told apart: step, step_2."""
    unique: list[str] = []
    for name in names:
        number, free = 1, name
        while free in unique:
            number += 1
            free = f"{name}_{number}"
        unique.append(free)
    return unique


def _reply(answer: dict[str, Any], table: "pa.Table | None" = None) -> None:
    out = sys.stdout.buffer
    out.write(json.dumps(answer).encode() + b"\n")
    if table is not None:
        import pyarrow as pa

        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
    out.flush()
    os._exit(0)  # a query may still be running on DuckDB's threads; nobody waits for it


if __name__ == "__main__":
    main()
