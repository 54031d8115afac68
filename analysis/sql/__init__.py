"""Questions to a run in SQL: one SELECT over its tables, bounded in time, memory and size.

answer = ask(run, summary, "select step, avg(exp(log_rho)) as mean_ratio from tokens group by step order by step")
answer.table      # pyarrow.Table, at most 10,000 rows
answer.seconds, answer.cut

Anyone can type anything on the page, so a query runs in a process of its own (`worker`), which is started for
it and ended with it. What was measured with DuckDB 2.0 leaves no simpler way:

- Neither max_execution_time nor interrupt() stops a function that works on one value: levenshtein of two long strings,
  list_transform over a long list, lpad to 2 GB. They also take memory that memory_limit does not count (4 GB under a
  limit of 1 GB). Only ending a process ends them, and the dashboard with its other readers must not be that process.
- The type of a statement does not tell whether it reads. `with x as (copy (select 1) to 'log.parquet') select * from x`
  is a SELECT, and with allowed_paths naming the run's files it did overwrite one. Hence the syntax tree is searched for
  anything that is not a SELECT, and files are not reached by path at all: the worker's only file system has the run's
  files under made-up names and opens them for reading. Over 5 million tokens that took about 1.2 times the
  processor time of reading by path; handing over Arrow data sets took over twice, a third of it to load the library.
- Settings and views of the catalogue tell paths of the machine, so only the run's tables can stand after FROM.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.sql import worker
from ratioscope.analysis.sql.tables import DERIVED, Documented, documented, offer
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.errors import RatioscopeError
from ratioscope.storage.places import Remote

__all__ = ["DERIVED", "LONGEST_QUERY", "Documented", "QueryError", "QueryLimits", "QueryResult", "ask", "documented"]

LONGEST_QUERY = 10_000
_WORKER = Path(worker.__file__)
_TICK_SECONDS = 0.2
# What an interpreter with DuckDB maps without using it, and what functions may take beside DuckDB's own buffers.
_OVERHEAD_BYTES = 3 * 2**30
# Two at a time, however many people ask; the others wait, within their time.
_SLOTS = threading.BoundedSemaphore(2)
# All of the environment that reaches the worker: what an interpreter needs to start.
_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT")


class QueryError(RatioscopeError):
    """A query that cannot be run or took too much."""


@dataclass(frozen=True)
class QueryLimits:
    """How much one query may take."""

    seconds: float = 10.0
    memory: int = 2**30
    """Bytes of DuckDB's buffers; nothing is spilled to disk."""
    rows: int = 10_000
    bytes: int = 16 * 2**20
    """Of the result."""
    columns: int = 400
    threads: int = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class QueryResult:
    """The result of a query; numbers, truth values, dates and texts only, other types as text."""

    sql: str
    table: pa.Table
    seconds: float
    """That DuckDB took."""
    cut: str
    """What was left out, in a sentence; "" when nothing was."""


def ask(
    run: Run,
    summary: StepSummary,
    sql: str,
    limits: QueryLimits | None = None,
    waiting: Callable[[float], None] = lambda seconds: None,
) -> QueryResult:
    """Run one SELECT over the tables of a run.

    Args:
        summary: of the run; the tables `summary` and `notes`.
        limits: the default ones when None.
        waiting: called a few times a second with the seconds since the start; what it raises ends the query.

    Raises:
        QueryError: the statement is refused, wrong, too slow or too large; the message is one sentence.
    """
    limits = limits or QueryLimits()
    if not sql.strip():
        raise QueryError("There is no query; write a SELECT.")
    if len(sql) > LONGEST_QUERY:
        raise QueryError(f"The query has {len(sql):,} characters; {LONGEST_QUERY:,} are the most.")
    if isinstance(run.folder, Remote):  # the worker has no network
        raise QueryError(f"{run.folder}: SQL is for runs on this machine; copy the run here to ask it.")
    try:
        request = _request(run, summary, sql, limits)
    except (OSError, pa.ArrowInvalid):
        raise QueryError(_GONE) from None
    start = time.monotonic()
    while not _SLOTS.acquire(timeout=_TICK_SECONDS):
        waiting(time.monotonic() - start)
        if time.monotonic() - start > limits.seconds:
            raise QueryError("Other queries are running; try again in a moment.")
    try:
        returned, code = _run(request, limits, waiting)
    finally:
        _SLOTS.release()
    return _answer(sql, returned, code, limits)


