"""Do the columns that say what the loss did to a token agree with each other."""

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.findings.cause import Family, cause
from ratioscope.analysis.findings.finding import Example, Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.alignment import shifted
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.copies import copied_columns
from ratioscope.analysis.linter.evidence import EXAMPLES, LogEvidence, steps_with
from ratioscope.analysis.linter.identities import recomputed, swapped
from ratioscope.analysis.linter.own_token import own_token
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.units import scale
from ratioscope.analysis.linter.zeros import zero_filled
from ratioscope.run_format.manifest import as_finite

FEWEST_CLIPPED = 20
# Tokens that should have a gradient: none of fewer is chance.
_FEWEST_STILL = 100
# Responses that stopped, and the share of them whose last token is then no chance.
_FEWEST_STOPPED, _OFTEN = 200, 0.25
# Of the clipped tokens: where the side is the token's own, and where it may be another ratio's.
FEW_WRONG, MOST_WRONG = 0.02, 0.9

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
    "rejected_with_gradient": (
        ("rejected", "gradient_weight"),
        "are rejected by a mask and have a gradient",
        "Multiply the loss of each token by the mask: what it rejects moves the policy as if there was none.",
    ),
}


@check(order=250, page="clipping")
def masks(evidence: LogEvidence) -> list[Finding]:
    """clipped against clip_side, clip_side against the ratio and the gate, the gate's range, gradients
    of clipped and rejected tokens, and whether any token has one."""
    logged = [
        words
        for column, words in (("n_clip", "clip masks"), ("n_gate", "gates"), ("n_gradient", "gradient weights"))
        if evidence.total(column)
    ]
    if not logged:
        return not_checked("Neither clip masks nor gates are logged.")
    remarks = []
    for fault, (columns, words, do) in _FAULTS.items():
        count = evidence.total(fault)
        if not count:
            continue
        steps = steps_with(evidence.by_step[fault])
        # A penalty beside the policy's loss has a gradient of its own, which no gate stops.
        penalty = fault.endswith("_with_gradient") and evidence.run.manifest.has_penalty
        remarks.append(
            Finding(
                f"{count:,} of {evidence.n_rows:,} tokens {words}, {evidence.in_steps(steps)}"
                + ("; the loss has a penalty, which may be where it comes from." if penalty else "."),
                Severity.NOTICE if penalty else Severity.WARNING,
                do,
                (estimated("tokens", count),),
                steps,
                columns,
                evidence.examples(fault),
            )
        )
    remarks += _nothing_learned(evidence)
    if not evidence.problems(
        zero_filled, constant_columns, shifted, own_token, scale, copied_columns, recomputed, swapped
    ):
        remarks += _sides(evidence)
    return remarks or passed(f"The logged {listed(logged)} agree with each other.")


def _nothing_learned(evidence: LogEvidence) -> list[Finding]:
    """Tokens that have an advantage, and that neither gate nor mask stopped, all without a gradient."""
    n, still = evidence.gradients
    if not _FEWEST_STILL <= n == still:
        return []
    return [
        Finding(
            f"No token has a gradient: gradient_weight is 0 in all {n:,} tokens with an advantage that nothing "
            "stopped.",
            Severity.WARNING,
            "Look for what the loss is multiplied by (a mask, a coefficient), and whether its ratio is a constant.",
            (estimated("tokens", n),),
            evidence.all_steps,
            ("gradient_weight",),
        )
    ]


