"""The sample runs, opened and summarised once a session, and the choices of them that tests look at.

summary_of("offline-grpo-seed0")          its step summary
run_of("offline-grpo-seed0")              the run itself
findings_of("offline-grpo-seed0")         what is said of it, as its pages have it
part_of(SAMPLE_RUNS / NAMES[0], folder, range(8))   a copy of some steps
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ratioscope.analysis.compare.grouping import end_value
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.runs.store import Run, discover, open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.run_format.schema import FileName
from ratioscope.run_format.table_files import write_table_file

SAMPLE_RUNS = Path(__file__).parents[2] / "sample_runs"
NAMES = sorted(run.run_id for run in discover([SAMPLE_RUNS]))
RECORDED = ["trl-smollm2-gcd"]
"""Runs of other trainers; all others are those of the built-in one."""
TRAINED = [name for name in NAMES if name not in RECORDED]


@cache
def run_of(name: str) -> Run:
    """A sample run by its name; tests do not change it."""
    return open_run(SAMPLE_RUNS / name)


@cache
def summary_of(name: str) -> StepSummary:
    """The step summary of a sample run; tests do not change it."""
    return summarise(run_of(name))


@cache
def findings_of(name: str) -> list[Finding]:
    """What is said of a sample run; from the disk where another process of the session has judged it."""
    return open_folder(SAMPLE_RUNS / name).findings


def end_of(name: str) -> float:
    """What a run's evaluations end with, which needs no summary."""
    return end_value(run_of(name).read("steps")["eval_accuracy"])


def part_of(source: Path, folder: Path, steps: range, *missing: str) -> Path:
    """A copy of these steps of a run, without some columns of the tokens."""
    for name in ("tokens", "sequences", "steps"):
        table = pq.ParquetDataset(source / name).read()
        table = table.filter(np.isin(table["step"].to_numpy(), steps))
        table = table.drop_columns([column for column in missing if column in table.column_names])
        (folder / name).mkdir(parents=True)
        write_table_file(folder / name / str(FileName(steps[0], steps[-1], 0)), table)
    manifest = json.loads((source / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(manifest | {"name": folder.name, "run_id": folder.name}))
    return folder


# Every algorithm with its parameters once; what happens to samples before the loss sees them differs otherwise.
ONE_OF_EACH_ALGORITHM = sorted({repr(run_of(name).manifest.algorithm): name for name in reversed(NAMES)}.values())
