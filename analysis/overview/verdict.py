"""A run in five sentences: is it healthy, where does off-policyness come from, bias or variance, trust, what to change.

for question, sentence in run_verdict(summary, findings, remarks, limits): ...
"""

from collections.abc import Sequence

from ratioscope.analysis.diagnosis.absence import not_seen
from ratioscope.analysis.findings.facts import Concern, Facts, facts_of, unreliable_steps
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import of_log1p
from ratioscope.analysis.findings.setup import UNKNOWN, Setup
from ratioscope.analysis.findings.words import (
    at_most,
    chi2_source,
    largest_part,
    tv_text,
    what_is_missing,
    why_not_age,
)
from ratioscope.analysis.linter.remark import Outcome, Remark
from ratioscope.analysis.linter.verdict import outcomes
from ratioscope.analysis.overview.sentences import headline
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
    first: int | None = None,
    last: int | None = None,
    setup: Setup = UNKNOWN,
) -> tuple[tuple[str, str], ...]:
    """Each of `QUESTIONS` with its answer, text as in the log.

    Args:
        summary: of the whole run, which findings are about.
        findings: of `diagnose`, worst first.
        remarks: of `lint`.
        limits: those of the run's project.
        first, last: the steps that the report is about, both included; None is the first or last there is.
        setup: what was run.
    """
    inside, facts = summary.up_to(first, last), facts_of(summary, limits, first, last)
    if not facts.n_steps:
        return ((QUESTIONS[0], headline(inside, facts, findings)),)
    sentences = (
        headline(summary, facts_of(summary, limits), findings, remarks),
        _origin(facts),
        failure_mode(facts, setup),
        _trust(inside, facts, remarks),
        _change(findings, facts, remarks),
    )
    return tuple(zip(QUESTIONS, sentences, strict=True))


def _origin(facts: Facts) -> str:
    """What the path from the sampler to the new policy is made of."""
    if not facts.path.parts:
        return f"The distance between sampler and policy is unknown: {facts.unknown}."
    clauses = [largest_part(facts), at_most("staleness is", facts.staleness)]
    if facts.update.n_known:
        clauses.append(at_most("update drift is", facts.update))
    return "; ".join(filter(None, (*clauses, why_not_age(facts), *what_is_missing(facts)))) + "."


def failure_mode(facts: Facts, setup: Setup) -> str:
    """Bias or variance, for what was run, and where the tails leave it open."""
    if facts.concern is Concern.UNKNOWN:
        return f"Cannot tell: {facts.unknown}."
    limits, level = facts.limits, facts.staleness
    numbers = f"total variation {tv_text(level.median)} (limit {level.limit:g})"
    numbers += f", χ² of whole responses {of_log1p(facts.log_chi2)} ({chi2_source(facts)}; limit {limits.chi2:g}), "
    numbers += "medians over the steps"
    if facts.concern is Concern.BIAS:
        return f"Bias is the primary concern: {numbers}."
    if setup.weighted is False:
        return (
            "This loss multiplies by no ratio, so all of its mismatch is bias, which is below its limit in the median "
            f"step: {numbers}."
        )
    if facts.concern is Concern.VARIANCE:
        return f"Variance is the concern, which a trust region does not see: {numbers}."
    if facts.variance_is_open:
        return (
            f"Bias is small; cannot tell whether variance is, because the χ² of whole responses rests on "
            f"the largest ratio in {facts.n_open_chi2} of {facts.n_chi2} steps and may be above its limit there: "
            f"{numbers}."
        )
    if facts.n_infinite_chi2:
        return (
            f"Bias is small; cannot tell whether variance is, because from full distributions the χ² is infinite in "
            f"{facts.n_infinite_chi2} of {facts.n_exact_chi2} steps: {numbers}."
        )
    return f"Neither is large: {numbers}."


def _trust(summary: StepSummary, facts: Facts, remarks: Sequence[Remark]) -> str:
    """What the linter says, in how many steps tails are too heavy, and what is not logged."""
    checks = outcomes(remarks)
    passed = sum(outcome is Outcome.PASSED for outcome in checks.values())
    unknown = sum(outcome is Outcome.NOT_CHECKED for outcome in checks.values())
    problems = [remark for remark in remarks if remark.is_problem]
    noticed = sum(any(one.severity and one.check == check for one in remarks) for check in checks)
    asides = [f"{noticed} with a remark" * bool(noticed), f"{unknown} could not run" * bool(unknown)]
    counts = ", ".join(filter(None, (f"{passed} of {len(checks)} checks of the log passed", *asides)))
    if any(problem.severity is Severity.CRITICAL for problem in problems):
        text = f"The log cannot be trusted as it is ({counts}): {problems[0].sentence.rstrip('.')}"
    elif problems:
        text = f"With care ({counts}): {problems[0].sentence.rstrip('.')}"
    elif 2 * unknown > len(checks):
        text = f"Unknown ({counts})"
    else:
        text = f"No check found a problem in the log ({counts})"
    counts_of = {words: unreliable_steps(summary, key) for words, key in _MOMENTS.items()}
    told = [f"{words} in {n} of {of} steps" for words, (n, of) in counts_of.items() if n]
    if told:
        text += f"; unreliable are {' and '.join(told)}"
    unseen = not_seen(summary, facts)
    return f"{text}." + (f" Not logged, so not judged: {'; '.join(unseen)}." if unseen else "")


# What is counted is that of a metric for each moment of the ratio.
_MOMENTS = {"means of the ratio": "ratio_mean", "squares of the ratio (χ², effective sample size)": "chi2_token"}


def _change(findings: Sequence[Finding], facts: Facts, remarks: Sequence[Remark]) -> str:
    grave = [finding for finding in findings if finding.severity > Severity.NOTICE]
    if grave:
        return grave[0].do
    doubts = [remark for remark in remarks if remark.is_problem]
    if doubts:
        return doubts[0].do
    if findings:
        return f"Nothing needs to change. Consider: {findings[0].do.removeprefix('Nothing. ')}"
    if not facts.staleness.n_known:
        return f"Cannot tell: {facts.unknown}."
    return "Nothing: no rule has found anything."
