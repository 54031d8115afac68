"""What is found in a log: how much it matters, the numbers behind it, and a finding with all that a reader needs."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ratioscope.analysis.findings.plain import plain
from ratioscope.analysis.summary.intervals import Interval
from ratioscope.inert import hold_one_line
from ratioscope.notes import Note, text_of


class Severity(IntEnum):
    """How much it matters, in rising order."""

    NOTICE = 1
    """Good to know; nothing need be wrong."""
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Number:
    """A number with its 95 % interval (NaN: none), as reports quote it."""

    label: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    note: Note | None = None
    key: str = ""
    """The metric that it is a value of, where that is not the one of its finding."""

    def __post_init__(self) -> None:
        hold_one_line(self)  # it may quote the log

    def to_json(self) -> dict[str, Any]:
        """The shape of every estimate in the command line's JSON: undefined is null."""
        return {
            "label": self.label,
            "value": plain(self.value),
            "interval": plain(Interval(self.low, self.high)),
            "note": text_of(self.note),
        }


@dataclass(frozen=True)
class Finding:
    """One finding about a run."""

    severity: Severity
    sentence: str
    metric: str
    """Catalogue key of the series that shows it."""
    steps: tuple[int, ...]
    """The steps concerned."""
    numbers: tuple[Number, ...]
    why: str
    do: str
    source: str
    limit: float
    """The threshold that was exceeded, in the metric's unit."""
    sure: str = ""
    """What the log leaves open of it, where that is more than an interval; sentences."""
    unexplained: bool = False
    """Whether the log shows nothing of where it comes from, so that `why` and `do` say no more than that."""
    begins_unseen: bool = False
    """Whether earlier steps, which were not looked at, may be concerned, too."""
    cause: str = ""
    """Catalogue key of what `why` names as the likely cause, a metric that changed before; "" for none."""
    rule: str = ""
    """Which one found it: its declaration says so, not its function."""

    def __post_init__(self) -> None:
        hold_one_line(self)  # it may quote the log
