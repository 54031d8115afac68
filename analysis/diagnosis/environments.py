"""Whether one environment is forgotten while the others are learned: the mean over all of them hides it."""

from math import sqrt
from typing import NamedTuple

import pandas as pd

from ratioscope.analysis.diagnosis.around import fall_seen
from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.by_block import by_block
from ratioscope.run_format import schema

_PART = 3
"""Of the steps the first and the last of so many parts are compared."""
_FEWEST_GROUPS = 12
_CLEAR = 4.0
"""Standard errors, of means over groups: responses of one prompt earn alike."""
_FEWEST_PROMPTS = 8
"""That both parts have: then the same prompts are compared."""


class _Change(NamedTuple):
    """What an environment earns in the first part of the run and in the last one."""

    before: float
    after: float
    error: float
    lowest: float
    """That it ever earned."""
    same: int
    """Prompts that both parts have, if they are what is compared; 0: all of either part are."""

    @property
    def errors(self) -> float:
        """The change in standard errors."""
        return (self.after - self.before) / self.error if self.error > 0 else 0.0

    @property
    def lost(self) -> float:
        """The share of what it earned at first, above the lowest, that is lost beyond chance."""
        return (self.before - self.after) / (self.before - self.lowest) if self.errors < -_CLEAR else 0.0


@rule("environment_forgotten", order=109, page="overview", group=None, words="forgotten environment", cause=False)
def environment_is_forgotten(evidence: RunEvidence) -> Finding | None:
    """One environment earns less at the end than at the start, by what counts as a fall, and the run does not fall."""
    if evidence.run is None or not evidence.log.has("sequences.environment") or fall_seen(evidence) is not None:
        return None
    (groups,) = by_block("environments", evidence.run, _groups)
    if groups["environment"].nunique() < 2:
        return None
    steps = sorted(groups["step"].unique())
    n = max(len(steps) // _PART, 1)
    parts = groups["step"].map(dict.fromkeys(steps[:n], "first") | dict.fromkeys(steps[-n:], "last"))
    found = {str(name): _change(rows) for name, rows in groups.assign(part=parts).groupby("environment")}
    changes = {name: change for name, change in found.items() if change is not None}
    name = max(changes, key=lambda each: changes[each].lost, default="")
    if not name or changes[name].lost < evidence.limits.reward_fall:
        return None
    change, risen = changes[name], max(changes, key=lambda each: changes[each].errors)
    of_step = groups[groups["environment"] == name].groupby("step")["reward"].mean()
    low = of_step[of_step < (change.before + change.after) / 2]
    others = (
        f"{risen} went from {number(changes[risen].before, digits=2)} to {number(changes[risen].after, digits=2)} "
        "in the same steps. "
        if changes[risen].errors > _CLEAR
        else ""
    )
    asked = (
        f"It is so on the {change.same} prompts that come at both ends, so they have not become harder."
        if change.same
        else "Too few of its prompts come at both ends to tell whether they have become harder."
    )
    return Finding(
        severity=Severity.WARNING,
        sentence=f"{name} is forgotten: its reward went from {number(change.before, digits=2)} to "
        f"{number(change.after, digits=2)}, and the mean over all environments hides it.",
        metric="reward",
        steps=steps_of(low),
        numbers=(
            Number(f"Reward of {name}, first {n} steps", change.before),
            Number(f"Reward of {name}, last {n} steps", change.after),
        ),
        why=f"{others}{asked}",
        do=f"Score early responses of {name} again: if they earn less now, look at its scorer. Else give it more of "
        "the prompts, or raise the KL penalty.",
        source="chosen here",
    )


def _change(rows: pd.DataFrame) -> _Change | None:
    """Of one environment; None where too few groups tell."""
    first, last = (rows[rows["part"] == part] for part in ("first", "last"))
    if min(len(first), len(last)) < _FEWEST_GROUPS:
        return None
    lowest = float(rows["lowest"].min())
    one, other = (part.groupby("prompt_id")["reward"].mean() for part in (first, last))
    apart = (other - one).dropna()
    if len(apart) >= _FEWEST_PROMPTS:
        error = float(apart.std()) / sqrt(len(apart))
        return _Change(float(one[apart.index].mean()), float(other[apart.index].mean()), error, lowest, len(apart))
    error = sqrt(float(first["reward"].var()) / len(first) + float(last["reward"].var()) / len(last))
    return _Change(float(first["reward"].mean()), float(last["reward"].mean()), error, lowest, 0)


def _groups(run: Run, first: int | None, last: int | None) -> tuple[pd.DataFrame]:
    with relations(run, first, last, tables=(schema.SEQUENCES,)) as connection:
        found = connection.execute(
            """
            select step, environment, group_id, any_value(prompt_id) as prompt_id, avg(reward)::double as reward,
                min(reward)::double as lowest
            from sequence where isfinite(reward) and environment is not null group by all order by all
            """
        ).df()
    return (found,)
