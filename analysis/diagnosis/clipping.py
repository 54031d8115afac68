"""What the clip did: too much, or nothing at all (S3 B.3, S0 5.5)."""

from ratioscope.analysis.diagnosis.evidence import Evidence, share_text, step_of, steps_of
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.numbers import percent

_FRACTIONS = {
    "clip_fraction": "all tokens",
    "clip_fraction_negative": "the tokens with negative advantage (A < 0)",
    "clip_fraction_positive": "the tokens with positive advantage (A > 0)",
}


def clip_is_saturated(evidence: Evidence) -> Finding | None:
    """More than the limit is clipped: of all tokens, or of those with one sign of the advantage."""
    limit = evidence.limits.clip_saturated
    clipped = {metric: evidence.above(metric, limit) for metric in _FRACTIONS}
    metric = next((metric for metric, steps in clipped.items() if evidence.often(steps)), None)
    if metric is None:
        return None
    steps = clipped[metric]
    worst = step_of(steps.idxmax())
    low, high = (evidence.values[f"clip_fraction_{side}"].loc[steps.index].mean() for side in ("low", "high"))
    side = f" ({low:.0%} of all below the lower bound, {high:.0%} above the upper one)" if low + high > 0 else ""
    return Finding(
        rule="clip_saturated",
        severity=Severity.WARNING,
        sentence=f"The clip takes the gradient of more than {percent(limit)} of {_FRACTIONS[metric]} "
        f"{share_text(steps, evidence)}; at most {percent(steps.max())}, in step {worst}.",
        metric=metric,
        steps=steps_of(steps),
        numbers=(
            evidence.number(metric, worst, "worst"),
            evidence.median("effective_token_fraction", steps.index),
            evidence.latest(metric),
        ),
        why=f"Most of these tokens are outside of the clip's band{side}. The optimiser works against its own bounds, "
        "and stopped tokens stay where they are: a mask does not pull ratios back.",
        do="Make the data fresher, lower the learning rate, or take fewer passes. Under stale data centre the clip at "
        "ρ_k (Method One or Two), or use a ring, which pulls back from outside. Widening the band is the last resort.",
        source="S3 B.3, S0 5.5",
        limit=limit,
    )


# Outside of this band every clip in use would stop a token of the fitting advantage.
_WIDEST_BAND = (0.25, 4.0)
_LEAST_STEPS = 3


def clip_never_binds(evidence: Evidence) -> Finding | None:
    """A loss with a clip that stops no token in any step."""
    clipped = evidence.values["clip_fraction"].dropna()
    gate = evidence.gate
    if (gate and not gate.stops) or len(clipped) < _LEAST_STEPS or clipped.max() > 0:
        return None
    lowest, highest = evidence.values["ratio_min"].min(), evidence.values["ratio_max"].max()
    far = lowest < _WIDEST_BAND[0] or highest > _WIDEST_BAND[1]
    named = "the loss's clip" if evidence.part("gate") else "the clip, if the loss has one,"
    return Finding(
        rule="clip_zero",
        severity=Severity.WARNING if far else Severity.NOTICE,
        sentence=f"In {len(clipped)} steps {named} stopped no token: it has no effect in this run.",
        metric="clip_fraction",
        steps=steps_of(clipped),
        numbers=(evidence.latest("clip_fraction"),),
        why=f"The ratios to the sampler go from {lowest:.2g} to {highest:.2g}, beyond every usual band: the gate must "
        "look at something else. π_θ/π_k is 1 in a single gradient pass, and stale data go unchecked."
        if far
        else f"The ratios go from {lowest:.2g} to {highest:.2g}: on fresh data with one gradient pass there is nothing "
        "to clip.",
        do="Put the sampler's log-probs into the clip's denominator, or drop tokens with |ρ - 1| > ε_stale."
        if far
        else "Nothing, while the data are fresh. There is room for more passes or a larger learning rate.",
        source="S0 5.4, 5.6; S3 B.3",
        limit=0.0,
    )