def _sides(evidence: LogEvidence) -> list[Finding]:
    """clip_side against the side of 1 that the ratio is on; clipped against the gate that the manifest names."""
    sample, remarks = evidence.sample, []
    current, gate = (sample.column(name) for name in ("logp_current", "logp_gate"))
    at = np.where(np.isfinite(gate), gate, current) - sample.sampled
    side, advantage = sample.column("clip_side"), sample.column("advantage")
    parts, parameters = evidence.run.manifest.parts, evidence.run.manifest.parameters
    clipped = np.isfinite(at) & (np.nan_to_num(side) != 0) & (np.abs(at) > 1e-3)
    wrong = clipped & (np.sign(at) != np.sign(side))
    # A clip of whole responses, or one judged by the step alone, may be on the other side of a token's ratio.
    most = FEW_WRONG if parts.get("level") == "token" and parts.get("gate") in ("one_side", "two_side") else MOST_WRONG
    if clipped.sum() >= FEWEST_CLIPPED and wrong.sum() > most * clipped.sum():
        remarks.append(
            _side_remark(
                evidence,
                wrong,
                f"clip_side contradicts the ratio in {int(wrong.sum()):,} of {int(clipped.sum()):,} "
                "clipped tokens: above "
                "the upper bound a ratio is larger than 1, below the lower one smaller.",
                "+1 is above the upper bound, -1 below the lower one; log it from the mask that the loss used.",
                ("clip_side",),
            )
        )
    low, high = (as_finite(parameters.get(f"epsilon_{end}")) for end in ("low", "high"))
    passes = parameters.get("epochs", 1) == 1 and parameters.get("minibatches", 1) == 1
    if parts.get("gate") in ("one_side", "two_side") and parts.get("level") == "token" and low and high:
        with np.errstate(over="ignore"):
            rho = np.exp(at)
        two = parts["gate"] == "two_side"
        above = (rho > 1 + float(high) + 1e-3) & ((advantage > 0) | (two & (advantage != 0)))
        below = (rho < 1 - float(low) - 1e-3) & ((advantage < 0) | (two & (advantage != 0)))
        must = np.isfinite(at) & (above | below) & np.isfinite(side)
        open_ = must & (side == 0)
        if (
            (passes or np.isfinite(gate).any())
            and must.sum() >= FEWEST_CLIPPED
            and open_.sum() > MOST_WRONG * must.sum()
        ):
            remarks.append(
                _side_remark(
                    evidence,
                    open_,
                    f"{int(open_.sum()):,} of {int(must.sum()):,} tokens are beyond the bounds of the stated "
                    "gate, in the direction of their advantage, and not marked as clipped.",
                    "Log clipped and clip_side from the mask that the loss used; if it used none, say so "
                    "in the manifest.",
                    ("clipped", "clip_side"),
                )
            )
    return remarks


def _side_remark(
    evidence: LogEvidence, rows: NDArray[np.bool_], said: str, do: str, columns: tuple[str, ...]
) -> Finding:
    found = evidence.sample.rows[rows]
    places = zip(found["step"], found["seq_id"], found["position"], strict=True)
    return Finding(
        said,
        Severity.WARNING,
        do,
        (estimated("tokens", len(found)),),
        tuple(int(step) for step in np.unique(found["step"])),
        columns,
        tuple(Example(*map(int, place)) for place in islice(places, EXAMPLES)),
    )


@mark(needs=(("token_id",), ("advantage",), ("sequences.finish_reason",)), limit=0.9)
def no_token_ends_responses(evidence: LogEvidence) -> MarkReading | None:
    """Responses that stopped end in tokens which stand inside of responses mostly, and in none of them often: the
    token that ended them is not there. Share of these responses."""
    of = evidence.frame(
        """
        with stopped as (select step, seq_id from sequence where finish_reason = 'stop' group by all),
        of as (
            select token_id, position = max(position) over (partition by step, seq_id) as is_last
            from examined join stopped using (step, seq_id) where token_id is not null
        )
        select token_id, count(*) as n, count(*) filter (is_last) as ends from of group by token_id
        """
    )
    n, every = int(of["ends"].sum()), int(evidence.frame("select count(*) as n from sequence")["n"].iloc[0])
    if n < max(_FEWEST_STOPPED, every / 2):
        return None
    if of["ends"].max() > _OFTEN * n:  # the end of a text, or a string that stops it
        return MarkReading(0.0, "")
    inside = float(of["ends"][of["ends"] < of["n"] / 2].sum() / n)
    often = percent(float(of["ends"].max() / n))
    return MarkReading(
        inside, f"of {n:,} responses that stopped, no more than {often} end in one and the same token",
        evidence.all_steps, ("token_id",),
    )  # fmt: skip


cause(
    "end_token_missing", Family.CREDIT, "The token that ends responses is missing in the log, or a string stops them",
    requires=(no_token_ends_responses,),
    do="Keep the end token with its log-probability among the tokens of a response: without it nobody learns to stop.",
    severity=Severity.NOTICE, reports=("dynamo #14302",),
)  # fmt: skip
