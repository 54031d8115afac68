"""What tells a run's data from any other's: a digest of its tables' footers, which hold row counts and statistics."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

import pyarrow.parquet as pq

from ratioscope.analysis.runs.store import Run
from ratioscope.storage.parquet import footer

# What changes while a run lives, or with the folder it lies in, and not with its data.
_FLEETING = ("heartbeat", "process_id", "host", "status", "status_reason", "writers")


def fingerprint(run: Run) -> str:
    """The first 16 hexadecimal digits of a SHA-256: the same for a copy of a run
    whose manifest names it, another one where a table's sizes or statistics differ."""
    manifest: dict[str, Any] = {key: value for key, value in asdict(run.manifest).items() if key not in _FLEETING}
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True, default=str).encode())
    for table, files in sorted(run.files.items()):
        for file in sorted(files, key=lambda file: file.path.name):
            metadata = footer(file.path)
            groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
            columns = [_statistics(group.column(place)) for group in groups for place in range(group.num_columns)]
            digest.update(f"{table} {file.path.name} {file.size} {metadata.num_rows} {columns}".encode())
    return digest.hexdigest()[:16]


def _statistics(column: pq.ColumnChunkMetaData) -> str:
    found = column.statistics.to_dict() if column.statistics is not None else {}
    return f"{column.path_in_schema} {column.total_compressed_size} {sorted(found.items())}"
