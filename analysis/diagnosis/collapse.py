"""A fall of the reward from its best level, and which metric left its usual band before it did."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.evidence import Evidence, step_of, steps_of
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number
from ratioscope.catalogue import CATALOGUE

# What can go wrong before the reward does, causes first, and in which direction: +1 up, -1 down, 0 both.
CANDIDATES = {
    "u_k": 1, "s_k_bounded": 1, "khat_token": 1, "ess_token": -1, "clip_fraction": 1, "grad_norm": 1,
    "kl_to_initial": 1, "entropy": 0,
}  # fmt: skip

_LEAST_EVALUATIONS = 8
_LEAST_REWARDS = 30
_LEAST_AFTERWARDS = 3
_FALLEN_SHARE = 0.7
"""So many of the later values must be low: a dip is no collapse."""


@dataclass(frozen=True)
class Fall:
    """A level's fall: between the steps `last_good` and `found`."""

    best: float
    after: float
    """Median of what came afterwards."""
    last_good: int
    found: int
    low: "pd.Series[float]"
    """The level where it is fallen."""
    n_after: int
    """Values since the fall."""
    latest: float
    """Median of the last three of them."""
    limit: float
    """Below it the level is fallen."""


@dataclass(frozen=True)
class Mover:
    """A metric that left the band of its own earlier values."""

    metric: str
    step: int
    value: float
    usual: float


def reward_has_collapsed(evidence: Evidence) -> Finding | None:
    """The level has fallen from its best by the share that is set, and stayed there."""
    metric, level, window = _level(evidence)
    share = evidence.limits.reward_fall
    fall = find_fall(level, share, window, _noise(evidence, metric, window))
    if fall is None:
        return None
    movers = moved_before(evidence, fall)
    title = CATALOGUE[metric].title
    return Finding(
        rule="reward_collapse",
        severity=Severity.CRITICAL if fall.after < fall.best - 2 * share * abs(fall.best) else Severity.WARNING,
        sentence=f"{title} fell from {number(fall.best)} (step {fall.last_good}) to {number(fall.low.iloc[0])} "
        f"(step {fall.found}) and {_since(fall)}; {_first(movers)}.",
        metric=metric,
        steps=steps_of(fall.low),
        numbers=(
            Number(f"{title}, best", fall.best),
            Number(f"{title}, median since the fall", fall.after),
            evidence.latest(metric),
        ),
        why=_story(movers),
        do=(
            "Go back to the last good state and remove what moved first. If nothing moved: look at which tokens and "
            "prompts changed, and evaluate more often, so that the fall can be dated."
        ),
        source="S3 figures 3 and 9; S1 3",
        limit=fall.best - share * abs(fall.best),
    )


def _since(fall: Fall) -> str:
    """Whether it is still low, or has begun to come back."""
    if fall.latest < fall.limit:
        return "stayed low"
    return f"was low in {len(fall.low)} of {fall.n_after} values since"


def _level(evidence: Evidence) -> tuple[str, "pd.Series[float]", int]:
    """What the run is for, as a mean over so many steps.

    Evaluation accuracy where there is enough of it; the training reward lags behind it by the age of the data.
    """
    accuracy = evidence.values["eval_accuracy"].dropna()
    if len(accuracy) >= _LEAST_EVALUATIONS:
        return "eval_accuracy", accuracy, 1
    reward = evidence.values["reward"].dropna()
    if len(reward) < _LEAST_REWARDS:
        return "reward", reward.head(0), 1
    window = max(5, len(reward) // 15)
    return "reward", reward.rolling(window).mean().dropna(), window


def _noise(evidence: Evidence, metric: str, window: int) -> float:
    """Half width of the 95 % interval of one value of the level; 0 where the log has none (evaluations)."""
    half = (evidence.summary.high[metric] - evidence.summary.low[metric]).median() / 2
    return float(np.nan_to_num(half)) / np.sqrt(window)


def find_fall(level: "pd.Series[float]", share: float, window: int = 1, noise: float = 0.0) -> Fall | None:
    """The first fall below the best level so far by `share` of it and beyond the noise, from which it did not recover.

    Args:
        level: by step, without gaps.
        window: how many steps a value is the mean of; so many values at least must follow the fall.
        noise: half width of the 95 % interval of one value; 0 where it is unknown.
    """
    best = level.cummax()
    # The interval of a difference of two such values is wider by the square root of 2.
    limits = best - np.maximum(share * best.abs(), np.sqrt(2) * noise)
    for position in map(int, np.flatnonzero(level < limits)):
        after = level.iloc[position:]
        limit = limits.iloc[position]
        if (
            len(after) >= max(_LEAST_AFTERWARDS, window)
            and (after < limit).mean() >= _FALLEN_SHARE
            and after.iloc[-1] < best.iloc[position]
        ):
            return Fall(
                best=float(best.iloc[position]),
                after=float(after.median()),
                last_good=step_of(level.iloc[:position].idxmax()),
                found=step_of(level.index[position]),
                low=after[after < limit],
                n_after=len(after),
                latest=float(after.tail(3).median()),
                limit=float(limit),
            )
    return None


_EARLIER = 8
_BAND = 3.0


def moved_before(evidence: Evidence, fall: Fall) -> list[Mover]:
    """The metrics that left their band after the last good level and before the fall was found, first ones first."""
    movers = []
    for metric, direction in CANDIDATES.items():
        series = evidence.values[metric].dropna()
        mover = left_band(metric, direction, series[series.index < fall.found], fall.last_good)
        if mover is not None:
            movers.append(mover)
    return sorted(movers, key=lambda mover: mover.step)


def left_band(metric: str, direction: int, series: "pd.Series[float]", since: int) -> Mover | None:
    """The first step from `since` on that is beyond three robust standard deviations of the series' own earlier values
    in this direction, and stays so in two of three consecutive steps; None when there is none, or too few to know what
    is usual."""
    values = series.to_numpy(dtype=float)
    for position in range(_EARLIER, len(values) - 1):
        earlier = values[:position]
        usual = float(np.median(earlier))
        # 1.4826 makes the median deviation a standard deviation; a series that never moved has a thin band still.
        width = max(1.4826 * float(np.median(np.abs(earlier - usual))), 0.01 * abs(usual))
        away = values[position : position + 3] - usual
        outside = (away * direction if direction else np.abs(away)) > _BAND * width
        if outside[0] and outside.sum() >= 2 and series.index[position] >= since:
            return Mover(metric, step_of(series.index[position]), float(values[position]), usual)
    return None


def _first(movers: list[Mover]) -> str:
    if not movers:
        return "no other metric left its band before"
    return f"first to move: {CATALOGUE[movers[0].metric].label} (step {movers[0].step})"


def _story(movers: list[Mover]) -> str:
    if not movers:
        return (
            "No metric moved before: those logged were in their usual bands, or the fall came too early to know "
            "these bands."
        )
    told = [
        f"{CATALOGUE[mover.metric].label} {'rose' if mover.value > mover.usual else 'fell'} to {number(mover.value)} "
        f"(usually {number(mover.usual)}) in step {mover.step}"
        for mover in movers[:3]
    ]
    return "; ".join(told) + ". What moves first is the likely cause, not a proven one."
