"""What is so about a window of a run, decided once: headline, path, report, notebook, alerts and findings render it.

facts = facts_of(summary, limits)                    # of every step
facts = facts_of(summary, limits, 29, 38)            # of a window; `summary` is of the whole run all the same
facts.path.largest.cause.words                       # "the engine"
facts.staleness.over                                 # the steps that are above the limit

Values, not sentences: what is said is written in the rooms, from these. The path goes from the sampler over the version
that sampled, as the training engine computes it, to the current and to the new policy; its parts are total variations,
all in the bounded form (`ratioscope.catalogue.total_variation`), so that they add up to at least the direct way.

A mean over a window weighs every token the same (sums over its steps, as `analysis.drift.pairs` has them), so that a
window's number is the one that its tokens give. Medians, extremes and counts are of steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import isfinite, isnan
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.summary.summary import StepSummary

Series = pd.Series

STALENESS = "s_k_bounded"
PPO = "tv_new_behavior_bounded"
UPDATE_METRIC = "u_k"
"""What staleness, the distance that PPO clips and the update are called in the step summary, each as a headline."""

# What two number formats of the same weights differ by: an engine below this is the trainer's, rounding apart.
ROUNDING_TV = 0.002
# Measured, and as the tokens predict it: the larger one counts, or the one that there is.
LOG_CHI2 = ["log1p_chi2_seq", "log1p_chi2_seq_predicted"]
# By how much what was not seen may raise a chi-square that rests on its largest ratio.
_REACH = 10
_MOST = 0.5
_GOOD_PART = 1 / 3
_FEWEST_FRESH = 3


class Cause(Enum):
    """A part of the path from the sampler to the new policy."""

    ENGINE = "the engine"
    AGE = "the age of the data"
    ENGINE_OR_AGE = "engine and age together"
    UPDATE = "the update"

    @property
    def words(self) -> str:
        """As every sentence names it."""
        return self.value

    @property
    def key(self) -> str:
        """Its part of the path, in the step summary."""
        return _PARTS[self]


_PARTS = {
    Cause.ENGINE: "s_k_engine_bounded",
    Cause.AGE: "s_k_version_bounded",
    Cause.ENGINE_OR_AGE: STALENESS,
    Cause.UPDATE: "u_k_bounded",
}


@dataclass(frozen=True)
class PathShare:
    """How far one cause moves the path's end."""

    cause: Cause
    value: float
    """Mean total variation; one of age or update above 1 is an estimate from a tail too heavy for it."""
    median: float
    """Over the steps."""
    share: float
    """Of the sum of the parts; NaN where that is 0 or infinite."""


@dataclass(frozen=True)
class Path:
    """The parts in the order in which the path is gone, all of the same steps."""

    parts: tuple[PathShare, ...]
    staleness: float
    """Mean total variation from the sampler to the current policy."""
    ppo: float
    """Mean total variation from the sampler straight to the new policy; NaN: not logged."""
    n_steps: int

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)

    @property
    def largest(self) -> PathShare | None:
        """None where no part stands out: nothing is known, nothing has moved, or a mean ratio is infinite."""
        if not self.parts or not isfinite(self.total) or self.total == 0:
            return None
        return max(self.parts, key=lambda part: part.value)

    def part(self, cause: Cause) -> PathShare | None:
        return next((part for part in self.parts if part.cause is cause), None)


@dataclass(frozen=True)
class DriftLevel:
    """A total variation over the steps, against its limit; NaN and None where no step has it."""

    key: str
    limit: float
    last: float
    mean: float
    median: float
    largest: float
    largest_step: int | None
    over: tuple[int, ...]
    """The steps above the limit beyond their own noise (`steps_above`)."""
    n_above: int
    """Steps above the limit, noise or not."""
    n_known: int


class Control(Enum):
    """Whether the mismatch comes from small parameter updates alone (S1 6.2)."""

    CONTROLLED = "controlled"
    UNCONTROLLED = "uncontrolled"
    UNKNOWN = "unknown"


