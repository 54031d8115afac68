"""A full diagnosis: the linter's checks and the rules, against the step summary of the same run as the baseline.

Ten million tokens in 100 steps; every question to the tables is asked anew.
"""

import os
import tempfile
import time
from pathlib import Path

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import Summariser
from tests.benchmarks.scanning import write_large
from tests.benchmarks.timing import row, seconds

STEPS = 100


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
