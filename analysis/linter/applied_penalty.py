"""Marks of a penalty in the loss that ran: the gradient of tokens that have no advantage, or that were clipped."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.loss_tokens import ALIKE_FACTORS, FEWEST_OF_LOSS, first_rows, steps_in
from ratioscope.run_format.manifest import as_finite

_FEWEST_STEPS = 3
_FEWEST_STILL = 20
"""Tokens of a step."""
# So many tokens of all are few.
_FEW = 0.001
# Of the tokens that the policy's loss leaves alone: fewer with a gradient are no penalty's, which moves nearly all.
_LEAST_MOVED = 0.1
# The most that the policy's part of a token may be away from advantage times ratio, where most tokens are nearer.
_MOST_AWAY = 0.2
# How much larger than the lowest gradient the highest one is: k3's is -1 at the least, and has no bound above.
_ONE_SIDED = 20.0

# Names of a KL penalty's coefficient in manifests, and nats between policy and reference at which it has a gradient.
_COEFFICIENTS = ("reference_kl", "beta")
_FAR = 1e-3

_STOPPED = "coalesce(clipped, false) or coalesce(clip_side, 0) <> 0 or coalesce(gate, 1) = 0"


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",)), limit=0.95)
def gradient_without_advantage_is_a_constant(evidence: LogEvidence) -> MarkReading | None:
    """Tokens without an advantage, or clipped, have one and the same gradient against themselves, in all steps up to
    what tokens are divided by; share of them."""
    rows = _beside_the_policy(evidence)
    if rows is None:
        return MarkReading(0.0, "")
    rows = rows[rows["still"]]
    if len(rows) < FEWEST_OF_LOSS or rows["step"].nunique() < _FEWEST_STEPS:
        return None
    # By the sum, the tokens of the step, or the tokens of each response; off-policy, times the ratio.
    best = 0.0
    for divided in (np.ones(len(rows)), rows["of_step"], rows["n"], rows["n"] * rows["responses"]):
        for at in (0.0, rows["at"]):
            with np.errstate(all="ignore"):
                weight = (rows["gradient_weight"] * divided * np.exp(-at)).to_numpy(dtype=float)
            level = float(np.median(weight))
            if level < 0:
                best = max(best, float((np.abs(weight / level - 1) <= ALIKE_FACTORS).mean()))
    return MarkReading(
        best, f"{percent(best)} of {len(rows):,} tokens without an advantage, or clipped, have it", steps_in(rows),
        ("gradient_weight",), first_rows(rows),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",)), limit=0.2)
def few_tokens_hold_the_penalty(evidence: LogEvidence) -> MarkReading | None:
    """What gradient_weight has beside advantage times ratio is bounded below, and far above in few tokens; the share
    of the whole squared gradient that one token in a thousand has by it."""
    rows = _beside_the_policy(evidence)
    if rows is None:
        return MarkReading(0.0, "")
    found = _rest(rows)
    if found is None or not rows["still"].any():
        return None
    rest, part = found
    lowest, highest = float(rest[rows["still"].to_numpy()].min()), float(rest.max())
    if not lowest < 0 or highest < -_ONE_SIDED * lowest:
        return MarkReading(0.0, "")
    few = np.argsort(-rest * (rest > 0))[: max(1, round(_FEW * len(rows)))]
    squared = rows["gradient_weight"].to_numpy(dtype=float) ** 2
    # What is missing of advantage times ratio, where a cap or an unlogged clip took it, is no gradient.
    held = np.minimum(part[few] ** 2, squared[few])
    share = float(held.sum() / squared.sum())
    # Those that make nine tenths of it.
    far = rows.iloc[few[: int(np.searchsorted(np.cumsum(held), 0.9 * held.sum())) + 1]]
    away = f", {number(float(far['away'].median()))} nats below it," if far["away"].notna().all() else ""
    return MarkReading(
        share, f"{len(far):,} of {len(rows):,} tokens{away} make {percent(share)} of the squared gradient",
        steps_in(far), ("gradient_weight",), first_rows(far),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",)), limit=0.5)
def penalty_outweighs_the_policy(evidence: LogEvidence) -> MarkReading | None:
    """Gradient of a token without an advantage, or clipped, over that of any token: mean of the last quarter of the
    steps that have such tokens, where in the first it is at most half as large."""
    rows = _beside_the_policy(evidence)
    if rows is None:
        return MarkReading(0.0, "")
    size = rows["gradient_weight"].abs()
    still = size[rows["still"]].groupby(rows["step"][rows["still"]])
    share = (still.mean() / size.groupby(rows["step"]).mean()).where(still.size() >= _FEWEST_STILL).dropna()
    few = max(_FEWEST_STEPS, len(share) // 4)
    if len(share) < 2 * few:
        return None
    early, late = float(share.head(few).mean()), float(share.tail(few).mean())
    if late < 2 * early:
        return MarkReading(0.0, "")
    return MarkReading(
        late,
        f"tokens without an advantage, or clipped, have {percent(early)} of the usual gradient in the first {few} "
        f"steps with such tokens, {percent(late)} in the last {few}",
        tuple(int(step) for step in share.index[share > penalty_outweighs_the_policy.limit]), ("gradient_weight",),
        first_rows(rows[rows["still"] & (rows["step"] == share.index[-1])]),
    )  # fmt: skip


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",), ("logp_reference",)), limit=0.99)
def configured_penalty_has_no_gradient(evidence: LogEvidence) -> MarkReading | None:
    """The manifest has a coefficient of a KL penalty, and tokens without an advantage, or clipped, have no gradient
    where the reference differs; share of them."""
    parameters = evidence.run.manifest.parameters
    name = next((name for name in _COEFFICIENTS if name in parameters), "")
    coefficient = as_finite(parameters.get(name))
    if coefficient is None:
        return None
    if not coefficient > 0:
        return MarkReading(0.0, "")
    of = evidence.frame(
        f"""
        select step, count(*) as n, count(*) filter (gradient_weight = 0) as still from usable
        where (advantage = 0 or {_STOPPED}) and gradient_weight is not null and coalesce(rejected, '') = ''
            and abs(logp_reference - logp_current) > {_FAR} group by step order by step
        """
    )
    n, still = int(of["n"].sum()), int(of["still"].sum())
    if n < FEWEST_OF_LOSS or len(of) < _FEWEST_STEPS:
        return None
    return MarkReading(
        still / n,
        f"{name} is {number(coefficient)}, and {percent(still / n)} of {n:,} tokens without an advantage, or clipped, "
        "have no gradient, though the reference differs there",
        tuple(int(step) for step in of["step"]), ("gradient_weight",),
        evidence.rows_where(f"invalid is null and gradient_weight = 0 and abs(logp_reference - logp_current) > {_FAR}"),
    )  # fmt: skip


def _rest(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """What gradient weights have beside the policy's part, the advantage with or without the ratio: over the factor
    that makes the two alike, and as it is; None where they are not alike in most tokens."""
    weight, advantage = (rows[name].to_numpy(dtype=float) for name in ("gradient_weight", "advantage"))
    still, step = rows["still"].to_numpy(dtype=bool), rows["step"]
    best: tuple[float, NDArray[np.float64], NDArray[np.float64]] | None = None
    for divided in (np.ones(len(rows)), rows["n"].to_numpy(dtype=float)):
        for at in (rows["at"].to_numpy(dtype=float), np.zeros(len(rows))):
            with np.errstate(all="ignore"):
                plain = np.where(still, 0.0, advantage * np.exp(at))
                each = pd.Series(np.where(still, np.nan, weight * divided / plain), rows.index)
                factor = each.groupby(step).transform("median").to_numpy(dtype=float)
                rest = weight * divided / factor - plain
                away = float(np.nanmedian(np.abs(rest[~still] / plain[~still]))) if not still.all() else np.nan
            if away <= _MOST_AWAY and (best is None or away < best[0]):
                finite = np.where(np.isfinite(rest), rest, 0.0)
                best = away, finite, finite * np.nan_to_num(factor) / divided
    return best[1:] if best is not None else None


def _beside_the_policy(evidence: LogEvidence) -> pd.DataFrame | None:
    """Tokens of whole prompt groups with a gradient weight: still, where advantage or clip leave none to the policy;
    of_step and responses, how many tokens and responses their step has; n, the tokens of their response.

    None where still tokens have no gradient, or hardly one of them has.
    """

    def made() -> pd.DataFrame | None:
        still = f"(advantage = 0 or {_STOPPED})"
        n, moved = evidence.frame(
            f"select count(*), count(*) filter (gradient_weight <> 0) from usable "
            f"where {still} and gradient_weight is not null and coalesce(rejected, '') = ''"
        ).iloc[0]
        if moved < max(_LEAST_MOVED * n, FEWEST_OF_LOSS):
            return None
        return evidence.frame(
            f"""
            with counted as (
                select step, count(*) as of_step, count(distinct seq_id) as responses
                from usable where coalesce(rejected, '') = '' group by step
            )
            select step, seq_id, position, gradient_weight::double as gradient_weight, advantage::double as advantage,
                logp_current::double - logp_sampled::double as at, {still} as still,
                logp_reference::double - logp_current::double as away,
                count(*) over (partition by step, seq_id) as n, of_step, responses
            from usable join counted using (step)
            where hash(step, group_id) % {evidence.sampled} = 0 and log_rho is not null
                and gradient_weight is not null and advantage is not null and coalesce(rejected, '') = ''
            order by step, seq_id, position
            """
        )

    return evidence.once("tokens beside the policy's loss", made)
