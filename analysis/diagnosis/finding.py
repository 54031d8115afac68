"""What a rule hands back: a finding with its severity, its sentence and the numbers behind it."""

from dataclasses import dataclass
from enum import IntEnum


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
    """A number with its 95 % interval (NaN: none), as a finding quotes it."""

    label: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """One finding about a run."""

    rule: str
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
    page: str
    """Which page holds the evidence."""
    limit: float
    """The threshold that was exceeded, in the metric's unit."""
