"""What is asked of a linter's remarks."""

from pathlib import Path

import pandas as pd

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.linter import Remark
from ratioscope.analysis.runs.store import open_run


def found(remarks: list[Remark]) -> dict[str, Severity]:
    """What was found, with its worst severity."""
    worst: dict[str, Severity] = {}
    for remark in remarks:
        if remark.severity is not None:
            worst[remark.check] = max(remark.severity, worst.get(remark.check, remark.severity))
    return worst


def problems(remarks: list[Remark]) -> set[str]:
    """The checks that found something that must not be left alone."""
    return {remark.check for remark in remarks if remark.is_problem}


def the(remarks: list[Remark], check: str) -> Remark:
    """The only remark of a check."""
    (remark,) = (remark for remark in remarks if remark.check == check)
    return remark


def numbers(remark: Remark) -> dict[str, float]:
    """Values by label."""
    return {number.label: number.value for number in remark.numbers}


def rows(folder: Path, table: str = "tokens") -> pd.DataFrame:
    """A whole table of a run."""
    return open_run(folder).read(table)
