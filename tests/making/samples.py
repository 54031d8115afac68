"""The sample runs, opened and summarised once a session, and the choices of them that tests look at.

summary_of("offline-grpo-seed0")          its step summary
run_of("offline-grpo-seed0")              the run itself
"""

from functools import cache
from pathlib import Path

from ratioscope.analysis.compare import end_value
from ratioscope.analysis.runs.store import Run, discover, open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise

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


def end_of(name: str) -> float:
    """What a run's evaluations end with, which needs no summary."""
    return end_value(run_of(name).read("steps")["eval_accuracy"])


# Every algorithm with its parameters once; what happens to samples before the loss sees them differs otherwise.
ONE_OF_EACH_ALGORITHM = sorted({repr(run_of(name).manifest.algorithm): name for name in reversed(NAMES)}.values())
