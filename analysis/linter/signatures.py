"""What decoding leaves behind in the log-ratios: temperature makes them linear in the log-probability, top-k and top-p
shift them all down; staleness does neither where E rho = 1 holds.

The temperature is estimated inside states that several responses share (one prompt, the same tokens so far, one
version): there b = c/T - log Z with one Z, so that the log-ratio is a straight line in the mean of the two
log-probabilities, of slope 2 (T - 1)/(T + 1), whatever the state. Over different states neither holds: their
normalisers differ, and the kept mass of top-p alone then makes a slope.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.finding import Finding, Number, Outcome, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.setup import TRUNCATION, smoothing_of, unusual
from ratioscope.analysis.linter.alignment import placeholders, shifted
from ratioscope.analysis.linter.check import CHECKS, ENGINE_COLUMNS, RATIO, STATES, check
from ratioscope.analysis.linter.copies import copied_columns
from ratioscope.analysis.linter.evidence import LogEvidence, steps_with
from ratioscope.analysis.linter.own_token import own_token
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.units import scale
from ratioscope.analysis.linter.values import invalid_values
from ratioscope.analysis.linter.zeros import zero_filled
from ratioscope.analysis.summary.intervals import (
    NO_INTERVAL,
    Index,
    Interval,
    cluster_interval,
    cluster_variance,
    cluster_variances,
    sums,
)
from ratioscope.notes import remark
from ratioscope.run_format import schema
from ratioscope.tails import Array

# Slopes below 0.01 (T within 1 %) change no ratio that matters.
LEAST_SLOPE = 0.01
STANDARD_ERRORS = 4.0
FEWEST_GROUPS = 8
# No sampler is set to more than this, or to less than one over it, times the trainer's temperature.
_SUSPICIOUS = 3.0
# Beyond this factor, or one over it, one of the two columns hardly varies: that is no temperature.
_LARGEST_FACTOR = 10.0
# A temperature is in all groups alike: the median group's slope is at least this share of the slope of all together,
# which a few tokens far from the others, as placeholders are, can make by themselves.
_LEAST_COMMON = 0.5
# Groups that carry the slope: 1 over the sum of their squared shares.
FEWEST_EFFECTIVE_GROUPS = 4.0
# Share of the variance that the line explains: true temperatures come to .94 to .99, another context, whose values have
# nothing to do with the sampler's, to .62 to .79.
LEAST_R2 = 0.9
# Top-k and top-p shift down; at most this share of what moves may move up (the engine's own noise).
LARGEST_SHARE_ABOVE = 0.1
# Where a tenth of the steps have a mean ratio beyond the threshold, all on one side, it is no accident.
SHARE_OF_STEPS = 0.1
_NEARLY_ALL_STEPS = 0.9
_HEAVY = "probably a heavy tail, which the standard error does not cover"


@check(order=260, needs=(*ENGINE_COLUMNS, *STATES), page="ratios")
def temperature(evidence: LogEvidence) -> list[Finding]:
    """Log-ratios linear in the log-probability inside states that several responses share."""
    remarks, measured, too_steep = [], [], False
    for fresh, of_kind in evidence.states.groupby("is_fresh"):
        line = line_of(of_kind)
        if line is None:
            continue
        measured.append(
            estimated(
                f"slope, {'same weights' if fresh else 'older versions'}",
                line.slope,
                line.interval,
                remark(f"R² {line.r2:.2f}"),
            )
        )
        if line.clear:
            if line.in_use:
                remarks.append(_temperature_found(evidence, bool(fresh), measured[-1], line.r2, of_kind))
            else:
                too_steep = True
    if remarks:
        return remarks
    if not measured:
        return not_checked(
            "Too few groups have responses that share a state with different tokens in it: "
            "a temperature cannot be separated from other differences.",
        )
    if too_steep:
        return passed(
            "The log-ratio follows the log-probability, with a slope that no temperature in use has.", *measured
        )
    if any("same weights" in number.label for number in measured):
        return passed("On the same weights the log-ratio does not follow the log-probability.", *measured)
    return passed(
        "Under older versions the log-ratio is not a straight line in the log-probability. Without tokens of the "
        "same weights, a temperature hidden by the staleness cannot be excluded.",
        *measured,
    )


@dataclass(frozen=True)
class StraightLine:
    """How log-ratios go with the log-probability inside shared states."""

    slope: float
    error: float
    r2: float
    interval: Interval
    common: bool
    """Whether the groups have it alike."""

    @property
    def clear(self) -> bool:
        """Whether the log-ratio is a straight line, and no flat one."""
        steep = abs(self.slope) > max(LEAST_SLOPE, STANDARD_ERRORS * self.error)
        return bool(steep and self.r2 > LEAST_R2 and self.common)

    @property
    def temperature(self) -> float:
        """The sampler's over the trainer's."""
        return _temperature_of(self.slope)

    @property
    def in_use(self) -> bool:
        """Whether somebody may have set that temperature."""
        return 1 / _LARGEST_FACTOR <= self.temperature <= _LARGEST_FACTOR


def line_of(groups: pd.DataFrame) -> StraightLine | None:
    """The line through sums of squares and products by prompt group; None where few groups carry it."""
    xx, xy, yy = (groups[column].to_numpy(float) for column in ("xx", "xy", "yy"))
    if not xx.sum() > 0 or xx.sum() ** 2 / (xx**2).sum() < FEWEST_EFFECTIVE_GROUPS:
        return None
    slope = float(xy.sum() / xx.sum())
    r2 = float(xy.sum() ** 2 / (xx.sum() * yy.sum())) if yy.sum() > 0 else 0.0
    common = np.median(xy[xx > 0] / xx[xx > 0]) * np.sign(slope) > _LEAST_COMMON * abs(slope)
    return StraightLine(slope, sqrt(cluster_variance(xy, xx)), r2, cluster_interval(xy, xx), bool(common))


def _temperature_found(evidence: LogEvidence, fresh: bool, slope: Number, r2: float, states: pd.DataFrame) -> Finding:
    value, low, high = (_temperature_of(s) for s in (slope.value, slope.low, slope.high))
    attributed = f"the sampler drew at {number(value)} × the temperature of the trainer's log-probabilities"
    became = "sharper" if value > 1 else "flatter"
    if fresh:
        told = f"{attributed}."
    elif 1 / _SUSPICIOUS <= value <= _SUSPICIOUS:
        told = f"suspected that {attributed}; a policy that became {became} looks the same."
    else:
        told = f"the policy became much {became} than its sampler; no temperature in use is as large."
    divide = "Divide" if fresh else "Where the sampler's temperature is not the trainer's, divide"
    do = (
        f"{divide} the trainer's logits by it, or log the sampler's processed log-probabilities; otherwise every "
        "ratio, clip and KL contains the temperature."
        if fresh or 1 / _SUSPICIOUS <= value <= _SUSPICIOUS
        else "Read it as staleness."
    )
    logged = evidence.run.manifest.sampler.get("temperature")
    stated = "" if logged is None else f" The manifest states a sampler temperature of {logged:g}."
    return Finding(
        f"The log-ratio is a straight line in the log-probability (slope {slope.value:.3f}, R² {r2:.2f}): "
        + told
        + stated,
        Severity.WARNING if fresh else Severity.NOTICE,
        do,
        (slope, estimated("temperature ratio", value, Interval(low, high))),
        steps_with(states.groupby("step").size()),
        ("logp_behavior", "logp_behavior_train" if evidence.total("n_train") and fresh else "logp_current"),
        evidence.rows_where(
            "fresh is not null" if fresh else "invalid is null and fresh is null",
            "abs(coalesce(fresh, log_rho)) desc, step, seq_id, position",
        ),
    )


def _temperature_of(slope: float) -> float:
    """T from the slope 2 (T - 1)/(T + 1); NaN outside of what a temperature can make."""
    return (2 + slope) / (2 - slope) if abs(slope) < 2 else float("nan")


@check(order=270, needs=ENGINE_COLUMNS, page="ratios")
def truncated_support(evidence: LogEvidence) -> list[Finding]:
    """Top-k or top-p: no ratio is above 1, and the mean ratio is the mass that was kept.

    Without tokens of the same weights those of any age are looked at: age moves ratios either way.
    """
    groups = evidence.groups[evidence.groups["n_fresh"] > 0]
    fresh = len(groups) >= FEWEST_GROUPS
    if not fresh:
        groups = _ratios_of_any_age(evidence)
    if len(groups) < FEWEST_GROUPS:
        return not_checked(f"Fewer than {FEWEST_GROUPS} prompt groups have usable ratios.")
    others = evidence.problems(zero_filled, constant_columns, shifted, scale)
    if others:
        return not_checked(f"Ratios are wrong for another reason: {', '.join(others)}.")
    rho, n = groups["fresh_rho"].to_numpy(float), groups["n_fresh"].to_numpy(float)
    mean, interval = rho.sum() / n.sum(), cluster_interval(rho, n)
    above, below = groups["n_fresh_above"].sum(), groups["n_fresh_below"].sum()
    share_above = above / max(above + below, 1)
    numbers = (estimated("mean ratio, same weights", mean, interval), estimated("moved up, of all moved", share_above))
    error = sqrt(cluster_variance(rho, n))
    least = max(evidence.limits.mean_ratio_trifle, STANDARD_ERRORS * error)
    # A temperature moves ratios either way; their mean stays 1 while no token is left out.
    tempered = any(each.is_problem for each in evidence.remarks(temperature))
    lasting = not fresh and _mass_is_missing_throughout(evidence, groups)
    if not (1 - mean > least and ((tempered and fresh) or lasting or share_above <= LARGEST_SHARE_ABOVE)):
        if not fresh:
            return not_checked(
                f"Fewer than {FEWEST_GROUPS} prompt groups have tokens of the same weights in both engines, and age "
                "moves ratios either way."
            )
        return passed(f"On the same weights the mean ratio is {mean:.4f}: no mass is missing.", *numbers)
    stated = unusual(evidence.run.manifest.sampler, TRUNCATION)
    smoothing = smoothing_of(evidence.run.manifest.sampler)
    return [
        Finding(
            f"{'On the same weights' if fresh else 'Over all ages'} the mean ratio is {mean:.4f}"
            + (
                ", beside a temperature, which leaves it at 1. "
                if tempered
                else f" since step {groups['step'].min()}, and tokens were drawn as logp_behavior says. "
                if lasting
                else f" and {percent(1 - share_above)} of the log-ratios that differ from 0 are negative. "
            )
            + (
                "The sampler rarely draws what its truncation leaves out, because it is smoothed."
                if smoothing
                else "The sampler leaves tokens out, as top-k and top-p do: it kept "
                f"{percent(mean)} of the probability and renormalised."
            )
            + (f" The manifest states {stated}." if stated else " The manifest states no truncation."),
            # A truncation that the manifest states is no fault of the log; its cost is judged as by the diagnosis.
            Severity.NOTICE if stated and 1 - mean <= evidence.limits.missing_mass else Severity.WARNING,
            (f"Raise smoothing ({number(smoothing)} now)" if smoothing else "Apply the same truncation in the trainer")
            + ", or sample without truncation. Until then read the bounded staleness, which truncation does not bias.",
            numbers,
            steps_with(groups.groupby("step").size()),
            ("logp_behavior", "logp_behavior_train" if evidence.total("n_train") else "logp_current"),
            evidence.rows_where("fresh is not null", "fresh, step, seq_id, position")
            if fresh
            else evidence.rows_where("invalid is null", "log_rho, step, seq_id, position"),
        )
    ]


def _mass_is_missing_throughout(evidence: LogEvidence, groups: pd.DataFrame) -> bool:
    """Whether the mean ratio of nearly every step, the first one too, is below 1, while logp_behavior is what tokens
    were drawn with, none was dropped and no single ratio decides: age begins at 1, and a temperature stays there."""
    drawn = evidence.remarks(CHECKS["drawn_as_logged"])
    if any(each.outcome is not Outcome.PASSED for each in drawn) or evidence.doubt or _was_dropped(evidence):
        return False
    of = groups.groupby("step")[["fresh_rho", "n_fresh"]].sum()
    below = of["fresh_rho"] / of["n_fresh"] < 1 - evidence.limits.mean_ratio_trifle
    return bool(len(below) >= FEWEST_GROUPS and below.iloc[0] and below.mean() >= _NEARLY_ALL_STEPS)


def _was_dropped(evidence: LogEvidence) -> bool:
    """Whether tokens or responses were dropped after sampling."""
    dropped = evidence.steps[[*schema.DROPPED]].fillna(0).to_numpy().sum()
    return bool(dropped or evidence.frame("select count(dropped) as n from sequence")["n"].iloc[0])


def _ratios_of_any_age(evidence: LogEvidence) -> pd.DataFrame:
    """The columns of `LogEvidence.groups` about ratios on the same weights, of all ratios."""
    return evidence.frame(
        """
        select step, group_id, count(*) as n_fresh, sum(exp(log_rho)) as fresh_rho,
            count(*) filter (log_rho > 1e-3) as n_fresh_above, count(*) filter (log_rho < -1e-3) as n_fresh_below
        from examined where invalid is null and isfinite(log_rho) group by step, group_id order by step, group_id
        """
    )


@check(order=290, needs=RATIO, page="drift")
def mean_ratio(evidence: LogEvidence) -> list[Finding]:
    """E rho = 1: the mean ratio of many steps, and of all together, is on one side of 1 beyond its standard error."""
    groups = evidence.groups[(evidence.groups["n_rho"] > 0) & np.isfinite(evidence.groups["rho"])]
    if len(groups) < FEWEST_GROUPS:
        return not_checked(f"Fewer than {FEWEST_GROUPS} prompt groups have usable ratios.")
    groups = groups.sort_values("step", kind="stable")
    rho, n = groups["rho"].to_numpy(float), groups["n_rho"].to_numpy(float)
    steps, starts = np.unique(groups["step"].to_numpy(dtype=np.int64), return_index=True)
    z = pd.Series(_z_of_one(rho, n, starts), index=steps)
    mean, together = rho.sum() / n.sum(), float(_z_of_one(rho, n, np.zeros(1, dtype=np.intp))[0])
    interval = NO_INTERVAL if evidence.doubt else cluster_interval(rho, n)
    limit, trifle = evidence.limits.mean_ratio_z, evidence.limits.mean_ratio_trifle
    side = z[z * np.sign(together) > limit]
    numbers = (
        estimated("mean ratio of all steps", mean, interval, evidence.doubt),
        estimated("z of all steps", together),
        estimated(f"steps beyond ±{limit:g}", len(side)),
    )
    many = len(side) >= max(min(2, len(z)), SHARE_OF_STEPS * z.notna().sum())
    if not (many and abs(together) > limit and abs(mean - 1) > trifle):
        return passed(
            f"The mean ratio is {mean:.4f} (z {together:.1f}), beyond ±{limit:g} in {len(side)} of {len(z)} steps."
            if np.isfinite(together)
            else f"The mean ratio is {mean:.4f} in every prompt group.",
            *numbers,
        )
    reasons = _reasons(evidence)
    return [
        Finding(
            f"The mean ratio is significantly {'below' if together < 0 else 'above'} 1 in {len(side)} of {len(z)} "
            f"steps ({number(mean, digits=4)} over all, z {together:.1f})"
            + (f"; explained by: {', '.join(reasons)}." if reasons else "; nothing else that was checked explains it."),
            Severity.NOTICE if reasons else Severity.WARNING,
            _what_decides(evidence, reasons),
            numbers,
            tuple(int(step) for step in side.index),
            ("logp_behavior", "logp_current"),
        )
    ]


def _z_of_one(rho: Array, n: Array, starts: Index) -> Array:
    """(mean ratio - 1) of each step in cluster-robust standard errors; NaN where there is no error."""
    error = np.sqrt(cluster_variances(rho, n, starts))
    return (sums(rho, starts) / sums(n, starts) - 1) / np.where(error > 0, error, np.nan)


def _what_decides(evidence: LogEvidence, reasons: list[str]) -> str:
    """What to do about a mean ratio that is not 1: about what explains it, else what would tell the cause."""
    read = "Read the bounded staleness meanwhile."
    if reasons == [_HEAVY]:
        return "Few tokens decide it: read the bounded staleness."
    if reasons:
        return f"See {reasons[0].partition(' (')[0]}. {read}"
    if not evidence.total("n_train"):
        return f"Log logp_behavior_train: it separates the engine from another version. {read}"
    groups = evidence.groups[evidence.groups["n_fresh"] > 0]
    same = groups["fresh_rho"].sum() / groups["n_fresh"].sum() if len(groups) else float("nan")
    return (
        f"On the same weights the mean ratio is {number(float(same), digits=4)}: compare it with the one here. {read}"
    )


def _reasons(evidence: LogEvidence) -> list[str]:
    """Why the mean ratio may differ from 1, as far as this log can tell."""
    reasons = evidence.problems(
        invalid_values, zero_filled, constant_columns, copied_columns, shifted, own_token, placeholders, scale
    )
    if evidence.found(truncated_support):
        reasons.append("truncated support")
    if _was_dropped(evidence):
        reasons.append("selection after sampling (tokens were dropped)")
    if evidence.doubt:
        reasons.append(_HEAVY)
    return reasons
