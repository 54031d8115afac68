"""How far the data are from the policy before the update starts, in total variation and in KL (S0 5.6)."""

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, share_text, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.facts import Cause
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import capital, number, percent
from ratioscope.analysis.findings.words import over_limit, tv_text, whose_staleness
from ratioscope.analysis.staleness.versions import sampled_by
from ratioscope.run_format.manifest import as_finite

_LEAST_THIRD = 10
"""Steps; thirds of a shorter run say nothing of a trend."""


@rule(
    "staleness_growing",
    order=140,
    page="staleness",
    group=Group.STALENESS,
    words="growing staleness",
    another_rule=True,
)
def staleness_is_growing(evidence: RunEvidence) -> Finding | None:
    """S_k⁺ of the last third far above that of the middle third, and no longer small.

    The first third is left out: every run starts on-policy.
    """
    metric, facts = evidence.facts.staleness.key, evidence.facts
    staleness = evidence.values[metric].dropna()
    third = len(staleness) // 3
    if third < _LEAST_THIRD:
        return None
    middle, last = staleness.iloc[-2 * third : -third], staleness.iloc[-third:]
    growth, limit = evidence.limits.staleness_growth, evidence.limits.staleness
    # Half of the last third must be beyond the middle one's mean by more than the growth that is let pass.
    if last.mean() < limit / 4 or not min(last.mean(), last.median()) > growth * middle.mean():
        return None
    lag = evidence.values["version_lag"]
    unknown = bool(lag.isna().all())
    older = lag.loc[last.index].mean() > 1.2 * lag.loc[middle.index].mean()
    return Finding(
        severity=Severity.WARNING,
        sentence=f"Staleness keeps growing: {last.mean():.2g} on average over the last {third} steps against "
        f"{middle.mean():.2g} over the {third} before (limit {limit:g}).",
        metric=metric,
        steps=steps_of(last),
        numbers=(
            Number("mean of the middle third", float(middle.mean())),
            Number("mean of the last third", float(last.mean())),
            evidence.latest(metric),
        ),
        why=whose_staleness(facts)
        if facts.fresh
        else "The data grow older: the version lag rises too."
        if older
        else "Versions are not logged, so whether the data grow older is unknown." + _grown(evidence, middle, last)
        if unknown
        else "The data are no older than before." + _grown(evidence, middle, last),
        do=evidence.setup.align
        if facts.fresh
        else evidence.setup.fresher(facts)
        + ("" if older or unknown else f" The data grow no older: {_lower_first(evidence.setup.smaller_updates)}.")
        + (" Log behavior_version, which tells the age of the data." if unknown else ""),
        source="S0 5.6, S3 3",
        limit=limit,
    )


def _grown(evidence: RunEvidence, middle: "pd.Series[float]", last: "pd.Series[float]") -> str:
    """Which parts of it grew as well, update and engine; a sentence with its space, or none."""
    told = []
    for key, name in (("u_k", "updates"), (Cause.ENGINE.key, "the engine's part")):
        before, after = (evidence.values[key].reindex(part.index).mean() for part in (middle, last))
        if after > evidence.limits.staleness_growth * before:
            told.append(f"{name} grew from {number(before, digits=2)} to {number(after, digits=2)}")
    text = " and ".join(told)
    return f" {capital(text)}." if told else ""


