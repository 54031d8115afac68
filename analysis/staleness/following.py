"""Does the sampler follow: how much staleness the logged updates over the reported lag can explain.

explained = explained_staleness(summary)                # by step; NaN: not known
found = following(summary, facts)                       # what is measured, explained, and too much

TV(π_k, π_{k-lag}) ≤ Σ U_j over j = k-lag … k-1, the triangle inequality, up to the difference between the states of the
batches. On healthy runs the lower end of staleness stays below 1.2 times that sum, because steps partly cancel; a log
that reports lag 1 of a sampler that never moves has 4 to 50 times the sum. At lag 0 the sum is 0, with or without
logged updates. An engine that differs adds a level that is there from the first step on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.facts import ROUNDING_TV, STALENESS, Cause, Facts
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.run_format.manifest import as_finite

Series = pd.Series

FACTOR = 2.0
"""Staleness beyond so many times what the updates explain is not theirs: healthy runs reach 1.1."""
_START = 5
"""Steps whose smallest distance is the engine's level."""
_RISE = 3.0
"""An engine's level may change, by precision and by how sharp the policy is; so many times is something else."""
LEAST = 0.01
"""Total variation; two engines' levels below it cannot be distinguished."""
_KEPT = 0.9
"""A sync that leaves so much of the staleness brought nothing: half the lag leaves .7 of a random walk."""


@dataclass(frozen=True)
class Following:
    """One distance of the path by step, against what its cause can explain."""

    key: str
    """Of the distance in the step summary, in its bounded form."""
    distance: "Series[float]"
    explained: "Series[float]"
    n_known: int
    """Steps that have both."""
    level: float
    """The distance that is there from the start, as an engine's would be."""
    excess: "Series[float]"
    """The distance in the steps where its lower end is beyond `FACTOR` times what is explained and beyond that level
    by `_RISE`."""
    flat: "Series[float]"
    """The distance in the steps where it is beyond what is explained by more than the engine's limit."""
    idle: "Series[float]"
    """The distance at reported syncs that left nearly all of it, where it is beyond the engine's level."""
    n_syncs: int
    """Steps at which the reported lag has fallen to half or less."""


def explained_staleness(summary: StepSummary) -> "Series[float]":
    """Sum of the updates U_j over the reported lag, by step; 0 at lag 0, NaN where an update or a version is missing.

    With several versions in a batch it is taken at their mean lag.
    """
    values, steps = summary.values, summary.steps
    lag = values["version_lag"].astype(float)
    if "policy_version" in steps:
        version = steps["policy_version"].reindex(values.index).astype(float)
        version = version.where(version.notna(), pd.Series(values.index, values.index, dtype=float))
    else:
        version = pd.Series(values.index, values.index, dtype=float)
    updates = values["u_k_bounded"].astype(float).to_numpy()
    # Moved since the first step, at the start of each; a step without an update makes all sums over it unknown.
    moved = np.concatenate([[0.0], np.cumsum(updates)])[:-1]
    at = version.to_numpy()
    order = np.argsort(at, kind="stable")
    sampled = np.interp((version - lag).to_numpy(), at[order], moved[order], left=np.nan) if len(at) else moved
    explained = pd.Series(moved - sampled, values.index)
    return explained.clip(lower=0).mask(lag == 0, 0.0)


def decoding_distance(sampler: Mapping[str, Any]) -> float:
    """The largest total variation between policy and sampler that stated top-p and smoothing make; 0: not stated.

    Top-p keeps at least the mass p, and smoothing mixes with the policy itself.
    """
    top_p, smoothing = (_number(sampler.get(key)) for key in ("top_p", "smoothing"))
    return (1 - (smoothing or 0.0)) * (1 - top_p) if top_p else 0.0


def _number(value: object) -> float | None:
    """A share of the manifest; None for anything else."""
    number = as_finite(value)
    return number if number is not None and 0 <= number <= 1 else None


def following(summary: StepSummary, facts: Facts, decoding: float = 0.0) -> list[Following]:
    """Staleness against what the updates over the reported lag explain.

    Where the sampling version is recomputed, its distance alone; the engine's, which no update explains, is beside it:
    an engine that is further away from step to step is one whose weights stay behind.

    Args:
        decoding: a distance that the sampler's stated settings may make (`decoding_distance`).
    """
    explained = explained_staleness(summary)
    if facts.fresh or facts.path.part(Cause.ENGINE) is None:
        key = STALENESS
        distance = summary.values[key].astype(float)
        if facts.truncated:  # what the sampler leaves out is no distance of versions
            distance = distance - (1 - summary.values["ratio_mean"]).clip(lower=0)
        return [_judge(summary, facts, key, distance, explained, decoding)]
    version, engine = Cause.AGE.key, Cause.ENGINE.key
    return [
        _judge(summary, facts, version, summary.values[version].astype(float), explained),
        _judge(summary, facts, engine, summary.values[engine].astype(float), pd.Series(0.0, explained.index), decoding),
    ]


def _judge(
    summary: StepSummary,
    facts: Facts,
    key: str,
    distance: "Series[float]",
    explained: "Series[float]",
    decoding: float = 0.0,
) -> Following:
    known = distance[distance.notna() & explained.notna()]
    level = max(float(distance.dropna().head(_START).min()), ROUNDING_TV) if distance.notna().any() else np.nan
    half = (summary.values[key] - summary.low[key]).astype(float).reindex(known.index)
    low = known - half.fillna(known / 2)
    beyond = low - FACTOR * explained.loc[known.index]
    engine, lag = max(_RISE * level, LEAST, decoding), summary.values["version_lag"]
    before = distance.shift()
    synced = (lag <= lag.shift() / 2) & (lag.shift() > 0.5) & distance.notna() & before.notna()
    return Following(
        key=key,
        distance=distance,
        explained=explained,
        n_known=len(known),
        level=level,
        excess=known[beyond > engine],
        flat=known[(beyond > max(facts.limits.engine, decoding)) & (lag.loc[known.index] > 0)],
        idle=distance[synced & (distance > _KEPT * before) & (distance > engine)],
        n_syncs=int(synced.sum()),
    )


@dataclass(frozen=True)
class Reference:
    """Is the sampler still the policy that the run is held to, and usually began with?"""

    sampler: float
    """Mean |difference| of log-probability between sampler and reference, at most 1 a token."""
    policy: float
    """The same between current policy and reference."""

    @property
    def is_sampler(self) -> bool:
        return self.policy > LEAST and self.sampler < self.policy / 4


def reference_of(run: Run, first: int, since: float) -> Reference | None:
    """Sampler and policy against the reference, over tokens whose version should be well beyond the start.

    Args:
        first: the first step to read.
        since: the run's first version: a token counts that was sampled by a version in the later three quarters of
            those up to its update.

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    with relations(run, first) as connection:
        sampler, policy, n = connection.execute(
            """
            select avg(least(abs(logp_behavior - logp_reference), 1)),
                avg(least(abs(logp_current - logp_reference), 1)), count(*)
            from usable
            where logp_reference is not null and behavior_version > $since
                and version_lag <= (behavior_version + version_lag - $since) / 4
            """,
            {"since": since},
        ).fetchall()[0]
    return Reference(float(sampler), float(policy)) if n else None
