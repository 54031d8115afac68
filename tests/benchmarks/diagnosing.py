"""A full diagnosis: the linter's checks and the rules, against the step summary of the same run as the baseline.

Ten million tokens in 100 steps; every question to the tables is asked anew. And the first command on a run of some
50,000 tokens with nothing kept of it: what one waits for it, against importing what it stands on.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import Summariser
from tests.benchmarks.scanning import write_large
from tests.benchmarks.timing import row, seconds
from tests.making.samples import SAMPLE_RUNS

STEPS = 100
_SMALL = ("mismatch-grpo-seed0", "trl-smollm2-gcd")


def run() -> None:
    """Print the times of the linter and of the rules, against the summary's."""
    with tempfile.TemporaryDirectory() as folder:
        opened = open_run(write_large(Path(folder) / "large", STEPS))
        os.environ["RATIOSCOPE_CACHE"] = f"{folder}/cache"
        started = time.perf_counter()
        summary = Summariser().summarise(opened)
        baseline = time.perf_counter() - started  # once: the next one is read from the disk
        remarks = lint(opened)
        row("checks of the linter", seconds(lambda: lint(opened), repeats=3), baseline, "step summary")
        row(
            "rules, with the linter's remarks",
            seconds(lambda: diagnose(summary, opened, remarks=remarks), repeats=3),
            baseline,
            "step summary",
        )
    imports = _waited(sys.executable, "-c", "import duckdb, pandas, pyarrow.parquet, scipy.special, typer")
    command_line = str(Path(sys.executable).with_name("ratioscope"))
    for name in _SMALL:
        for command in ("diagnose", "check"):
            taken = _waited(command_line, command, str(SAMPLE_RUNS / name))
            row(f"first {command} of {name}", taken, imports, "imports")


def _waited(*arguments: str) -> float:
    """Seconds until a process of its own has ended, the median of five."""
    found = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"RATIOSCOPE_CACHE": cache}
            before = time.perf_counter()
            subprocess.run(arguments, env=environment, stdout=subprocess.DEVNULL, check=False)
            found.append(time.perf_counter() - before)
    return median(found)
