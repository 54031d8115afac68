"""Findings as text and as JSON, for the command line."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ratioscope.analysis.diagnosis.absence import not_seen
from ratioscope.analysis.diagnosis.log import log_is_broken, log_is_broken_in_part, rows_are_left_out
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.diagnosis.rule import RULES
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.logged import logged
from ratioscope.analysis.findings.plain import json_value
from ratioscope.analysis.linter.verdict import causes_in_the_run, doubts, log_verdict
from ratioscope.analysis.runs.left_out import LeftOut


def diagnosis_text(opened: Opened) -> str:
    """One paragraph a finding or a cause that a check found, what the run is for first: severity, sentence, cause,
    remedy; then what makes the log doubtful, what no rule could look at, what holds for every number of this log."""
    lines = [
        f"{finding.severity.word:<9} {finding.sentence}\n{'':<9} {_why(finding)}\n{'':<9} Do: {finding.do}"
        + f"\n{'':<9} How sure: {finding.sure}" * bool(finding.sure)
        for finding in sorted((*causes_in_the_run(opened.problems, opened.findings), *opened.findings), key=_place)
    ]
    if not lines:
        n = len(opened.summary.values)
        lines = [f"No problem found in {n} step{'s' * (n != 1)}." if n else "No step is on disk yet."]
    told = {log_is_broken.name, log_is_broken_in_part.name, rows_are_left_out.name} & {
        finding.rule for finding in opened.findings
    }
    if (doubtful := doubts(opened.problems)) and not told:
        lines.append(f"{log_verdict(opened.remarks)}\n{'':<9} Do: {doubtful[0].do}")
    if unseen := not_seen(opened.summary, opened.facts()):
        lines.append(f"Not logged, so not judged: {'; '.join(unseen)}.")
    if opened.populations:
        lines.append(opened.populations.words)
    log = logged(opened.run)
    lines += [f"Assumed: {said}" if said in log.assumed else said for said in log.cautions]
    return "\n".join((*lines, *filter(None, [opened.moved_limits])))


def _place(finding: Finding) -> tuple[bool, int, int]:
    """What the run is for comes first, as on Overview; then the worst, those that name a cause before others."""
    rule = RULES.get(finding.rule)
    outcome = rule is not None and rule.outcome and finding.severity > Severity.NOTICE
    return not outcome, -finding.severity, 1 if rule is None else 0 if finding.of_cause else 2


def _why(finding: Finding) -> str:
    return finding.why if finding.why.startswith("Likely cause: ") else f"Why: {finding.why}"


def head_to_json(opened: Opened) -> dict[str, Any]:
    """What stands before the findings in `ratioscope diagnose --json`: the run and its limits."""
    return {
        "schema_version": opened.run.manifest.schema_version,
        "run": opened.run.manifest.name,
        "thresholds": asdict(opened.limits),
        "thresholds_moved": opened.moved_limits or None,
        "log": log_verdict(opened.remarks),
        "left_out": left_out_json(opened.run.left_out),
        "populations": opened.populations.to_json() if opened.populations else None,
        "not_seen": not_seen(opened.summary, opened.facts()),
    }


def left_out_json(parts: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """The rows that the numbers leave out: words, condition (SQL over a table) and share of the tokens."""
    return [{"rows": each.words, "where": each.where, "table": each.table, "share": each.share} for each in parts]


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """A finding: undefined is null."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.word,
        "sentence": finding.sentence,
        "metric": finding.metric,
        "limit": json_value(finding.limit),
        "steps": list(finding.steps),
        "numbers": [number.to_json() for number in finding.numbers],
        "why": finding.why,
        "do": finding.do,
        "sure": finding.sure,
        "source": finding.source,
        "cause": finding.of_cause or None,
        "place": finding.place or None,
    }
