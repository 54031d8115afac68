"""Findings of runs that have ended, kept on disk beside the cached summaries: some rules read the tokens again."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import ratioscope
from ratioscope import analysis
from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.runs.database import one_thread
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.cache import cache_folder
from ratioscope.manifest import replace_atomically
from ratioscope.notes import Kind, Note


def findings_of(run: Run, summary: StepSummary, limits: Limits) -> list[Finding]:
    """What `diagnose` finds; from disk where the same run, limits and rules were diagnosed before.

    Raises:
        RatioscopeError: a file of the run cannot be read any more.
    """
    place = cache_folder("findings") / f"{_key(run, limits)}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        return [_finding(contents) for contents in json.loads(place.read_text(encoding="utf-8"))]
    with one_thread():
        findings = diagnose(summary, run, limits)
    if run.status != "running":
        with suppress(OSError):  # a cache that cannot be written is no reason to fail
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_atomically(place, json.dumps([asdict(finding) for finding in findings], default=float).encode())
    return findings


@cache
def code_identity() -> str:
    """What findings depend on besides the run: those of another ratioscope are not mistaken for this one's."""
    packages = [Path(str(package.__file__)).parent for package in (analysis, ratioscope)]
    sources = [path for package in packages for path in sorted(package.rglob("*")) if path.suffix in (".py", ".sql")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _key(run: Run, limits: Limits) -> str:
    files = [file.identity for files in run.files.values() for file in files]
    manifest = {key: value for key, value in asdict(run.manifest).items() if key != "heartbeat"}
    settings = (json.dumps(part, sort_keys=True) for part in (manifest, asdict(limits)))
    return hashlib.sha256("|".join([code_identity(), *files, *settings]).encode()).hexdigest()[:32]


def _finding(contents: dict[str, Any]) -> Finding:
    numbers = tuple(Number(**number | {"note": _note(number["note"])}) for number in contents["numbers"])
    known = {"severity": Severity(contents["severity"]), "steps": tuple(contents["steps"]), "numbers": numbers}
    return Finding(**contents | known)


def _note(contents: dict[str, str] | None) -> Note | None:
    return Note(Kind(contents["kind"]), contents["text"]) if contents else None
