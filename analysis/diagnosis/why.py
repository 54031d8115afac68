"""Which causes were looked for and which of their signs the log shows: the table behind what findings name.

for family in why(run, None, None, limits):
    family["family"], family["causes"][0]["words"], family["causes"][0]["marks"]
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.findings.cause import CAUSES, Family, table
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.mark import Presence
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import summarise

_OF_THE_RUN = (Family.FALL, Family.STALL)
"""Families whose marks are read from the step summary; those of the others are read from tokens."""
SIGNS = {Presence.PRESENT: "✓", Presence.ABSENT: "✗", Presence.NOT_LOGGED: "–", Presence.TOO_LITTLE: "–"}
"""How the look for a mark ended, in one sign."""
_ROLES = {"requires": "needed", "supports": "for", "refutes": "would rule it out"}


def why(run: Run, first: int | None, last: int | None, limits: Limits) -> list[dict[str, Any]]:
    """Families with their causes, the likeliest first, and the marks of each.

    Args:
        run: from `open_run`.
        first, last: the steps whose tokens are read; both included, None is the first or last there is.

    Raises:
        RatioscopeError: a file of the run cannot be read any more.
    """
    declared = {cause.family for cause in CAUSES.values()}
    of_run = RunEvidence(summarise(run), run, limits)
    # The causes of wrong rows are seen where these are.
    with relations(replace(run, left_out=()), first, last) as connection:
        of_log = LogEvidence(run, connection, first, last, limits)
        tables = {
            family: table(family, of_run if family in _OF_THE_RUN else of_log)
            for family in Family
            if family in declared and (family in _OF_THE_RUN or of_log.n_rows)
        }
    return [{"family": family.value, "causes": causes} for family, causes in tables.items()]


def speaking(causes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The causes that a mark which is present speaks for."""
    return [
        cause
        for cause in causes
        if any(mark["presence"] == Presence.PRESENT and mark["role"] != "refutes" for mark in cause["marks"])
    ]


def mark_words(mark: dict[str, Any]) -> str:
    """A mark with its sign, what it is to the cause, and what the log shows; the text may quote the log."""
    presence = Presence(mark["presence"])
    why_not = f" ({presence.value})" if SIGNS[presence] == "–" else ""
    role = "rules it out" if mark["role"] == "refutes" and presence is Presence.PRESENT else _ROLES[mark["role"]]
    return f"{SIGNS[presence]} {role}: {mark['clause']}{why_not}"


def no_sign(n_causes: int, n_speaking: int) -> str:
    """How many causes were looked for without a sign."""
    others = n_causes - n_speaking
    return f"No sign of {others} {'other ' if n_speaking else ''}cause{'s' * (others != 1)}."


def why_text(tables: Sequence[dict[str, Any]]) -> str:
    """The causes that a mark speaks for, with all of their marks; the others are counted."""
    lines = []
    for family in tables:
        found = speaking(family["causes"])
        lines.append(f"Causes: {family['family']}")
        for cause in found:
            lines.append(f"  {'✓' if cause['stands'] else '✗'} {cause['words']} (score {cause['score']:g})")
            lines += [f"      {mark_words(mark)}" for mark in cause["marks"]]
        lines.append(f"  {no_sign(len(family['causes']), len(found))}")
    return "\n".join(lines) or "No cause was looked for: there are no tokens."
