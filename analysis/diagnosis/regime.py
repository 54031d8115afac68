"""Bias or variance: which of the two off-policy data cost this run, by S1's table (`analysis.findings.regime`)."""

from math import isnan

from ratioscope.analysis.diagnosis.evidence import RunEvidence, share_text, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.facts import Concern, Facts
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.regime import log_chi2_of_responses


@rule("bias_regime", order=160, page="variance", group=Group.STALENESS, words="large bias")
def bias_dominates(evidence: RunEvidence) -> Finding | None:
    """Large total variation: the regime in which bias is the main concern (S1 6.2)."""
    found, level = evidence.regime, evidence.facts.staleness
    metric, limit, values = level.key, level.limit, evidence.values
    far = evidence.over(level)
    if found.concern is not Concern.BIAS or not evidence.often(far):
        return None
    worst = step_of(far.idxmax())
    length = values["response_length"].loc[far.index].mean()
    return Finding(
        severity=Severity.NOTICE,
        sentence=f"{found.size} It is clearly above that {share_text(far, evidence)}.",
        metric=metric,
        steps=steps_of(far),
        numbers=(
            evidence.number(metric, worst, "worst"),
            evidence.median("log1p_chi2_seq", far.index),
            evidence.median("response_length", far.index),
        ),
        why=found.origin + _of_prefixes(evidence, length),
        do=found.remedy,
        source=found.source,
        limit=limit,
    )


def _of_prefixes(evidence: RunEvidence, length: float) -> str:
    """What weights of tokens leave; nothing of a loss that has others, or none."""
    if evidence.setup.weighted is False or evidence.setup.level not in ("", "token"):
        return ""
    return f" Token ratios correct the choice of a token, not its prefix: a bias that grows with T² (T = {length:.0f})."


@rule("variance_regime", order=200, page="variance", group=Group.TAILS, words="large variance", another_rule=True)
def variance_dominates(evidence: RunEvidence) -> Finding | None:
    """Small total variation with a large chi-square: what a trust region in TV or KL cannot see (S1 4.3).

    A warning where the loss pays for it: it multiplies by ratios of whole responses, or by those of tokens and these
    are beyond the limit as well.
    """
    found, limit = evidence.regime, evidence.limits.log_chi2
    log_chi2 = log_chi2_of_responses(evidence.values)
    large = log_chi2[log_chi2 > limit]
    if found.concern is not Concern.VARIANCE or not evidence.often(large):
        return None
    of_tokens = evidence.above("chi2_token", evidence.limits.chi2)
    pays = evidence.weighted and (evidence.setup.level == "sequence" or evidence.often(of_tokens))
    return Finding(
        severity=Severity.WARNING if pays else Severity.NOTICE,
        sentence=found.size,
        metric="log1p_chi2_seq",
        steps=steps_of(large),
        numbers=(
            evidence.median("log1p_chi2_seq", large.index),
            evidence.median("log1p_chi2_seq_predicted", large.index),
            evidence.median("chi2_token", large.index),
            evidence.median("top1pct_share", large.index),
        ),
        why=_where_from(evidence.facts) + _of_loss(evidence, pays),
        do=found.remedy + " High variance forces the learning rate down in proportion." * pays,
        source=f"{found.source}; verl, documented health limits of rollout correction",
        limit=limit,
    )


def _where_from(facts: Facts) -> str:
    share = facts.medians["top1pct_share"]
    if facts.few_dominate:
        return (
            f"The top 1% of the tokens carries {percent(share)} of Σρ² (median): large ratios of few tokens "
            "raise the variance and change total variation little."
        )
    length = facts.medians["response_length"]
    over = "" if isnan(length) else f" of {length:.0f} tokens (median)"
    return f"Moderate ratios of tokens multiply over a response{over}: χ² of a product grows like (1 + χ²)^T."


def _of_loss(evidence: RunEvidence, pays: bool) -> str:
    setup = evidence.setup
    if pays:
        return ""
    if setup.weighted is False:
        return " This loss multiplies by no ratio; one that does would have that variance."
    if setup.bounded:
        return setup.bounded_words
    if setup.weight is None:
        return " Ratios of single tokens have a χ² that is mostly below the limit: their products pay for it."
    if setup.level == "geometric":
        return " This loss multiplies by geometric means, not by products."
    return " This loss multiplies by ratios of tokens, whose own χ² is mostly below the limit, and not by products."
