"""What the Drift page and its sections say: headline, path, triangle, exact against sampled, feasibility.

headline(facts_of(summary, limits))         # of the window's facts (`analysis.findings.facts`)
"""

from dataclasses import replace
from math import isfinite, isnan

import numpy as np
import pandas as pd

from ratioscope.analysis.drift.feasibility import LOWER_BOUND, UNKNOWN, Recommendation
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC, Cause, Facts, path_of
from ratioscope.analysis.findings.numbers import capital, percent
from ratioscope.analysis.findings.words import (
    NO_UPDATE,
    as_sentence,
    largest_part,
    over_limit,
    tv_text,
    what_is_missing,
    why_not_age,
)
from ratioscope.analysis.summary.summary import StepSummary

# Which pair of policies each part of the path lies between.
PAIR_OF = {
    Cause.ENGINE: "behavior_train/behavior",
    Cause.AGE: "current/behavior_train",
    Cause.ENGINE_OR_AGE: "current/behavior",
    Cause.UPDATE: "new/current",
}

# What is measured from full distributions, and how far the sampled value lies from it in standard errors.
EXACT = {STALENESS: ("s_k_exact", "s_k_exact_z"), UPDATE_METRIC: ("u_k_exact", "u_k_exact_z")}
_TOO_LITTLE = {
    STALENESS: "the logged tokens are a selection, or were not drawn with the logged probabilities",
    UPDATE_METRIC: "the sampler leaves out tokens whose part of the update no sample shows, or a heavy tail has not "
    "been seen",
}


def drift_headline(facts: Facts) -> str:
    """How stale against the limit, and which part of the path is the longest: two sentences about these steps."""
    if not facts.n_steps:
        return "No step is on disk yet."
    level = facts.staleness
    if not level.n_known:
        return f"Staleness is unknown: {facts.unknown}."
    missing = _missing_first(facts)
    return f"{_against_the_limit(facts)}. {as_sentence('; '.join(filter(None, (largest_part(facts), *missing))))}"


def _missing_first(facts: Facts) -> list[str]:
    """What the log leaves open that the headline says."""
    missing = [] if facts.engine_in_ratios else what_is_missing(facts)[:1]
    return missing if facts.updates_logged else [*missing, NO_UPDATE]


def _against_the_limit(facts: Facts) -> str:
    level, largest = facts.staleness, tv_text(facts.staleness.largest)
    if facts.n_steps == 1:
        side = "above" if level.over else "below" if level.largest <= level.limit else "not beyond noise above"
        return f"Staleness is {largest} in step {facts.first}, {side} the limit of {level.limit:g}"
    if level.over:
        many = over_limit(level, facts)
        return f"Staleness is above its limit of {level.limit:g} {many}, up to {largest} in step {level.largest_step}"
    if level.largest <= level.limit:
        return f"Staleness is at most {largest} in {facts.n_steps} steps, below its limit of {level.limit:g}"
    return f"Staleness was never above the limit of {level.limit:g} by more than its noise: {largest} at most"


def path_in_words(facts: Facts) -> str:
    """Each part of the path with its share, the largest first, as a few words; empty where they cannot be added."""
    parts = [part for part in facts.path.parts if isfinite(part.share)]
    return ", ".join(f"{part.cause.words} {part.share:.0%}" for part in sorted(parts, key=lambda part: -part.value))


def path_sentence(facts: Facts) -> str:
    """Which part of the path from the sampler to the new policy is the longest, and what the log leaves open."""
    if not facts.path.parts:
        return f"No step of the path can be measured here: {facts.unknown}."
    return " ".join(
        as_sentence(clause) for clause in (largest_part(facts), why_not_age(facts), *what_is_missing(facts)) if clause
    )


def path_section(facts: Facts, level: str = "tokens") -> str:
    """What the section of the path says: the steps it is of, its longest part, and the direct way.

    Args:
        level: whose ratio it is; other levels than tokens have other numbers (`of_pairs`).
    """
    steps = f"Step {facts.first}" if facts.first == facts.last else f"Steps {facts.first} to {facts.last}"
    text = f"{steps}, {level.lower()}: {path_sentence(facts)}" if facts.path.parts else path_sentence(facts)
    return " ".join([text, *_direct(facts)])


def _direct(facts: Facts) -> list[str]:
    known = isfinite(facts.path.ppo)
    return [f"Measured directly, the new policy is {tv_text(facts.path.ppo)} from the sampler."] if known else []


def path_beside(facts: Facts) -> str:
    """What a path says beside its parts and the direct way, which its picture has: why, and what is missing that the
    headline does not name; "" for nothing."""
    missing = [clause for clause in what_is_missing(facts) if clause not in _missing_first(facts)]
    return " ".join(as_sentence(clause) for clause in (why_not_age(facts), *missing) if clause)


