"""The answer of the Overview page, in words."""

from collections.abc import Sequence

from ratioscope.analysis.findings.course import is_unsteady, learning
from ratioscope.analysis.findings.facts import Facts
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.words import at_most
from ratioscope.analysis.linter.remark import Remark
from ratioscope.analysis.summary.summary import StepSummary


def headline(summary: StepSummary, facts: Facts, findings: Sequence[Finding], remarks: Sequence[Remark] = ()) -> str:
    """Is this run healthy? The text may quote the log.

    Args:
        summary: of the steps that `facts` are of.
        findings: of `diagnose`, worst first.
        remarks: of `lint`, worst first.
    """
    doubts = [remark for remark in remarks if remark.is_problem]
    grave = [finding for finding in findings if finding.severity > Severity.NOTICE]
    if not facts.n_steps:
        return grave[0].sentence if grave else "No step is on disk yet."
    steps = f"{facts.n_steps} step{'s' * (facts.n_steps > 1)}"
    if grave:
        said = f"{len(grave)} finding{'s' * (len(grave) > 1)} in {steps}. {grave[0].sentence}"
    elif not facts.staleness.n_known:
        said = f"Cannot tell from {steps}: {facts.unknown}."
    elif doubts:
        found = "Nothing graver than a notice was found" if findings else "No rule found anything"
        said = f"{found} in {steps}, but use the log with care: {doubts[0].sentence}"
    else:
        staleness = at_most("staleness", facts.staleness)
        if facts.staleness.n_known < facts.n_steps:
            staleness += ", not known in every step"
        opening = "Learning is not steady" if is_unsteady(summary) else "Nothing to worry about"
        said = f"{opening} in {steps}: {staleness}, {at_most('update drift', facts.update)}"
        said += f"; {len(findings)} notice{'s' * (len(findings) > 1)}." if findings else "."
    # The finding of a fall says what evaluation accuracy did.
    fell = bool(grave) and grave[0].rule == "reward_collapse"
    return f"{said} {'' if fell else learning(summary, facts.limits)}".strip()
