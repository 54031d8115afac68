"""A run in five sentences: is it healthy, where does off-policyness come from, bias or variance, trust, what to change.

for question, sentence in run_verdict(summary, findings, remarks, limits): ...
"""

from collections.abc import Sequence
from math import isfinite, isnan

import numpy as np

from ratioscope.analysis.findings import answers
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.regime import Concern, regime
from ratioscope.analysis.findings.staleness_form import staleness_metric
from ratioscope.analysis.linter.remark import Outcome, Remark
from ratioscope.analysis.linter.verdict import outcomes
from ratioscope.analysis.summary.summary import StepSummary

QUESTIONS = (
    "Is it healthy?",
    "Staleness, engine or update?",
    "Bias or variance?",
    "Can the numbers be trusted?",
    "What to change?",
)


def run_verdict(
    summary: StepSummary,
    findings: Sequence[Finding],
    remarks: Sequence[Remark],
    limits: Limits,
    whole: StepSummary | None = None,
) -> tuple[tuple[str, str], ...]:
    """Each of `QUESTIONS` with its answer, text as in the log.

    Args:
        summary: of the steps that the report is about.
        findings: of `diagnose`, worst first.
        remarks: of `lint`.
        limits: those of the run's project.
        whole: of all steps, which findings are about; default: `summary`.
    """
    if not len(summary.values):
        return ((QUESTIONS[0], "No step is on disk yet: there is nothing to say."),)
    sentences = (
        answers.overview(whole or summary, list(findings), limits),
        _origin(summary, limits),
        _failure_mode(summary, limits),
        _trust(summary, remarks),
        _change(findings),
    )
    return tuple(zip(QUESTIONS, sentences, strict=True))


def _origin(summary: StepSummary, limits: Limits) -> str:
    """What the path from the sampler to the new policy is made of."""
    key = staleness_metric(summary)
    means = summary.values[[key, "s_k_version", "s_k_engine", "u_k"]].mean()
    largest = summary.values[[key, "u_k"]].max()
    if isnan(means[key]):
        return "No step has a usable token, so the distance between sampler and policy is unknown."
    engine = means["s_k_engine"]
    if isnan(engine):
        parts, missing = {"staleness": means[key]}, ["engine and age cannot be told apart in this log"]
    else:
        parts, missing = {"the age of the data": means["s_k_version"], "the engine": engine}, []
    if isnan(means["u_k"]):
        missing.append("the new policy's log-probs are not logged")
    else:
        parts["the update"] = means["u_k"]
    whole = sum(parts.values())
    if not isfinite(whole):
        text = "A mean ratio is infinite, so what the path from the sampler to the new policy is made of cannot be told"
    elif whole == 0:
        text = "Sampler, policy and updated policy are the same"
    elif len(parts) == 1:
        text = f"All that can be seen of the path from the sampler to the new policy is {next(iter(parts))}"
    else:
        name = max(parts, key=lambda part: parts[part])
        text = f"{name[0].upper()}{name[1:]} makes up {parts[name] / whole:.0%} of the path from sampler to new policy"
    text += f"; staleness is at most {_short(largest[key])} (limit {limits.staleness:g})"
    if not isnan(largest["u_k"]):
        text += f", update drift at most {_short(largest['u_k'])} (limit {limits.update:g})"
    return f"{text}{''.join(f'; {reason}' for reason in missing)}."


def _failure_mode(summary: StepSummary, limits: Limits) -> str:
    """The regime, and where the tails leave it open."""
    found = regime(summary, limits)
    if found.concern is Concern.UNKNOWN:
        return "Cannot tell: no step has a usable token."
    distance = float(summary.values[staleness_metric(summary)].median())
    with np.errstate(over="ignore"):
        chi2 = float(np.expm1(summary.values[["log1p_chi2_seq", "log1p_chi2_seq_predicted"]].median().max()))
    doubtful, steps = _doubtful(summary, "log1p_chi2_seq")
    numbers = f"total variation {distance:.2g} (limit {limits.staleness:g})"
    numbers += f", χ² of whole responses {_short(chi2)} (limit {limits.chi2:g}), medians over the steps"
    if found.concern is Concern.BIAS:
        return f"Bias is the primary concern: {numbers}."
    if found.concern is Concern.VARIANCE:
        return f"Variance is the concern, which a trust region does not see: {numbers}."
    if doubtful > steps / 2:
        return (
            f"Bias is small; cannot tell whether variance is, because the tail is too heavy for a χ² of "
            f"whole responses in {doubtful} of {steps} steps: {numbers}."
        )
    return f"Neither is large: {numbers}."


def _trust(summary: StepSummary, remarks: Sequence[Remark]) -> str:
    """What the linter says, and in how many steps tails are too heavy."""
    checks = outcomes(remarks)
    passed = sum(outcome is Outcome.PASSED for outcome in checks.values())
    unknown = sum(outcome is Outcome.NOT_CHECKED for outcome in checks.values())
    problems = [remark for remark in remarks if remark.is_problem]
    counts = f"{passed} of {len(checks)} checks of the log passed"
    if any(problem.severity is Severity.CRITICAL for problem in problems):
        text = f"The log cannot be trusted as it is ({counts}): {problems[0].sentence.rstrip('.')}"
    elif problems:
        text = f"With care ({counts}): {problems[0].sentence.rstrip('.')}"
    elif 2 * unknown > len(checks):
        text = f"Cannot be told ({counts}, {unknown} could not look)"
    else:
        text = f"Nothing speaks against the log ({counts})"
    (first, steps), (second, _) = (_doubtful(summary, key) for key in ("ratio_mean", "chi2_token"))
    if first or second:
        text += (
            f"; tails that are too heavy, or cannot be judged, leave means of the ratio doubtful in {first} of {steps} "
            f"steps, squares (χ², effective sample size) in {second}"
        )
    return f"{text}."


def _doubtful(summary: StepSummary, key: str) -> tuple[int, int]:
    """In how many steps a metric is there and cannot be trusted, and in how many it is there."""
    known = summary.values[key].notna()
    return int((known & ~summary.trusted(key)).sum()), int(known.sum())


def _short(value: float) -> str:
    return "∞" if value == np.inf else f"{value:.2g}"


def _change(findings: Sequence[Finding]) -> str:
    grave = [finding for finding in findings if finding.severity > Severity.NOTICE]
    if grave:
        return grave[0].do
    if findings:
        return f"Nothing must change. Worth a thought: {findings[0].do.removeprefix('Nothing. ')}"
    return "Nothing: no rule has found anything."
