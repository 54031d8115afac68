"""What the clip did: too much, or nothing at all (S3 B.3, S0 5.5)."""

from math import isnan

import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, share_text, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.rules.gates import GateKind
from ratioscope.rules.parameters import Judged

_FRACTIONS = {
    "clip_fraction": "all tokens",
    "clip_fraction_negative": "the tokens with negative advantage (A < 0)",
    "clip_fraction_positive": "the tokens with positive advantage (A > 0)",
}


@rule("clip_saturated", order=230, page="clipping", group=Group.CLIP, words="saturated clip", another_rule=True)
def clip_is_saturated(evidence: RunEvidence) -> Finding | None:
    """More than the limit is clipped: of all tokens, or of those with one sign of the advantage."""
    limit = evidence.limits.clip_saturated
    clipped = {metric: evidence.above(metric, limit) for metric in _FRACTIONS}
    metric = next((metric for metric, steps in clipped.items() if evidence.often(steps)), None)
    if metric is None:
        return None
    steps = clipped[metric]
    worst = step_of(steps.idxmax())
    why, by_the_ratio = _which_side(evidence.values.loc[steps.index])
    return Finding(
        severity=Severity.WARNING,
        sentence=f"The clip stops more than {percent(limit)} of {_FRACTIONS[metric]} {share_text(steps, evidence)}, "
        f"up to {percent(steps.max())} in step {worst}.",
        metric=metric,
        steps=steps_of(steps),
        numbers=(
            evidence.number(metric, worst, "worst"),
            evidence.median("effective_token_fraction", steps.index),
            evidence.latest(metric),
        ),
        why=f"{why} Their gradient is lost, and a mask does not pull ratios back.",
        do=f"{evidence.setup.fresher(evidence.facts)} {evidence.setup.smaller_updates}.".strip()
        + f"{evidence.setup.recentre} Widening the band is the last resort."
        if by_the_ratio
        else "Look on Clipping at which tokens they are, and log clip_side for those that a bound stops.",
        source="S3 B.3, S0 5.5",
        limit=limit,
    )


def _which_side(values: pd.DataFrame) -> tuple[str, bool]:
    """Of steps with much clipped: a sentence, and whether the bounds may be what stops most of the tokens."""
    stopped, low, high = (values[f"clip_fraction{side}"].mean() for side in ("", "_low", "_high"))
    if isnan(low + high):
        return "The log does not say on which side of the clip's band these tokens are (clip_side).", True
    sides = f"{percent(low)} of all tokens are below the lower bound, {percent(high)} above the upper one"
    if low + high > stopped / 2:
        return f"Most of these tokens are outside of the clip's band: {sides}.", True
    return f"Something other than the band stops most of these tokens: {sides}.", False


# Outside of this band every clip in use would stop a token of the fitting advantage.
_WIDEST_BAND = (0.25, 4.0)


def _far(clipped: "pd.Series[float]", lowest: "pd.Series[float]", highest: "pd.Series[float]") -> "pd.Series[float]":
    """The steps with a ratio outside of every band."""
    return clipped[((lowest < _WIDEST_BAND[0]) | (highest > _WIDEST_BAND[1])).loc[clipped.index]]


@rule("clip_zero", order=240, page="clipping", group=Group.CLIP, words="clip never binds")
def clip_never_binds(evidence: RunEvidence) -> Finding | None:
    """A clip that stops no token in any step, while ratios are beyond every usual band.

    Where no ratio is beyond them there is nothing to clip; the page Clipping says so. A clip stops only what goes
    further in the direction of the advantage, a mask whatever is out of bounds.
    """
    clipped, gate = evidence.values["clip_fraction"].dropna(), evidence.setup.gate
    lowest, highest = evidence.values["ratio_min"], evidence.values["ratio_max"]
    far = _far(clipped, lowest, highest)
    if (gate and not gate.stops) or not len(clipped) or clipped.max() > 0 or not evidence.often(far):
        return None
    if (gate is None or gate.kind is GateKind.CLIP) and len(evidence.reached):
        lowest, highest = (evidence.reached[end].reindex(clipped.index) for end in ("low", "high"))
        far = _far(clipped, lowest, highest)
        if not evidence.often(far):
            return None
    named = "the loss's clip" if gate else "the clip, if the loss has one,"
    return Finding(
        severity=Severity.WARNING if gate else Severity.NOTICE,
        sentence=f"In {len(clipped)} steps {named} stopped no token, while ratios are beyond every usual band "
        f"{share_text(far, evidence)}.",
        metric="clip_fraction",
        steps=steps_of(far),
        numbers=(
            evidence.latest("clip_fraction"),
            Number("smallest ratio", float(lowest.min())),
            Number("largest ratio", float(highest.max())),
        ),
        why=f"The ratios to the sampler go from {number(lowest.min())} to {number(highest.max())}"
        + (
            ". The clip looks at π_θ/π_k"
            + (", which is 1 in the single gradient pass" if evidence.setup.passes == 1 else "")
            + ": stale data go unchecked."
            if gate and gate.judged is Judged.STEP
            else ". A clip at the ratio to the sampler stops such tokens where the advantage fits."
            if gate
            else ". The manifest names no clip."
        ),
        do="Put the sampler's log-probs into the clip's denominator"
        + ("." if evidence.setup.drops_stale else ", or drop tokens with |ρ - 1| > ε_stale.")
        if gate
        else "Name the loss's clip in the manifest (algorithm.parts.gate), and log clip_side.",
        source="S0 5.4, 5.6; S3 B.3",
        limit=0.0,
    )
