"""Which settings collapse, by the rule that makes findings of runs, and which end below where they began."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratioscope.analysis.compare.alignment import Axis, End, common_end, ends, logged_values
from ratioscope.analysis.compare.grouping import Member, Setting, end_value
from ratioscope.analysis.compare.margins import margin
from ratioscope.analysis.findings.fall import fall_of


@dataclass(frozen=True)
class Collapse:
    """A setting of which a run at least has collapsed, or whose mean ends below where it began."""

    setting: Setting
    metric: str
    """What fell: the metric that the rule looks at in these runs, which need not be the one that is compared."""
    best: float
    """Mean over the fallen seeds of the best level before the fall; where it began, without a fall."""
    after: float
    """Mean of the median since the fall; without a fall as `end`."""
    since: int
    """The step in which the fall is seen, of the seed that fell first; -1 without a fall."""
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
    after: float
    since: int
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
        rest = [setting for place, setting in enumerate(settings) if place not in found]
        below = [lost for each in rest if (lost := _below(each, metric, common_end([each], metric, by))) is not None]
    return (*found.values(), *below)


def _by_rule(setting: Setting) -> Collapse | None:
    fallen = {member.unit: found for member in setting.members if (found := _fallen(member)) is not None}
    if not fallen:
        return None
    # Runs of one setting log alike; where they do not, what most of them fell in is named.
    metrics = [found.metric for found in fallen.values()]
    metric = max(dict.fromkeys(metrics), key=metrics.count)
    same = [found for found in fallen.values() if found.metric == metric]
    best, after, end = (float(np.mean([getattr(found, name) for found in same])) for name in ("best", "after", "end"))
    since, last = min(found.since for found in same), max(found.last for found in same)
    seeds = (len(fallen), len({member.unit for member in setting.members}))
    return Collapse(setting, metric, best, after, since, end, last, seeds, by_rule=True)


def _fallen(member: Member) -> _Fallen | None:
    """What the rule finds of one run."""
    fall = fall_of(member.summary, member.limits)
    if fall is None:
        return None
    series = member.summary.values[fall.metric].dropna()
    return _Fallen(fall.metric, fall.best, fall.after, fall.found, end_value(series), int(series.index[-1]))


def _below(setting: Setting, metric: str, end: End) -> Collapse | None:
    first = [values.iloc[0] for member in setting.members if len(values := logged_values(member, metric, end.by))]
    last = ends(setting, metric, end)
    if not first or not len(last):
        return None
    began, ended = float(np.mean(first)), float(last.mean())
    if not (np.isfinite(began) and began - ended > margin(metric, began)):
        return None
    steps = [member.summary.last_step for member in setting.members]
    return Collapse(setting, metric, began, ended, -1, ended, max(steps), (len(last), len(last)), by_rule=False)
