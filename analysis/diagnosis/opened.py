"""A run that is open: its tables' summary, what the linter and the rules say of it, and the limits that hold.

opened = open_folder("runs/mine")
opened.summary.values["s_k_bounded"], opened.findings[0].sentence
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ratioscope.analysis.diagnosis.kept import JudgedRun, is_small, judged
from ratioscope.analysis.diagnosis.populations import Populations, populations
from ratioscope.analysis.findings.facts import Facts, facts_of
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.limits import Limits, limits_of, moved_limits
from ratioscope.analysis.linter import rest_of
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.runs.window import FirstLast, Window
from ratioscope.analysis.summary.summary import StepSummary, Summariser, summarise


@dataclass(frozen=True)
class Opened:
    """A run with everything that pages, reports and commands show of it."""

    run_id: str
    run: Run
    """Without the rows that the linter found wrong, where these are few: `Run.left_out` says which."""
    summary: StepSummary
    judged: JudgedRun
    limits: Limits
    thresholds_file: str = ""
    """The file that they were read from, where one was named."""

    @property
    def findings(self) -> list[Finding]:
        """Worst first; a broken log is the only one."""
        return self.judged.findings

    @property
    def remarks(self) -> list[Finding]:
        """What the linter says, worst first."""
        return self.judged.remarks

    @property
    def problems(self) -> list[Finding]:
        """Those remarks for which the log should not be trusted before somebody has looked."""
        return [remark for remark in self.remarks if remark.is_problem]

    @property
    def moved_limits(self) -> str:
        """Which file moved the limits, where nobody named one; one sentence, or nothing."""
        return "" if self.thresholds_file else moved_limits(self.run.folder, self.limits)

    @property
    def checked(self) -> Window:
        """The steps that `remarks` are about; of a run with a step at least."""
        (first, last), index = self.judged.checked, self.summary.values.index
        return Window.of(self.run, int(index[0]) if first is None else first, int(index[-1]) if last is None else last)

    @cached_property
    def populations(self) -> Populations | None:
        """Headline numbers of the sampled and of the trained tokens; None where the log tells of no difference."""
        return populations(self.run, self.summary)

    def facts(self, steps: FirstLast = (None, None)) -> Facts:
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
    """Open, summarise, check and diagnose the run in a folder.

    Args:
        run_id: what it is called; default: the folder's name.
        thresholds: a TOML file; default: the nearest ratioscope.toml beside the run or above it.
        limits: where they were read before.
        summariser: of an earlier look at the same run: it reads only the files that have come since.
        progress: called while the tables of a run that is not small are read, with the number of parts done and of all.

    Raises:
        RatioscopeError: it cannot be read, or the thresholds cannot be used.
    """
    run = open_run(folder)
    limits = limits or limits_of(run.folder, thresholds)
    name = run_id or run.folder.resolve().name
    with _summarised(run, summariser or Summariser(), progress) as whole:
        found = judged(run, whole, limits)
        rest = rest_of(run, found.remarks)
        summary = summarise(rest) if rest.left_out else whole()
    return Opened(name, rest, summary, found, limits, str(thresholds or ""))


@contextmanager
def _summarised(
    run: Run, summariser: Summariser, progress: Callable[[int, int], None]
) -> Iterator[Callable[[], StepSummary]]:
    """What returns the summary: of a small run, which takes one core, it is made while another checks the log."""
    if not is_small(run):
        summary = summariser.summarise(run, progress)
        yield lambda: summary
        return
    with ThreadPoolExecutor(1, "summary") as pool:
        yield pool.submit(copy_context().run, summariser.summarise, run).result
