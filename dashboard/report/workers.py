"""Processes that make sections of reports beside this one.

Half of that work is Python, of which a process does one thing at a time. They are started before anything else is
imported, because they have to import it too, and only for runs where that pays.
"""

import atexit
import gc
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from ratioscope.dashboard.report.processes import processes

_WORTH_IT = 20_000_000  # bytes of tokens, about half a million


@contextmanager
def workers(folders: Sequence[Path]) -> Iterator[Executor | None]:
    """Processes for the runs in these folders, this one not counted; None: they would not be worth their start."""
    number = processes()
    size = sum(file.stat().st_size for folder in folders for file in folder.glob("tokens/*.parquet"))
    if size < _WORTH_IT or not number:
        yield None
        return
    # Forked ones would have copies of threads' locks.
    pool = ProcessPoolExecutor(number, mp_context=get_context("spawn"), initializer=_initialize)
    try:
        for _ in range(number):
            pool.submit(_import)
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize() -> None:
    """Ctrl-C is for the process that waits for this one. When that is gone, this one ends and cleans up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit.register(os._exit, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _import() -> None:
    from ratioscope.dashboard.report import build  # noqa: F401 - for the sake of importing it

    gc.freeze()


@contextmanager
def imports_left_alone() -> Iterator[None]:
    """Keep imported objects out of garbage collection: looking through them takes some hundredths of the work."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