def _request(run: Run, summary: StepSummary, sql: str, limits: QueryLimits) -> bytes:
    offered = offer(run, summary)
    # What the text does not name cannot be asked for.
    contents = {name: make() for name, make in offered.contents.items() if name in sql.lower()}
    unused = offered.contents.keys() - contents.keys()
    header: dict[str, Any] = {
        "sql": sql,
        "tables": offered.tables,
        "setup": [text for text in offered.setup if not any(f"'{worker.SCHEME}://{name}'" in text for name in unused)],
        "files": {name: str(path) for name, path in offered.files.items()},
        "contents": {name: len(data) for name, data in contents.items()},
        "import_path": [path for path in sys.path if Path(path).is_absolute()],
        "limits": {**vars(limits), "address_space": limits.memory + _OVERHEAD_BYTES},
    }
    return json.dumps(header).encode() + b"\n" + b"".join(contents.values())


def _run(request: bytes, limits: QueryLimits, waiting: Callable[[float], None]) -> tuple[bytes, int | None]:
    """What the worker wrote, and its exit code: None when it had to be ended."""
    command = [sys.executable, "-I", "-S", "-B", str(_WORKER)]
    with tempfile.TemporaryFile() as sent:  # a pipe would have to be fed while the answer is awaited
        sent.write(request)
        sent.seek(0)
        with subprocess.Popen(
            command,
            stdin=sent,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            cwd=Path(sys.executable).anchor,
        ) as process:
            try:
                return _await(process, limits, waiting)
            finally:
                process.kill()


def _await(
    process: "subprocess.Popen[bytes]", limits: QueryLimits, waiting: Callable[[float], None]
) -> tuple[bytes, int | None]:
    start = time.monotonic()
    while True:
        try:
            return process.communicate(timeout=_TICK_SECONDS)[0], process.returncode
        except subprocess.TimeoutExpired:
            waited = time.monotonic() - start
            if waited > limits.seconds + 2:  # the worker's own limit comes first, where DuckDB can obey it
                return b"", None
            waiting(waited)


def _answer(sql: str, returned: bytes, code: int | None, limits: QueryLimits) -> QueryResult:
    if code is None:
        raise QueryError(_too_slow(limits))
    header, _, data = returned.partition(b"\n")
    if not header:
        raise QueryError("The query was ended: it needed more memory than allowed; aggregate, or look at fewer steps.")
    answer = json.loads(header)
    if "refused" in answer:
        raise QueryError(answer["refused"])
    if "error" in answer:
        raise QueryError(_sentence(answer["error"], answer["message"], limits))
    with pa.ipc.open_stream(data) as stream:
        table = stream.read_all()
    return QueryResult(sql, table, answer["seconds"], _cut(answer["cut"], table.num_rows, limits))


_GONE = "A file of the run vanished or changed while it was read; run the query again."


def _cut(cut: str, rows: int, limits: QueryLimits) -> str:
    if not cut:
        return ""
    size = f", because more than {limits.bytes // 2**20} MB are not sent" if cut == "bytes" else ""
    return f"Only the first {rows:,} rows of the result are here{size}; aggregate, or add a limit."


def _too_slow(limits: QueryLimits) -> str:
    return f"The query was ended after {limits.seconds:g} s; aggregate, or look at fewer steps: where step >= ..."


def _sentence(kind: str, message: str, limits: QueryLimits) -> str:
    """DuckDB's message in one line: no advice on its settings, no paths of this machine."""
    if kind == "InterruptException":
        return _too_slow(limits)
    if kind in ("OutOfMemoryException", "MemoryError") or "bad_alloc" in message:
        return f"The query needs more than {limits.memory / 2**30:g} GB of memory; aggregate, or look at fewer steps."
    if kind == "IOException":
        return _GONE
    lines = message.strip().splitlines() or [kind]
    first = re.sub(r"^[A-Z][\w ]* Error: ", "", lines[0])
    candidates = next((f" {line.strip()}." for line in lines if line.startswith("Candidate bindings: ")), "")
    place = next((match[1] for line in lines if (match := re.match(r"LINE (\d+):", line))), "")
    text = " ".join(filter(None, (first.rstrip(".! "), f"(line {place})" if place else "")))
    return re.sub(r"/(?:[\w.~-]+/)+[\w.~-]*", "...", f"{text}.{candidates}")