class Concern(Enum):
    """What matters in the gradient estimate (S1 6 and 7)."""

    BIAS = "bias"
    VARIANCE = "variance"
    NEITHER = "neither"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Facts:
    """What every sentence about these steps rests on."""

    limits: Limits
    """What it is measured against."""
    n_steps: int
    first: int
    last: int
    """First and last step that is there; -1 without one."""
    truncated: bool
    """The mean ratio is significantly below 1 in most steps of the run: the sampler leaves out what the policy may."""
    fresh: bool
    """Version lag 0 in every step: whatever staleness there is, it is not age."""
    n_agreeing: int
    """Steps of the run on data of the policy's own (lag 0), where they show that the sampler's engine is the trainer's:
    in each of them, three at least, staleness is rounding. 0: they do not."""
    engine_in_ratios: bool
    """Ratios are to the sampler's own probabilities; otherwise to the sampling version as the training engine computes
    it, and whatever staleness there is, it is not the engine's."""
    staleness: DriftLevel
    unknown: str
    """Why no step has a staleness, a clause: what is not logged; "" where one has it."""
    update: DriftLevel
    path: Path
    lag: float
    """Mean version lag; NaN: not known."""
    lag_within: int | None
    """Version lag up to which the median step of each lag has a staleness within its limit; None: at all, or none."""
    log_chi2: float
    """log(1 + χ²) of whole responses, median over the steps, measured or predicted from the tokens."""
    n_chi2: int
    n_doubtful_chi2: int
    """Steps that have it, and those of them in which it cannot be trusted (`chi2_is_trusted`)."""
    n_open_chi2: int
    """Those of these in which it is above its limit, or would be at ten times its value."""
    n_exact_chi2: int
    n_infinite_chi2: int
    """Steps that have the χ² of tokens from full distributions, and those of them in which it is infinite."""
    medians: Mapping[str, float]
    """Over the steps, of what is quoted beside: `LOG_CHI2`, the largest distance of a state, the responses' length, the
    share of Σρ² in the largest ratios."""
    control: Control
    sources: tuple[Cause, ...]
    """What makes it uncontrolled."""
    concern: Concern

    @property
    def variance_is_open(self) -> bool:
        """In most steps the χ² of whole responses rests on a ratio so that it may be above its limit unseen."""
        return self.concern is Concern.NEITHER and self.n_open_chi2 > self.n_chi2 / 2

    @property
    def few_dominate(self) -> bool:
        """A few large ratios of tokens make the χ², rather than moderate ones of many tokens: in the median step."""
        return self.medians["top1pct_share"] >= self.limits.tail_share

    @property
    def is_small(self) -> bool:
        """In the median step neither staleness nor the update is above its limit, whatever the sources are."""
        return self.staleness.median <= self.staleness.limit and not self.update.median > self.update.limit

    @property
    def split(self) -> bool:
        """Engine and age can be separated: by the recomputed column, because there is no age, or no other engine."""
        return self.path.part(Cause.ENGINE) is not None or bool(self.n_agreeing)

    @property
    def engine_alone(self) -> bool:
        """Whether the data are the policy's own, and the engine differs by more than rounding: it is all staleness."""
        engine = self.path.part(Cause.ENGINE)
        return self.fresh and engine is not None and engine.value > ROUNDING_TV

    @property
    def updates_logged(self) -> bool:
        return self.path.part(Cause.UPDATE) is not None

    @property
    def cause_of_staleness(self) -> Cause:
        """The larger part of what lies before the update."""
        before = [part for part in self.path.parts if part.cause is not Cause.UPDATE]
        return max(before, key=lambda part: part.value).cause if before else Cause.ENGINE_OR_AGE


_Asked = tuple[Limits, int | None, int | None]
_known: WeakKeyDictionary[StepSummary, dict[_Asked, "Facts"]] = WeakKeyDictionary()


def facts_of(
    summary: StepSummary, limits: Limits = Limits(), first: int | None = None, last: int | None = None
) -> Facts:
    """The facts of the steps first..last, found once for each state of a run.

    Args:
        summary: of the whole run, every window of which is truncated or not.
        first, last: both included; None is the first or last step there is.
    """
    known = _known.setdefault(summary, {})
    asked = limits, first, last
    if asked not in known:
        known[asked] = _found(summary, limits, first, last)
    return known[asked]


