"""Is logp_behavior the probability with which tokens were drawn: what no ratio can see, because ratios believe it.

Two tests, both of which are 0 on average for the right log-probabilities, whatever the age of the data. A second
response in the same state draws the first one's token with probability p: the share of equal tokens minus exp(b). And
the entropy of the current policy is the mean of its -log p over its own tokens: rho * (-logp_current - entropy).
"""

import numpy as np

from ratioscope.analysis.findings.finding import Finding, Outcome, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.setup import TRUNCATION, unusual
from ratioscope.analysis.linter.alignment import FEW, MANY, shifted
from ratioscope.analysis.linter.check import RATIO, STATES, check
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.own_token import own_token
from ratioscope.analysis.linter.responses import of_another_branch, repeated
from ratioscope.analysis.linter.sample import Floats
from ratioscope.analysis.linter.signatures import truncated_support
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.zeros import zero_filled
from ratioscope.run_format import schema

# Healthy logs stay within 3; raw log-probabilities of a tempered sampler reach 30 to 120.
LARGEST_Z = 5.0
# Nats, and probability: less than this changes no ratio that matters.
LEAST_NATS, LEAST_EXCESS = 0.01, 0.005
FEWEST_GROUPS = 8
# Share of a mean that one prompt group may carry: its few large ratios may be chance.
_LARGEST_GROUP = 0.25
# Nats of -logp_current for a nat of entropy: 1, and about 0 where entropies stand at other tokens.
LEAST_SLOPE = 0.5

_PROCESSED = "Log the probabilities that the sampler drew with (vLLM: logprobs_mode = processed_logprobs)"


def _decoding(evidence: LogEvidence) -> str:
    """The sampler's decoding that the manifest states, "temperature 0.7, top_p 0.9"; empty: it is the plain policy."""
    return unusual(evidence.run.manifest.sampler, {"temperature": 1.0, **TRUNCATION})


def _raw(evidence: LogEvidence) -> str:
    """What to log in place of what the tokens were not drawn with."""
    if _decoding(evidence):
        return f"{_PROCESSED}, or sample at temperature 1 without truncation."
    return f"{_PROCESSED}, and state temperature, top_k and top_p of the sampler in the manifest."


@check(order=210, needs=(*STATES, ("logp_behavior",)), page="ratios")
def drawn_as_logged(evidence: LogEvidence) -> list[Finding]:
    """Tokens of a shared state repeat as often as logp_behavior says: it is what they were drawn with."""
    sample = evidence.sample
    keep = _complete(evidence)
    drawn = evidence.drawn.get("logp_behavior")
    if drawn is None or not (np.isfinite(drawn.varying) or np.isfinite(drawn.crowded)):
        return not_checked("Too few groups have responses that share a state: first tokens, say, of one prompt.")
    if drawn.varying > FEW:
        return not_checked("In one state a token has several values of logp_behavior: states cannot be compared.")
    other = evidence.problems(repeated, zero_filled, constant_columns)
    if other:
        return not_checked(f"Tokens or their probabilities are wrong for another reason: {', '.join(other)}.")
    if drawn.crowded > MANY:
        return not_checked("The probabilities of a state add up to more than 1: see scale.")
    if not keep.any():
        return not_checked(
            "Responses or tokens were dropped in every step: the rest is no sample of the sampler's policy."
        )
    found = sample.collisions("logp_behavior", keep)
    numbers = (
        estimated("share of repeated tokens, measured minus logged", found.excess),
        estimated("z", found.z),
        estimated("tokens in shared states", found.n),
    )
    groups = len(np.unique(sample.group[keep]))
    if groups < FEWEST_GROUPS or not np.isfinite(found.z):
        return not_checked(f"Fewer than {FEWEST_GROUPS} prompt groups share states and dropped nothing.")
    if abs(found.z) < LARGEST_Z or abs(found.excess) < LEAST_EXCESS:
        return passed(
            f"In {found.n:,} tokens of shared states a token repeats as often as logp_behavior says "
            f"({percent(found.expected)} expected, {percent(found.expected + found.excess)} seen, z {found.z:.1f}).",
            *numbers,
        )
    more = "more" if found.excess > 0 else "less"
    sharp = "sharper" if found.excess > 0 else "flatter"
    stated = _decoding(evidence)
    why = f"the sampler's distribution is {sharp} than what was logged"
    why += f", as raw log-probabilities of a sampler with {stated} are" if stated else ""
    return [
        Finding(
            f"Tokens were not drawn with logp_behavior: {why}. In shared states a token repeats in "
            f"{percent(found.expected + found.excess)} of the cases, {more} than the {percent(found.expected)} it says "
            f"(z {found.z:.0f}).",
            Severity.CRITICAL,
            _raw(evidence),
            numbers,
            evidence.all_steps,
            ("logp_behavior",),
        )
    ]


