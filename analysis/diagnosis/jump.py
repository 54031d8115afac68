"""A training reward that moves otherwise than what the run is for: it falls in one step beside an accuracy that holds,
or rises by one of its parts alone.

Updates change a policy, which shows in both: what falls alone was scored otherwise, or belongs to other prompts.
"""

from math import sqrt

import pandas as pd

from ratioscope.analysis.diagnosis.around import CLEAR, fall_seen, noise_of_one
from ratioscope.analysis.diagnosis.drop import reward_part_has_dropped, weights_of_parts
from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.fallen_reward import MOST_LOST, accuracy_held, lost_by_the_same
from ratioscope.analysis.diagnosis.fallen_temperature import reward_with_temperature
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.change_points import FAMILY, find_shift
from ratioscope.analysis.findings.course import level_trend
from ratioscope.analysis.findings.fall import finite_values
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.watched import finite_parts, reward_parts
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.run_format import schema

_MOST_OF_IT = 0.8
"""Share of a rise of the reward that one part of it makes up."""


@rule("reward_jump", order=117, page="overview", group=None, words="jump of the reward", cause=False)
def reward_jumps_alone(evidence: RunEvidence) -> Finding | None:
    """The training reward falls in one step by the share that counts as a fall, for good, and evaluation accuracy does
    not."""
    if fall_seen(evidence) is not None or reward_with_temperature(evidence) is not None:
        return None
    reward = finite_values(evidence.summary, "reward")
    shift = find_shift(reward, -1)
    if shift is None or shift.p > FAMILY or shift.first != shift.last:
        return None
    limit = shift.before - evidence.limits.reward_fall * abs(shift.before)
    if not shift.after < limit:
        return None
    held = accuracy_held(evidence, shift.last)
    asked = lost_by_the_same(evidence.run, shift.last) if evidence.run is not None else None
    if not held or (asked is not None and asked.lost < MOST_LOST * (shift.before - shift.after)):
        return None
    if reward_part_has_dropped(evidence) is not None:
        return None
    before, after = number(shift.before, digits=2), number(shift.after, digits=2)
    why = f"Evaluation accuracy shows no such fall: {held}. "
    if asked is None or not asked.of_prompts:
        why += "Too few prompts come before and after to tell whether they have become harder."
        do = "the reward function or judge, or the prompts"
    else:
        why += f"The {asked.n} prompts that come before and after lose {number(asked.lost, digits=2)}."
        do = "the reward function or judge"
    low = reward[reward.index >= shift.last]
    return Finding(
        severity=Severity.WARNING if asked is not None and asked.of_prompts else Severity.NOTICE,
        sentence=f"Training reward fell {before} → {after} in step {shift.last} alone, and stays there.",
        metric="reward",
        steps=steps_of(low),
        numbers=(Number("training reward before", shift.before), Number("training reward since", shift.after)),
        why=why,
        do=f"Look what changed in step {shift.last}: {do}.",
        source="chosen here",
        limit=limit,
    )


@rule("reward_part_rise", order=118, page="overview", group=None, words="rise of a part of the reward", cause=False)
def reward_rises_by_one_part(evidence: RunEvidence) -> Finding | None:
    """The training reward rises, one of its parts makes up nearly all of that, and another one does not rise."""
    trend = level_trend(evidence.summary)
    if evidence.run is None or trend is None or trend.metric != "reward" or trend.clear != "rose":
        return None
    parts = _means_of_parts(evidence.run)
    if parts is None or (few := len(parts) // 3) < 1:
        return None
    first, last = parts.head(few).mean(), parts.tail(few).mean()
    moved = last - first
    error = pd.Series({name: noise_of_one(parts[name], few) * sqrt(2 / few) for name in parts})
    rising = str(moved.drop("reward").idxmax())
    still = [name for name in moved.index if name not in ("reward", rising) and moved[name] < 2 * error[name]]
    share = float(moved[rising] / moved["reward"])
    if not still or share < _MOST_OF_IT or moved[rising] < CLEAR * error[rising]:
        return None

    def ends(name: str) -> str:
        return " → ".join(number(float(each[name]), digits=2) for each in (first, last))

    beside = str(last[still].idxmax())
    return Finding(
        severity=Severity.NOTICE,
        sentence=f"Training reward rose {ends('reward')}, and {percent(min(share, 1.0))} of that is {rising}: "
        f"{beside} went {ends(beside)}.",
        metric="reward",
        steps=tuple(int(step) for step in parts.index[-few:]),
        numbers=(Number(f"{rising}, last {few} steps", float(last[rising])), evidence.latest("reward")),
        why=f"{rising} went {ends(rising)}; each is the mean of {few} steps at either end, with its weight.",
        do=f"If {beside} is what the run is for, give {rising} less weight, or none once it is learned.",
        source="chosen here",
    )


def _means_of_parts(run: Run) -> pd.DataFrame | None:
    """By step the mean reward, and that of each of its parts with the weight that it has in it; None: they do not make
    it up."""
    names = reward_parts(run)
    if len(names) < 2:
        return None
    with relations(run, tables=(schema.SEQUENCES,)) as connection:
        rows = connection.execute(
            f"select step, reward::double as reward, {finite_parts(names)} from sequence "
            "where isfinite(reward) and dropped is null"
        ).df()
    weights = weights_of_parts(rows, names)
    return None if weights is None else rows.assign(**rows[[*names]].fillna(0.0) * weights).groupby("step").mean()
