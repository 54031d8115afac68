"""DuckDB over object storage: the files of a run by their URLs, through `ratioscope.storage`.

What a query needs comes from the pieces that `ratioscope.storage.ranges` fetches and keeps; nothing can be written.
"""

from datetime import UTC, datetime
from typing import Any

import duckdb
import fsspec  # type: ignore[import-untyped]

from ratioscope.storage.clients import SCHEMES
from ratioscope.storage.listings import last_seen
from ratioscope.storage.places import place


class _Objects(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Objects by their URLs, for reading."""

    protocol = SCHEMES

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise PermissionError("a run can be read and nothing else")
        return place(path).open("rb")

    def exists(self, path: str, **_: Any) -> bool:
        return last_seen(path) is not None

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        found = last_seen(path)
        if found is None:
            raise FileNotFoundError(path)
        return {"name": path, "size": found.size, "type": "file"}

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path]

    def modified(self, path: str) -> datetime:
        found = last_seen(path)
        return datetime.fromtimestamp((found.modified_ns if found else 0) / 1e9, UTC)


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection read URLs; which ones, its allowed folders say."""
    connection.register_filesystem(_Objects(skip_instance_cache=True))
    # DuckDB's own cache reads small files whole and of others whole blocks: without it, column chunks to the byte.
    connection.execute("set enable_external_file_cache = false")
    connection.execute("set parquet_prefetch_column_gap = 4096")
