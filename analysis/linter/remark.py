"""What a check says about a log: that it passed, what it found, or why it could not run."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from ratioscope.analysis.findings.finding import Number, Severity
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval
from ratioscope.inert import hold_one_line
from ratioscope.notes import Note


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FOUND = "found"
    NOT_CHECKED = "not checked"


class Example(NamedTuple):
    """A row of the log in which the offence can be seen; None where it is not about a single token."""

    step: int
    seq_id: int
    position: int | None = None


@dataclass(frozen=True)
class Remark:
    """What one check has to say; a check makes one remark when it passes, and one for each thing it finds."""

    check: str
    """Its name in `CHECKS`."""
    outcome: Outcome
    sentence: str
    """What, where, and what was measured; why, when nothing could be checked."""
    severity: Severity | None = None
    """None: nothing was found."""
    do: str = ""
    numbers: tuple[Number, ...] = ()
    steps: tuple[int, ...] = ()
    """The steps concerned."""
    columns: tuple[str, ...] = ()
    """The columns concerned."""
    examples: tuple[Example, ...] = ()
    begins_unseen: bool = False
    """Whether earlier steps, which were not looked at, may be concerned, too."""

    def __post_init__(self) -> None:
        hold_one_line(self)  # it may quote the log

    @property
    def is_problem(self) -> bool:
        """Whether the log should not be trusted before somebody has looked."""
        return self.severity is not None and self.severity >= Severity.WARNING

    @property
    def is_broken(self) -> bool:
        """Whether numbers made of this log would describe the damage; such a sentence quotes no text of the log."""
        return self.severity is Severity.CRITICAL


def passed(check: str, sentence: str, *numbers: Number) -> list[Remark]:
    """The one remark of a check that found nothing."""
    return [Remark(check, Outcome.PASSED, sentence, numbers=numbers)]


def not_checked(check: str, reason: str) -> list[Remark]:
    """The one remark of a check that had nothing to look at."""
    return [Remark(check, Outcome.NOT_CHECKED, reason)]


def estimate(label: str, value: float, interval: Interval = NO_INTERVAL, note: Note | None = None) -> Number:
    """A number with its interval, where it is an estimate."""
    return Number(label, float(value), float(interval.low), float(interval.high), note)


def text(remarks: Sequence[Remark]) -> str:
    """For the terminal: severity or outcome, check and sentence; below it what to do.

    Checks that did not run for one and the same reason are one line.
    """
    lines = []
    of_reason: dict[str, list[str]] = {}
    for remark in remarks:
        if remark.outcome is Outcome.NOT_CHECKED:
            of_reason.setdefault(remark.sentence, []).append(remark.check)
    for remark in remarks:
        word = remark.severity.word if remark.severity else remark.outcome.value
        checks = [remark.check]
        if remark.outcome is Outcome.NOT_CHECKED:
            checks = of_reason.pop(remark.sentence, [])
            if not checks:
                continue
        lines.append(f"{word:<12} {', '.join(checks)}: {remark.sentence}")
        if remark.severity:
            lines.append(f"{'':<12} {remark.do}")
    return "\n".join(lines)


def to_json(remarks: list[Remark]) -> list[dict[str, Any]]:
    """The stable shape of `ratioscope check --json`: what is undefined is null."""
    return [
        {
            "check": remark.check,
            "outcome": remark.outcome.value,
            "severity": remark.severity.word if remark.severity else None,
            "sentence": remark.sentence,
            "do": remark.do,
            "numbers": [number.to_json() for number in remark.numbers],
            "steps": list(remark.steps),
            "columns": list(remark.columns),
            "examples": [example._asdict() for example in remark.examples],
        }
        for remark in remarks
    ]
