"""Is the ratio 1 where it must be: two engines with the same weights, against the noise that two passes make anyway."""

import numpy as np

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.linter.check import ENGINE_COLUMNS, check
from ratioscope.analysis.linter.evidence import LogEvidence, steps_with
from ratioscope.analysis.linter.place import places_of
from ratioscope.notes import remark

# Half the mean of |ratio - 1| between float32 passes of one model: far above what rounding makes (1e-7 to 1e-5).
FLOAT32_FLOOR = 1e-4
# Batches differ; within this factor of the logged floor a step is at the floor.
TIMES_FLOOR = 3.0
# What a pass in bfloat16 makes is measured itself, on the same batch: a difference of that size may be precision alone.
TIMES_PRECISION = 1.5
# What number formats and kernels of healthy stacks differ by; no token is a quarter of a nat away by them.
HEALTHY_TV, HEALTHY_LOG_RATIO = 0.01, 0.25


@check(order=280, needs=ENGINE_COLUMNS, page="drift", of_the_run=True)
def on_policy_ratio(evidence: LogEvidence) -> list[Finding]:
    """Sampler against trainer on the same weights: on-policy tokens, or all where logp_behavior_train is logged."""
    by_step = evidence.by_step[evidence.by_step["n_fresh"] > 0]
    if by_step.empty:
        return not_checked(
            "No token was sampled by the policy that it updates, and logp_behavior_train is not logged: "
            "engine mismatch cannot be separated from staleness.",
        )
    steps = evidence.steps
    shape, dtype = (float(steps[f"noise_floor_{kind}"].max()) for kind in ("shape", "dtype"))
    logged = np.isfinite(shape)
    floor = max(FLOAT32_FLOOR, TIMES_FLOOR * shape) if logged else FLOAT32_FLOOR
    against = f"{TIMES_FLOOR:g} × the measured noise floor" if floor > FLOAT32_FLOOR else "float32 rounding"
    if evidence.rounding / 2 > floor:  # half a mean |ρ - 1|; each value is off by half a unit at most
        floor, against = evidence.rounding / 2, f"rounding to {evidence.log.decimals} decimals"
    # The plain form: this looks for a difference on either side, the bounded one estimates a distance.
    staleness = by_step["fresh_deviation"] / by_step["n_fresh"] / 2
    worst, largest = staleness.idxmax(), float(by_step["max_fresh"].max())
    bounded = (staleness - (by_step["fresh_rho"] / by_step["n_fresh"] - 1) / 2).dropna()  # infinite less infinite
    numbers = (
        estimated("largest ½ mean |ρ - 1| on the same weights", staleness.max()),
        estimated("largest |log ratio| there", largest),
        estimated("limit", floor, note=remark(against)),
    )
    above = steps_with((staleness > floor).astype(int))
    if not above:
        return passed(
            f"On the same weights ½ mean |ρ - 1| is at most {staleness.max():.1e} and |log ratio| {largest:.1e} in "
            f"{len(by_step)} steps, below {floor:.1e} ({against}).",
            *numbers,
        )
    # NaN, where the floor was not measured, explains nothing.
    precision = staleness.max() <= TIMES_PRECISION * dtype
    usual = staleness.max() <= HEALTHY_TV and largest <= HEALTHY_LOG_RATIO
    found = places_of(evidence)
    kind = "logp_behavior_train" if evidence.total("n_train") else "logp_current"
    return [
        Finding(
            f"With the same weights sampler and trainer disagree {evidence.in_steps(above)}: ½ mean |ρ - 1| up to "
            f"{staleness.max():.2g} (step {worst}; {against} allows {floor:.1e}), "
            + (f"in the bounded form up to {bounded.max():.2g} (step {bounded.idxmax()}), " if len(bounded) else "")
            + f"|log ratio| up to {largest:.2g}."
            + (f" A pass in bfloat16 differs by as much ({dtype:.1e}): precision." if precision else "")
            + (" Engines of two kinds usually differ by as much." if usual and not precision else ""),
            # Engines of healthy stacks differ; where it hurts the diagnosis has its own limit.
            Severity.NOTICE if precision or usual or not bounded.max() > evidence.limits.engine else Severity.WARNING,
            "Nothing: see Engine for what it costs."
            if precision or usual
            else "Look at Engine: where the difference sits, what it is like, and what removes it.",
            numbers,
            above,
            ("logp_behavior", kind),
            evidence.rows_where("fresh is not null", "abs(fresh) desc, step, seq_id, position"),
            why=f"{found[0].clause}." if found else "",
            place=found[0].words if found else "",
        )
    ]
