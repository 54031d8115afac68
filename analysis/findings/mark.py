"""A mark: a sign in the log that tells causes apart, with its value, the limit, and one clause of words.

@mark(needs=(("sequences.prompt_id",),), limit=2.0)
def mismatch_of_repeated_prompts(evidence: LogEvidence) -> Reading | None: ...

seen = mismatch_of_repeated_prompts(evidence)
seen.presence, seen.value, seen.clause

A mark is read once of an evidence, however many causes ask for it. It is large where it is present; the largest values
of healthy logs, and of sick but true ones, are in `tests/cases/ranges.json`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from inspect import getdoc
from math import isnan, nan
from typing import Any

from ratioscope.analysis.findings.evidence import Evidence
from ratioscope.analysis.findings.finding import Example
from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.runs.left_out import LeftOut


class Presence(StrEnum):
    """How the look for a mark ended."""

    PRESENT = "present"
    ABSENT = "absent"
    NOT_LOGGED = "not logged"
    TOO_LITTLE = "too little data"


@dataclass(frozen=True)
class MarkReading:
    """What the function of a mark reads off a log."""

    value: float
    """Larger: more so."""
    clause: str
    """What it shows there, with one number; said only where the mark is present."""
    steps: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    place: str = ""
    """The part of the tokens that shows it: "rank 2", "7 of 40 prompts"."""
    wrong_rows: LeftOut | None = None
    """That part, where its values are none of the run's; None: they are, or nothing tells which rows it is."""


@dataclass(frozen=True)
class Observed:
    """A mark, looked for in one log."""

    mark: "Mark"
    presence: Presence
    reading: MarkReading = MarkReading(nan, "")
    lacking: tuple[Need, ...] = ()
    """What is not logged: of each tuple one column would do."""

    @property
    def present(self) -> bool:
        return self.presence is Presence.PRESENT

    @property
    def known(self) -> bool:
        return self.presence in (Presence.PRESENT, Presence.ABSENT)


@dataclass(frozen=True, eq=False)
class Mark:
    """A sign that tells causes apart, read once of an evidence."""

    name: str
    function: Callable[[Any], MarkReading | None]
    needs: tuple[Need, ...]
    limit: float
    """Present above it."""

    def __call__(self, evidence: Evidence) -> Observed:
        """Look for it."""
        observed: Observed = evidence.once(f"mark {self.name}", lambda: self._look(evidence))
        return observed

    def _look(self, evidence: Evidence) -> Observed:
        lacking = tuple(need for need in self.needs if evidence.run is not None and not evidence.log.meets(need))
        if lacking:
            return Observed(self, Presence.NOT_LOGGED, lacking=lacking)
        reading = self.function(evidence)
        if reading is None or isnan(reading.value):
            return Observed(self, Presence.TOO_LITTLE)
        return Observed(self, Presence.PRESENT if reading.value > self.limit else Presence.ABSENT, reading)

    @property
    def words(self) -> str:
        """What it looks for: the first paragraph of its function's docstring, without the full stop."""
        return " ".join((getdoc(self.function) or "").split("\n\n")[0].split()).rstrip(".")


MARKS: dict[str, Mark] = {}
"""By name."""


def mark(*, needs: tuple[Need, ...], limit: float) -> Callable[[Callable[[Any], MarkReading | None]], Mark]:
    """Declare the mark below, by the function's name; the arguments are the fields of `Mark`."""

    def declared(function: Callable[[Any], MarkReading | None]) -> Mark:
        name = function.__name__
        assert name not in MARKS, name
        MARKS[name] = Mark(name, function, needs, limit)
        return MARKS[name]

    return declared
