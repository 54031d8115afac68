"""Do the columns that say what the loss did to a token agree with each other."""

from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.linter.evidence import Evidence, in_steps, steps_with
from ratioscope.analysis.linter.remark import Outcome, Remark, estimate, not_checked, passed

_FAULTS = {
    "clip_disagrees": (
        ("clipped", "clip_side"),
        "have clipped and clip_side contradict each other",
        "clip_side is 0 exactly where clipped is false: log both from the same mask.",
    ),
    "gate_outside": (
        ("gate",),
        "have a gate outside of [0, 1]",
        "A gate is the share of the gradient that is kept; log importance weights elsewhere.",
    ),
    "clipped_with_gradient": (
        ("clipped", "gradient_weight"),
        "are marked as clipped and have a gradient",
        "clipped means that the gate removed the token's policy gradient; a cap on the weight alone does not.",
    ),
}


def masks(evidence: Evidence) -> list[Remark]:
    """clipped against clip_side, the gate's range, gradients of clipped tokens."""
    logged = [
        words
        for column, words in (("n_clip", "clip masks"), ("n_gate", "gates"), ("n_gradient", "gradient weights"))
        if evidence.total(column)
    ]
    if not logged:
        return not_checked("masks", "Neither clip masks nor gates are logged.")
    remarks = []
    for fault, (columns, words, do) in _FAULTS.items():
        count = evidence.total(fault)
        if not count:
            continue
        steps = steps_with(evidence.by_step[fault])
        # A penalty beside the policy's loss has a gradient of its own, which no gate stops.
        penalty = fault == "clipped_with_gradient" and has_penalty(evidence)
        remarks.append(
            Remark(
                "masks",
                Outcome.FOUND,
                f"{count:,} of {evidence.n_rows:,} tokens {words}, {in_steps(steps)}"
                + ("; the loss has a penalty, which may be where it comes from." if penalty else "."),
                Severity.NOTICE if penalty else Severity.WARNING,
                do,
                (estimate("tokens", count),),
                steps,
                columns,
                evidence.examples(fault),
            )
        )
    return remarks or passed("masks", f"The logged {', '.join(logged)} agree with each other.")


def has_penalty(evidence: Evidence) -> bool:
    """Whether the manifest names a regulariser or a KL penalty."""
    algorithm = evidence.run.manifest.algorithm
    parts, parameters = algorithm.get("parts", {}), algorithm.get("parameters", {})
    return bool(parameters.get("reference_kl")) or parts.get("regulariser", "none") not in ("none", None)
