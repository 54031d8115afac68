"""What is asked of a linter's remarks."""

from pathlib import Path

import pandas as pd

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run


def found(remarks: list[Finding]) -> dict[str, Severity]:
    """What was found, with its worst severity."""
    worst: dict[str, Severity] = {}
    for remark in remarks:
        if remark.severity:
            worst[remark.rule] = max(remark.severity, worst.get(remark.rule, remark.severity))
    return worst


def problems(remarks: list[Finding]) -> set[str]:
    """The checks that found something that must not be left alone."""
    return {remark.rule for remark in remarks if remark.is_problem}


def the(remarks: list[Finding], check: str) -> Finding:
    """The only remark of a check."""
    (remark,) = (remark for remark in remarks if remark.rule == check)
    return remark


def numbers(remark: Finding) -> dict[str, float]:
    """Values by label."""
    return {number.label: number.value for number in remark.numbers}


def rows(folder: Path, table: str = "tokens") -> pd.DataFrame:
    """A whole table of a run."""
    return open_run(folder).read(table)
