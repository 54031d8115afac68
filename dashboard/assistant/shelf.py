"""The runs in some folders, by the names under which they are listed, and what was last opened of them.

A name is looked up among the runs that are there and never joined to a path, so none leads out of the folders; neither
does a link in them. What takes a second to import is imported when the first tool is called.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from ratioscope.dashboard.latest import Latest
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.inert import one_line, safe

if TYPE_CHECKING:
    from ratioscope.analysis.diagnosis.opened import Opened
    from ratioscope.analysis.runs.store import Listed, Run
    from ratioscope.analysis.summary.summary import StepSummary

Progress = Callable[[int, int], None]

on_progress: ContextVar[Progress] = ContextVar("on_progress", default=lambda done, of: None)
"""Called with the parts done and all parts while a tool works; whatever it raises ends the work."""


class Shelf:
    """The runs below these folders.

    Args:
        roots: folders that contain runs, or run folders; URLs, too.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = list(roots)
        self._summaries, self._opened = Latest(), Latest()

    def listed(self) -> "list[Listed]":
        """The runs that are there now, newest first; one that lies elsewhere has that as its problem."""
        from ratioscope.analysis.runs.store import Listed, discover

        inside = [root.resolve() for root in self.roots]

        def kept(run: Listed) -> Listed:
            if any(run.folder.resolve().is_relative_to(root) for root in inside):
                return run
            return Listed(
                run.run_id, run.folder, None, 0, f"{run.folder}: a link out of the folder, so it is not read."
            )

        return [kept(run) for run in discover(self.roots)]

    def find(self, name: str) -> "Listed":
        """The run of this name.

        Raises:
            RatioscopeError: there is no such run here, or it cannot be read.
        """
        runs = self.listed()
        known = {run.run_id: run for run in runs} | {str(run.folder): run for run in runs}
        found = (
            [known[name]]
            if name in known
            else [run for run in runs if name in (safe(run.run_id), one_line(run.run_id))]
        )
        if len(found) > 1:
            raise RatioscopeError(
                f"{len(found)} runs are shown as {name!r}; rename their folders to ask for one of them."
            )
        if not found:
            raise unknown("a run in this folder", name, [run.run_id for run in runs])
        if found[0].problem:
            raise RatioscopeError(found[0].problem)
        return found[0]

    def summary(self, name: str) -> "tuple[Run, StepSummary]":
        """A run and the numbers of its steps.

        Raises:
            RatioscopeError: as `find`, or a file cannot be read.
        """
        from ratioscope.analysis.runs.store import open_run, run_signature
        from ratioscope.analysis.summary.summary import Summariser

        folder = self.find(name).folder

        def summarised() -> "tuple[Run, StepSummary]":
            run = open_run(folder)
            return run, Summariser().summarise(run, on_progress.get())

        return self._summaries.get((folder, run_signature(folder)), summarised)

    def opened(self, name: str) -> "Opened":
        """A run with its diagnosis.

        Raises:
            RatioscopeError: as `summary`.
        """
        from ratioscope.analysis.diagnosis.opened import open_folder
        from ratioscope.analysis.findings.limits import limits_of
        from ratioscope.analysis.runs.store import run_signature

        folder = self.find(name).folder
        limits = limits_of(folder)
        state = (folder, run_signature(folder), repr(limits))
        return self._opened.get(
            state, lambda: open_folder(folder, run_id=name, limits=limits, progress=on_progress.get())
        )
