"""Is the engine mismatch hurting: hurts, does not, cannot tell; decided once, for the page, the report and the finding.

found = engine_facts(summary, facts, measured, setup)
found.verdict, found.decides, found.missing

It hurts where one of its effects is beyond a limit: its size, the variance of its ratio, the tokens that it clips, its
bias against what an update gains; and where a rule has found a fault of the sampler that is more than good to know. An
effect of which nothing is logged shows nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import expm1, inf, isfinite, isnan, log1p

import numpy as np
import pandas as pd

from ratioscope.analysis.engine.measured import Measured
from ratioscope.analysis.findings.change_points import FAMILY, Shift, find_shift
from ratioscope.analysis.findings.facts import ROUNDING_TV, STALENESS, Cause, Facts
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.logged import Logged
from ratioscope.analysis.findings.setup import Setup
from ratioscope.analysis.summary.summary import StepSummary

_LEAST_STEPS = 3
# Of the clipped tokens, those that the engine put there: above this it decides what is clipped, where so many are.
_HALF, _SOME_CLIPPED = 0.5, 0.01
_LEAST_TREND = 8
"""Steps; fewer have too few orders for a trend."""
_MOST_BLOCKS = 200
"""A longer series is judged by the means of so many blocks: its test stays within milliseconds."""
_ORDERS, _CHANCE = 1999, 0.01
"""Orders that are drawn, and the share of them above which a correlation is chance."""


class EngineVerdict(Enum):
    """Is it hurting?"""

    HURTS = "hurts"
    DOES_NOT = "does not hurt"
    CANNOT_TELL = "cannot tell"


class EffectKind(Enum):
    """What a difference of engines does, in the order in which it decides."""

    SIZE = "size"
    VARIANCE = "variance"
    CLIP = "clip"
    BIAS = "bias"


@dataclass(frozen=True)
class EngineEffect:
    """One of them, against its limit."""

    kind: EffectKind
    value: float
    limit: float
    exceeded: bool


@dataclass(frozen=True)
class EngineFacts:
    """What is so about the engine in these steps."""

    verdict: EngineVerdict
    effects: tuple[EngineEffect, ...]
    """Those that are measured."""
    missing: tuple[str, ...]
    """Columns without which nothing can be told; empty where something can."""
    alarm: Finding | None
    """The worst finding about the sampler that is more than good to know."""
    broken: bool
    """The linter found the log broken: nothing is decided from its numbers."""
    tv: "pd.Series[float]"
    """The engine's total variation by step, where it is known."""
    over: tuple[int, ...]
    """The steps in which it is above its limit beyond its own noise."""
    n_steps: int
    n_known: int
    fresh_only: bool
    """It is known on data of the policy's own version alone: the sampling version is not recomputed."""
    mean: float
    age: float
    update: float
    """Means over the steps; NaN: not known."""
    trend: float
    """Rank correlation of the engine's part with the step; NaN where chance explains it, or there are few steps."""
    shift: Shift | None
    """The lasting change of its level; None where there is none, or there are few steps."""

    @property
    def decides(self) -> EngineEffect | None:
        """The first effect beyond its limit; without one, the size."""
        return next((effect for effect in self.effects if effect.exceeded), self.effects[0] if self.effects else None)


def engine_facts(
    summary: StepSummary,
    facts: Facts,
    measured: Measured | None,
    setup: Setup,
    *,
    missing: tuple[str, ...] = (),
    alarms: Sequence[Finding] = (),
    broken: bool = False,
) -> EngineFacts:
    """Decide it for the steps of `summary`.

    Args:
        summary: of these steps alone.
        facts: of the same steps.
        measured: their tokens; None where they were not looked at, or nothing is known on them.
        missing: what to log where nothing is known; see `missing_columns`.
        alarms: findings that the sampler is not what it is taken for, worst first: those in these steps count.
        broken: whether numbers of the log would describe damage.
    """
    tv, over = _by_step(summary, facts, measured)
    values = summary.values
    age = values[Cause.AGE.key].where(tv.reindex(values.index).notna()).dropna()
    update = values[Cause.UPDATE.key].dropna()
    effects = _effects(tv, over, measured, values, facts.limits, setup) if len(tv) else ()
    grave = (one for one in alarms if one.severity > Severity.NOTICE)
    alarm = next((one for one in grave if values.index.isin(one.steps).any()), None)
    few = len(over) > 0 and len(tv) < _LEAST_STEPS
    hurts = any(effect.exceeded for effect in effects) or alarm is not None
    verdict = EngineVerdict.HURTS if hurts else EngineVerdict.CANNOT_TELL if few else EngineVerdict.DOES_NOT
    return EngineFacts(
        verdict=verdict if len(tv) and not broken else EngineVerdict.CANNOT_TELL,
        alarm=alarm,
        broken=broken,
        effects=effects,
        missing=() if len(tv) else missing,
        tv=tv,
        over=over,
        n_steps=len(values),
        n_known=len(tv),
        fresh_only=bool(len(tv)) and not values[Cause.ENGINE.key].notna().any(),
        mean=_mean(tv, values["n_ratios"]),
        age=_mean(age, values["n_ratios"]),
        update=_mean(update, values["n_ratios"]),
        trend=_trend(tv),
        shift=_shift(tuple(tv.index.tolist()), tuple(tv.tolist())),
    )


