"""Rules that turn a run into findings: what is wrong, how sure, why, what to change, where to look.

diagnose(summary)                                      # what the step summary alone can tell
diagnose(summary, run, limits_of(run.folder))         # and the tokens, with the project's limits

A rule is a function `RunEvidence -> Finding | None` in the module of its question, declared there by `@rule`; its
limits are fields of `Limits`. A finding needs steps beyond their own noise, or a robust share of the steps.
"""

from collections.abc import Sequence

from ratioscope.analysis.diagnosis import (
    absence,
    clipping,
    decided,
    drop,
    environments,
    evaluation,
    exchangeable,
    jump,
    learning,
    log,
    recurring,
    regime,
    relative,
    sampler,
    staleness,
    stalled,
    support,
    temperature,
    trust_region,
    update,
    weights,
)
from ratioscope.analysis.diagnosis.collapse import with_cause
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.rule import RULES, FindingRule
from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.limits import Limits, limits_of, read_limits
from ratioscope.analysis.linter import rest_of
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary, summarise

__all__ = [
    "RULES",
    "Finding",
    "FindingRule",
    "Number",
    "RunEvidence",
    "Severity",
    "diagnose",
    "limits_of",
    "read_limits",
]

# Importing a module declares its rules.
_MODULES = (
    absence,
    clipping,
    decided,
    drop,
    environments,
    evaluation,
    exchangeable,
    jump,
    learning,
    log,
    recurring,
    regime,
    relative,
    sampler,
    staleness,
    stalled,
    support,
    temperature,
    trust_region,
    update,
    weights,
)


def diagnose(
    summary: StepSummary, run: Run | None = None, limits: Limits = Limits(), remarks: Sequence[Finding] = ()
) -> list[Finding]:
    """All findings, worst first; among equals causes come before their consequences, as in `RULES`.

    Those that rest on columns which the linter found broken are held back: they would be about the damage. Where it
    named the rows that are wrong, the run is judged without these, which one of the findings says.

    Args:
        run: where the summary is from: its manifest and tokens allow more rules.
        limits: that findings are measured against.
        remarks: what the linter says of the run.

    Raises:
        RatioscopeError: a file of the run cannot be read any more.
    """
    if run is not None and (rest := rest_of(run, remarks)).left_out != run.left_out:
        run, summary = rest, summarise(rest)
    evidence = RunEvidence(summary, run, limits, remarks)
    found = {name: finding for name, rule in RULES.items() if (finding := rule(evidence)) is not None}
    causes = [CAUSES[remark.of_cause] for remark in remarks if remark.of_cause and remark.wrong_rows is None]
    explained = frozenset[str]().union(*(RULES[name].explains for name in found), *(each.explains for each in causes))
    findings = [finding for name, finding in found.items() if name not in explained]
    findings.sort(key=lambda finding: -finding.severity)
    findings = log.undamaged(findings, evidence)
    findings = [log.without_cause(with_cause(finding, findings, evidence), evidence) for finding in findings]
    return sorted(findings, key=lambda finding: -finding.severity)
