"""What the checks say, as text and as JSON, for the command line."""

from collections.abc import Sequence
from typing import Any

from ratioscope.analysis.findings.finding import Finding, Outcome
from ratioscope.analysis.findings.words import judged_without


def remarks_text(remarks: Sequence[Finding]) -> str:
    """For the terminal: severity or outcome, check and sentence; below it what to do.

    Checks that did not run for one and the same reason are one line.
    """
    lines = []
    of_reason: dict[str, list[str]] = {}
    for remark in remarks:
        if remark.outcome is Outcome.NOT_CHECKED:
            of_reason.setdefault(remark.sentence, []).append(remark.rule)
    for remark in remarks:
        checks = [remark.rule]
        if remark.outcome is Outcome.NOT_CHECKED:
            checks = of_reason.pop(remark.sentence, [])
            if not checks:
                continue
        lines.append(f"{remark.word:<12} {', '.join(checks)}: {remark.sentence}")
        if remark.wrong_rows:
            lines.append(f"{'':<12} {judged_without([remark.wrong_rows])}")
        if remark.severity:
            lines.append(f"{'':<12} {remark.do}")
    return "\n".join(lines)


def remarks_json(remarks: list[Finding]) -> list[dict[str, Any]]:
    """The stable shape of `ratioscope check --json`: what is undefined is null."""
    return [
        {
            "check": remark.rule,
            "outcome": remark.outcome.value,
            "severity": remark.severity.word if remark.severity else None,
            "sentence": remark.sentence,
            "why": remark.why,
            "do": remark.do,
            "cause": remark.of_cause or None,
            "place": remark.place or None,
            "left_out": remark.wrong_rows.words if remark.wrong_rows else None,
            "numbers": [number.to_json() for number in remark.numbers],
            "steps": list(remark.steps),
            "columns": list(remark.columns),
            "examples": [example._asdict() for example in remark.examples],
        }
        for remark in remarks
    ]
