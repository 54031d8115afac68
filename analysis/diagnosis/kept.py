"""What the linter and the rules say of a run; of runs that have ended it is kept on disk, beside the cached summaries,
because both read the tokens again."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.findings.finding import Example, Finding, Number, Outcome, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.database import one_thread
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.runs.window import FirstLast, Window
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.notes import Kind, Note
from ratioscope.storage.cache import Entry, entry_of

# The checks take about five seconds for a million tokens of short responses. A live run is judged again whenever it has
# news.
CHECKED_TOKENS, CHECKED_TOKENS_LIVE = 4_000_000, 100_000
_SMALL = 1_500_000
"""Bytes of tokens and texts: of short responses some 200,000 tokens, hardly more than DuckDB gives to one thread."""

_JUDGING: WeakValueDictionary[str, Lock] = WeakValueDictionary()


@dataclass(frozen=True)
class JudgedRun:
    """What is said of a run."""

    remarks: list[Finding]
    """Of the linter, worst first, about the steps in `checked`."""
    findings: list[Finding]
    """Worst first; about the whole run."""
    checked: FirstLast
    """The steps that the linter looked at: all (None, None), or the latest ones of a long log."""


def is_small(run: Run) -> bool:
    """Whether a run has ended and so few tokens that all are checked, whatever its summary says."""
    files = (*run.files["tokens"], *run.files["sequences"])
    return run.status != "running" and sum(file.size for file in files) <= _SMALL


def judged(run: Run, summary: Callable[[], StepSummary], limits: Limits) -> JudgedRun:
    """What `lint` and `diagnose` say; from disk where the same run, limits and rules were judged before.

    Args:
        summary: returns the summary of the run; what needs none comes before it is asked for.

    Raises:
        RatioscopeError: a file of the run cannot be read any more.
    """
    live = run.status == "running"
    checked = _checked(run, summary, CHECKED_TOKENS_LIVE if live else CHECKED_TOKENS)
    kept = _kept(run, limits, checked)
    # The list of runs and a page often ask for one run at the same moment: who comes second takes what is kept then.
    with nullcontext() if live else _JUDGING.setdefault(kept.key, Lock()):
        known = kept.read(partial(_read, checked=checked))
        if known is not None:
            return known
        with one_thread():
            remarks = lint(run, *checked, limits=limits)
            findings = diagnose(summary(), run, limits, remarks)
        if not live:
            kept.put(json.dumps({"remarks": _fields(remarks), "findings": _fields(findings)}, default=float).encode())
    return JudgedRun(remarks, findings, checked)


def _checked(run: Run, summary: Callable[[], StepSummary], tokens: int) -> FirstLast:
    """All steps, or the latest ones with so many tokens."""
    if is_small(run):
        return None, None
    n_tokens = summary().values["n_tokens"]
    if not n_tokens.sum() > tokens:
        return None, None
    first, last = Window.of(run).latest(n_tokens, tokens).steps
    return first, last if run.status == "running" else None


def _kept(run: Run, limits: Limits, checked: FirstLast) -> Entry:
    files = (file.identity for files in run.files.values() for file in files)
    manifest = {key: value for key, value in asdict(run.manifest).items() if key != "heartbeat"}
    settings = (json.dumps(part, sort_keys=True) for part in (manifest, asdict(limits), checked, run.problems))
    return entry_of("findings", *files, *settings)


def _read(contents: bytes, checked: FirstLast) -> JudgedRun:
    fields = json.loads(contents)
    remarks, findings = ([_finding(each) for each in fields[of]] for of in ("remarks", "findings"))
    return JudgedRun(remarks, findings, checked)


def _fields(of: Sequence[Finding]) -> list[dict[str, Any]]:
    return [asdict(each) for each in of]


def _finding(fields: dict[str, Any]) -> Finding:
    return Finding(
        **fields
        | {key: tuple(fields[key]) for key in ("steps", "columns")}
        | {
            "severity": Severity(fields["severity"]),
            "outcome": Outcome(fields["outcome"]),
            "wrong_rows": LeftOut(**fields["wrong_rows"]) if fields["wrong_rows"] else None,
            "examples": tuple(Example(*example) for example in fields["examples"]),
            "numbers": tuple(Number(**number | {"note": _note(number["note"])}) for number in fields["numbers"]),
        }
    )


def _note(fields: dict[str, str] | None) -> Note | None:
    return Note(Kind(fields["kind"]), fields["text"]) if fields else None
