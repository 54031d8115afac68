"""The same scans as tasks of a Ray cluster: many machines share the work, this process keeps what they find.

with on_ray("auto") as engine:
    shards.fill(units, progress, engine)

A task is a batch of units; what comes back is the batch's partials, and the numbers are those of one process. Workers
read the files themselves, from where this process sees them: a shared file system or a URL. A lost worker's task is
given to another one.
"""

import os
import platform
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ratioscope.analysis.summary.partials import ScanEngine, Tables, UnitBatch, batches, kept, scan_alone
from ratioscope.analysis.summary.units import ScanUnit
from ratioscope.errors import RatioscopeError
from ratioscope.extras import needing

# Tasks under way for each processor: enough that none waits, so few that little has to be held in memory.
_AHEAD = 3
# How often a task is given to another worker where one was lost.
_RETRIES = 3
# Seconds for a cluster to answer.
_PATIENCE = 10.0


@contextmanager
def on_ray(address: str | None = None, scan: Callable[[UnitBatch], Tables] = scan_alone) -> Iterator[ScanEngine]:
    """An engine for `partials_of`, while the block runs.

    Args:
        address: of an existing cluster, as `ray.init` takes it; None: $RAY_ADDRESS, or a cluster of this machine's
            processors that ends with the block.
        scan: what a worker does with a batch.

    Raises:
        MissingPackageError: ray is not installed.
        RatioscopeError: the cluster does not answer; in the engine: a worker cannot do what this process can.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
    with needing("The engine ray", "ratioscope[ray]"):
        import ray
    try:
        if place := re.fullmatch(r"(?:ray://)?(.+):(\d+)", address or ""):  # ray itself would wait for minutes
            socket.create_connection((place[1], int(place[2])), _PATIENCE).close()
        ray.init(address=address, include_dashboard=False, configure_logging=False, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        what = f"the cluster at {address} does not answer" if address else "a local cluster does not start"
        raise RatioscopeError(f"ray: {what} ({str(error).strip().partition(chr(10))[0]}).") from None
    try:
        yield partial(_scanned, ray, scan)
    finally:
        ray.shutdown()


def _scanned(
    ray: Any, scan: Callable[[UnitBatch], Tables], units: Sequence[ScanUnit]
) -> Iterator[tuple[UnitBatch, Tables]]:
    """Batches with their partials, as they are done."""
    processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
    task = ray.remote(max_retries=_RETRIES, num_cpus=1)(_checked)
    waiting = iter(list(batches(units, processors)))
    under_way: dict[Any, UnitBatch] = {}

    def give(at_most: int) -> None:
        for batch in waiting:
            under_way[task.remote(scan, batch, kept(batch[0]).key)] = batch
            if len(under_way) >= at_most:
                return

    try:
        give(_AHEAD * processors)
        while under_way:
            (done,), _ = ray.wait(list(under_way))
            batch = under_way.pop(done)
            give(_AHEAD * processors)
            yield batch, _fetched(ray, done)
    finally:  # after an error or an interruption
        for task_under_way in under_way:
            with suppress(ray.exceptions.RayError):
                ray.cancel(task_under_way, force=True)


def _fetched(ray: Any, done: Any) -> Tables:
    try:
        tables: Tables = ray.get(done)
    except RatioscopeError as error:  # a copy, whose text has the worker's traceback around it
        raise getattr(error, "cause", error) from None
    except ray.exceptions.WorkerCrashedError:
        raise RatioscopeError(
            f"ray: a task was lost {_RETRIES + 1} times, most likely for want of memory on its machine; "
            "give it fewer tasks at a time."
        ) from None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    return tables


def _checked(scan: Callable[[UnitBatch], Tables], batch: UnitBatch, key: str) -> Tables:
    """On a worker: the partials of a batch, where it sees the same files and runs the same code."""
    here = platform.node()
    for file in (*batch[0].tokens, *batch[0].sequences):
        if not file.path.exists():
            raise RatioscopeError(f"{file.path}: the Ray worker on {here} does not see it; all machines have to.")
    if kept(batch[0]).key != key:
        raise RatioscopeError(f"ray: the worker on {here} has another ratioscope, Python or library; install the same.")
    return scan(batch)
