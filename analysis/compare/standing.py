"""How settings stand at the end: a row for each, a contrast for each pair, all pairs judged together.

found = standing(settings, "eval_accuracy")
found.groups[0].rows          # best first, with rank and interval: dot plot, table, command and JSON are made of them
found.contrasts               # every pair of a group, the better first
found.contrast(2, 0)          # setting 2 minus setting 0, of whatever schedules
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from math import isfinite

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.aggregates import aggregate, t_interval
from ratioscope.analysis.compare.alignment import Axis, End, common_end, ends
from ratioscope.analysis.compare.collapses import Collapse, collapses
from ratioscope.analysis.compare.contrast import Difference, difference_over_runs
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.margins import margin, orientation
from ratioscope.analysis.compare.possible import possible, width
from ratioscope.analysis.compare.run_noise import Noise, RunDifference, holm, noise_of_runs, run_difference
from ratioscope.analysis.compare.tasks import tasks
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval

# From fewer seeds of any setting the noise of the evaluations decides: a t interval over two runs is wider than all.
FEWEST_SEEDS = 3
ALONE = "nothing to compare under its schedule"

Pair = tuple[int, int]


class Rank(StrEnum):
    """How a setting stands to the best of its group."""

    BEST = "best"
    TIED = "tied"
    """Not worse than the best by as much as the margin: the interval of its difference lies within it."""
    UNDECIDED = "undecided"
    """No significant difference, and one beyond the margin is not excluded; or no test can be made."""
    WORSE = "worse"
    """Significantly behind the best, all pairs judged together (Holm)."""


@dataclass(frozen=True)
class Contrast:
    """Setting A minus setting B at the end, in the metric's unit whichever way is better."""

    a: int
    """Its place among the settings."""
    b: int
    names: tuple[str, str]
    """Of A and B: the variants, with their schedules where they differ in them."""
    metric: str
    ends: tuple[float, float]
    """Of A and of B: the mean over the runs of each."""
    here: RunDifference
    """Of these runs, with the noise of their prompts."""
    over_seeds: Difference
    differs_here: bool | None = None
    """Whether these runs differ: on their prompts, all pairs judged together (Holm), and whichever evaluation of the
    end is the last; None: not tested, or of different groups."""
    differs_over_seeds: bool | None = None
    """Whether they differ by more than the spread of the seeds, likewise."""

    @property
    def flipped(self) -> "Contrast":
        """B minus A."""
        return replace(
            self, a=self.b, b=self.a, names=self.names[::-1], ends=self.ends[::-1], here=self.here.flipped,
            over_seeds=self.over_seeds.flipped,
        )  # fmt: skip


@dataclass(frozen=True)
class SettingRow:
    """A setting at the end of its runs."""

    place: int
    """Among the settings."""
    name: str
    """What tells it from the others of the comparison; text as in the logs."""
    value: float
    """Mean over the seeds."""
    here: Interval
    """95 % of these runs, by the noise of their prompts; none where that is not known."""
    over_seeds: Interval
    """95 % of the mean over seeds, by t; within what the metric can be, as `here`."""
    interval: Interval
    """That of the two by which the settings are judged."""
    seeds: "pd.Series[float]"
    """What each seed ends with, by `Member.unit`."""
    rank: Rank | None = None
    """None: it has no rival."""
    from_best: Interval = NO_INTERVAL
    """95 % of what it ends with minus what the best of its group does, by which it is judged; none of the best."""
    letters: str = ""
    """Settings of a group that share one do not differ significantly; empty where nothing can be tested."""

    @property
    def middle(self) -> tuple[float, Interval]:
        """The mean of the middle half of the seeds, and its band (`aggregate`)."""
        found = aggregate(pd.DataFrame([self.seeds]), "iqm").iloc[0]
        return float(found["value"]), Interval(float(found["low"]), float(found["high"]))


@dataclass(frozen=True)
class SettingGroup:
    """Settings that may be ranked, best first: of one task and one schedule, or where no schedule has two, of one task;
    or those that have no rival."""

    schedule: str
    """With the task where there are several; empty where there is one group."""
    rows: tuple[SettingRow, ...]
    ranked: bool = False


