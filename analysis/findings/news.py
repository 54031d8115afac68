"""Which findings of a watched run are news: a rule reports once for a run, and again only when it has become worse.

reported = {}
for finding in news(findings, reported, Severity.WARNING):
    print(finding.sentence)
    reported = reported_after(reported, finding)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.plain import json_value
from ratioscope.analysis.runs.store import Run

SeverityByRule = Mapping[str, Severity]
"""The worst severity that was reported about one run, by rule."""

# Text of a finding may quote the log's manifest, of any length; an alert is for reading.
LONGEST_TEXT = 1_000


def news(findings: Sequence[Finding], reported: SeverityByRule, at_least: Severity) -> list[Finding]:
    """The findings of at least this severity that are new or worse than what was reported, in their order.

    A finding that goes away and comes back is not news: near its limit it would come back at every other step.
    """
    return [
        finding
        for finding in findings
        if finding.severity >= at_least and (finding.rule not in reported or finding.severity > reported[finding.rule])
    ]


def reported_after(reported: SeverityByRule, finding: Finding) -> dict[str, Severity]:
    """What is reported after this finding, too."""
    return dict(reported) | {finding.rule: max(finding.severity, reported.get(finding.rule, finding.severity))}


def run_key(run: Run) -> str:
    """What identifies a run: the folder, and the run in it, as another may take its place."""
    return f"{run.folder.resolve()}\n{run.manifest.run_id}"


def reported_to_json(reported: SeverityByRule) -> dict[str, str]:
    """Severity words by rule."""
    return {rule: severity.word for rule, severity in reported.items()}


def reported_from_json(contents: Any) -> dict[str, Severity]:
    """The reverse of `reported_to_json`; what is not a severity is left out, so that it is reported again."""
    words = {severity.word: severity for severity in Severity if severity}
    items = contents.items() if isinstance(contents, dict) else ()
    return {rule: words[word] for rule, word in items if isinstance(word, str) and word in words}


def alert_json(run: Run, finding: Finding) -> dict[str, Any]:
    """What an alert says of a finding, the same in a file and at a webhook: undefined is null."""
    return {
        "run": _short(run.manifest.name),
        "rule": finding.rule,
        "severity": finding.severity.word,
        "sentence": _short(finding.sentence),
        "metric": finding.metric,
        "limit": json_value(finding.limit),
        "steps": [min(finding.steps), max(finding.steps)] if finding.steps else None,
        "why": _short(finding.why),
        "do": _short(finding.do),
        "source": finding.source,
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
