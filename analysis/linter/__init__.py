"""Is this log what it claims to be: checks of a run's tables before anybody believes their numbers.

for remark in lint(open_run("runs/mine")):
    print(remark.severity, remark.rule, remark.sentence)

A check is a function `(evidence) -> list[Finding]` in the module of its question, declared there by `@check`: one
finding when it passes or cannot look, one for each thing that it finds.
"""

from collections.abc import Callable
from dataclasses import replace

from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.findings.finding import Example, Finding, Outcome, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter import (
    advantages,
    alignment,
    applied_loss,
    calibration,
    copies,
    credit,
    footers,
    identities,
    keys,
    masks,
    mismatch,
    noise_floor,
    responses,
    selection,
    signatures,
    units,
    values,
)
from ratioscope.analysis.linter.check import CHECKS, Check
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.report import remarks_json, remarks_text
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run

__all__ = ["CHECKS", "Check", "Example", "Finding", "Outcome", "lint", "remarks_json", "remarks_text"]

# Importing a module declares its checks.
_MODULES = (
    advantages, alignment, applied_loss, calibration, copies, credit, footers, identities, keys, masks,
    mismatch, noise_floor, responses, selection, signatures, units, values,
)  # fmt: skip


def lint(
    run: Run,
    first: int | None = None,
    last: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    limits: Limits = Limits(),
) -> list[Finding]:
    """All checks on the steps first..last, both included: what was found, worst first, then the rest.

    Args:
        run: from `open_run`.
        first, last: None is the first or last there is; of a run that is being written, the last complete step.
        progress: called with the number of checks done, and of all.
        limits: of the mean ratio, as in the diagnosis.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    if last is None and run.status == "running":
        # Tokens are written first: those of later steps may have no sequences yet.
        last = max((file.name.last_step for file in run.files["steps"]), default=-1)
    remarks: list[Finding] = []
    with relations(run, first, last) as connection:
        evidence = LogEvidence(run, connection, first, last, limits)
        for done, check in enumerate(CHECKS.values()):
            progress(done, len(CHECKS))
            remarks += evidence.remarks(check)
        remarks = [replace(remark, begins_unseen=evidence.begins_unseen(remark.steps)) for remark in remarks]
    causes = [CAUSES[remark.of_cause] for remark in remarks if remark.of_cause]
    explained = {name: each for each in causes for name in each.explains}
    remarks = [
        replace(remark, severity=Severity.NOTICE, do=f"Explained: {explained[remark.rule].words}.")
        if remark.rule in explained and remark.is_problem
        else remark
        for remark in remarks
    ]
    progress(len(CHECKS), len(CHECKS))
    order = {Outcome.FOUND: 0, Outcome.NOT_CHECKED: 1, Outcome.PASSED: 2}
    return sorted(remarks, key=lambda remark: (order[remark.outcome], -remark.severity))
