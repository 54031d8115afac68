"""The analysis: opening a run of a million tokens, with and without its cached partials."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import Summariser, summarise
from tests.benchmarks.timing import row, seconds
from tests.making.runs import random_step, write_run

STEPS, GROUPS, RESPONSES, LONGEST = 100, 64, 8, 40
COLUMNS = ["step", "group_id", "seq_id", "logp_behavior", "logp_current", "logp_new", "advantage", "clipped"]


def run() -> None:
    """Print first opening, second opening, and a tick of a live run without news."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        os.environ["RATIOSCOPE_CACHE"] = str(Path(place) / "cache")
        steps = [random_step(rng, n, groups=GROUPS, responses=RESPONSES, longest=LONGEST) for n in range(STEPS)]
        folder = write_run(Path(place) / "run", steps)
        tokens = sum(len(step.tokens["seq_id"]) for step in steps)
        files = [file.path for file in open_run(folder).files["tokens"]]
        print(f"  {tokens:,} tokens in {STEPS} steps")
        read = seconds(lambda: [pq.read_table(path, columns=COLUMNS) for path in files])
        first = seconds(lambda: summarise(open_run(folder)), repeats=1)
        again = seconds(lambda: summarise(open_run(folder)))
        live = Summariser()
        live.summarise(open_run(folder))
        row("first opening: scan, partials, every metric", first, read, "reading the columns")
        row("second opening: cached partials", again, read, "reading the columns")
        row("in a running dashboard", seconds(lambda: live.summarise(open_run(folder))), read, "reading the columns")