def _complete(evidence: LogEvidence) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The usable rows of steps in which nothing was dropped after sampling, (n_rows,)."""
    sample, responses = evidence.sample, evidence.responses
    counted = evidence.steps.set_index("step")[[*schema.DROPPED]].fillna(0).sum(axis=1)
    partly = {*counted.index[counted > 0], *responses["step"][responses["dropped"].notna()]}
    rows = sample.rows
    once = ~of_another_branch(evidence)
    return rows["invalid"].isna().to_numpy() & ~rows["step"].isin(partly).to_numpy() & sample.follows_all & once


@check(order=220, needs=(("entropy",), *RATIO))
def entropy_agrees(evidence: LogEvidence) -> list[Finding]:
    """The entropy is the mean of -logp_current over tokens of the current policy, in states of large and small ones."""
    sample = evidence.sample
    entropy, current = sample.column("entropy"), sample.column("logp_current")
    entropy = np.where(entropy >= -LEAST_NATS, entropy, np.nan)
    known = _complete(evidence) & np.isfinite(entropy) & np.isfinite(current) & np.isfinite(sample.sampled)
    groups = len(np.unique(sample.group[known]))
    if not np.isfinite(entropy).any():
        return not_checked("No possible entropy is logged.")
    if groups < FEWEST_GROUPS:
        return not_checked(f"Fewer than {FEWEST_GROUPS} prompt groups log it and dropped nothing.")
    with np.errstate(over="ignore"):
        rho = np.exp(current - sample.sampled)[known]
    surprise, level = rho * -current[known], rho * entropy[known]
    z, mean = sample.z(surprise - level, sample.group[known]), float((surprise - level).mean())
    ratio = float(surprise.sum() / level.sum()) if level.sum() > 0 else float("inf")
    numbers = (
        estimated("mean of ratio × (-logp_current - entropy), nats", mean),
        estimated("z", z),
        estimated("mean of -logp_current over mean entropy", ratio),
    )
    by_group = np.bincount(sample.group[known], surprise - level)
    if (
        abs(z) >= LARGEST_Z
        and abs(mean) >= LEAST_NATS
        and np.abs(by_group).max() > _LARGEST_GROUP * abs(by_group.sum())
    ):
        return not_checked(
            f"Entropy and -logp_current differ by {number(mean)} nats, but one prompt group carries most of that.",
        )
    if not abs(z) >= LARGEST_Z or abs(mean) < LEAST_NATS:
        if apart := _at_other_tokens(evidence, known, rho):
            return [apart]
        allowed = f"; up to {LEAST_NATS:g} is allowed" if abs(mean) < LEAST_NATS else ""
        return passed(
            f"Entropy and -logp_current agree: they differ by {number(mean)} nats (z {z:.1f}){allowed}.", *numbers
        )
    columns = evidence.problems(zero_filled, constant_columns, shifted, own_token)
    if columns or evidence.found(truncated_support):
        return not_checked(
            "The ratios are wrong for another reason: see the checks of the columns, or truncated support."
        )
    by_drawing = evidence.remarks(drawn_as_logged)[0]
    blamed: tuple[str, ...] = ("logp_behavior",)
    remedy = _raw(evidence)
    if by_drawing.outcome is Outcome.FOUND:
        severity = Severity.CRITICAL
        cause = "the tokens are no sample of logp_behavior"
    elif by_drawing.outcome is Outcome.PASSED:
        severity = Severity.WARNING
        blamed, cause, remedy = _entropy_or_draw(current[known], sample.sampled[known], entropy[known])
    else:
        blamed, severity = ("logp_behavior", "entropy", "logp_current"), Severity.CRITICAL
        cause = "whether entropy or log-probabilities are wrong is unknown, because too few responses share a state"
    return [
        Finding(
            f"The sampled tokens are {'more' if mean > 0 else 'less'} surprising than the entropy says: -logp_current "
            f"is {number(ratio)} × the entropy, where both should be equal (z {z:.0f}): {cause}.",
            severity,
            remedy,
            numbers,
            evidence.all_steps,
            blamed,
        )
    ]


def _entropy_or_draw(current: Floats, sampled: Floats, entropy: Floats) -> tuple[tuple[str, ...], str, str]:
    """What is wrong where tokens repeat as logp_behavior says, which a small change of the draw hardly moves.

    A distribution with a token of probability p has at least the entropy of the two outcomes p and 1 - p.

    Returns:
        The columns to blame, the cause as a clause, and the remedy.
    """
    p = np.exp(np.minimum(current, 0.0))
    rest = np.maximum(1 - p, np.finfo(float).tiny)
    least = -p * np.minimum(current, 0.0) - rest * np.log(rest)
    impossible = float((entropy < least - LEAST_NATS).mean())
    if impossible > FEW:
        return (
            ("entropy", "logp_current"),
            f"in {percent(impossible)} of the tokens no distribution with their probability has so small an entropy, "
            "which is of another policy or unit",
            "Compute entropy and logp_current in one forward pass, in nats.",
        )
    if float(np.abs(current - sampled).mean()) <= LEAST_NATS:
        blamed: tuple[str, ...] = ("logp_behavior", "entropy")
        cause = "logp_behavior and logp_current agree, so that tokens were not drawn from them or the entropy is wrong"
    else:
        blamed = ("logp_behavior", "entropy", "logp_current")
        cause = "tokens were not drawn from logp_behavior, or logp_current or the entropy is wrong"
    return (
        blamed,
        cause,
        "Recompute entropies of a few states from their logits. Where they are right, look at how tokens are chosen: "
        "accepted drafts, penalties, tokens that are forbidden.",
    )


def _at_other_tokens(
    evidence: LogEvidence, known: np.ndarray[tuple[int], np.dtype[np.bool_]], rho: Floats
) -> Finding | None:
    """Entropies that have the right mean and are those of other states: where they are larger, tokens surprise no more.

    rho * (-logp_current - entropy) is 0 on average in every state, and so is its product with the entropy.
    """
    sample = evidence.sample
    entropy, surprise = sample.column("entropy")[known], -sample.column("logp_current")[known]
    above = entropy - entropy.mean()
    spread = float((rho * entropy * above).sum())
    slope = float((rho * surprise * above).sum()) / spread if spread > 0 else float("nan")
    z = sample.z(rho * (surprise - entropy) * above, sample.group[known])
    if not slope < LEAST_SLOPE or not z <= -LARGEST_Z:
        return None
    if evidence.problems(zero_filled, constant_columns, shifted, own_token) or evidence.found(truncated_support):
        return None
    return Finding(
        f"The entropy is that of other tokens: where it is a nat larger, -logp_current is {number(slope)} nats larger, "
        f"where both should grow alike (z {z:.0f}).",
        Severity.WARNING,
        "Put entropies back in the order of the responses, as is done with log-probabilities after dynamic batching.",
        (estimated("-logp_current for a nat of entropy, nats", slope), estimated("z", z)),
        evidence.all_steps,
        ("entropy",),
    )
