"""What theory says of the trust region: can it be met (S0 Observation 3.1)."""

import pandas as pd

from ratioscope.analysis.diagnosis.evidence import LATEST, RunEvidence, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.drift.feasibility import (
    LOWER_BOUND,
    Recommendation,
    feasibility,
    recommendation,
    vocabulary_is_large,
)
from ratioscope.analysis.findings.facts import PPO
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import percent
from ratioscope.rules.parameters import Judged

# An infeasible share below this is a handful of states.
_TRIFLE = 0.01
_MANY = 0.05


@rule(
    "trust_region_infeasible",
    order=180,
    page="drift",
    group=Group.UPDATE,
    words="infeasible trust region",
    another_rule=True,
)
def trust_region_is_infeasible(evidence: RunEvidence) -> Finding | None:
    """A clip around 1 under a mixture of versions that no policy is near to at once.

    A few states beyond the limit are expected in any mixture; it counts where the share's interval is above 0 in many
    of the latest steps.
    """
    gate = evidence.setup.gate
    # A clip that is centred at the current policy does not ask the new one to be near the old ones.
    if evidence.run is None or (gate and (gate.judged is not Judged.RATIO or not gate.stops)):
        return None
    epsilon = evidence.limits.epsilon
    found = feasibility(evidence.run, evidence.first_of_latest, epsilon=epsilon)
    numeric = ["infeasible_share", "infeasible_low", "infeasible_high", "version_spread_max", "n_versions"]
    found = found.astype(dict.fromkeys(numeric, float))
    found = found[found["infeasible_low"] > _TRIFLE]
    latest = min(LATEST, len(evidence.values))
    if len(found) < evidence.least(latest):
        return None
    share = found["infeasible_share"]
    versions = found["n_versions"].median()
    staleness = evidence.values[evidence.facts.staleness.key].loc[found.index].mean()
    advice = recommendation(
        float(share.mean()),
        float(staleness),
        vocabulary_is_large(evidence.run, evidence.first_of_latest),
        epsilon_stale=evidence.limits.epsilon_stale,
    )
    at_least = "at least " if LOWER_BOUND in set(found["kind"]) else ""
    worst = step_of(share.idxmax())
    many = versions > evidence.limits.version_window
    return Finding(
        # In few of the states, or where nobody says that the loss clips around 1, nothing need be wrong.
        severity=Severity.WARNING if gate and found["infeasible_low"].median() > _MANY else Severity.NOTICE,
        sentence=f"No policy is within ε/2 = {epsilon / 2:g} of all versions in {at_least}{percent(share.mean())} of "
        f"the states ({versions:.0f} versions a step). No policy satisfies a clip around 1 there.",
        metric=PPO,
        steps=steps_of(share),
        numbers=(
            _number(
                found,
                ("infeasible_share", "infeasible_low", "infeasible_high"),
                worst,
                f"share of infeasible states, worst (step {worst})",
            ),
            Number("largest distance of two versions in a state", float(found["version_spread_max"].max())),
            evidence.median(PPO, found.index),
        ),
        why="The batch mixes versions that have moved further than ε apart: the clip is spent on their distance, not "
        "on the update." + (" They are more versions than the window W allows." if many else ""),
        do=_remedy(evidence, advice)
        + f"Mix fewer versions{f': at most W = {evidence.limits.version_window:g}' if many else ''}.",
        source="S0 Observation 3.1, 5.5, 5.6",
        limit=epsilon / 2,
    )


def _remedy(evidence: RunEvidence, advice: Recommendation | None) -> str:
    """Another clip, where one has an effect: what is centred at the current policy has none in a single pass."""
    passes = evidence.setup.passes
    if passes == 1:
        return ""
    opening = "With several passes over a batch: " if passes is None else ""
    method = f"{advice.method} ({advice.algorithm}). {advice.sentence}" if advice else "Method One or Two."
    return f"{opening}{method} Or: "


def _number(frame: pd.DataFrame, columns: tuple[str, str, str], step: int, label: str) -> Number:
    """A value with its interval, from three columns of a step's row."""
    value, low, high = (float(frame[column].loc[step]) for column in columns)
    return Number(label, value, low, high)
