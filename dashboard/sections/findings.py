"""The findings, each with the figure that is its evidence."""

from math import isfinite

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures.evidence import mark_steps
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.sections.model import Chart, FindingBlock, Section
from ratioscope.dashboard.sections.subject import Subject, over_steps


def findings(subject: Subject) -> Section:
    """All findings, worst first."""
    found = subject.opened.findings
    grave = sum(finding.severity > Severity.NOTICE for finding in found)
    if not found:
        answer = f"None of the {len(RULES)} rules has found anything."
    else:
        notices = len(found) - grave
        answer = f"{grave or 'No'} finding{'s' * (grave != 1)} of severity warning or critical, {notices or 'no'} "
        answer += f"notice{'s' * (notices != 1)}; {len(RULES)} rules looked at the whole run."
    blocks = tuple(FindingBlock(finding, _evidence(subject, finding)) for finding in found)
    return Section("findings", "Findings", "What is wrong, why, and what to change?", answer, blocks)


def _evidence(subject: Subject, finding: Finding) -> Chart:
    metric = CATALOGUE[finding.metric]
    whole = Subject(subject.opened)  # rules look at all steps, whatever range the report is about
    first, last = min(finding.steps), max(finding.steps)
    span = f"step {first}" if first == last else f"{len(finding.steps)} steps between {first} and {last}"
    limits = [Limit(finding.limit, "limit")] if isfinite(finding.limit) else []
    return over_steps(
        whole, [finding.metric], key=f"finding-{finding.rule}", title=f"{metric.title} over the steps",
        unit=metric.unit, limits=limits, takeaway=f"{finding.sentence} Dots: {span}.",
        mark=lambda fig, mode: mark_steps(fig, finding, whole.summary, mode),
    )  # fmt: skip
