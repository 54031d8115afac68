"""A report of a run of 5 M tokens: reading, building and writing each format, against pandas reading three columns.

Processes start anew for each time, as `ratioscope report` does; the first has nothing cached.

RATIOSCOPE_BENCHMARK_STEPS: 2,500 when it is not set.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.report.chromium import find_chromium
from tests.benchmarks.dashboard import FIELDS, STEPS, made_steps
from tests.benchmarks.timing import row, seconds
from tests.making.runs import write_run

FORMATS = ("html", "json", "pdf", "md")


def run() -> None:
    """Print seconds, ratio and size of every format."""
    steps = int(os.environ.get("RATIOSCOPE_BENCHMARK_STEPS", STEPS))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        environment = os.environ | {"RATIOSCOPE_CACHE": str(place / "cache")}
        big = write_run(place / "big", made_steps(steps), **FIELDS)
        files = [file.path for file in open_run(big).files["tokens"]]
        columns = ["logp_behavior", "logp_current", "logp_new"]
        read = seconds(lambda: [pd.read_parquet(path, columns=columns) for path in files])
        tokens = summarise(open_run(big)).values["n_tokens"].sum()
        print(f"  {tokens:,.0f} tokens in {steps:,} steps, {len(files)} files")
        formats = FORMATS if find_chromium() else FORMATS[:2]
        for what, kind in [("html, nothing cached", "html"), *((f"{kind}, summary on disk", kind) for kind in formats)]:
            target = place / f"report.{kind}"
            command = [
                sys.executable,
                "-P",
                "-m",
                "ratioscope",
                "report",
                str(big),
                "-o",
                str(target),
                "--quiet",
            ]
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environment)
            took = time.perf_counter() - start
            row(f"{what} ({target.stat().st_size / 1e6:.1f} MB)", took, read, "pandas reading three log-prob columns")