def of_pairs(facts: Facts, frame: pd.DataFrame) -> Facts:
    """The same facts with the path as `analysis.drift.pairs.measure` has it, of another level than tokens."""
    tv = frame[frame["metric"] == "tv_bounded"].set_index("pair")["value"].astype(float)
    pairs = {part.cause: PAIR_OF[part.cause] for part in facts.path.parts}
    if facts.fresh:
        pairs[Cause.ENGINE] = "current/behavior"
    elif facts.n_agreeing and not facts.path.part(Cause.ENGINE):
        pairs[Cause.AGE] = "current/behavior"
    values = {cause: (float(tv[pair]), np.nan) for cause, pair in pairs.items()}
    found = path_of(values, float(tv["current/behavior"]), float(tv["new/behavior"]), facts.path.n_steps)
    return replace(facts, path=found if not isnan(found.total) else path_of({}, np.nan, np.nan, 0))


def triangle_sentence(facts: Facts) -> str:
    """How much of U + S is left in the distance that PPO clips."""
    update, staleness, ppo = facts.path.part(Cause.UPDATE), facts.path.staleness, facts.path.ppo
    if update is None or not isfinite(update.value + staleness + ppo):
        why = facts.unknown or "no log-prob of the new policy can be used"
        return f"The triangle of U, S and PPO's distance is unknown: {why}."
    both = update.value + staleness
    if both == 0:
        return "Neither the data nor the update has moved the policy."
    share = staleness / both
    return (
        f"PPO's distance is {ppo / both:.0%} of U + S on average. Staleness, which no update of this step can "
        f"undo, makes up {share:.0%}."
    )


def exact_sentence(summary: StepSummary) -> str:
    """Whether the sampled distances agree with those from full distributions; empty where there are none."""
    parts = []
    names = {STALENESS: "staleness", UPDATE_METRIC: "update drift"}
    for key, name in names.items():
        distance = summary.values[EXACT[key][1]].dropna()
        if not len(distance):
            continue
        beyond = int((distance.abs() > 3).sum())
        if beyond:
            below = int((distance < -3).sum())
            sides = {"below": below, "above": beyond - below}
            told = " and ".join(f"{n} {side}" for side, n in sides.items() if n) if 0 < below < beyond else ""
            parts.append(
                f"the sampled {name} is more than 3 standard errors off in {beyond} of {len(distance)} steps, "
                f"{told or ('below' if below else 'above')} the exact one"
            )
        else:
            parts.append(f"the sampled {name} is within 3 standard errors in all {len(distance)} steps")
    if not parts:
        return ""
    text = "; ".join(parts) + "."
    for key, name in names.items():
        exact, z = EXACT[key]
        values = summary.values[[key, exact]].median()
        if (summary.values[z] < -3).mean() > 0.5 and values[key] < values[exact]:
            text += f" The samples show too little {name} ({values[key]:.2g} against {values[exact]:.2g}): "
            text += f"{_TOO_LITTLE[key]}."
    return capital(text)


def feasibility_sentence(found: pd.DataFrame, epsilon: float) -> str:
    """Whether a clip of width epsilon around 1 can be met in these steps; `found` of `analysis.drift.feasibility`."""
    if not len(found):
        return "No usable token lies in these steps."
    judged = found[found["kind"] != UNKNOWN]
    if not len(judged):
        return f"Cannot tell whether a clip around 1 can be met: {found['note'].iloc[-1]}."
    several = judged[judged["n_versions"].astype(float) > 1]
    steps = len(judged)
    text = ""
    if not len(several):
        of = f"{steps} steps" if steps > 1 else "the one step that can be judged"
        text = f"All data of {of} come from one behavior version each: a clip around 1 can be met everywhere."
    else:
        share, spread = (several[key].astype(float) for key in ("infeasible_share", "version_spread_max"))
        at_least = "at least " if (several["kind"] == LOWER_BOUND).any() else ""
        if share.max() > 0:
            text = (
                f"In {at_least}{percent(share.mean())} of the states two behavior versions are more than ε = "
                f"{epsilon:g} apart (mean of {len(several)} steps, most {percent(share.max())}; largest distance "
                f"{spread.max():.2g}). No policy is within ε/2 of both there, so none satisfies a clip around 1."
            )
        else:
            text = (
                f"In no state that can be judged are two behavior versions more than ε = {epsilon:g} apart (largest "
                f"distance {spread.max():.2g}, {len(several)} steps)."
            )
    unknown = len(found) - steps
    return text + (f" In {unknown} more steps it is unknown." if unknown else "")


def feasibility_caveat(found: pd.DataFrame) -> str:
    """Why the share is a lower bound; empty where it is not one."""
    bounds = found[found["kind"] == LOWER_BOUND]
    if not len(bounds):
        return ""
    return f"A lower bound, which underestimates share and distance alike: {bounds['note'].iloc[-1]}."


def advice_sentence(advice: Recommendation | None) -> str:
    """The clip to use, where something decides it."""
    return f"{advice.method} ({advice.algorithm}). {advice.sentence}" if advice else ""
