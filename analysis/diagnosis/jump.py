"""A training reward that falls from one step to the next and stays there, beside an accuracy that holds.

Updates change a policy, which shows in both: what falls alone was scored otherwise, or belongs to other prompts.
"""

from ratioscope.analysis.diagnosis.around import fall_seen
from ratioscope.analysis.diagnosis.drop import reward_part_has_dropped
from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.fallen_reward import MOST_LOST, accuracy_held, lost_by_the_same
from ratioscope.analysis.diagnosis.fallen_temperature import reward_with_temperature
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.change_points import FAMILY, find_shift
from ratioscope.analysis.findings.fall import finite_values
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number


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
