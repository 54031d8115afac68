"""What happened to a run, and what is fine about it, in words."""

from collections.abc import Sequence

from ratioscope.analysis.diagnosis.collapse import reward_has_collapsed, reward_was_set_back
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import RULES, rule_words
from ratioscope.analysis.findings.course import is_falling, is_unsteady, learning
from ratioscope.analysis.findings.facts import Cause, Facts
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.findings.words import at_most
from ratioscope.analysis.linter.verdict import mostly_unknown
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


def health(summary: StepSummary, facts: Facts, findings: Sequence[Finding], remarks: Sequence[Finding] = ()) -> str:
    """Is it healthy? Yes, no or unknown, and what was found; arguments as of `overview_headline`."""
    doubts = [remark for remark in remarks if remark.is_problem]
    lead = leading(findings)
    if lead and not RULES[lead.rule].of_the_log:
        others = [finding for finding in grave(findings) if finding is not lead]
        return f"No: {', '.join(rule_words(finding.rule) for finding in (lead, *others))}."
    if lead or not facts.n_steps or not facts.staleness.n_known or mostly_unknown(remarks):
        return "Unknown."
    if any(doubt.severity is Severity.CRITICAL for doubt in doubts):
        return "Unknown: the log cannot be trusted as it is."
    if is_falling(summary) and not is_unsteady(summary):
        return "Unknown: it falls at the end, and may come back."
    but = [f"{len(findings)} notice{'s' * (len(findings) > 1)}"] * bool(findings)
    but += ["learning that is not steady"] * is_unsteady(summary)
    said = f"Yes, with {' and '.join(but)}" if but else "Yes"
    return f"{said}{', as far as the log can be trusted' * bool(doubts)}."


def overview_headline(
    summary: StepSummary, facts: Facts, findings: Sequence[Finding], remarks: Sequence[Finding] = ()
) -> str:
    """What happened? The text may quote the log.

    Args:
        summary: of the steps that `facts` are of.
        findings: of `diagnose`, worst first.
        remarks: of `lint`, worst first.
    """
    doubts = [remark for remark in remarks if remark.is_problem]
    lead = leading(findings)
    if not facts.n_steps:
        return lead.sentence if lead else "No step is on disk yet."
    steps = f"{facts.n_steps} step{'s' * (facts.n_steps > 1)}"
    if lead:
        said = lead.sentence
    elif not facts.staleness.n_known:
        said = f"Cannot tell from {steps}: {facts.unknown}."
    elif doubts:
        found = "Nothing graver than a notice was found" if findings else "No rule found anything"
        said = f"{found} in {steps}, but use the log with care: {doubts[0].sentence}"
    else:
        staleness = at_most("staleness", facts.staleness)
        if facts.staleness.n_known < facts.n_steps:
            staleness += ", not known in every step"
        if Cause.ENGINE in facts.sources:
            staleness += f", most of it from {Cause.ENGINE.words}, whose own limit is {number(facts.limits.engine)}"
        # Of a course that swings, the last swing says nothing.
        opening = "Falling at the end of" if is_falling(summary) else "Nothing to worry about in"
        opening = "Learning is not steady in" if is_unsteady(summary) else opening
        said = f"{opening} {steps}: {staleness}."
    # The finding of a fall says what evaluation accuracy did.
    fell = lead is not None and lead.rule in (reward_has_collapsed.name, reward_was_set_back.name)
    return f"{said} {'' if fell else learning(summary, facts.limits)}".strip()


_KNOWN = 0.8
"""In so large a share of the steps a metric has to be there before it is called fine."""


def fine(summary: StepSummary, facts: Facts, findings: Sequence[Finding]) -> str:
    """What rules looked at and found nothing about, each with its number; "" where there is nothing.

    What is not logged is not fine.
    """
    speaking = [RULES[finding.rule] for finding in findings]
    if any(rule.of_the_log for rule in speaking):
        return ""
    told = [
        group.fine(summary, facts)
        for group in Group
        if group not in {rule.group for rule in speaking} and summary.values[group.metric].notna().mean() >= _KNOWN
    ]
    return f"Fine: {', '.join(filter(None, told))}." if any(told) else ""