@rule("staleness_high", order=130, page="drift", group=Group.STALENESS, words="high staleness", another_rule=True)
def staleness_is_high(evidence: RunEvidence) -> Finding | None:
    """S_k⁺ above epsilon_stale / 2 (S0 5.6)."""
    facts, values = evidence.facts, evidence.values
    level, cause = facts.staleness, facts.cause_of_staleness
    excess = evidence.over(level)
    if not len(excess):
        return None
    why = whose_staleness(facts)
    if not facts.fresh and values["version_lag"].notna().any():
        lag, lag_in_excess = values["version_lag"], values["version_lag"].loc[excess.index].mean()
        updates = "update" if f"{lag_in_excess:.2g}" == "1" else "updates"
        why += f" The batches concerned were sampled {number(lag_in_excess, digits=2)} {updates} earlier on average"
        why += f" (all batches: {number(lag.mean(), digits=2)})." if lag_in_excess > 1.2 * lag.mean() else "."
        drift = values["u_k"].loc[excess.index].mean()
        if cause is not Cause.ENGINE and np.isfinite(drift):
            why += f" The policy moves {drift:.2g} per update there, and age adds such moves up."
    return Finding(
        severity=Severity.CRITICAL if excess.max() > 2 * level.limit else Severity.WARNING,
        sentence=f"Staleness is above its limit of {level.limit:g} {over_limit(level, facts)}, up to "
        f"{tv_text(level.largest)} in step {level.largest_step}.",
        metric=level.key,
        steps=steps_of(excess),
        numbers=(evidence.number(level.key, step_of(level.largest_step), "worst"), evidence.latest(level.key)),
        why=why,
        do=evidence.setup.closer(facts),
        source="S0 5.6 and 7.3; S3 section 4.1",
        limit=level.limit,
    )


_FEW_TOO_OLD = 0.01


@rule("older_than_allowed", order=135, page="staleness", group=None, words="data older than allowed")
def data_are_older_than_allowed(evidence: RunEvidence) -> Finding | None:
    """Tokens are older than the schedule's max_staleness by two updates or more: one may come while a batch waits.

    Limits of other names are of the sampler, and a trainer that is behind it adds an age of its own.
    """
    limit = as_finite(evidence.run.manifest.schedule.get("max_staleness")) if evidence.run else None
    if evidence.run is None or limit is None:
        return None
    lags = sampled_by(evidence.run).lags.dropna()
    over = lags[lags["lag"] > limit + 1]
    share = float(over["tokens"].sum() / lags["tokens"].sum()) if len(over) else 0.0
    if share < _FEW_TOO_OLD:
        return None
    steps = tuple(int(step) for step in over["step"].unique())
    oldest = int(over["lag"].max())
    return Finding(
        severity=Severity.WARNING,
        sentence=f"{percent(share)} of the tokens are older than max_staleness allows ({limit:g}): up to {oldest} "
        f"updates, in {len(steps)} of {len(evidence.values)} steps.",
        metric="version_lag",
        steps=steps,
        numbers=(Number("share of the tokens", share), Number("the oldest, updates", float(oldest))),
        why="That is their age as they enter the loss, so the limit is not kept there.",
        do="Compare the age with the limit when a batch is put together, and drop what is older.",
        source="open-instruct #1738",
        limit=float(limit),
    )


def _lower_first(text: str) -> str:
    return text[0].lower() + text[1:]


@rule("kl_high", order=150, page="drift", group=Group.STALENESS, words="high KL divergence")
def kl_is_high(evidence: RunEvidence) -> Finding | None:
    """KL(behavior || current) beyond verl's health limit in many steps, by the estimator that no tail can distort."""
    limit = evidence.limits.kl
    excess = evidence.above("kl_k1", limit)
    if not evidence.often(excess):
        return None
    worst = step_of(excess.idxmax())
    return Finding(
        severity=Severity.NOTICE,
        sentence=f"The KL from the sampler to the policy is above {limit:g} nats {share_text(excess, evidence)}, up to "
        f"{excess.max():.2g} in step {worst}.",
        metric="kl_k1",
        steps=steps_of(excess),
        numbers=(
            evidence.number("kl_k1", worst, "worst"),
            evidence.median("kl_k3", excess.index),
            evidence.latest("kl_k1"),
        ),
        why="KL counts how unlikely sampled tokens have become, too: the smallest ratio is "
        f"{number(float(evidence.values['ratio_min'].loc[excess.index].min()))}.",
        do=next(
            (each.do for each in evidence.remarks if each.rule == "truncated_support" and each.is_problem),
            evidence.setup.closer(evidence.facts),
        ),
        source="verl, documented health limits of rollout correction",
        limit=limit,
    )