def engine_by_step(summary: StepSummary) -> "tuple[pd.Series[float], pd.Series[float]]":
    """The engine's total variation and the lower end of its interval: recomputed, else staleness where none is old."""
    values, low = summary.values, summary.low
    own = (values["version_lag"] == 0) & (values["n_recomputed"].fillna(0) == 0)
    recomputed = values[Cause.ENGINE.key]
    tv = recomputed.where(recomputed.notna(), values[STALENESS].where(own))
    least = low[Cause.ENGINE.key].where(recomputed.notna(), low[STALENESS].where(own))
    return tv.dropna(), least.reindex(tv.dropna().index)


def _by_step(
    summary: StepSummary, facts: Facts, measured: Measured | None
) -> "tuple[pd.Series[float], tuple[int, ...]]":
    tv, low = engine_by_step(summary)
    if measured is not None and len(measured.by_step) > len(tv):
        tv, low = measured.by_step["tv"], measured.by_step["low"]  # of batches that are the policy's own in part
    limit = facts.limits.engine
    over = tv[(tv > limit) & ((low > limit) | low.isna())]
    return tv, tuple(int(step) for step in over.index)


def _effects(
    tv: "pd.Series[float]", over: Sequence[int], measured: Measured | None, values: pd.DataFrame, limits: Limits,
    setup: Setup,
) -> tuple[EngineEffect, ...]:  # fmt: skip
    least = max(_LEAST_STEPS, limits.step_share * len(tv))
    mean = _mean(tv, values["n_ratios"])
    found = [EngineEffect(EffectKind.SIZE, mean, limits.engine, len(over) >= least)]
    if measured is None:
        return tuple(found)
    more = mean > ROUNDING_TV  # two number formats of the same weights: whatever that does, it is nobody's fault
    chi2 = measured.chi2
    if setup.level == "sequence":  # the loss multiplies by products: as the tokens predict it
        length = float(values["response_length"].median())
        chi2 = expm1(min(length * log1p(chi2), 700.0)) if isfinite(length) else chi2
    weighted = setup.weighted is not False
    found.append(EngineEffect(EffectKind.VARIANCE, chi2, limits.chi2, more and weighted and chi2 > limits.chi2))
    if not isnan(measured.by_engine):
        decides = more and measured.clipped > _SOME_CLIPPED and measured.by_engine > _HALF
        found.append(EngineEffect(EffectKind.CLIP, measured.by_engine, _HALF, decides))
    if not isnan(measured.bias + measured.gain):
        found.append(_bias(measured, limits, more))
    return tuple(found)


def _bias(measured: Measured, limits: Limits, more: bool) -> EngineEffect:
    """Beyond its noise, too large to be rounding, and more than the set share of what the update gains."""
    low, high = measured.bias_interval
    sure = max(low, -high, 0.0)  # NaN ends: not sure of anything
    gain = abs(measured.gain)
    ratio = abs(measured.bias) / gain if gain > 0 else inf if measured.bias else 0.0
    limit = limits.engine_to_update
    return EngineEffect(EffectKind.BIAS, ratio, limit, more and sure > limits.mean_ratio_trifle and sure > limit * gain)


def missing_columns(log: Logged) -> tuple[str, ...]:
    """Of a log that does not tell, what it would take."""
    if not log.has_tokens:
        return ("tokens",)
    names = ("logp_behavior",) if not log.has("logp_behavior") else ()
    return (*names, *(("logp_behavior_train",) if not log.has("logp_behavior_train") else ()))


def _mean(part: "pd.Series[float]", n_tokens: "pd.Series[float]") -> float:
    weights = n_tokens.reindex(part.index).fillna(0)
    return float(np.average(part, weights=weights)) if len(part) and weights.sum() > 0 else np.nan


@lru_cache(maxsize=32)
def _shift(steps: tuple[int, ...], tv: tuple[float, ...]) -> Shift | None:
    """Of a series by step; a page asks for it several times."""
    found = find_shift(pd.Series(tv, index=steps, dtype=float))
    return found if found is not None and found.p <= FAMILY else None


def _trend(tv: "pd.Series[float]") -> float:
    """The rank correlation where fewer than 1 in 100 orders of the same values have one as large (permutation test)."""
    blocks = np.array_split(tv.to_numpy(float), min(len(tv), _MOST_BLOCKS)) if len(tv) >= _LEAST_TREND else []
    ranks = pd.Series([block.mean() for block in blocks], dtype=float).rank().to_numpy()
    if len(blocks) < _LEAST_TREND or np.ptp(ranks) == 0:
        return np.nan
    ranks = (ranks - ranks.mean()) / np.linalg.norm(ranks - ranks.mean())
    steps = np.arange(len(ranks)) - (len(ranks) - 1) / 2
    steps /= np.linalg.norm(steps)
    found = float(ranks @ steps)
    orders = np.random.default_rng(0).permuted(np.tile(ranks, (_ORDERS, 1)), axis=1)
    p = (1 + int((abs(orders @ steps) >= abs(found) - 1e-12).sum())) / (1 + _ORDERS)
    return found if p < _CHANCE else np.nan
