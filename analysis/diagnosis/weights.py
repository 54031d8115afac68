"""What the importance weights cost: heavy tails, effective sample size, sequence products (S1 4.2, 7)."""

import numpy as np

from ratioscope.analysis.diagnosis.evidence import RunEvidence, share_text, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.facts import Concern, heavy_tails
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.catalogue import CATALOGUE

_KEEP = "Keep to ratios of tokens. "


@rule("heavy_tail", order=190, page="ratios", group=Group.TAILS, another_rule=True)
def tail_is_heavy(evidence: RunEvidence) -> Finding | None:
    """k-hat of the token ratios beyond its limit, where the tail carries weight (`docs/metrics.md`, tails)."""
    limit, values = evidence.limits.khat, evidence.values
    share_of_top = values["top1pct_share"]
    excess = heavy_tails(evidence.summary, evidence.limits)
    if not evidence.often(excess):
        return None
    return Finding(
        severity=_cost(evidence),
        sentence=f"The ratios have a heavy tail {share_text(excess, evidence)}: 1% of the tokens carries "
        f"{percent(share_of_top.loc[excess.index].median())} of Σρ² there (median).",
        metric="khat_token",
        steps=steps_of(excess),
        numbers=(
            Number("largest tail index", float(excess.max())),
            Number(
                "share of Σρ² in the top 1% of tokens, median of these steps",
                float(share_of_top.loc[excess.index].median()),
                key="top1pct_share",
            ),
            Number("largest ratio", float(values["ratio_max"].loc[excess.index].max())),
        ),
        why=f"The policy gives some tokens up to {number(float(values['ratio_max'].loc[excess.index].max()))} × the "
        "probability that the sampler gave them."
        + (" Total variation does not show it." if evidence.facts.is_small else "")
        + " This loss multiplies by no ratio: what suffers are the numbers that describe it."
        * (evidence.setup.weighted is False),
        do=evidence.setup.lighter(evidence.facts)
        + " Read the bounded staleness, which no tail can distort; ignore χ² and effective sample "
        "size in these steps.",
        source=CATALOGUE["khat_token"].source,
        limit=limit,
    )


def _cost(evidence: RunEvidence) -> Severity:
    """Of a heavy tail: what it does to a loss that multiplies by the ratio, and whether it leaves it a sample."""
    if not evidence.weighted:
        return Severity.NOTICE
    return Severity.CRITICAL if evidence.often(evidence.below("ess_token", evidence.limits.ess)) else Severity.WARNING


@rule("ess_collapse", order=210, page="ratios", group=Group.TAILS, words="few effective samples", another_rule=True)
def sample_has_collapsed(evidence: RunEvidence) -> Finding | None:
    """Effective sample size of the token ratios below verl's limit.

    Where it is unreliable the value counts all the same: what the sample has not seen lowers it further.
    """
    limit = evidence.limits.ess
    few = evidence.below("ess_token", limit)
    if not evidence.often(few):
        return None
    worst = step_of(few.idxmin())
    weighted = evidence.weighted
    return Finding(
        severity=Severity.WARNING if weighted else Severity.NOTICE,
        sentence=f"Importance weights leave less than {percent(limit)} of the tokens effective "
        f"{share_text(few, evidence)}, down to {percent(few.min())} in step {worst}.",
        metric="ess_token",
        steps=steps_of(few),
        numbers=(evidence.number("ess_token", worst, "worst"), evidence.latest("ess_token")),
        why="The weights are so uneven that most tokens hardly count in a weighted mean."
        + " This loss does not weight by the ratio, so it says how far off-policy the data are."
        * (evidence.setup.weighted is False),
        do=evidence.setup.lighter(evidence.facts) + " A larger batch only helps in proportion." * weighted,
        source="Kish; verl, documented health limits of rollout correction",
        limit=limit,
    )


@rule(
    "length_trap", order=220, page="ratios", group=Group.TAILS, words="product over long responses", another_rule=True
)
def sequences_are_a_trap(evidence: RunEvidence) -> Finding | None:
    """Token ratios are fine, their products over a response are not (S1 7).

    Either the sample shows it, or the product of independent tokens would need more responses than a step has: then
    the measured value only looks well because the sample cannot see the tail.
    """
    limit, values = evidence.limits.ess, evidence.values
    seen = values["ess_seq"] < limit
    responses = values["n_sequences"].where(values["n_sequences"] > 1)  # one response has nothing to differ from
    unseen = values["log1p_chi2_seq_predicted"] > np.log(responses)
    trap = values["ess_seq"][(seen | unseen) & (values["ess_token"] >= limit)].dropna()
    if not evidence.often(trap):
        return None
    worst = step_of(trap.idxmin())
    uses_them = evidence.setup.level == "sequence" and evidence.weighted
    length = values["response_length"].loc[trap.index].mean()
    return Finding(
        severity=Severity.WARNING if uses_them else Severity.NOTICE,
        sentence=(
            f"Weights of whole responses leave {percent(trap.median())} of the responses effective (median) "
            f"{share_text(trap, evidence)}, where weights of tokens leave "
            if (trap < limit).any()
            else "The products of the token ratios spread so far that a step has too few responses to show it "
            f"{share_text(trap, evidence)}. The {percent(trap.median())} that seem effective (median) prove nothing. "
            "Weights of tokens leave "
        )
        + f"{percent(values['ess_token'].loc[trap.index].median())} of the tokens.",
        metric="ess_seq",
        steps=steps_of(trap),
        numbers=(
            evidence.number("ess_seq", worst, "worst"),
            evidence.median("ess_seq", trap.index),
            evidence.median("ess_token", trap.index),
        ),
        why=f"χ² of a product grows like (1 + χ²)^T, with T = {length:.0f} tokens here."
        + evidence.setup.bounded_words * evidence.setup.multiplies,
        do="Use token ratios, the geometric mean (GSPO), or a truncated product."
        if uses_them
        else "Nothing, while the weight stays bounded."
        if evidence.setup.bounded and evidence.setup.multiplies
        else _before_sequence_ratios(evidence),
        source="S1 4.2, 7; verl, documented health limits of rollout correction",
        limit=limit,
    )


def _before_sequence_ratios(evidence: RunEvidence) -> str:
    """For a loss that multiplies by no product of ratios; of a bias `regime` says that truncated products remove it."""
    biased = evidence.facts.concern is Concern.BIAS
    opening = (
        "Nothing: this loss multiplies by no such product. "
        if evidence.setup.weighted is False
        else _KEEP * (not biased)
    )
    which = "untruncated sequence ratios (seq_is)" if biased else "sequence ratios (seq_is, seq_tis)"
    return f"{opening}In place of {which} take the geometric mean (GSPO)."
