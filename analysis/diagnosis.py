"""Rules that turn a step summary into findings: what is wrong, how sure, why, what to change, where to look.

A rule is a function `(summary, lag) -> Finding | None` in `RULES`; thresholds come from the catalogue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd

from analysis.summary import StepSummary
from ratioscope.catalogue import CATALOGUE, EPSILON, EPSILON_STALE
from ratioscope.metric import KHAT_LIMIT, Moment, Threshold


class Severity(IntEnum):
    """How much it matters, in rising order."""

    NOTICE = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Number:
    """A number with its 95 % interval (NaN: none), as a finding quotes it."""

    label: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """One finding about a run."""

    rule: str
    severity: Severity
    sentence: str
    metric: str
    """Catalogue key of the series that shows it."""
    steps: tuple[int, ...]
    """The steps concerned."""
    numbers: tuple[Number, ...]
    why: str
    do: str
    source: str
    page: str
    """Which page holds the evidence."""
    limit: float
    """The threshold that was exceeded, in the metric's unit."""


def diagnose(summary: StepSummary) -> list[Finding]:
    """All findings, worst first; among equals causes come before their consequences, as in `RULES`."""
    findings = [finding for rule in RULES.values() if (finding := rule(summary)) is not None]
    return sorted(findings, key=lambda finding: -finding.severity)


def staleness_metric(summary: StepSummary) -> str:
    """`s_k`, or its bounded form where the mean ratio is significantly below 1 in most steps (truncated support)."""
    significant = summary.high["ratio_mean"] < 1
    return "s_k_bounded" if len(significant) and significant.mean() > 0.5 else "s_k"


def staleness_is_high(summary: StepSummary) -> Finding | None:
    """S_k above epsilon_stale / 2 (S0 5.6)."""
    metric = staleness_metric(summary)
    limit = EPSILON_STALE.value / 2
    excess = _exceeding(summary, metric, limit)
    if not len(excess):
        return None
    lag = summary.values["version_lag"]
    lag_in_excess = lag.loc[excess.index].mean()
    if lag.max() == 0:
        why = "Every batch was sampled by the policy that it updates, so this is not version lag: the sampler's engine "
        why += "computes other probabilities than the trainer's (precision, temperature, top-p)."
    else:
        why = f"The batches concerned were sampled {lag_in_excess:.0f} updates earlier on average"
        why += " (all batches: " + f"{lag.mean():.0f})." if lag_in_excess > 1.2 * lag.mean() else "."
        why += _drift_share(summary, excess.index)
    return Finding(
        rule="staleness_high",
        severity=_severity(excess, limit),
        sentence=_sentence("Staleness", excess, limit, summary, EPSILON_STALE),
        metric=metric,
        steps=tuple(excess.index),
        numbers=(_worst(summary, metric, excess), _last(summary, metric)),
        why=why,
        do="Push weights to the sampler more often (smaller sync_interval), buffer fewer batches (sync_offset), "
        "or drop tokens with |ρ - 1| > ε_stale. Until then prefer a clip: it stops what REINFORCE does to stale data.",
        source="S0 5.6 and 7.3; S3 section 4.1",
        page="drift",
        limit=limit,
    )


def update_is_large(summary: StepSummary) -> Finding | None:
    """U_k above epsilon / 2 (S0 5.2)."""
    limit = EPSILON.value / 2
    excess = _exceeding(summary, "u_k", limit)
    if not len(excess):
        return None
    clipped = summary.values["clip_fraction"].loc[excess.index].mean()
    why = "One update moved the policy further than a clip of width ε is meant to allow. "
    if np.isnan(clipped):
        why += "Clip masks are not logged, so what the gate did is unknown."
    elif clipped == 0:
        why += "No token was clipped in these steps: nothing held the update back."
    else:
        why += f"The gate removed {clipped:.1%} of the tokens' gradients there: "
        why += "a mask stops gradients, it does not bound steps."
    return Finding(
        rule="update_large",
        severity=_severity(excess, limit),
        sentence=_sentence("The update drift", excess, limit, summary, EPSILON),
        metric="u_k",
        steps=tuple(excess.index),
        numbers=(_worst(summary, "u_k", excess), _last(summary, "u_k")),
        why=why,
        do="Lower the learning rate or take fewer passes; under stale data centre the clip at ρ_k "
        "(Method One: adaptive_clip, Method Two: incremental_clip).",
        source="S0 5.2, 5.3",
        page="drift",
        limit=limit,
    )


