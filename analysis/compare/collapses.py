"""Which settings collapse, by the rule that makes findings of runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ratioscope.analysis.compare.grouping import Setting, end_value
from ratioscope.analysis.findings.fall import fall_of


@dataclass(frozen=True)
class Collapse:
    """A setting of which a run at least has collapsed."""

    setting: Setting
    metric: str
    """What fell: the metric that the rule looks at in these runs, which need not be the one that is compared."""
    best: float
    """Mean over the fallen seeds of the best level before the fall."""
    after: float
    """Mean of the median since the fall."""
    since: int
    """The step in which the fall is seen, of the seed that fell first."""
    end: float
    """Mean of what they end with, at the ends of their own logs."""
    seeds: tuple[int, int]
    """How many fell, of how many."""
    lost: float
    """The share of the best level that a fall has to lose: the limit of the rule."""


@np.errstate(invalid="ignore")  # infinities of both signs have no mean
def collapses(settings: Sequence[Setting]) -> tuple[Collapse, ...]:
    """The settings that collapse, in their order.

    A run collapses where the rule `reward_collapse` says so, with the limits of its project: of its evaluation
    accuracy where that was logged often enough, else of its reward, over all of its steps.
    """
    return tuple(fallen for setting in settings if (fallen := _collapse(setting)) is not None)


def _collapse(setting: Setting) -> Collapse | None:
    known = [(each, fall_of(each.summary, each.limits)) for each in setting.members]
    fallen = {each.unit: (fall, end_value(each.summary.values[fall.metric])) for each, fall in known if fall}
    if not fallen:
        return None
    # Runs of one setting log alike; where they do not, what most of them fell in is named.
    metrics = [fall.metric for fall, _ in fallen.values()]
    metric = max(dict.fromkeys(metrics), key=metrics.count)
    same = [(fall, end) for fall, end in fallen.values() if fall.metric == metric]
    best, after = (float(np.mean([getattr(fall, name) for fall, _ in same])) for name in ("best", "after"))
    seeds = (len(fallen), len({member.unit for member in setting.members}))
    lost = min(each.limits.reward_fall for each, fall in known if fall)
    since, end = min(fall.found for fall, _ in same), float(np.mean([end for _, end in same]))
    return Collapse(setting, metric, best, after, since, end, seeds, lost)
