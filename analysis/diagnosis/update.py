"""How far an update moved the policy (S0 5.2), and whether some of them are too large with a period."""

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import listed, over_limit, tv_text

_FEWEST_LARGE, _SHORTEST = 3, 3
"""Updates, and steps of a period."""
_LEAST_TIMES, _LEAST_APART = 3.0, 2.0
"""Of those that are too large: against the usual update, and against the largest of the others."""
_MOST_NAMED = 6


@rule("update_large", order=170, page="drift", group=Group.UPDATE, words="large update", another_rule=True)
def update_is_large(evidence: RunEvidence) -> Finding | None:
    """U_k above epsilon / 2 (S0 5.2)."""
    level = evidence.facts.update
    limit, excess = level.limit, evidence.over(level)
    if not len(excess):
        return None
    worst = step_of(excess.idxmax())
    size = f"{excess.max() / limit:.1f} × the limit" if excess.max() <= 1 else tv_text(excess.max())
    clipped = evidence.values["clip_fraction"].loc[excess.index].mean()
    why = "Single updates move the policy further than a clip of width ε is meant to allow. "
    if np.isnan(clipped):
        why += "Clip masks are not logged, so what the gate did is unknown."
    elif evidence.setup.stops is False:
        why += "The loss has no gate that stops a token."
    elif clipped == 0:
        why += "No token was clipped in these steps."
    else:
        why += f"The gate removed {percent(clipped)} of the tokens' gradients there: "
        why += "a mask stops gradients, it does not bound steps."
    return Finding(
        severity=Severity.CRITICAL if excess.max() > 2 * limit else Severity.WARNING,
        sentence=f"Update drift is above its limit of {limit:g} {over_limit(level, evidence.facts)}, up to {size} "
        f"in step {worst}.",
        metric="u_k",
        steps=steps_of(excess),
        numbers=(evidence.number("u_k", worst, "worst"), evidence.latest("u_k")),
        why=why,
        do=f"{evidence.setup.smaller_updates}.{evidence.setup.recentre}",
        source="S0 5.2, 5.3",
        limit=limit,
    )


@rule("update_period", order=171, page="drift", group=Group.UPDATE, words="large updates with a period")
def updates_are_large_with_a_period(evidence: RunEvidence) -> Finding | None:
    """Every so many steps one update is several times as large as all others, those beside it included."""
    metric = "u_k" if evidence.values["u_k"].notna().any() else "u_k_bounded"
    size = evidence.values[metric].dropna()
    usual = float(size.median()) if len(size) else 0.0
    large = size.index[size > _LEAST_TIMES * usual]
    if len(large) < _FEWEST_LARGE or not usual > 0:
        return None
    period = int(large[1] - large[0])
    # Every one of them, from the first period to the last.
    due = range(large[0], size.index[-1] + 1, period)
    if period < _SHORTEST or large[0] - size.index[0] > period or list(large) != list(due):
        return None
    if size.loc[large].min() < _LEAST_APART * size.drop(large).max() or _is_planned(evidence, large):
        return None
    times = float(size.loc[large].median()) / usual
    more = f" and {len(large) - _MOST_NAMED} more" if len(large) > _MOST_NAMED else ""
    return Finding(
        severity=Severity.WARNING,
        sentence=f"Every {period} steps one update is {number(times)} × as large as the others: in steps "
        f"{listed([str(step) for step in large[:_MOST_NAMED]])}{more}.",
        metric=metric,
        steps=steps_of(size.loc[large]),
        numbers=(Number("median of these", float(size.loc[large].median())), Number("median of all", usual)),
        why="All other updates are at most half as large, so that something happens in these steps alone.",
        do=f"Look at what comes every {period} steps: a save or an offload by which the optimiser loses its moments, a "
        "scheduler's reset, a larger batch.",
        source="chosen here",
    )


def _is_planned(evidence: RunEvidence, large: "pd.Index[int]") -> bool:
    """Whether the learning rate is as much larger in these steps."""
    rate = evidence.summary.steps.get("learning_rate")
    if rate is None or not rate.notna().any():
        return False
    return bool(rate.reindex(large).median() > _LEAST_APART * rate.median())
