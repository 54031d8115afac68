"""The mark of a constant that the loss divides each response's sum by, other than the limit of tokens."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.loss_tokens import ALIKE_FACTORS, WITH_WEIGHTS, applied_factors, first_rows
from ratioscope.analysis.linter.stated import stated
from ratioscope.run_format.manifest import as_finite

_LIMITS = (
    "max_tokens", "response_length", "max_completion_length", "max_response_length", "max_new_tokens",
    "generate_max_len", "loss_scale_factor",
)  # fmt: skip
"""Settings of what a sum over tokens is divided by: the limit of tokens, or a constant of its own (verl)."""
_FEWEST_STEPS = 3
_NEARLY_ALL = 0.95
_WHOLE = 1e-3
"""Of a multiple: how far it may be from a whole number."""
_TOLD_APART = 3
"""Times the tolerance that the mean length must vary over the steps: else a mean over tokens is a constant, too."""


@mark(needs=(*WITH_WEIGHTS, ("sequences.seq_id",)), limit=float(np.log(1.5)))
def divisor_unlike_the_limit(evidence: LogEvidence) -> MarkReading | None:
    """gradient_weight divides the sum of each response by one constant, which is not the configured limit of tokens.

    The logarithm of the one over the other, without its sign.
    """
    found = divisor_and_limit(evidence)
    if found is None:
        return None
    (divisor, limit), applied = found, applied_factors(evidence)
    said = f"{divisor:,.0f}" if divisor >= 10 else f"{divisor:.3g}"
    return MarkReading(
        abs(float(np.log(divisor / limit))),
        f"gradient_weight divides by {said} tokens a response, where {limit:,.0f} are configured",
        evidence.all_steps, ("gradient_weight",), first_rows(applied.rows) if applied is not None else (),
    )  # fmt: skip


def divisor_and_limit(evidence: LogEvidence) -> tuple[float, float] | None:
    """The constant that sums of responses are divided by, and the configured one that is nearest to it; None: the
    manifest names no such division, or it is not one constant in all steps."""
    return evidence.once("divisor of sums", lambda: _found(evidence))


def is_a_whole_multiple(evidence: LogEvidence) -> bool:
    """Whether the divisor is a whole multiple or a whole part of the limit, as ranks or accumulation make it."""
    divisor, limit = divisor_and_limit(evidence) or (np.nan, np.nan)
    times = max(divisor / limit, limit / divisor)
    return bool(divisor > 1 + ALIKE_FACTORS and abs(times - round(times)) <= _WHOLE * times)


def _found(evidence: LogEvidence) -> tuple[float, float] | None:
    manifest = evidence.run.manifest
    named = manifest.parts.get("aggregation")
    stated_by_name = "aggregation" not in manifest.parts and manifest.algorithm_name.lower() == "dr_grpo"
    limits = [each for value in stated(manifest, _LIMITS).values() if (each := as_finite(value)) and each > 1]
    applied = applied_factors(evidence) if limits and (named == "longest_mean" or stated_by_name) else None
    if applied is None or (np.abs(applied.against) <= ALIKE_FACTORS).mean() < _NEARLY_ALL:
        return None
    rows = applied.rows
    with np.errstate(divide="ignore", invalid="ignore"):
        log_factor = np.log((rows["gradient_weight"] / rows["advantage"]).to_numpy(dtype=float)) - applied.wanted
    of_step = pd.Series(log_factor, rows.index).groupby(rows["step"]).median()
    counted = evidence.frame(
        """
        with used as (
            select step, count(*) as n_tokens, count(distinct seq_id) as used
            from usable where coalesce(rejected, '') = '' group by step
        ), written as (
            select step, count(*) as written, count(*) filter (dropped is null) as kept from sequence group by step
        )
        select step, n_tokens::double as n_tokens, used::double as used, written::double as written,
            kept::double as kept
        from used join written using (step) order by step
        """
    ).set_index("step").reindex(of_step.index)  # fmt: skip
    length = np.log(counted["n_tokens"] / counted["used"])
    if len(of_step) < _FEWEST_STEPS or not length.std(ddof=0) > _TOLD_APART * ALIKE_FACTORS:
        return None
    found: list[tuple[float, float]] = []
    # A response that is left out may count in the mean over responses, or not.
    for name in ("used", "kept", "written"):
        log_divisor = -of_step - np.log(counted[name])
        if log_divisor.std(ddof=0) <= ALIKE_FACTORS:
            divisor = float(np.exp(log_divisor.median()))
            found += [(divisor, limit) for limit in limits]
    return min(found, key=lambda each: abs(np.log(each[0] / each[1])), default=None)