@dataclass(frozen=True)
class Standing:
    """Where the settings stand."""

    settings: tuple[Setting, ...]
    metric: str
    tasks: tuple[str, ...]
    """Of each setting; all empty where there is one task."""
    ends: tuple[End, ...]
    """Where each setting is compared: the same place for all of a task."""
    values: "tuple[pd.Series[float], ...]"
    """What each seed of each setting ends with, by `Member.unit`."""
    noise: tuple[Noise, ...]
    """How well the end of each setting's runs is known."""
    groups: tuple[SettingGroup, ...]
    """Those of the most seeds first; settings without a rival are in the last ones."""
    contrasts: tuple[Contrast, ...]
    """Every pair of every group that is ranked, the better one first."""
    by_seeds: bool
    """Whether the spread of the seeds decides: where every setting has three, or nothing else can."""
    fallen: tuple[Collapse, ...]

    def contrast(self, a: int, b: int) -> Contrast:
        """A minus B, by their places."""
        for known in self.contrasts:
            if (a, b) in ((known.a, known.b), (known.b, known.a)):
                return known if known.a == a else known.flipped
        return _contrast(self.settings, self.metric, self.values, self.noise, (a, b))

    def deciding(self, contrast: Contrast) -> tuple[Difference | RunDifference, bool | None]:
        """Of a contrast that by which settings are judged here, and whether they differ, all pairs judged together."""
        if self.by_seeds:
            return contrast.over_seeds, contrast.differs_over_seeds
        return contrast.here, contrast.differs_here

    @property
    def rows(self) -> tuple[SettingRow, ...]:
        """Of all groups."""
        return tuple(row for group in self.groups for row in group.rows)

    @property
    def ranked(self) -> tuple[SettingGroup, ...]:
        """The groups of settings that have rivals."""
        return tuple(group for group in self.groups if group.ranked)

    @property
    def against_best(self) -> tuple[Contrast, ...]:
        """The best of each group minus each of the others."""
        known = {(each.a, each.b): each for each in self.contrasts}
        return tuple(known[group.rows[0].place, row.place] for group in self.ranked for row in group.rows[1:])

    @property
    def without(self) -> tuple[int, ...]:
        """Places of the settings without a value of the metric."""
        return tuple(place for place, values in enumerate(self.values) if not len(values))

    @property
    def until(self) -> float:
        """The last place of the end; where there are several tasks, of the first that has values. NaN without any."""
        return next((end.until for end in self.ends if len(end.places)), float("nan"))

    @property
    def best(self) -> int:
        """The best of the first group, which sentences name first: the baseline until another one is chosen."""
        return self.rows[0].place if self.rows else 0


