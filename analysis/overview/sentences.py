"""What happened to a run, and what is fine about it, in words."""

from collections.abc import Sequence

from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import RULES
from ratioscope.analysis.findings.facts import Facts
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.linter.verdict import causes_in_the_run, doubts
from ratioscope.analysis.summary.summary import StepSummary


def grave(findings: Sequence[Finding]) -> list[Finding]:
    """What is more than a notice."""
    return [finding for finding in findings if finding.severity > Severity.NOTICE]


def leading(findings: Sequence[Finding]) -> Finding | None:
    """The finding that says what happened; None: nothing graver than a notice.

    Args:
        findings: of `diagnose`, worst first.
    """
    found = grave(findings)
    return next((finding for finding in found if RULES[finding.rule].outcome), found[0] if found else None)


def cause_ahead(findings: Sequence[Finding], remarks: Sequence[Finding]) -> Finding | None:
    """The cause that a check found in the run, where it says what happened: no outcome is worse, and no rule graver or
    as grave with a cause of its own."""
    cause, lead = next(iter(causes_in_the_run(remarks, findings)), None), leading(findings)
    if cause is None or lead is None:
        return cause
    behind = RULES[lead.rule].outcome or lead.of_cause or lead.severity > cause.severity
    return None if behind else cause


def overview_headline(facts: Facts, findings: Sequence[Finding], remarks: Sequence[Finding] = ()) -> str:
    """What happened? The text may quote the log.

    Args:
        findings: of `diagnose`, worst first.
        remarks: of `lint`, worst first.
    """
    if (lead := cause_ahead(findings, remarks) or leading(findings)) is not None:
        return lead.sentence
    if not facts.n_steps:
        return "No step is on disk yet."
    steps = f"{facts.n_steps} step{'s' * (facts.n_steps > 1)}"
    if not facts.staleness.n_known:
        return f"Cannot tell from {steps}: {facts.unknown}."
    if doubtful := doubts(remarks):
        return f"No problem found in {steps}, but use the log with care: {doubtful[0].sentence}"
    if problems := [remark for remark in remarks if remark.is_problem]:
        return f"No problem found in {steps}, but a check of the log found: {problems[0].sentence}"
    notices = f"; {len(findings)} notice{'s' * (len(findings) > 1)}" if findings else ""
    return f"No problem found in {steps}{notices}."


_OF_THE_LOG = "linter"
"""The page of rules about the log: while one speaks, nothing is called fine."""
_KNOWN = 0.8
"""In so large a share of the steps a metric has to be there before it is called fine."""


def fine(summary: StepSummary, facts: Facts, findings: Sequence[Finding]) -> str:
    """What rules looked at and found nothing about, each with its number; "" where there is nothing.

    What is not logged is not fine.
    """
    speaking = [RULES[finding.rule] for finding in findings]
    if any(rule.page == _OF_THE_LOG for rule in speaking):
        return ""
    told = [
        group.fine(summary, facts)
        for group in Group
        if group not in {rule.group for rule in speaking} and summary.values[group.metric].notna().mean() >= _KNOWN
    ]
    return f"Fine: {', '.join(filter(None, told))}." if any(told) else ""
