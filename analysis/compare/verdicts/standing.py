"""How settings stand at the end: who leads under each schedule, which are told apart, what other seeds would say."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.alignment import Axis, End, common_end, ends
from ratioscope.analysis.compare.contrast import difference_over_runs, p_over_seeds
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.possible import width
from ratioscope.analysis.compare.ranking import over_schedules, ranking
from ratioscope.analysis.compare.run_noise import Noise, noise_of_runs, run_difference
from ratioscope.analysis.compare.tasks import tasks
from ratioscope.analysis.compare.verdicts.collapses import Collapse, collapses
from ratioscope.analysis.compare.verdicts.separation import Separation, separations
from ratioscope.analysis.compare.verdicts.verdict import ComparisonAnswer, judge_difference, on_common_prompts
from ratioscope.analysis.compare.verdicts.wording import lowered, some
from ratioscope.catalogue import CATALOGUE

# What the training reward says something of, too.
_JUDGED_BY_REWARD = ("eval_accuracy", "reward")


@dataclass(frozen=True)
class Contest:
    """The settings of one task and schedule, which may be ranked."""

    schedule: str
    """With the task where there are several. Empty where settings of different schedules meet, because no schedule has
    two."""
    end: End
    pairs: tuple[tuple[int, int], ...]
    """Best and other, by their places among the settings, the runner-up first."""
    answers: tuple[ComparisonAnswer, ...]
    """Of each of these pairs, by itself."""
    here: Separation
    """Which settings differ in these runs; all pairs together."""
    with_other_seeds: Separation
    """Which differ beyond the spread of the seeds."""

    def judged(self, *, over_seeds: bool) -> Separation:
        """By the spread of the seeds, or by the noise of these runs."""
        return self.with_other_seeds if over_seeds else self.here


@dataclass(frozen=True)
class Standing:
    """Where the settings stand."""

    settings: tuple[Setting, ...]
    metric: str
    ends: tuple[End, ...]
    """Where each setting is compared: the same place for all of a task."""
    ranking: pd.DataFrame
    """`ranking`, best first; task by task where there are several (column task)."""
    noise: tuple[Noise, ...]
    """How well the end of each setting's runs is known."""
    over_schedules: pd.DataFrame
    """The variants that ran under every schedule, best first; `ranking.over_schedules`."""
    contests: tuple[Contest, ...]
    """Those of the most seeds first; else in the settings' order."""
    without: tuple[int, ...]
    """Settings without a value of the metric."""
    tasks: tuple[str, ...]
    """Of each setting; all empty where there is one task."""
    fallen: tuple[Collapse, ...]
    """What collapsed, or ends below where it began."""

    def differ(self, a: int, b: int, *, over_seeds: bool) -> bool | None:
        """Whether two settings differ, all pairs judged together; None: not tested, or of different schedules."""
        for contest in self.contests:
            judged = contest.judged(over_seeds=over_seeds)
            if {a, b} <= set(judged.order):
                return None if {(a, b), (b, a)} & judged.unknown else bool({(a, b), (b, a)} & judged.apart)
        return None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was not compared, and why."""
        told = list(dict.fromkeys(end.shortened for end in self.ends if len(end.places)))
        named = list(dict.fromkeys(self.tasks))
        if len(named) > 1:
            told.append(
                f"The runs have different tasks or rewards ({some(named, '; ')}), and what they end with is not the "
                "same quantity: they are not ranked against each other"
            )
        if self.without and self.contests:
            missing = some(self.settings[place].label for place in self.without)
            told.append(f"No value of {lowered(CATALOGUE[self.metric].title)}: {missing}")
        return tuple(filter(None, told))

    @property
    def where(self) -> str:
        """Which values "the end" are."""
        found = dict.fromkeys(
            f"{task}: " * bool(task) + f"the {end.values_words}"
            for task, end in zip(self.tasks, self.ends, strict=True)
            if len(end.places)
        )
        return f"The end is {'; '.join(found)}." if found else ""

    @property
    def until(self) -> float:
        """The last place of the end; where there are several tasks, of the first that has values. NaN without any."""
        return next((end.until for end in self.ends if len(end.places)), float("nan"))

    @property
    def nothing_to_compare(self) -> str:
        """Why there is no contest; empty where there is one."""
        title = CATALOGUE[self.metric].title
        if self.contests:
            return ""
        if len(self.without) == len(self.settings):
            return f"{title} has no value in any of these runs: nothing to compare. Choose another metric"
        if len(self.settings) - len(self.without) > 1:
            return f"{title} at the end: no two of these settings have the same task and reward"
        if len(self.settings) > 1:
            return f"{title} has values in one setting only: nothing to compare yet"
        return "One setting is chosen: nothing to compare yet"


@np.errstate(invalid="ignore")  # infinities of both signs have no mean
def standing(settings: Sequence[Setting], metric: str, by: Axis = "step") -> Standing:
    """Compare settings at the end that all their runs reach; those of each task by themselves.

    Raises:
        RatioscopeError: there is no such metric, a run does not have the axis, or a file that was there at opening
            cannot be read any more.
    """
    named = tasks(settings, metric)
    of_task = {task: [place for place, name in enumerate(named) if name == task] for task in sorted(set(named))}
    end_of, ranked = dict[int, End](), []
    for task, places in of_task.items():
        mine = [settings[place] for place in places]
        end = common_end(mine, metric, by)
        end_of |= dict.fromkeys(places, end)
        table = ranking(mine, metric, end)
        ranked.append(table.set_axis([places[int(row)] for row in table.index], axis=0).assign(task=task))
    table = pd.concat(ranked) if ranked else ranking([], metric)
    known = [int(place) for place, seeds in table["seeds"].items() if seeds]  # type: ignore[call-overload]
    values = [ends(setting, metric, end_of[place]) for place, setting in enumerate(settings)]
    noise = [noise_of_runs(setting, metric, end_of[place]) for place, setting in enumerate(settings)]

    def judged(best: int, other: int) -> ComparisonAnswer:
        pair, end = (settings[best], settings[other]), end_of[best]
        most = width(metric, pair, np.concatenate([values[best], values[other]]))
        of_runs, of_seeds = (
            run_difference(noise[best], noise[other]),
            difference_over_runs(values[best], values[other], most),
        )
        prompts = on_common_prompts(*pair, end) if metric in _JUDGED_BY_REWARD else None
        return judge_difference(*pair, metric, of_seeds, of_runs, (noise[best], noise[other]), prompts)

    blocks = _blocks(settings, named, known)
    orders = list(blocks.values())
    here = separations(orders, lambda one, other: run_difference(noise[one], noise[other]).p_value)
    seeds = separations(orders, lambda one, other: p_over_seeds(values[one], values[other]))
    contests = []
    for (name, block), of_runs, of_seeds in zip(blocks.items(), here, seeds, strict=True):
        pairs = tuple((block[0], other) for other in block[1:])
        answers = tuple(judged(*pair) for pair in pairs)
        contests.append(Contest(name, end_of[block[0]], pairs, answers, of_runs, of_seeds))
    contests.sort(key=lambda contest: -min(contest.answers[0].difference.seeds))
    everywhere = [end_of[place] for place in range(len(settings))]
    pooled = pd.DataFrame()
    if len(of_task) == 1 and np.size(everywhere[0].places):
        pooled = over_schedules(settings, metric, everywhere[0])
    return Standing(
        tuple(settings), metric, tuple(everywhere), table, tuple(noise), pooled, tuple(contests),
        tuple(sorted(set(range(len(settings))) - set(known))), tuple(named), collapses(settings, metric, by),
    )  # fmt: skip


def _blocks(settings: Sequence[Setting], named: Sequence[str], known: Sequence[int]) -> dict[str, list[int]]:
    """Settings that may be ranked: of one task and one schedule; where no schedule has two, of one task."""
    several = len(set(named)) > 1

    def blocks(key: Sequence[str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place in sorted(known, key=lambda place: key.index(key[place])):
            found.setdefault(key[place], []).append(place)
        order = {place: rank for rank, place in enumerate(known)}
        return {name: sorted(block, key=order.__getitem__) for name, block in found.items() if len(block) > 1}

    schedules = [setting.schedule for setting in settings]
    full = [f"{task}, {schedule}" if several else schedule for task, schedule in zip(named, schedules, strict=True)]
    return blocks(full) or blocks(named)
