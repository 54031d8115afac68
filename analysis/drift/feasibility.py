"""Whether any policy can be near all behavior versions at once (S0 Observation 3.1).

found = feasibility(run, first=10, last=20, epsilon=0.2)
found["infeasible_share"], found["kind"], found["note"]      # indexed by step
recommendation(0.1, staleness=0.3, large_vocabulary=True)

A clip of width epsilon around 1 keeps the new policy within delta = epsilon / 2 of the version that sampled a token. In
a state where two versions are further than epsilon apart, no policy is that near to both.
"""

from dataclasses import dataclass
from math import isnan

import numpy as np
import pandas as pd

from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import NO_INTERVAL, fraction_interval
from ratioscope.catalogue import EPSILON, EPSILON_STALE
from ratioscope.errors import RatioscopeError

EXACT, LOWER_BOUND, UNKNOWN = "exact", "lower bound", "unknown"

# The states of a group: all of its tokens have a spread of their own; the first tokens of its responses share a state,
# and |TV(c, i) - TV(c, j)| <= TV(i, j) there.
_GROUPS = """
select
    step, group_id,
    count(tv_version_spread) filter (isfinite(tv_version_spread)) as n_states,
    count(*) filter (isfinite(tv_version_spread) and tv_version_spread > $epsilon) as n_infeasible,
    max(tv_version_spread) filter (isfinite(tv_version_spread)) as spread,
    count(distinct behavior_version) filter (position = 0 and isfinite(tv_current_behavior)) as n_sharing,
    max(tv_current_behavior::double) filter (position = 0 and isfinite(tv_current_behavior))
        - min(tv_current_behavior::double) filter (position = 0 and isfinite(tv_current_behavior)) as difference
from usable
group by step, group_id
order by step, group_id
"""
_VERSIONS = """
select step, count(distinct behavior_version) as n_versions, count(tv_current_behavior) as n_exact
from usable
group by step
order by step
"""


def feasibility(
    run: Run, first: int | None = None, last: int | None = None, *, epsilon: float = EPSILON.value
) -> pd.DataFrame:
    """What the log shows of the steps first..last, both included; one row a step that has usable tokens.

    Columns: kind (exact, lower bound, unknown), infeasible_share of the states that can be judged, its 95 % interval
    infeasible_low and infeasible_high (over prompt groups), version_spread_max, n_states, n_versions, note.
    Undefined is NaN, and the note says why. "exact" is the share of states where the sampling version and the oldest
    live one are more than epsilon apart; a lower bound underestimates share and spread alike.

    Raises:
        RatioscopeError: epsilon is not between 0 and 1.
    """
    if not 0 < epsilon < 1:
        raise RatioscopeError(f"epsilon is {epsilon:g}; a clip width to be judged lies between 0 and 1.")
    with relations(run, first, last) as connection:
        groups = connection.execute(_GROUPS, {"epsilon": epsilon}).df()
        versions = connection.execute(_VERSIONS).df().set_index("step")
    by_step = dict(list(groups.groupby("step")))
    rows = {
        int(str(step)): _row(frame, versions.at[step, "n_versions"], versions.at[step, "n_exact"] > 0, epsilon)
        for step, frame in by_step.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=_COLUMNS).rename_axis("step")


_COLUMNS = [
    *("kind", "infeasible_share", "infeasible_low", "infeasible_high", "version_spread_max"),
    *("n_states", "n_versions", "note"),
]


def _row(groups: pd.DataFrame, n_versions: int, has_exact: bool, epsilon: float) -> dict[str, object]:
    sharing = groups[groups["n_sharing"] > 1]
    note = ""
    if groups["n_states"].sum():
        spread, infeasible, states = groups["spread"], groups["n_infeasible"], groups["n_states"]
        kind = LOWER_BOUND
        note = "a state compares its own version with the oldest only, and one of the oldest compares nothing"
    elif n_versions == 1:
        return dict.fromkeys(_COLUMNS, np.nan) | {
            "kind": EXACT,
            "infeasible_share": 0.0,
            "version_spread_max": 0.0,
            "n_states": 0,
            "n_versions": 1,
            "note": "one behavior version only: a policy near it is near all",
        }
    elif len(sharing):
        kind, spread = LOWER_BOUND, sharing["difference"]
        infeasible, states = (spread > epsilon).astype(int), pd.Series(1, index=sharing.index)
        note = "from the first token of prompts that several versions answered: |TV(c, i) - TV(c, j)| <= TV(i, j)"
    else:
        missing = "and no prompt group was answered by several versions" if has_exact else "nor is tv_current_behavior"
        return dict.fromkeys(_COLUMNS, np.nan) | {
            "kind": UNKNOWN,
            "n_states": 0,
            "n_versions": n_versions,
            "note": f"cannot be known from this log: tv_version_spread is not logged, {missing}",
        }
    share = float(infeasible.sum() / states.sum())
    counts = infeasible.to_numpy(dtype=float), states.to_numpy(dtype=float)
    interval = fraction_interval(*counts) if len(states) > 1 else NO_INTERVAL
    return {
        "kind": kind,
        "infeasible_share": share,
        "infeasible_low": interval.low,
        "infeasible_high": interval.high,
        "version_spread_max": float(spread.max()),
        "n_states": int(states.sum()),
        "n_versions": n_versions,
        "note": note,
    }


@dataclass(frozen=True)
class Recommendation:
    """Which clip to use instead of one around 1, and where that is from."""

    method: str
    algorithm: str
    """The trainer's name of it."""
    sentence: str
    source: str = "S0 5.5 and its summary, clipping method selection"


def recommendation(
    infeasible_share: float, staleness: float, large_vocabulary: bool, *, epsilon_stale: float = EPSILON_STALE.value
) -> Recommendation | None:
    """Method One or Two, by S0's table; None where staleness is unknown (NaN) and nothing else decides.

    Args:
        infeasible_share: of the states; NaN: unknown.
        staleness: S_k; high above epsilon_stale / 2.
        large_vocabulary: that of a language model, with many tokens of tiny probability.
        epsilon_stale: the threshold of that name.
    """
    if isnan(staleness) and not large_vocabulary:
        return None
    need = {True: "A clip around 1 cannot be met in some states", False: "A clip around 1 can be met here"}
    opening = "Whether a clip around 1 can be met is unknown" if isnan(infeasible_share) else need[infeasible_share > 0]
    limit = epsilon_stale / 2
    if staleness > limit:
        reason = f"Staleness is {staleness:.2g}, above {limit:g}, and its bounds tighten by themselves on stale samples"
    elif large_vocabulary:
        reason = "In a large vocabulary its additive bounds let unlikely tokens move"
    else:
        simpler = (
            f"Staleness is {staleness:.2g}, at most {limit:g}, and it is the simpler method: it needs no old policy"
        )
        return Recommendation(
            "Method Two", "incremental_clip", f"{opening}; this one is centred at the current policy. {simpler}."
        )
    return Recommendation(
        "Method One", "adaptive_clip", f"{opening}; this one is centred at the current policy. {reason}."
    )


# From so many tokens on multiplicative bounds hold many unlikely ones back (S0 5.5).
_LARGE_VOCABULARY = 10_000


def vocabulary_is_large(run: Run, first: int | None = None, last: int | None = None) -> bool:
    """Whether the tokens are those of a language model, by the largest id of these steps: no small one has such ids."""
    with relations(run, first, last) as connection:
        largest = connection.execute("select max(token_id) from token").fetchall()[0][0]
    return largest is not None and int(largest) >= _LARGE_VOCABULARY
