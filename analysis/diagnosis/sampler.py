"""Whether the sampler is the version that the log says: it has to follow the policy (S0 4.6)."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, share_text, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.facts import Cause
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.findings.words import tv_text
from ratioscope.analysis.staleness.following import FACTOR, Following

_MOST = 0.5
_FEWEST_SYNCS = 3
_CHECKSUM = "Compare a checksum of the sampler's weights with the trainer's after a sync. "
_RECOMPUTE = (
    "Log logp_behavior_train (the sampling version, recomputed by the trainer): if it equals logp_current, the engine "
    "or its weights differ; if not, the version is wrong. "
)
_LOOK = "See whether staleness falls at a sync, and whether logp_behavior equals the initial policy's."


@rule("mismatch_cause", order=57, page="engine", group=Group.STALENESS, of_the_sampler=True)
def mismatch_has_a_cause(evidence: RunEvidence) -> Finding | None:
    """A cause of the mismatch that the linter found the signs of: a server, prompts, a cache, a rounded update."""
    found = [remark for remark in evidence.remarks if remark.rule == "mismatch_cause" and remark.of_cause]
    if not found:
        return None
    known = evidence.values[Cause.ENGINE.key].notna().any()
    return replace(
        found[0],
        metric=Cause.ENGINE.key if known else "s_k_bounded",
        limit=evidence.limits.engine,
        columns=(),
        examples=(),
    )


@rule(
    "sampler_not_following",
    order=60,
    page="staleness",
    of_the_sampler=True,
    group=Group.STALENESS,
    explains=("engine_mismatch", "staleness_high", "staleness_growing", "kl_high", "bias_regime"),
)
def sampler_does_not_follow(evidence: RunEvidence) -> Finding | None:
    """Staleness far beyond what the logged updates over the reported lag explain.

    Critical where it has grown from a small level: an engine's difference is there from the first step on.
    """
    if not evidence.facts.engine_in_ratios:
        return None
    for found in evidence.following:
        if len(found.excess) >= evidence.least(found.n_known):
            return _finding(evidence, found, found.excess, Severity.CRITICAL)
    for found in evidence.following:
        if len(found.idle) >= max(_FEWEST_SYNCS, _MOST * found.n_syncs):
            return _finding(evidence, found, found.idle, Severity.CRITICAL)
    for found in evidence.following:
        # Where the sampling version is recomputed, a level that was there from the start is the engine's.
        if found.key == Cause.ENGINE.key:
            continue
        if evidence.often(found.flat) and len(found.flat) > _MOST * found.n_known:
            return _finding(evidence, found, found.flat, Severity.WARNING)
    reference = evidence.reference
    if reference is None or not reference.is_sampler:
        return None
    distance = evidence.values["s_k_bounded"].loc[evidence.first_of_latest :].dropna()
    if not len(distance):
        return None
    return Finding(
        severity=Severity.CRITICAL,
        sentence="The sampler is not what the log says: its log-probs are those of the reference policy, while the "
        "logged versions advance.",
        metric="s_k_bounded",
        steps=steps_of(distance),
        numbers=_of_reference(evidence),
        why="New weights never arrived at the sampler, which still has those of the start.",
        do=_find_out(evidence),
        source="S0 4.6, 7.2",
        limit=reference.policy / 4,
    )


def _finding(evidence: RunEvidence, found: Following, steps: "pd.Series[float]", severity: Severity) -> Finding:
    worst = step_of(steps.idxmax())
    explained = float(np.nan_to_num(found.explained.loc[worst]))
    engine = found.key == "s_k_engine_bounded"
    what = "the sampler's engine is" if engine else "staleness is"
    grown = severity is Severity.CRITICAL
    if steps is found.idle:
        against = "after a reported sync, which left nearly all of it"
        counted = f"so it is at {len(steps)} of {found.n_syncs} syncs"
    else:
        counted = f"far beyond that {share_text(steps, evidence)}"
        if engine:
            against = "where the same weights should give 0"
        elif explained > 0:
            against = f"where the updates since the reported version add up to {number(explained)}"
        else:
            against = "on data that should be the policy's own (lag 0)"
    return Finding(
        severity=severity,
        sentence=f"The sampler is not what the log says: {what} {tv_text(float(steps.loc[worst]))} in step {worst}, "
        f"{against}; {counted}.",
        metric=found.key,
        steps=steps_of(steps),
        numbers=(
            evidence.number(found.key, worst, "worst"),
            Number(f"sum of the updates over the reported lag (step {worst})", float(found.explained.loc[worst])),
            Number("the level at the start, which an engine may explain", found.level),
            *_of_reference(evidence),
        ),
        why=_why(evidence, grown=grown),
        do=_find_out(evidence),
        source="S0 4.6, 7.2 (triangle inequality)",
        limit=FACTOR * explained,
    )


def _find_out(evidence: RunEvidence) -> str:
    """What a known cause needs, else what would tell the causes apart, of what is not logged yet."""
    for remark in evidence.remarks:
        if remark.rule == "mismatch_cause" and remark.of_cause:
            return remark.do
    recomputed = evidence.values[Cause.ENGINE.key].notna().any()
    return _CHECKSUM + ("" if recomputed else _RECOMPUTE) + _LOOK


def _why(evidence: RunEvidence, *, grown: bool) -> str:
    reference = evidence.reference
    if reference is not None and reference.is_sampler:
        return (
            "Its log-probs are still those of the reference policy: new weights never arrived, whatever version the "
            "log reports."
        )
    if linted := evidence.linted("temperature"):
        return f"The linter says why: {linted}"
    for remark in evidence.remarks:
        if remark.rule == "mismatch_cause" and remark.of_cause:
            return f"{remark.sentence} {remark.why}"
    known = evidence.values[Cause.ENGINE.key].notna().any()
    part = "The distance from the recomputed version" if known else "The distance"
    since = "has grown from almost nothing" if grown else "is there since the start of this log"
    return f"{part} {since}; whether weights, labels or engine differ is open."


def _of_reference(evidence: RunEvidence) -> tuple[Number, ...]:
    if evidence.reference is None:
        return ()
    return (
        Number("sampler from reference, mean |log-ratio| (at most 1 a token)", evidence.reference.sampler),
        Number("policy from reference, the same", evidence.reference.policy),
    )
