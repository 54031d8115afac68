"""Which settings collapse, by the rule that makes findings of runs, and which end below where they began."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratioscope.analysis.compare.alignment import Axis, End, common_end, ends, logged
from ratioscope.analysis.compare.grouping import Member, Setting, end_value
from ratioscope.analysis.compare.margins import margin
from ratioscope.analysis.diagnosis.collapse import reward_has_collapsed
from ratioscope.analysis.diagnosis.evidence import Evidence


@dataclass(frozen=True)
class Collapse:
    """A setting of which a run at least has collapsed, or whose mean ends below where it began."""

    setting: Setting
    metric: str
    """What fell: the metric that the rule looks at in these runs, which need not be the one that is compared."""
    best: float
    """Mean over the fallen seeds of the best level before the fall; where it began, without a fall."""
    end: float
    """Mean of what they end with, at the ends of their own logs."""
    last: int
    """The last step that has a say in it."""
    seeds: tuple[int, int]
    """How many fell, of how many; with `by_rule` false, all of them together."""
    by_rule: bool
    """Whether `reward_collapse` finds it; else the end is below the beginning by more than the margin."""


class _Fallen(NamedTuple):
    metric: str
    best: float
    end: float
    last: int


@np.errstate(invalid="ignore")  # infinities of both signs have no mean
def collapses(settings: Sequence[Setting], metric: str = "eval_accuracy", by: Axis = "step") -> tuple[Collapse, ...]:
    """The settings that collapse, then those whose evaluations merely end below where they began; in their order.

    A run collapses where the rule `reward_collapse` says so, with the limits of its project: of its evaluation
    accuracy where that was logged often enough, else of its reward, over all of its steps.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    found = {place: fallen for place, setting in enumerate(settings) if (fallen := _by_rule(setting)) is not None}
    below = []
    # Of other metrics the first value is that of one batch, which says little of where a run began.
    if metric == "eval_accuracy":
        end = common_end(settings, metric, by)
        rest = [setting for place, setting in enumerate(settings) if place not in found]
        below = [lost for setting in rest if (lost := _below(setting, metric, end)) is not None]
    return (*found.values(), *below)


def _by_rule(setting: Setting) -> Collapse | None:
    fallen = {member.unit: found for member in setting.members if (found := _fallen(member)) is not None}
    if not fallen:
        return None
    # Runs of one setting log alike; where they do not, what most of them fell in is named.
    metrics = [found.metric for found in fallen.values()]
    metric = max(dict.fromkeys(metrics), key=metrics.count)
    same = [found for found in fallen.values() if found.metric == metric]
    best, end = (float(np.mean([getattr(found, name) for found in same])) for name in ("best", "end"))
    seeds = (len(fallen), len({member.unit for member in setting.members}))
    return Collapse(setting, metric, best, end, max(found.last for found in same), seeds, by_rule=True)


def _fallen(member: Member) -> _Fallen | None:
    """What the rule finds of one run."""
    finding = reward_has_collapsed(Evidence(member.summary, member.run, member.limits))
    if finding is None:
        return None
    best = finding.numbers[0].value  # as its sentence says it
    series = member.summary.values[finding.metric].dropna()
    return _Fallen(finding.metric, best, end_value(series), int(series.index[-1]))


def _below(setting: Setting, metric: str, end: End) -> Collapse | None:
    first = [values.iloc[0] for member in setting.members if len(values := logged(member, metric, end.by))]
    last = ends(setting, metric, end)
    if not first or not len(last):
        return None
    began, ended = float(np.mean(first)), float(last.mean())
    if not (np.isfinite(began) and began - ended > margin(metric, began)):
        return None
    steps = [member.summary.last_step for member in setting.members]
    return Collapse(setting, metric, began, ended, max(steps), (len(last), len(last)), by_rule=False)
