"""The list of runs and a live tick: what happens while nothing happens."""

import os
import tempfile
from pathlib import Path

from ratioscope import Manifest
from ratioscope.analysis.runs.store import discover, run_signature
from tests.benchmarks.timing import row, seconds

RUNS = 5_000


def run() -> None:
    """Print the listing of 5,000 runs and one tick, against walking the folders."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for number in range(RUNS):
            folder = root / f"run-{number:04d}"
            (folder / "tokens").mkdir(parents=True)
            Manifest(name=folder.name, status="finished").write(folder)
        walk = seconds(lambda: sum(1 for _ in os.walk(root)))
        row(f"list of {RUNS:,} runs", seconds(lambda: discover([root])), walk, "walking the folders")
        row(
            "one tick of a live run without news",
            seconds(lambda: run_signature(root / "run-0000"), 50),
            walk,
            "the same",
        )