def _found(summary: StepSummary, limits: Limits, first: int | None, last: int | None) -> Facts:
    inside = summary if first is None and last is None else summary.up_to(first, last)
    values = inside.values
    staleness, update = _level(inside, STALENESS, limits.staleness), _level(inside, UPDATE_METRIC, limits.update)
    known = values[STALENESS].notna()
    lag = values["version_lag"]
    fresh = bool(known.any() and (lag[known] == 0).all())
    n_agreeing = _agreeing(summary)
    path = _path(values, fresh, agrees=bool(n_agreeing))
    recomputed = _is_recomputed(values)
    log_chi2 = float(values[LOG_CHI2].median().max())
    sources = _sources(path, staleness, update, limits)
    if isnan(staleness.median):
        control, concern = Control.UNKNOWN, Concern.UNKNOWN
    else:
        control = Control.UNCONTROLLED if sources else Control.CONTROLLED
        variance = Concern.VARIANCE if log_chi2 > limits.log_chi2 else Concern.NEITHER
        concern = Concern.BIAS if staleness.median > limits.staleness else variance
    has_chi2, exact_chi2 = values[LOG_CHI2].notna().any(axis=1), values["chi2_token_exact"]
    doubtful = has_chi2 & ~chi2_is_trusted(inside)
    within_reach = values[LOG_CHI2].max(axis=1) > np.log1p(limits.chi2 / _REACH)
    return Facts(
        limits=limits,
        n_steps=len(values),
        first=int(values.index[0]) if len(values) else -1,
        last=int(values.index[-1]) if len(values) else -1,
        truncated=_is_truncated(summary, limits),
        fresh=fresh,
        n_agreeing=n_agreeing,
        engine_in_ratios=not recomputed,
        staleness=staleness,
        unknown="" if known.any() else inside.why_unknown(STALENESS),
        update=update,
        path=path,
        lag=_mean(lag[lag.notna()], values["n_tokens"]),
        lag_within=_lag_within(values, limits.staleness),
        log_chi2=log_chi2,
        n_chi2=int(has_chi2.sum()),
        n_doubtful_chi2=int(doubtful.sum()),
        n_open_chi2=int((doubtful & within_reach).sum()),
        n_exact_chi2=int(exact_chi2.notna().sum()),
        n_infinite_chi2=int(np.isinf(exact_chi2).sum()),
        medians={
            key: float(values[key].median()) for key in (*LOG_CHI2, "delta_max", "response_length", "top1pct_share")
        },
        control=control,
        sources=sources,
        concern=concern,
    )


def steps_above(summary: StepSummary, key: str, limit: float) -> "Series[float]":
    """The metric where it exceeds the limit beyond its own noise.

    A step counts when its interval lies above the limit, or, where there is none, when the value does.
    """
    values, low = summary.values[key], summary.low[key]
    return values[(values > limit) & ((low > limit) | low.isna())]


def heavy_tails(summary: StepSummary, limits: Limits) -> "Series[float]":
    """The tail index where it is at its limit or beyond and the tail carries weight (`docs/metrics.md`, tails).

    A heavy tail of weights that are almost all 1 costs nothing: the top 1% must carry ten times its fair share.
    """
    khat, share = summary.values["khat_token"], summary.values["top1pct_share"]
    return khat[(khat >= limits.khat) & (share >= limits.tail_share)]


def unreliable_steps(summary: StepSummary, key: str) -> tuple[int, int]:
    """In how many steps a metric is there and unreliable, and in how many it is there."""
    return int(summary.unreliable(key).sum()), int(summary.values[key].notna().sum())


def chi2_is_trusted(summary: StepSummary) -> "Series[bool]":
    """By step: chi-square of whole responses is there and can be estimated; of its two estimates the larger counts."""
    measured, predicted = LOG_CHI2
    values = summary.values[LOG_CHI2].fillna(-np.inf)
    larger = values[measured] >= values[predicted]
    return summary.trusted(measured).where(larger, summary.trusted(predicted))


def _agreeing(summary: StepSummary) -> int:
    """How many steps on fresh data show that there is no other engine."""
    values = summary.values
    own = values[STALENESS][(values["version_lag"] == 0) & (values["n_recomputed"].fillna(0) == 0)].dropna()
    return len(own) if len(own) >= _FEWEST_FRESH and own.max() <= ROUNDING_TV else 0


def _lag_within(values: pd.DataFrame, limit: float) -> int | None:
    by_lag = values[STALENESS].groupby(values["version_lag"].round()).median().dropna()
    above = by_lag.index[by_lag > limit]
    below = by_lag.index[by_lag.index < above.min()] if len(above) else above
    return int(below.max()) if len(below) else None


def _is_recomputed(values: pd.DataFrame) -> bool:
    """Most ratios are to the sampling version as the training engine computes it."""
    return bool(values["n_recomputed"].sum() > _MOST * values["n_ratios"].sum())


def path_of(values: dict[Cause, tuple[float, float]], staleness: float, ppo: float, n_steps: int) -> Path:
    """A path from the mean and median of its parts."""
    total = sum(mean for mean, _ in values.values())
    shared = isfinite(total) and total > 0
    parts = (
        PathShare(cause, mean, median, mean / total if shared else np.nan) for cause, (mean, median) in values.items()
    )
    return Path(tuple(parts), staleness, ppo, n_steps)


