"""Which findings of a watched run are news: a rule speaks once for a run, and again only when it has become worse.

told = {}
for finding in news(findings, told, Severity.WARNING):
    print(finding.sentence)
    told = told_after(told, finding)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.plain import plain
from ratioscope.analysis.runs.store import Run

Told = Mapping[str, Severity]
"""The worst severity that somebody was told about one run, by rule."""

# Text of a finding may quote the log's manifest, of any length; an alert is for reading.
LONGEST_TEXT = 1_000


def news(findings: Sequence[Finding], told: Told, at_least: Severity) -> list[Finding]:
    """The findings of at least this severity that are new or worse than what was told, in their order.

    A finding that goes away and comes back is no news: near its limit it would come back at every other step.
    """
    return [
        finding
        for finding in findings
        if finding.severity >= at_least and (finding.rule not in told or finding.severity > told[finding.rule])
    ]


def told_after(told: Told, finding: Finding) -> dict[str, Severity]:
    """What was told, once this finding was told, too."""
    return dict(told) | {finding.rule: max(finding.severity, told.get(finding.rule, finding.severity))}


def run_key(run: Run) -> str:
    """What is told apart: the folder, and the run that is in it, as another may take its place."""
    return f"{run.folder.resolve()}\n{run.manifest.run_id}"


def told_to_json(told: Told) -> dict[str, str]:
    """Severity words by rule."""
    return {rule: severity.word for rule, severity in told.items()}


def told_from_json(contents: Any) -> dict[str, Severity]:
    """The reverse of `told_to_json`; what is no severity is left out, so that it is told again."""
    words = {severity.word: severity for severity in Severity}
    items = contents.items() if isinstance(contents, dict) else ()
    return {rule: words[word] for rule, word in items if isinstance(word, str) and word in words}


def to_json(run: Run, finding: Finding) -> dict[str, Any]:
    """What an alert says of a finding, the same in a file and at a webhook: undefined is null."""
    return {
        "run": _short(run.manifest.name),
        "rule": finding.rule,
        "severity": finding.severity.word,
        "sentence": _short(finding.sentence),
        "metric": finding.metric,
        "limit": plain(finding.limit),
        "steps": [min(finding.steps), max(finding.steps)] if finding.steps else None,
        "why": _short(finding.why),
        "do": _short(finding.do),
        "source": finding.source,
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