@np.errstate(invalid="ignore")  # infinities of both signs have no mean
def standing(settings: Sequence[Setting], metric: str, by: Axis = "step") -> Standing:
    """Compare settings at the end that all their runs reach; those of each task by themselves.

    Raises:
        RatioscopeError: there is no such metric, a run does not have the axis, or a file that was there at opening
            cannot be read any more.
    """
    named = tasks(settings, metric)
    of_task = {task: [place for place, name in enumerate(named) if name == task] for task in sorted(set(named))}
    end_of = {
        place: end
        for places in of_task.values()
        for end in [common_end([settings[place] for place in places], metric, by)]
        for place in places
    }
    values = [ends(setting, metric, end_of[place]) for place, setting in enumerate(settings)]
    noise = [noise_of_runs(setting, metric, end_of[p], values[p]) for p, setting in enumerate(settings)]
    order = [place for places in of_task.values() for place in _best_first(places, values, orientation(metric))]
    blocks = _blocks(settings, named, order)
    pairs = [pair for block in blocks.values() for pair in combinations(block, 2)]
    unjudged = [_contrast(settings, metric, values, noise, pair) for pair in pairs]
    here = _judged([each.here.p_prompts for each in unjudged])
    # Besides, the pair's own interval leaves out 0: the evaluations do not swing across each other.
    here = [known and each.here.differs for known, each in zip(here, unjudged, strict=True)]
    seeds = _judged([each.over_seeds.p_value for each in unjudged])
    by_seeds = any(differs is not None for differs in seeds) and (
        all(len(values[place]) >= FEWEST_SEEDS for pair in pairs for place in pair)
        or all(differs is None for differs in here)
    )
    contrasts = {
        (each.a, each.b): replace(each, differs_here=of_runs, differs_over_seeds=of_seeds)
        for each, of_runs, of_seeds in zip(unjudged, here, seeds, strict=True)
    }
    differ = dict(zip(pairs, seeds if by_seeds else here, strict=True))
    of_best = [contrasts[block[0], other] for block in blocks.values() for other in block[1:]]
    limits = {
        task: possible(metric, [settings[p] for p in places], np.concatenate([[], *(values[p] for p in places)]))
        for task, places in of_task.items()
    }
    called = short_names(settings, schedules=len(blocks) < 2)
    rows = {
        place: _row(place, called[place], values[place], noise[place], limits[named[place]], by_seeds=by_seeds)
        for place in order
    }
    from_best = {each.b: (each.over_seeds if by_seeds else each.here).interval.negative for each in of_best}
    tied = {each.b for each in of_best if _is_tied(metric, each.ends[0], from_best[each.b])}
    rows = {place: replace(row, from_best=from_best.get(place, NO_INTERVAL)) for place, row in rows.items()}
    groups = [
        SettingGroup(name if len(blocks) > 1 else "", tuple(_ranked(block, rows, differ, tied)), ranked=True)
        for name, block in blocks.items()
    ]
    groups.sort(key=lambda group: -min(contrasts[group.rows[0].place, group.rows[1].place].over_seeds.seeds))
    groups += _without_rival(settings, [rows[p] for p in order if not any(p in block for block in blocks.values())],
                             alone=not blocks)  # fmt: skip
    return Standing(
        tuple(settings), metric, tuple(named), tuple(end_of[place] for place in range(len(settings))), tuple(values),
        tuple(noise), tuple(groups), tuple(contrasts.values()), by_seeds, collapses(settings),
    )  # fmt: skip


def _best_first(places: Sequence[int], values: "Sequence[pd.Series[float]]", better: int) -> list[int]:
    """The settings that have a value; one whose mean is not defined comes last."""
    means = {place: better * float(values[place].mean()) for place in places if len(values[place])}
    return sorted(means, key=lambda place: (np.isnan(means[place]), -means[place]))


def _blocks(settings: Sequence[Setting], named: Sequence[str], order: Sequence[int]) -> dict[str, list[int]]:
    """Settings that may be ranked: of one task and one schedule; where no schedule has two, of one task."""
    pairs = [(task, setting.schedule) for task, setting in zip(named, settings, strict=True)]
    for key in (pairs, [(task, "") for task in named]):
        found: dict[tuple[str, str], list[int]] = {each: [] for each in key}
        for place in order:
            found[key[place]].append(place)
        if blocks := {each: block for each, block in found.items() if len(block) > 1}:
            said = len({task for task, _ in blocks}) > 1  # of a single task that is ranked, nothing tells it apart
            return {
                ", ".join(filter(None, (task if said else "", schedule))): block
                for (task, schedule), block in blocks.items()
            }
    return {}


def _contrast(
    settings: Sequence[Setting],
    metric: str,
    values: "Sequence[pd.Series[float]]",
    noise: Sequence[Noise],
    pair: Pair,
) -> Contrast:
    a, b = pair
    both = settings[a], settings[b]
    most = width(metric, both, np.concatenate([values[a], values[b]]))
    return Contrast(
        a, b, setting_names(*both), metric, (noise[a].value, noise[b].value), run_difference(noise[a], noise[b]),
        difference_over_runs(values[a], values[b], most),
    )  # fmt: skip


def setting_names(a: Setting, b: Setting) -> tuple[str, str]:
    """What two settings are called beside each other."""
    return (a.variant, b.variant) if a.schedule == b.schedule else (a.label, b.label)


def _judged(p_values: Sequence[float]) -> list[bool | None]:
    """Which are below what chance gives, all together; None: no test."""
    return [rejected if isfinite(p_value) else None for p_value, rejected in zip(p_values, holm(p_values), strict=True)]


