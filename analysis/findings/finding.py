"""What is found in a log: how much it matters, the numbers behind it, and a finding with all that a reader needs."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from math import nan
from typing import Any, NamedTuple

from ratioscope.analysis.findings.plain import json_value
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval
from ratioscope.inert import hold_one_line
from ratioscope.notes import Note, text_of


class Severity(IntEnum):
    """How much it matters, in rising order."""

    NONE = 0
    """Nothing was found."""
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
            "value": json_value(self.value),
            "interval": json_value(Interval(self.low, self.high)),
            "note": text_of(self.note),
        }


class Outcome(StrEnum):
    """How a look at a log ended."""

    PASSED = "passed"
    FOUND = "found"
    NOT_CHECKED = "not checked"


class Example(NamedTuple):
    """A row of the log in which the offence can be seen; None where it is not about a single token."""

    step: int
    seq_id: int
    position: int | None = None


@dataclass(frozen=True)
class Finding:
    """What a rule finds in a run, or a check in its log; of a check also that it passed, or had nothing to look at."""

    sentence: str
    """What, where, and what was measured; why, when nothing could be checked."""
    severity: Severity = Severity.NONE
    do: str = ""
    numbers: tuple[Number, ...] = ()
    steps: tuple[int, ...] = ()
    """The steps concerned."""
    columns: tuple[str, ...] = ()
    """The columns concerned, of a log that is wrong."""
    examples: tuple[Example, ...] = ()
    outcome: Outcome = Outcome.FOUND
    begins_unseen: bool = False
    """Whether earlier steps, which were not looked at, may be concerned, too."""
    metric: str = ""
    """Catalogue key of the series that shows it."""
    why: str = ""
    source: str = ""
    limit: float = nan
    """The threshold that was exceeded, in the metric's unit."""
    sure: str = ""
    """What the log leaves open of it, where that is more than an interval; sentences."""
    unexplained: bool = False
    """Whether the log shows nothing of where it comes from, so that `why` and `do` say no more than that."""
    cause: str = ""
    """Catalogue key of what `why` names as the likely cause, a metric that changed before; "" for none."""
    of_cause: str = ""
    """The name of the known cause that it names (`findings.cause`); "" for none."""
    place: str = ""
    """The part of the tokens that holds most of it, in words; "" where it is not one part's. It may quote the log."""
    wrong_rows: LeftOut | None = None
    """Of a check: the part of the rows that is wrong; of what `lint` returns, only where the others are judged without
    it."""
    rule: str = ""
    """The rule or the check that says so: its declaration names it, not its function."""

    def __post_init__(self) -> None:
        hold_one_line(self)  # it may quote the log

    @property
    def is_problem(self) -> bool:
        """Whether the log should not be trusted before somebody has looked."""
        return self.severity >= Severity.WARNING

    @property
    def is_broken(self) -> bool:
        """Whether numbers made of this log would describe the damage; such a sentence quotes no text of the log."""
        return self.severity is Severity.CRITICAL

    @property
    def word(self) -> str:
        """How grave it is; where nothing was found, how the look ended."""
        return self.severity.word if self.severity else self.outcome.value


def passed(sentence: str, *numbers: Number) -> list[Finding]:
    """What a check says that found nothing."""
    return [Finding(sentence, outcome=Outcome.PASSED, numbers=numbers)]


def not_checked(reason: str) -> list[Finding]:
    """What a check says that had nothing to look at."""
    return [Finding(reason, outcome=Outcome.NOT_CHECKED)]


def estimated(label: str, value: float, interval: Interval = NO_INTERVAL, note: Note | None = None) -> Number:
    """A number with its interval, where it is an estimate."""
    return Number(label, float(value), float(interval.low), float(interval.high), note)
