"""Timing and printing, shared by the benchmarks."""

import time
from collections.abc import Callable
from statistics import median


def seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Median wall-clock seconds of `action`."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return median(times)


def row(what: str, value: float, baseline: float, against: str) -> None:
    """One line: the time, and its ratio to the named baseline."""
    print(
        f"  {what:<58} {_duration(value):>10}   {value / baseline:8.2f} x {against} ({_duration(baseline)})", flush=True
    )


def _duration(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms"
