"""Findings of runs that have ended, kept on disk beside the cached summaries: some rules read the tokens again."""

import json
from dataclasses import asdict
from typing import Any

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.runs.database import one_thread
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.cache import Entry, entry_of
from ratioscope.notes import Kind, Note


def findings_of(run: Run, summary: StepSummary, limits: Limits) -> list[Finding]:
    """What `diagnose` finds; from disk where the same run, limits and rules were diagnosed before.

    Raises:
        RatioscopeError: a file of the run cannot be read any more.
    """
    kept = _kept(run, limits)
    contents = kept.get()
    if contents is not None:
        return [_finding(fields) for fields in json.loads(contents)]
    with one_thread():
        findings = diagnose(summary, run, limits)
    if run.status != "running":
        kept.put(json.dumps([asdict(finding) for finding in findings], default=float).encode())
    return findings


def _kept(run: Run, limits: Limits) -> Entry:
    files = (file.identity for files in run.files.values() for file in files)
    manifest = {key: value for key, value in asdict(run.manifest).items() if key != "heartbeat"}
    settings = (json.dumps(part, sort_keys=True) for part in (manifest, asdict(limits)))
    return entry_of("findings", __name__, *files, *settings)


def _finding(fields: dict[str, Any]) -> Finding:
    numbers = tuple(Number(**number | {"note": _note(number["note"])}) for number in fields["numbers"])
    known = {"severity": Severity(fields["severity"]), "steps": tuple(fields["steps"]), "numbers": numbers}
    return Finding(**fields | known)


def _note(fields: dict[str, str] | None) -> Note | None:
    return Note(Kind(fields["kind"]), fields["text"]) if fields else None