def parts_by_step(values: pd.DataFrame, *, fresh: bool, agrees: bool) -> "dict[Cause, Series[float]]":
    """The parts of the path, step by step, as far as these steps can tell them apart; NaN where a step has none.

    A part that most steps with a usable token have is one of them; one that fewer have is missing.

    Args:
        values: of a step summary.
        fresh: version lag 0 in every step: whatever lies before the update is the engine's.
        agrees: the sampler's engine is the trainer's: it is age.
    """
    known = values[STALENESS].notna()
    if not known.any():
        return {}
    if _is_recomputed(values):
        found = {Cause.AGE: STALENESS}
    elif fresh:
        found = {Cause.ENGINE: STALENESS}
    elif values[Cause.ENGINE.key][known].notna().mean() > _MOST:
        found = {cause: cause.key for cause in (Cause.ENGINE, Cause.AGE)}
    elif agrees:
        found = {Cause.AGE: STALENESS}
    else:
        found = {Cause.ENGINE_OR_AGE: STALENESS}
    if values[Cause.UPDATE.key][known].notna().mean() > _MOST:
        found[Cause.UPDATE] = Cause.UPDATE.key
    return {cause: values[key].where(known) for cause, key in found.items()}


def _path(values: pd.DataFrame, fresh: bool, agrees: bool) -> Path:
    """The path over the steps that have all its parts: parts of different steps have no sum."""
    parts = parts_by_step(values, fresh=fresh, agrees=agrees)
    if not parts:
        return Path((), np.nan, np.nan, 0)
    rows = pd.concat(parts, axis=1).notna().all(axis=1)
    weights = values["n_ratios"][rows]
    means = {cause: (_mean(part[rows], weights), float(part[rows].median())) for cause, part in parts.items()}
    ppo = _mean(values[PPO][rows], weights) if Cause.UPDATE in parts else np.nan
    return path_of(means, _mean(values[STALENESS][rows], weights), ppo, int(rows.sum()))


def _mean(part: "Series[float]", n_tokens: "Series[float]") -> float:
    """Mean over the tokens of these steps."""
    weights = n_tokens.reindex(part.index)
    return float(np.average(part, weights=weights)) if len(part) and weights.sum() > 0 else np.nan


def _level(inside: StepSummary, key: str, limit: float) -> DriftLevel:
    known = inside.values[key].dropna()
    return DriftLevel(
        key=key,
        limit=limit,
        last=float(known.iloc[-1]) if len(known) else np.nan,
        mean=_mean(known, inside.values["n_ratios"]),
        median=float(known.median()),
        largest=float(known.max()),
        largest_step=int(known.index[int(known.argmax())]) if len(known) else None,
        over=tuple(int(step) for step in steps_above(inside, key, limit).index),
        n_above=int((known > limit).sum()),
        n_known=len(known),
    )


def _sources(path: Path, staleness: DriftLevel, update: DriftLevel, limits: Limits) -> tuple[Cause, ...]:
    """S1 6.2's sources, by what is persistent (medians); what is missing shows nothing.

    Staleness above its limit has a source also where neither of its parts is above it alone: each that is a good part
    of the two.
    """
    engine, age = path.part(Cause.ENGINE), path.part(Cause.AGE)
    before = [part for part in path.parts if part.cause is not Cause.UPDATE]
    much = _GOOD_PART * sum(part.value for part in before) if staleness.median > limits.staleness else np.inf
    found = {part.cause for part in before if part.median > limits.staleness or part.value > much}
    if engine is not None and (age is None or engine.value > age.value) and engine.median > ROUNDING_TV:
        found.add(Cause.ENGINE)
    if update.median > limits.update:
        found.add(Cause.UPDATE)
    return tuple(cause for cause in (Cause.UPDATE, Cause.AGE, Cause.ENGINE, Cause.ENGINE_OR_AGE) if cause in found)


def _is_truncated(summary: StepSummary, limits: Limits) -> bool:
    """Mean ratio below 1, beyond its noise and beyond rounding, in most steps.

    By the standard error, which is there where the interval is withheld, too.
    """
    z, mean = summary.values["ratio_mean_z"], summary.values["ratio_mean"]
    below = (z < -limits.mean_ratio_z) & (mean < 1 - limits.mean_ratio_trifle)
    return bool(below[z.notna()].mean() > _MOST)
