"""Partials of a large run by shards: 16 tasks of a Ray cluster on this machine against the same 16 by threads.

RATIOSCOPE_BENCHMARK_STEPS steps of 100,000 tokens; 1,000, so 10^8 tokens, when it is not set.
"""

import os
import tempfile
import time
from pathlib import Path

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary import shards
from ratioscope.analysis.summary.on_ray import on_ray
from ratioscope.analysis.summary.partials import ScanEngine, threads
from ratioscope.analysis.summary.units import ScanUnit, scan_units
from ratioscope.storage.cache import cached_in
from tests.benchmarks.scanning import write_large
from tests.benchmarks.timing import row

SHARDS, TURNS = 16, 3
ARCHIVE, CORES = 1e11, 64


def run() -> None:
    """Print the overhead, what a shard costs, and what an archive would take at that cost."""
    steps = int(os.environ.get("RATIOSCOPE_BENCHMARK_STEPS", "1000"))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        large = open_run(write_large(place / "run", steps))
        units = shards.parts(scan_units(large))
        tokens = sum(unit.rows for unit in units)
        print(f"  {tokens:,} tokens in {steps} steps, {len(units)} units")
        times: dict[str, list[float]] = {"threads": [], "ray": []}
        os.environ["RAY_ADDRESS"] = "local"
        with on_ray() as tasks:
            for turn in range(TURNS):  # in turns, so that what else runs hits both
                for kind, engine in (("threads", threads), ("ray", tasks)):
                    times[kind].append(_filled(units, engine, place / f"{kind}-{turn}"))
        by_threads, by_ray = (min(of) for of in times.values())
        row(f"{SHARDS} shards by Ray, the cluster running", by_ray, by_threads, "threads of this process")
        processors = os.cpu_count() or 1
        rate = tokens / by_ray / processors
        print(
            f"  {by_ray * processors / SHARDS:.2f} processor-seconds a shard, {rate / 1e6:.1f} million tokens a second "
            f"and processor: 10^11 tokens on {CORES} of them take {ARCHIVE / rate / CORES / 60:.0f} minutes"
        )


def _filled(units: list[ScanUnit], engine: ScanEngine, cache: Path) -> float:
    started = time.perf_counter()
    with cached_in(cache):
        for number in range(1, SHARDS + 1):
            shards.fill(shards.shard(units, number, SHARDS), engine=engine)
    return time.perf_counter() - started
