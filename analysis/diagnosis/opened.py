"""A run that is open: its tables' summary, its findings, and the limits that these were measured against.

opened = open_folder("runs/mine")
opened.summary.values["s_k"], opened.findings[0].sentence
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ratioscope.analysis.diagnosis.kept import findings_of
from ratioscope.analysis.findings.facts import Facts, facts_of
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.limits import Limits, limits_of
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.runs.window import Steps
from ratioscope.analysis.summary.summary import StepSummary, Summariser


@dataclass(frozen=True)
class Opened:
    """A run with everything that pages, reports and commands show of it."""

    run_id: str
    run: Run
    summary: StepSummary
    findings: list[Finding]
    """Worst first."""
    limits: Limits
    thresholds_file: str = ""
    """The file that they were read from, where one was named."""

    def facts(self, steps: Steps = (None, None)) -> Facts:
        """What is so about these steps."""
        return facts_of(self.summary, self.limits, *steps)


def open_folder(
    folder: str | Path,
    *,
    run_id: str = "",
    thresholds: Path | None = None,
    limits: Limits | None = None,
    summariser: Summariser | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Opened:
    """Open, summarise and diagnose the run in a folder.

    Args:
        run_id: what it is called; default: the folder's name.
        thresholds: a TOML file; default: the nearest ratioscope.toml beside the run or above it.
        limits: where they were read before.
        summariser: of an earlier look at the same run: it reads only the files that have come since.
        progress: called while the tables are read, with the number of parts done and of all.

    Raises:
        RatioscopeError: it cannot be read, or the thresholds cannot be used.
    """
    run = open_run(folder)
    limits = limits or limits_of(run.folder, thresholds)
    summary = (summariser or Summariser()).summarise(run, progress)
    name = run_id or run.folder.resolve().name
    return Opened(name, run, summary, findings_of(run, summary, limits), limits, str(thresholds or ""))
