"""What was ordered on the Report page, and the report that was made."""

import re
from dataclasses import dataclass, replace

from ratioscope.analysis.runs.window import FirstLast
from ratioscope.dashboard.sections.model import Report


@dataclass(frozen=True)
class Order:
    """What is asked for; two equal orders of runs in the same state give the same file."""

    runs: tuple[tuple[str, str], ...]
    """Of each run its id and its state."""
    pages: tuple[str, ...]
    metric: str | None
    steps: FirstLast
    kind: str

    def without_states(self) -> "Order":
        """The same, whatever the runs' states."""
        return replace(self, runs=tuple((run_id, "") for run_id, _ in self.runs))

    @property
    def file_name(self) -> str:
        """The file name for the browser."""
        about = self.runs[0][0] if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', about).strip('.-')[:80]}-report{self.kind}"


@dataclass(frozen=True)
class Made:
    """A report that was made, and its file."""

    order: Order
    report: Report
    contents: bytes
