"""Marks of a mismatch over the versions that data are labelled with: which weights the sampler has instead of them."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.differing import AT_ONCE, FEWEST_FRESH, differing, engine_columns, levels
from ratioscope.analysis.linter.evidence import SURE, LogEvidence

_FEWEST_OF_A_VERSION = 100
_FEWEST_PERIODS, _SHORTEST_PERIOD, _LONGEST_PERIOD = 3, 2, 100
_MOST_LISTED = 3
_FEWEST_BEFORE, _FEWEST_BEHIND = 5, 4
"""Versions that the sampler followed, and versions since."""
_EVEN, _KINK = 2.0, 2.0
"""Largest mismatch over the usual one while it follows, and of the first version that is missed over that."""
_AS_FAR = 0.3
"""Of the later updates, what the earlier ones move at least where the policy moved from the start."""
_OLDER = 1.5
"""Times the distance of data of the policy's own version that of older data has where the policy moves."""
_ONE_PASS, _NEARLY_ALL = 1e-6, 0.95
"""Nats, and the share of the tokens so near to the policy's own values that the column is a copy of them."""
_LEAST_FITTING = 0.2
"""Share of the older data that is judged: what fits its label says nothing of the others."""
_SAME_WEIGHTS = 0.5
"""Of the distance to the labelled version, what two passes of the trainer over one version are apart at most."""


def _by_label(evidence: LogEvidence) -> "pd.Series[float]":
    """The mismatch by the step whose policy data are labelled with; nothing where no age is known."""

    def make() -> "pd.Series[float]":
        frame = differing(evidence) if evidence.knows_age else None
        if frame is None:
            return pd.Series(dtype=float)
        labelled = frame["step"] - frame["version_lag"].fillna(0).astype(int)
        n = labelled.groupby(labelled).transform("size")
        enough = n >= _FEWEST_OF_A_VERSION
        return levels(frame[enough], labelled[enough])

    return evidence.once("mismatch by label", make)


