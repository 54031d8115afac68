"""Is this log what it claims to be: checks of a run's tables before anybody believes their numbers.

for remark in lint(open_run("runs/mine")):
    print(remark.severity, remark.rule, remark.sentence)

A check is a function `(evidence) -> list[Finding]` in the module of its question, declared there by `@check`: one
finding when it passes or cannot look, one for each thing that it finds. Where a check names the rows that are wrong
(`Finding.wrong_rows`) and they are few, the others are checked again without them, and `rest_of` is the run to judge.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.findings.finding import Example, Finding, Outcome, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter import (
    advantages,
    alignment,
    applied_loss,
    batch_rows,
    batches,
    calibration,
    copies,
    credit,
    footers,
    identities,
    keys,
    limits_of_length,
    long_prompts,
    masks,
    mismatch,
    noise_floor,
    not_drawn,
    own_token,
    passed_ends,
    prompt_pool,
    reference,
    responses,
    selection,
    signatures,
    stand_ins,
    unfilled_prompts,
    units,
    values,
    versions,
    zeros,
)
from ratioscope.analysis.linter.check import CHECKS, Check
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.keys import sequence_rows
from ratioscope.analysis.linter.report import remarks_json, remarks_text
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run

__all__ = ["CHECKS", "Check", "Example", "Finding", "Outcome", "lint", "remarks_json", "remarks_text", "rest_of"]

# Importing a module declares its checks and causes.
_MODULES = (
    advantages, alignment, applied_loss, batch_rows, batches, calibration, copies, credit, footers, identities, keys,
    limits_of_length, long_prompts, masks, mismatch, noise_floor, not_drawn, own_token, passed_ends, prompt_pool,
    reference, responses, selection, signatures, stand_ins, unfilled_prompts, units, values, versions, zeros,
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
    remarks = _judged_without_wrong_rows(replace(run, left_out=()), first, last, progress, limits)
    # What is left out explains nothing of the rest, nor the other way round.
    explained = {
        (name, remark.wrong_rows): CAUSES[remark.of_cause]
        for remark in remarks if remark.of_cause for name in CAUSES[remark.of_cause].explains
    }  # fmt: skip
    remarks = [
        replace(remark, severity=Severity.NOTICE, do=f"Explained: {cause.words}.")
        if remark.is_problem and (cause := explained.get((remark.rule, remark.wrong_rows)))
        else remark
        for remark in remarks
    ]
    progress(len(CHECKS), len(CHECKS))
    order = {Outcome.FOUND: 0, Outcome.NOT_CHECKED: 1, Outcome.PASSED: 2}
    return sorted(remarks, key=lambda remark: (order[remark.outcome], -remark.severity))


def rest_of(run: Run, remarks: Sequence[Finding]) -> Run:
    """The run without the rows that `lint` found wrong."""
    parts = (remark.wrong_rows for remark in remarks if remark.wrong_rows is not None)
    return replace(run, left_out=tuple(dict.fromkeys(parts)))


def _judged_without_wrong_rows(
    run: Run, first: int | None, last: int | None, progress: Callable[[int, int], None], limits: Limits
) -> list[Finding]:
    """What the checks say; where some name rows that are wrong, and few, they look at the others again.

    Rows are left out only where the check that names them finds none among the others.
    """
    with relations(run, first, last) as connection:
        evidence = LogEvidence(run, connection, first, last, limits)
        every = _looked_at(evidence, progress)
        naming = [remark for remark in every if remark.is_problem and remark.wrong_rows]
        named = {remark.rule for remark in naming}
        of_where = {remark.wrong_rows.where: remark.wrong_rows for remark in naming if remark.wrong_rows}
        shares = evidence.shares(tuple(of_where.values()))
    of_where = {part.where: replace(part, share=share) for part, share in zip(of_where.values(), shares, strict=True)}
    if not 0 < sum(shares) < limits.left_out:
        return [replace(remark, wrong_rows=None) for remark in every]
    rest = replace(run, left_out=tuple(of_where.values()))
    with relations(rest, first, last) as connection:
        of_rest = LogEvidence(rest, connection, first, last, limits)
        if sequence_rows.name not in named:  # the sequences table has all responses
            of_rest.once(f"check {sequence_rows.name}", lambda: evidence.remarks(sequence_rows))
        others = _looked_at(of_rest, lambda done, of: None)
    if any(remark.rule in named and remark.is_problem and remark.wrong_rows for remark in others):
        return [replace(remark, wrong_rows=None) for remark in every]
    found: list[Finding] = []
    for name, check in CHECKS.items():
        before, after = ([remark for remark in of if remark.rule == name] for of in (every, others))
        if name in named:
            found += [
                replace(each, wrong_rows=of_where[each.wrong_rows.where], severity=min(each.severity, Severity.WARNING))
                for each in before if each in naming and each.wrong_rows
            ]  # fmt: skip
            found += [replace(each, wrong_rows=None) for each in after if each.outcome is Outcome.FOUND]
            continue
        found += [replace(each, wrong_rows=None) for each in _better(before, after, of_the_run=check.of_the_run)]
    return found


def _better(before: Sequence[Finding], after: Sequence[Finding], *, of_the_run: bool) -> Sequence[Finding]:
    """What a check says with and without wrong rows: to leave rows out makes no log worse and no check blind."""
    worse = any(each.is_problem for each in after) and not any(each.is_problem for each in before)
    blind = any(each.outcome is Outcome.NOT_CHECKED for each in after)
    return before if blind or (worse and not of_the_run) else after


def _looked_at(evidence: LogEvidence, progress: Callable[[int, int], None]) -> list[Finding]:
    remarks: list[Finding] = []
    for done, check in enumerate(CHECKS.values()):
        progress(done, len(CHECKS))
        remarks += evidence.remarks(check)
    return [replace(remark, begins_unseen=evidence.begins_unseen(remark.steps)) for remark in remarks]
