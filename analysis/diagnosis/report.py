"""Findings as text and as JSON, for the command line."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.plain import plain
from ratioscope.analysis.runs.store import Run


def text(findings: Sequence[Finding]) -> str:
    """One paragraph a finding: severity and sentence, then cause and remedy."""
    if not findings:
        return "Nothing to report."
    return "\n".join(
        f"{finding.severity.word:<9} {finding.sentence}\n{'':<9} Why: {finding.why}\n{'':<9} Do: {finding.do}"
        for finding in findings
    )


def to_json(run: Run, findings: Sequence[Finding], limits: Limits) -> dict[str, Any]:
    """The stable shape of `ratioscope diagnose --json`: undefined is null."""
    return {
        "schema_version": run.manifest.schema_version,
        "run": run.manifest.name,
        "thresholds": asdict(limits),
        "findings": [finding_to_json(finding) for finding in findings],
    }


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """A finding in that shape."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.word,
        "sentence": finding.sentence,
        "metric": finding.metric,
        "limit": plain(finding.limit),
        "steps": list(finding.steps),
        "numbers": [number.to_json() for number in finding.numbers],
        "why": finding.why,
        "do": finding.do,
        "source": finding.source,
        "page": finding.page,
    }