@mark(needs=ENGINE_COLUMNS, limit=2.0)
def mismatch_falls_back_each_period(evidence: LogEvidence) -> MarkReading | None:
    """The mismatch is low for one of every few versions, in equal distances, and rises from each of them to the
    next."""
    level = _by_label(evidence)
    if len(level) < _FEWEST_PERIODS * _SHORTEST_PERIOD:
        return None
    # The low ones are below all others: the least of the second half is one of them.
    half = len(level) // 2
    lowest = int(level.index[half + int(level.iloc[half:].argmin())])
    found = [
        (least, period, lowest % period)
        for period in range(_SHORTEST_PERIOD, min(len(level) // _FEWEST_PERIODS, _LONGEST_PERIOD) + 1)
        if (least := _saw_tooth(level, period, lowest % period)) is not None
    ]
    if not found:
        return MarkReading(1.0, "")
    times, period, first = max(found)
    at = level.index % period == first
    low = [str(each) for each in level.index[at]]
    named = ", ".join(low[:_MOST_LISTED]) + ", …" if len(low) > _MOST_LISTED else listed(low)
    return MarkReading(
        times,
        f"the mismatch falls back every {period} steps, for data of the weights of step {named}; between them it is at "
        f"least {number(times)} × as large",
        tuple(map(int, level.index[~at])),
        engine_columns(evidence),
    )


def _saw_tooth(level: "pd.Series[float]", period: int, first: int) -> float | None:
    """The least mismatch elsewhere over the largest at one place of a period; None where it is not above 1, or does not
    rise between."""
    phase, values = (level.index.to_numpy() - first) % period, level.to_numpy()
    at = np.flatnonzero(phase == 0)
    if len(at) < _FEWEST_PERIODS:
        return None
    # Ahead of the first such version the sampler has the weights that all began with.
    phase, values = phase[at[0] :], values[at[0] :]
    others = values[phase > 0]
    times = float(others.min() / max(values[phase == 0].max(), 1e-3)) if len(others) else 0.0
    if times <= 1:
        return None
    by_phase = pd.Series(others).groupby(phase[phase > 0]).mean()
    half = len(by_phase) // 2
    rises = not half or by_phase.iloc[-half:].mean() > by_phase.iloc[:half].mean()
    return times if rises and len(by_phase) >= period - 1 else None


@mark(needs=ENGINE_COLUMNS, limit=3.0)
def mismatch_grows_from_a_version_on(evidence: LogEvidence) -> MarkReading | None:
    """The mismatch stays as it is over the first versions, while the policy moves, and grows from one version on,
    further than it ever was, to the end."""
    level = _by_label(evidence)
    if len(level) < _FEWEST_BEFORE + _FEWEST_BEHIND or evidence.begins_unseen(evidence.all_steps):
        return None
    values, at, times = level.to_numpy(), 0, 1.0
    for each in range(_FEWEST_BEFORE, len(values) - _FEWEST_BEHIND + 1):
        before, behind = np.maximum(values[:each], 1e-3), values[each:]
        even = before.max() < _EVEN * np.median(before) and behind.min() > _KINK * before.max()
        grows = behind[0] < AT_ONCE * np.median(behind)
        if even and grows and np.median(behind) / before.max() > times:
            at, times = each, float(np.median(behind) / before.max())
    if not at:
        return MarkReading(1.0, "")
    moved = _moved_before(evidence, int(level.index[at]))
    if moved is None:
        return None
    return MarkReading(
        times if moved else 1.0,
        f"the mismatch stays small up to the weights of step {level.index[at - 1]}, grows from those of step "
        f"{level.index[at]} on and is {number(times)} × as large from there on (median)",
        tuple(map(int, level.index[at:])),
        engine_columns(evidence),
    )


def _moved_before(evidence: LogEvidence, step: int) -> bool | None:
    """Whether updates before a step moved the policy, so that a sampler without them would have differed."""
    moves = evidence.frame(
        f"""
        select step >= {step} as behind, avg(abs(logp_new - logp_current)) as moved from examined
        where invalid is null and isfinite(logp_new) and isfinite(logp_current) and logp_behavior < {SURE}
        group by all having count(*) >= {FEWEST_FRESH}
        """
    ).set_index("behind")["moved"]
    if len(moves) == 2:
        return bool(moves.loc[False] > _AS_FAR * moves.loc[True])
    ages = evidence.frame(
        f"""
        select coalesce(version_lag, response_lag) > 0 as older, avg(abs(log_rho)) as apart from examined
        where step < {step} and invalid is null and isfinite(log_rho) and logp_behavior < {SURE}
            and coalesce(version_lag, response_lag) >= 0
        group by all having count(*) >= {FEWEST_FRESH}
        """
    ).set_index("older")["apart"]
    return bool(ages.loc[True] > _OLDER * ages.loc[False]) if len(ages) == 2 else None


@mark(
    needs=(("logp_behavior",), ("logp_behavior_train",), ("logp_current",), ("behavior_version",)),
    limit=1.25,
)
def sampler_is_nearer_to_the_policy(evidence: LogEvidence) -> MarkReading | None:
    """Where tokens are labelled older than the policy, and least fit their label, the sampler is further from the
    labelled version than from the policy, in either half of the prompt groups; one distance over the other."""
    frame = differing(evidence)
    if frame is None:
        return None
    frame = frame[(frame["logp_behavior"] < SURE) & frame["onward"].notna()]
    older = frame["version_lag"] > 0
    chosen, own = frame[older], frame[frame["version_lag"] == 0]
    if len(chosen) < 2 * FEWEST_FRESH:
        return None
    labelled, policy = chosen["fresh"].abs().clip(upper=1), (chosen["fresh"] + chosen["onward"]).abs().clip(upper=1)
    if (policy < _ONE_PASS).mean() > _NEARLY_ALL:
        return None
    # Responses are chosen by one half of their tokens and judged by the other, so that noise chooses none.
    by = chosen["position"] % 2 == 0
    of = [chosen["step"], chosen["seq_id"], chosen["version_lag"]]
    misfit = labelled.where(by).groupby(of).transform("mean")
    far = (misfit > misfit[by].quantile(1 - _LEAST_FITTING)) & ~by
    side = chosen.groupby(["step", "group_id"], sort=False).ngroup() % 2
    halves = [far & (side == half) for half in (0, 1)]
    if min(map(sum, halves)) < _FEWEST_OF_A_VERSION:
        return None
    times = min(float(labelled[half].mean() / max(policy[half].mean(), _ONE_PASS)) for half in halves)
    # The trainer's two passes over one version, where a label says that it is one.
    passes = own["onward"].abs().clip(upper=1).mean() if len(own) >= FEWEST_FRESH else 0.0
    if passes > _SAME_WEIGHTS * labelled[far].mean():
        return MarkReading(0.0, "")
    return MarkReading(
        times,
        f"in the {percent(_LEAST_FITTING)} of the older data that fit their label least, logp_behavior is "
        f"{number(times)} × as far from the labelled version (logp_behavior_train) as from the current policy "
        "(logp_current)",
        evidence.all_steps,
        ("behavior_version",),
    )
