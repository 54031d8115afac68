"""What the gate holds: the largest ratio that kept a gradient, where no larger one can.

held_ratio(run)         # 2.98 where the gate stops whatever is above 3, as stated and as seen
measured_setup(run)     # the setup of a run, with it
"""

from dataclasses import replace
from math import exp

from ratioscope.analysis.findings.setup import Setup, setup_of
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.by_block import Frames, by_block
from ratioscope.analysis.what_if.gate_bounds import ends_above
from ratioscope.analysis.what_if.rule import own_rule
from ratioscope.rules.gates import GATES
from ratioscope.rules.weights import WEIGHTS
from ratioscope.run_format import schema

_ROUNDED = 1e-3
"""Nats by which a ratio may pass a bound by rounding."""
_FEWEST_STOPPED = 20
"""Tokens beyond the bounds, all stopped, that show that the gate runs."""


def held_ratio(run: Run) -> float | None:
    """The largest ratio that kept a gradient, where the loss would multiply by ratios of any size and its gate stops
    all large ones: as the manifest states it, and as all tokens beyond its bounds show it. None in any other case."""
    manifest = run.manifest
    weight, gate = (WEIGHTS.get(str(manifest.parts.get("weight"))), GATES.get(str(manifest.parts.get("gate"))))
    if weight is None or not weight.unbounded or gate is None or not gate.stops:
        return None
    rule = own_rule(run).rule
    if rule is None or rule.gate != gate.name or (rule.gate_level, rule.weight_level) != ("token", "token"):
        return None
    if (ends := ends_above(rule)) is None:
        return None
    # A penalty has a gradient of its own, which no gate stops.
    flags = "not (coalesce(clipped, false) or coalesce(clip_side, 0) <> 0)"
    kept = flags if manifest.has_penalty else f"coalesce(gradient_weight <> 0, {flags})"
    (found,) = by_block(
        f"ratios with a gradient, {ends[0]:.9g} {ends[1]:.9g} {manifest.has_penalty}",
        run,
        lambda run, first, last: _with_gradient(run, first, last, ends, kept),
    )
    if found["passed"].sum() > 0 or found["stopped"].sum() < _FEWEST_STOPPED or not found["largest"].notna().any():
        return None
    return exp(float(found["largest"].max()))


def _with_gradient(run: Run, first: int | None, last: int | None, ends: tuple[float, float], kept: str) -> Frames:
    """By step: the largest log-ratio that kept a gradient, and how many tokens beyond the ends kept one or did not."""
    with relations(run, first, last, tables=(schema.TOKENS,)) as connection:
        found = connection.execute(
            f"""
            with of as (
                select step, {kept} and coalesce(rejected, '') = '' as kept,
                    coalesce(logp_gate, logp_current)::double - logp_sampled::double as log_ratio,
                    if(advantage > 0, {ends[0]!r}, {ends[1]!r}) as high
                from usable where log_rho is not null and advantage <> 0
            )
            select step, max(log_ratio) filter (kept) as largest,
                count(*) filter (log_ratio > high + {_ROUNDED} and kept) as passed,
                count(*) filter (log_ratio > high + {_ROUNDED} and not kept) as stopped
            from of group by step order by step
            """
        ).df()
    return (found,)


def measured_setup(run: Run | None) -> Setup:
    """What was run, as the manifest says it and as the log shows it."""
    setup = setup_of(run.manifest if run else None)
    held = held_ratio(run) if run else None
    return setup if held is None else replace(setup, held=held)