# k-hat is an estimate itself: a few of many steps exceed the limit by chance.
_HEAVY_TAIL_SHARE = 0.1
_HEAVY_TAIL_STEPS = 3

# A heavy tail of weights that are almost all 1 costs nothing: the top 1 % must carry ten times its fair share.
_TAIL_THAT_MATTERS = 0.1


def tail_is_heavy(summary: StepSummary) -> Finding | None:
    """k-hat of the token ratios from 0.7 on, where the tail carries weight (metric definitions, Tails)."""
    limit = KHAT_LIMIT[Moment.FIRST]
    khat = summary.values["khat_token"].dropna()
    share_of_top = summary.values["top1pct_share"]
    excess = khat[(khat >= limit) & (share_of_top.reindex(khat.index) >= _TAIL_THAT_MATTERS)]
    if len(excess) < _HEAVY_TAIL_STEPS or len(excess) < _HEAVY_TAIL_SHARE * len(summary.values):
        return None
    share = share_of_top.loc[excess.index].median()
    return Finding(
        rule="heavy_tail",
        severity=Severity.CRITICAL if (excess >= 1).mean() > 0.5 else Severity.WARNING,
        sentence=f"The ratios have a heavy tail in {len(excess)} of {len(summary.values)} steps: the tail index "
        f"reaches {excess.max():.2f}, and from {limit:g} on means of the ratio cannot be trusted.",
        metric="khat_token",
        steps=tuple(excess.index),
        numbers=(
            Number("largest tail index", float(excess.max())),
            Number("share of Σρ² in the top 1 % of tokens, median of these steps", float(share)),
            Number("largest ratio", float(summary.values["ratio_max"].loc[excess.index].max())),
        ),
        why="A few tokens that the sampler found unlikely have become likely. They own importance-weighted sums, "
        "while total variation can still look small.",
        do="Truncate or mask the ratio, or make the data fresher. Read the bounded staleness and the clip fraction, "
        "which no tail can spoil; ignore χ² and effective sample size in these steps.",
        source=CATALOGUE["khat_token"].source,
        page="ratios",
        limit=limit,
    )


RULES: dict[str, Callable[[StepSummary], Finding | None]] = {
    "staleness_high": staleness_is_high,
    "update_large": update_is_large,
    "heavy_tail": tail_is_heavy,
}


def _exceeding(summary: StepSummary, metric: str, limit: float) -> "pd.Series[float]":
    """The series where it exceeds the limit beyond its own noise.

    A step counts when its interval lies above the limit, or, where the interval is withheld because of a heavy tail,
    when the value does and the bounded form agrees.
    """
    values, low = summary.values[metric], summary.low[metric]
    bounded = {"s_k": "s_k_bounded", "tv_new_behavior": "tv_new_behavior_bounded"}.get(metric, metric)
    agrees = summary.values[bounded] > limit
    return values[(values > limit) & ((low > limit) | (low.isna() & agrees))]


def _severity(excess: "pd.Series[float]", limit: float) -> Severity:
    return Severity.CRITICAL if excess.max() > 2 * limit else Severity.WARNING


def _sentence(what: str, excess: "pd.Series[float]", limit: float, summary: StepSummary, threshold: Threshold) -> str:
    worst, times = excess.idxmax(), excess.max() / limit
    return (
        f"{what} is above {threshold.symbol}/2 = {limit:g} in {len(excess)} of {len(summary.values)} steps; "
        f"at its worst {times:.1f} × the limit, in step {worst}."
    )


def _drift_share(summary: StepSummary, steps: pd.Index) -> str:
    """Whether old batches got far from the policy because the policy itself moves fast."""
    drift = summary.values["u_k"].loc[steps].mean()
    if np.isnan(drift):
        return ""
    return f" The policy moves {drift:.3f} an update there: staleness is what such moves add up to."


def _worst(summary: StepSummary, metric: str, excess: "pd.Series[float]") -> Number:
    return _number(summary, metric, _step(excess.idxmax()), "worst")


def _last(summary: StepSummary, metric: str) -> Number:
    return _number(summary, metric, _step(summary.values[metric].last_valid_index()), "latest")


def _step(label: Any) -> int:
    """A label of the step index; pandas types it as anything hashable."""
    return int(label)


def _number(summary: StepSummary, metric: str, step: int, which: str) -> Number:
    return Number(
        label=f"{CATALOGUE[metric].title}, {which} (step {step})",
        value=float(summary.values[metric].loc[step]),
        low=float(summary.low[metric].loc[step]),
        high=float(summary.high[metric].loc[step]),
        note=summary.notes.get(step, {}).get(metric, ""),
    )
