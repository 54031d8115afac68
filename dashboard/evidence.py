"""Which page shows the evidence of a finding: its link opens that page, reports and alerts name it."""

from dataclasses import dataclass
from typing import Any

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.diagnosis.report import finding_to_json
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.overview.verdict import CHANGE, SINCE, SURE, Answer


def with_page(finding: Finding) -> dict[str, Any]:
    """A finding as JSON, with the page that shows it."""
    return finding_to_json(finding) | {"page": RULES[finding.rule].page}


@dataclass(frozen=True)
class Link:
    """One click to the evidence."""

    page: str
    query: dict[str, str]
    label: str = ""
    """"": the page's title."""


def link_of(answer: Answer, run_id: str, *, has_tokens: bool) -> Link | None:
    """Where an answer of Overview is shown; None: on the same page.

    Args:
        has_tokens: whether the log has any, for the pages that are about them.
    """
    finding = answer.finding
    if answer.question == SURE:  # of a cause it counts signs, which the page itself lists
        return None if finding else Link("linter", {"run": run_id})
    if finding is None:
        return None
    if answer.question == SINCE:
        if not finding.steps or not has_tokens:
            return None
        first = str(min(finding.steps))
        return Link("tokens", {"run": run_id, "step": first}, f"Step {first}")
    if answer.question == CHANGE and RULES[finding.rule].another_rule and has_tokens:
        return Link("clipping", {"run": run_id})
    page = RULES[finding.rule].page
    return None if page == "overview" else Link(page, steps_query(finding, run_id))


def steps_query(finding: Finding, run_id: str) -> dict[str, str]:
    """The run, the metric and the steps of a finding, as a page's parameters."""
    query = {"run": run_id, "show": finding.metric}
    if len(finding.steps) > 1:
        query |= {"from": str(min(finding.steps)), "to": str(max(finding.steps))}
    return query