def _is_tied(metric: str, best: float, from_best: Interval) -> bool:
    """Whether a setting is not worse than the best by as much as the margin.

    Not corrected for their number: the best is the one that ended best, so that differences from it are rather too
    large, and a reader finds each interval in the plot.
    """
    behind = -from_best.low if orientation(metric) > 0 else from_best.high
    return behind < margin(metric, best)


def _row(
    place: int, name: str, seeds: "pd.Series[float]", noise: Noise, limits: Interval, *, by_seeds: bool
) -> SettingRow:
    value, *within = map(float, t_interval(np.asarray(seeds, dtype=float)))
    over_seeds, here = (Interval(*map(float, np.clip(each, *limits))) for each in (within, noise.interval))
    return SettingRow(place, name, value, here, over_seeds, over_seeds if by_seeds else here, seeds)


def _ranked(
    block: Sequence[int], rows: Mapping[int, SettingRow], differ: Mapping[Pair, bool | None], tied: set[int]
) -> Iterator[SettingRow]:
    """The rows of a group with their ranks and letters."""
    tested = [pair for pair in combinations(block, 2) if differ[pair] is not None]
    letters = letters_of(block, [pair for pair in tested if differ[pair]]) if tested else {}
    for place in block:
        differs, rank = differ.get((block[0], place)), Rank.UNDECIDED
        if tested and place == block[0]:
            rank = Rank.BEST
        elif differs is not None:
            rank = Rank.WORSE if differs else Rank.TIED if place in tied else Rank.UNDECIDED
        yield replace(rows[place], rank=rank, letters=letters.get(place, ""))


def letters_of(order: Sequence[int], apart: Sequence[Pair]) -> Mapping[int, str]:
    """Settings that share a letter do not differ significantly (compact letter display, Piepho 2004).

    Args:
        order: their places, best first.
        apart: the pairs that differ.
    """
    columns: list[set[int]] = [set(order)]
    for pair in sorted(apart):
        for column in [column for column in columns if column.issuperset(pair)]:
            columns.remove(column)
            columns += [column - {place} for place in pair]
        columns = [column for column in columns if not any(column < other for other in columns)]
        columns = [column for place, column in enumerate(columns) if column not in columns[:place]]
    columns.sort(key=lambda column: sorted(map(order.index, column)))
    # Beyond z with a mark, so that no letter has two meanings.
    named = [(chr(ord("a") + number % 26) + "′" * (number // 26), column) for number, column in enumerate(columns)]
    return {place: "".join(letter for letter, column in named if place in column) for place in order}


def _without_rival(settings: Sequence[Setting], rows: Sequence[SettingRow], *, alone: bool) -> list[SettingGroup]:
    """Settings without a rival of their task and schedule, named in full."""
    if not rows or alone:
        return [SettingGroup("", tuple(rows))] if rows else []
    full = short_names(settings)
    return [SettingGroup(ALONE, tuple(replace(row, name=full[row.place]) for row in rows))]


def short_names(settings: Sequence[Setting], *, schedules: bool = True) -> list[str]:
    """What tells each setting from the others: what all have in common is left out.

    Args:
        schedules: whether the schedule is part of the name; it is not where it stands beside it.
    """
    variants = [_inside(setting.variant, settings) for setting in settings]
    told = [setting.schedule for setting in settings]
    if schedules and len(set(told)) > 1:
        variants = told if len(set(variants)) == 1 else [", ".join(pair) for pair in zip(variants, told, strict=True)]
    pairs = list(zip(variants, told, strict=True))
    return [
        f"{name} ({setting.members[0].run_id})" if pairs.count((name, schedule)) > 1 else name
        for name, schedule, setting in zip(variants, told, settings, strict=True)
    ]


def _inside(variant: str, settings: Sequence[Setting]) -> str:
    """Of settings of one algorithm, what is in the brackets behind its name."""
    algorithm = settings[0].algorithm
    variants = {setting.variant for setting in settings}
    if len(variants) > 1 and all(each.startswith(f"{algorithm} (") for each in variants):
        return variant.removeprefix(f"{algorithm} (").removesuffix(")")
    return variant
