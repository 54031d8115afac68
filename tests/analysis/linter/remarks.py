"""What is asked of a linter's remarks."""

from pathlib import Path

import pandas as pd

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter import CHECKS, Finding
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run, open_run


def asked(run: Run, *checks: str, limits: Limits = Limits()) -> list[Finding]:
    """What some checks say of all rows: a quarter of the time that it takes to hear them all."""
    with relations(run) as connection:
        evidence = LogEvidence(run, connection, limits=limits)
        return [remark for check in checks for remark in evidence.remarks(CHECKS[check])]


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


def answer(run: Run, check: str, limits: Limits = Limits()) -> Finding:
    """The only remark of a check, which alone is asked."""
    (remark,) = asked(run, check, limits=limits)
    return remark


def numbers(remark: Finding) -> dict[str, float]:
    """Values by label."""
    return {number.label: number.value for number in remark.numbers}


def rows(folder: Path, table: str = "tokens") -> pd.DataFrame:
    """A whole table of a run."""
    return open_run(folder).read(table)
