"""A run's numbers beside a framework's, name by name: which are the same, which differ, and which it cannot have.

found = translate(run, "verl", first=10, last=20)
for line in found.lines:
    print(line.name, line.outcome.value, line.row.why)
"""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import pandas as pd

from ratioscope.analysis.frameworks import DIALECTS, beside_ours, parameters_of, theirs
from ratioscope.analysis.frameworks.definition import Dialect, Parameters, TheirNumber
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.run_format.manifest import Manifest

# Two numbers are called the same up to here: what float32 columns and another order of summation make of one formula.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9


class Agreement(Enum):
    """How a framework's number compares with ours over some steps."""

    EQUAL = "equal"
    """In every step in which both are defined."""
    DIFFERENT = "different"
    ALONE = "no counterpart"
    """Ours has none like it."""
    MISSING = "not in this log"
    """A column that it needs is logged in none of the steps."""
    UNDEFINED = "undefined"
    """In all of the steps, theirs or ours."""


@dataclass(frozen=True)
class TranslatedNumber:
    """One of a framework's numbers in a run."""

    row: TheirNumber
    by_step: pd.DataFrame
    """Index step; value, our_value, difference, clamped, note_kind, note, missing as of `frameworks.report`."""

    @property
    def name(self) -> str:
        return self.row.name

    @cached_property
    def outcome(self) -> Agreement:
        """Over all steps."""
        if self.missing:
            return Agreement.MISSING
        if self.row.ours:
            return self._compared()
        return Agreement.ALONE if self.by_step["value"].notna().any() else Agreement.UNDEFINED

    def _compared(self) -> Agreement:
        if not self.compared.any():
            return Agreement.UNDEFINED
        return Agreement.DIFFERENT if self.differs.any() else Agreement.EQUAL

    @cached_property
    def compared(self) -> "pd.Series[bool]":
        """Steps in which both are defined."""
        return self.by_step["value"].notna() & self.by_step["our_value"].notna()

    @cached_property
    def differs(self) -> "pd.Series[bool]":
        """Steps in which both are defined and not the same up to rounding."""
        theirs, ours = (self.by_step[name].to_numpy(dtype=float) for name in ("value", "our_value"))
        return self.compared & ~np.isclose(theirs, ours, rtol=_RELATIVE, atol=_ABSOLUTE)

    @cached_property
    def missing(self) -> str:
        """The columns that it needs, where no step has them; "" where one does."""
        missing = self.by_step["missing"]
        last = str(missing.iloc[-1]) if len(missing) else ""
        return last if last and missing.ne("").all() else ""

    @cached_property
    def step(self) -> int | None:
        """The last step in which both are defined, or theirs where there is nothing to hold it against."""
        known = self.compared if self.compared.any() else self.by_step["value"].notna()
        return int(known.index[known][-1]) if known.any() else None

    def at(self, step: int | None) -> tuple[float, float]:
        """Their value and ours in a step; NaN where there is none."""
        if step is None:
            return float("nan"), float("nan")
        return float(self.by_step["value"].loc[step]), float(self.by_step["our_value"].loc[step])

    @cached_property
    def furthest(self) -> int | None:
        """The step in which they are furthest from each other; None where they are nowhere different."""
        if not self.differs.any():
            return None
        distance = self.by_step["difference"][self.differs].abs()
        return int(distance.index[int(distance.fillna(np.inf).argmax())])

    @property
    def note(self) -> str:
        """Why the value is missing or saturated, or what it assumes, in the step that is shown; else in the last."""
        if not len(self.by_step):
            return ""
        return str(self.by_step["note"].loc[self.step] if self.step is not None else self.by_step["note"].iloc[-1])


@dataclass(frozen=True)
class Translation:
    """A run as a framework would have reported it."""

    framework: str
    """Key of `DIALECTS`."""
    parameters: Parameters
    lines: tuple[TranslatedNumber, ...]
    loss: str = ""
    """The run's, where its manifest names one in the framework's words."""

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.framework]

    @cached_property
    def steps(self) -> tuple[int, int] | None:
        """First and last step with a usable token, None where there is none."""
        index = self.lines[0].by_step.index
        return (int(index[0]), int(index[-1])) if len(index) else None

    def with_outcome(self, outcome: Agreement) -> list[TranslatedNumber]:
        """The lines that come out like this, in the framework's order."""
        return [line for line in self.lines if line.outcome is outcome]


def translate(
    run: Run,
    framework: str,
    first: int | None = None,
    last: int | None = None,
    *,
    summary: StepSummary | None = None,
    parameters: Parameters | None = None,
) -> Translation:
    """Every number of a framework over the steps first..last of a run, both included, beside ours.

    Arguments and errors are those of `frameworks.report`.
    """
    found = theirs(run, framework, first, last, parameters)
    return translation(found, framework, summary or summarise(run), run.manifest, parameters)


def translation(
    found: pd.DataFrame,
    framework: str,
    summary: StepSummary,
    manifest: Manifest,
    parameters: Parameters | None = None,
) -> Translation:
    """The same of a frame of `frameworks.theirs`, with the parameters that it was made with."""
    dialect = DIALECTS[framework]
    columns = ["value", "our_value", "difference", "clamped", "note_kind", "note", "missing"]
    every = beside_ours(found, framework, summary).set_index("step")
    by_name = {str(name): frame for name, frame in every[columns].groupby(every["name"], sort=False)}
    nothing = pd.DataFrame(columns=columns)
    own = [row.name for row in dialect.rows]
    rows = [*dialect.rows, *(row for name in by_name if name not in own and (row := dialect.row(name)))]
    lines = tuple(TranslatedNumber(row, by_name.get(row.name, nothing)) for row in rows)
    used = parameters_of(framework, manifest, parameters)
    return Translation(framework, used, lines, dialect.as_run(manifest).loss)
