"""The findings, each with the figure that shows its evidence."""

from collections.abc import Sequence
from functools import partial

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.runs.window import FirstLast
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures.evidence import can_be_shown, evidence
from ratioscope.dashboard.sections.model import Block, Chart, FindingBlock, Table
from ratioscope.dashboard.sections.page import Page
from ratioscope.dashboard.sections.subject import Subject, chart, with_intervals

_HEIGHT = 210
"""Of the figures of a report: they are beside the text, and three findings go on three pages."""


def answer(subject: Subject) -> str:
    """How many there are."""
    found = subject.opened.findings
    if not found:
        return f"None of the {len(RULES)} rules found anything."
    grave = _grave(found)
    notices = len(found) - grave
    return (
        f"{grave or 'No'} finding{'s' * (grave != 1)} of severity warning or critical, {notices or 'no'} "
        f"notice{'s' * (notices != 1)}; {len(RULES)} rules checked the whole run."
    )


def _grave(found: Sequence[Finding]) -> int:
    return sum(finding.severity > Severity.NOTICE for finding in found)


def blocks(subject: Subject) -> list[Block]:
    """All findings, worst first."""
    found = subject.opened.findings
    grave = _grave(found)
    return [
        *(FindingBlock(f"finding-{finding.rule}", finding, evidence_chart(subject, finding, _HEIGHT))
          for finding in found[:grave]),
        Table("Notices", ("What was found", "What to do"),
              tuple((finding.sentence, finding.do) for finding in found[grave:])),
    ]  # fmt: skip


def evidence_chart(
    subject: Subject, finding: Finding, height: int = 300, steps: FirstLast = (None, None)
) -> Chart | None:
    """Its metric over the steps with those that it is about; None where there is nothing to draw.

    Args:
        steps: those that the figure shows; the rest is beyond its edges.
    """
    metric = CATALOGUE[finding.metric]
    summary = subject.opened.summary  # rules look at all steps, whatever range the report is about
    if not can_be_shown(finding, summary):
        return None
    first, last = min(finding.steps), max(finding.steps)
    span = f"step {first}" if first == last else f"{len(finding.steps)} steps between {first} and {last}"
    said = f"{course(summary, metric.key)} Dots: {span}."
    return chart(subject.mode, f"finding-{finding.rule}", f"{metric.title} over the steps",
                 partial(evidence, finding, summary, height=height, steps=steps), said,
                 with_intervals(summary, [metric.key]), [metric.key], by_step=True)  # fmt: skip


PAGE = Page("findings", "Findings", "What is wrong, why, and what to change?", 20, answer=answer, report=[blocks])
