"""Rules that turn a run into findings: what is wrong, how sure, why, what to change, where to look.

diagnose(summary)                                      # what the step summary alone can tell
diagnose(summary, run, limits_of(run.folder))         # and the tokens, with the project's limits

A rule is a function `Evidence -> Finding | None` in `RULES`, in the module of its question; its limits are fields
of `Limits`. A finding needs steps beyond their own noise, or a robust share of the steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan

from ratioscope.analysis.diagnosis import log
from ratioscope.analysis.diagnosis.absence import (
    ABSENCE,
    files_are_left_out,
    nothing_to_judge,
    run_ended_badly,
    run_has_diverged,
)
from ratioscope.analysis.diagnosis.clipping import clip_is_saturated, clip_never_binds
from ratioscope.analysis.diagnosis.collapse import reward_has_collapsed, reward_was_set_back, with_cause
from ratioscope.analysis.diagnosis.evidence import Evidence
from ratioscope.analysis.diagnosis.learning import entropy_has_collapsed, groups_have_no_signal
from ratioscope.analysis.diagnosis.regime import bias_dominates, variance_dominates
from ratioscope.analysis.diagnosis.sampler import sampler_does_not_follow
from ratioscope.analysis.diagnosis.staleness import kl_is_high, staleness_is_growing, staleness_is_high
from ratioscope.analysis.diagnosis.support import (
    denominator_is_wrong,
    engine_differs,
    support_is_truncated,
    survivors_are_biased,
)
from ratioscope.analysis.diagnosis.trust_region import trust_region_is_infeasible
from ratioscope.analysis.diagnosis.update import update_is_large
from ratioscope.analysis.diagnosis.weights import sample_has_collapsed, sequences_are_a_trap, tail_is_heavy
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.limits import Limits, limits_of, read_limits
from ratioscope.analysis.linter.remark import Remark
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary

__all__ = [
    "RULES",
    "Evidence",
    "Finding",
    "Number",
    "Rule",
    "Severity",
    "diagnose",
    "limits_of",
    "read_limits",
]

Rule = Callable[[Evidence], Finding | None]

# Causes before their consequences; a fall of what the run is for before the measures that may explain it.
RULES: dict[str, Rule] = {
    "nothing_to_judge": nothing_to_judge,
    "diverged": run_has_diverged,
    "files_left_out": files_are_left_out,
    "ended_badly": run_ended_badly,
    log.RULE: log.log_is_broken,
    "sampler_not_following": sampler_does_not_follow,
    "engine_mismatch": engine_differs,
    "denominator_wrong": denominator_is_wrong,
    "truncated_support": support_is_truncated,
    "survivor_bias": survivors_are_biased,
    "reward_collapse": reward_has_collapsed,
    "reward_setback": reward_was_set_back,
    "staleness_high": staleness_is_high,
    "staleness_growing": staleness_is_growing,
    "kl_high": kl_is_high,
    "bias_regime": bias_dominates,
    "update_large": update_is_large,
    "trust_region_infeasible": trust_region_is_infeasible,
    "heavy_tail": tail_is_heavy,
    "variance_regime": variance_dominates,
    "ess_collapse": sample_has_collapsed,
    "length_trap": sequences_are_a_trap,
    "clip_saturated": clip_is_saturated,
    "clip_zero": clip_never_binds,
    "zero_signal": groups_have_no_signal,
    "entropy_collapse": entropy_has_collapsed,
}

# A finding that is the cause of others, whose remedies would be the wrong ones.
EXPLAINS = {
    "sampler_not_following": {"engine_mismatch", "staleness_high", "staleness_growing", "kl_high", "bias_regime"}
}


def diagnose(
    summary: StepSummary, run: Run | None = None, limits: Limits = Limits(), remarks: Sequence[Remark] = ()
) -> list[Finding]:
    """All findings, worst first; among equals causes come before their consequences, as in `RULES`.

    Where the linter found the log broken, that is the only one, beside what is not there: the others would be about
    the damage.

    Args:
        run: where the summary is from: its manifest and tokens allow more rules.
        limits: that findings are measured against.
        remarks: what the linter says of the run.

    Raises:
        RatioscopeError: a file of the run cannot be read any more.
    """
    evidence = Evidence(summary, run, limits, remarks)
    found = {name: _known(finding) for name, rule in RULES.items() if (finding := rule(evidence)) is not None}
    explained = set().union(*(EXPLAINS.get(name, ()) for name in found))
    findings = [finding for name, finding in found.items() if name not in explained]
    findings.sort(key=lambda finding: -finding.severity)
    findings = [with_cause(finding, findings, evidence) for finding in findings]
    if log.RULE in found:
        absent = [finding for finding in findings if finding.rule in ABSENCE]
        findings = [*absent, log.held_back(found[log.RULE], len(findings) - 1 - len(absent))]
    return sorted(findings, key=lambda finding: -finding.severity)


def _known(finding: Finding) -> Finding:
    """Without the numbers that are not logged."""
    return replace(finding, numbers=tuple(number for number in finding.numbers if not isnan(number.value)))
