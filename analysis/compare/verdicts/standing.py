"""How settings stand at the end: who leads under each schedule, by how much, and whether that is more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.alignment import Axis, End, common_end, ends
from ratioscope.analysis.compare.contrast import difference
from ratioscope.analysis.compare.grouping import LAST_VALUES, Setting
from ratioscope.analysis.compare.ranking import over_schedules, ranking
from ratioscope.analysis.compare.verdicts.verdict import Answer, judge
from ratioscope.catalogue import CATALOGUE

# More schedules than these are named in the tables only.
MOST_NAMED = 3


@dataclass(frozen=True)
class Contest:
    """The settings of one schedule: the one with the best mean against each of the others."""

    schedule: str
    """Empty where settings of different schedules meet, because no schedule has two."""
    pairs: tuple[tuple[int, int], ...]
    """Best and other, by their places among the settings, the runner-up first."""
    answers: tuple[Answer, ...]
    """Of each pair."""


@dataclass(frozen=True)
class Standing:
    """Where the settings stand."""

    metric: str
    end: End
    ranking: pd.DataFrame
    """`ranking`, best first."""
    over_schedules: pd.DataFrame
    """The variants that ran under every schedule, best first; `ranking.over_schedules`."""
    contests: tuple[Contest, ...]
    """Those of the most seeds first; else in the settings' order."""
    without: tuple[int, ...]
    """Settings without a value of the metric."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Is the difference real? The best of each schedule against its runner-up, in words; text as in the logs."""
        title = CATALOGUE[self.metric].title
        if not self.contests:
            if len(self.without) == len(self.ranking):
                return (f"{title} has no value in any of these runs: nothing to compare. Choose another metric.",)
            if len(self.ranking) > 1:
                return (f"{title} has values in one setting only: nothing to compare yet.",)
            return ("One setting is chosen: nothing to compare yet.",)
        found = [
            f"{contest.schedule}{': ' * bool(contest.schedule)}{contest.answers[0].sentence}."
            for contest in self.contests[:MOST_NAMED]
        ]
        more = len(self.contests) - MOST_NAMED
        rest = (f"{more} more schedule{'s' * (more > 1)}: in the tables below.",) if more > 0 else ()
        return f"{title} at the end. {found[0]}", *found[1:], *rest

    @property
    def caveat(self) -> str:
        """What several answers at once are not; empty for a single one."""
        n = sum(len(contest.answers) for contest in self.contests)
        if n < 2:
            return ""
        return f"{n} answers at 95 % each, after choosing the best on the same data: one of them may well be chance."

    @property
    def where(self) -> str:
        """Which values "the end" are."""
        if not len(self.end.places):
            return ""
        return (
            f"The end is the mean of the last {LAST_VALUES} logged values of each run up to {self.end.words}, "
            "which every run reaches."
        )


def standing(settings: Sequence[Setting], metric: str, by: Axis = "step") -> Standing:
    """Compare settings at the end that all their runs reach.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    end = common_end(settings, metric, by)
    ranked = ranking(settings, metric, end)
    known = [int(place) for place, seeds in ranked["seeds"].items() if seeds]  # type: ignore[call-overload]
    without = tuple(sorted(set(range(len(settings))) - set(known)))
    schedules = dict.fromkeys(setting.schedule for setting in settings)
    blocks = {name: [place for place in known if settings[place].schedule == name] for name in schedules}
    if not any(len(block) > 1 for block in blocks.values()):
        blocks = {"": known}
    values = [ends(setting, metric, end) for setting in settings]
    contests = [
        Contest(
            name,
            tuple((block[0], other) for other in block[1:]),
            tuple(
                judge(settings[block[0]], settings[other], metric, difference(values[block[0]], values[other]))
                for other in block[1:]
            ),
        )
        for name, block in blocks.items()
        if len(block) > 1
    ]
    contests.sort(key=lambda contest: -min(contest.answers[0].difference.seeds))
    pooled = over_schedules(settings, metric, end) if np.size(end.places) else pd.DataFrame()
    return Standing(metric, end, ranked, pooled, tuple(contests), without)
