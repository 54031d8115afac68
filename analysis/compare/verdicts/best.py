"""Which setting is best: a row for each setting, and who leads in a few words; the head of page, report and command.

found = best_settings(standing(settings, "eval_accuracy"))
found.sentences             # ("Best: grpo (92%, 2 seeds).", "No significant difference to: gspo.", "Worse: reinforce.")
found.groups[0].rows        # best first, with seeds and interval: what the dot plot draws
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.alignment import ends
from ratioscope.analysis.compare.changed_component import configured, differing_settings
from ratioscope.analysis.compare.curves import labels
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.possible import possible
from ratioscope.analysis.compare.verdicts.separation import Separation
from ratioscope.analysis.compare.verdicts.standing import Contest, Standing
from ratioscope.analysis.compare.verdicts.wording import MORE_SEEDS, MOST_LISTED, capital, quantity, some, under
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval
from ratioscope.catalogue import CATALOGUE

# From fewer seeds of any setting the noise of the evaluations decides: a t interval over two runs is wider than all.
FEWEST_SEEDS = 3
ALONE = "nothing to compare under its schedule"
# Of more schedules the plot says who leads.
_MOST_SCHEDULES = 3
# Of a sentence that is read once; settings beyond them are counted, the plot has them all.
_MOST_WORDS = 25


@dataclass(frozen=True)
class SettingRow:
    """A setting at the end of its runs."""

    place: int
    """Among the settings."""
    name: str
    """What tells it from the others of the comparison; text as in the logs."""
    value: float
    """Mean over the seeds."""
    interval: Interval
    """95 %, within what the metric can be: over seeds, or of these runs (`Best.over_seeds`); none where not known."""
    seeds: "pd.Series[float]"
    """What each seed ends with, by `Member.unit`."""
    leads: bool
    """Whether it is the best of its group or not significantly worse than it."""
    letters: str = ""
    """Settings of a group that share one do not differ significantly; empty where nothing can be tested."""


@dataclass(frozen=True)
class SettingGroup:
    """Settings of one task and schedule, best first."""

    schedule: str
    """With the task where there are several; empty where there is one group."""
    rows: tuple[SettingRow, ...]


@dataclass(frozen=True)
class Best:
    """Where the settings stand, by one kind of interval."""

    metric: str
    groups: tuple[SettingGroup, ...]
    """Those that are ranked first; a setting without a rival under its schedule is in the last ones."""
    sentences: tuple[str, ...]
    """Best, not significantly different, worse; of several schedules one each."""
    collapsed: str
    """Which settings collapsed, and since when; empty where none did."""
    caveat: str
    """What so few seeds cannot tell; empty where they can."""
    over_seeds: bool
    """Whether the intervals are over seeds, and the groups as well."""
    basis: str
    """What the intervals are, in words."""

    @property
    def said(self) -> tuple[str, ...]:
        """All of it, a line each: who leads, under each schedule; what collapsed, and what is not known."""
        lines = self.sentences if len(self.sentences) > 1 and self.several else (" ".join(self.sentences),)
        return tuple(filter(None, (*lines, " ".join(filter(None, (self.collapsed, self.caveat))))))

    @property
    def several(self) -> bool:
        """Whether each sentence is of a schedule of its own."""
        return any(group.schedule not in ("", ALONE) for group in self.groups)

    @property
    def rows(self) -> tuple[SettingRow, ...]:
        """Of all groups."""
        return tuple(row for group in self.groups for row in group.rows)


def best_settings(found: Standing) -> Best:
    """Who leads under each schedule: by seeds where every setting has three, else by the noise of these runs."""
    over_seeds = decided_by_seeds(found)
    named = short_names(found.settings, schedules=len(found.contests) < 2)
    values = [ends(setting, found.metric, found.ends[place]) for place, setting in enumerate(found.settings)]
    rows = _rows(found, named, values, over_seeds=over_seeds)
    groups, ranked = [], set()
    for contest in found.contests:
        separation = contest.judged(over_seeds=over_seeds)
        groups.append(_group(contest.schedule if len(found.contests) > 1 else "", separation, rows))
        ranked |= set(separation.order)
    groups += _alone(
        [rows[int(place)] for place in found.ranking.index if place not in ranked and place in rows], found
    )
    told = [
        sentence
        for contest in found.contests[:_MOST_SCHEDULES]
        for sentence in _sentences(found, contest, rows, over_seeds=over_seeds)
    ]
    if (more := len(found.contests) - _MOST_SCHEDULES) > 0:
        told.append(f"{more} more schedule{'s' * (more > 1)}: in the table.")
    if not found.contests:
        told = [f"{found.nothing_to_compare}."]
    return Best(
        found.metric, tuple(groups), tuple(told), _collapsed(found), _caveat(found), over_seeds,
        _basis(found, over_seeds=over_seeds),
    )  # fmt: skip


def decided_by_seeds(found: Standing) -> bool:
    """Whether every setting that is ranked has seeds enough for their spread to decide, or nothing else can."""
    places = [place for contest in found.contests for place in contest.here.order]
    seeds = found.ranking["seeds"]
    tested = any(contest.with_other_seeds.tested for contest in found.contests)
    enough = all(seeds[place] >= FEWEST_SEEDS for place in places)
    return tested and (enough or not any(contest.here.tested for contest in found.contests))


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


def plainest(found: Standing) -> int:
    """The baseline while none is chosen: the setting that differs least from all others; of several the best.

    The middle of an ablation is what its other settings are changes of. A grid has no middle: then the best.
    """
    flat = [configured(setting) for setting in found.settings]
    places = [int(place) for place in found.ranking.index if place not in found.without]
    if not places:
        return 0
    alike = [place for place in places if found.tasks[place] == found.tasks[places[0]]]
    changes = {one: sum(len(differing_settings(flat[one], flat[other])) for other in alike) for one in alike}
    return min(alike, key=lambda place: (changes[place], alike.index(place)))


def _rows(
    found: Standing, named: Sequence[str], values: "Sequence[pd.Series[float]]", *, over_seeds: bool
) -> dict[int, SettingRow]:
    """By place; settings without a value are left out."""
    rows = {}
    for place, row in zip(map(int, found.ranking.index), found.ranking.to_dict("records"), strict=True):
        if not isfinite(row["mean"]):
            continue
        if over_seeds:
            interval = Interval(row["low"], row["high"])
        else:
            limits = possible(found.metric, [found.settings[place]], np.asarray(values[place], dtype=float))
            low, high = found.noise[place].interval
            interval = Interval(max(low, limits.low), min(high, limits.high)) if isfinite(low) else NO_INTERVAL
        rows[place] = SettingRow(place, named[place], float(row["mean"]), interval, values[place], leads=False)
    return rows


def _group(schedule: str, separation: Separation, rows: dict[int, SettingRow]) -> SettingGroup:
    known = [place for place in separation.order if place in rows]
    letters = separation.letters if separation.tested else {}
    leaders = _alike(separation) if separation.tested else []
    return SettingGroup(
        schedule,
        tuple(replace(rows[place], leads=place in leaders, letters=letters.get(place, "")) for place in known),
    )


def _alike(separation: Separation) -> list[int]:
    """The best, and those that were tested against it without a significant difference."""
    first = separation.order[0]
    return [place for place in separation.leaders if place == first or (first, place) not in separation.unknown]


def _alone(rows: Sequence[SettingRow], found: Standing) -> list[SettingGroup]:
    """Settings without a rival of their task and schedule, named in full."""
    if not rows or not found.contests:
        return [SettingGroup("", tuple(rows))] if rows else []
    full = labels(found.settings)
    return [SettingGroup(ALONE, tuple(replace(row, name=full[row.place]) for row in rows))]


def _sentences(found: Standing, contest: Contest, rows: dict[int, SettingRow], *, over_seeds: bool) -> list[str]:
    """Of a single contest a sentence for each part, of several one in all; with as many names as have room."""
    several = len(found.contests) > 1
    for most in range(MOST_LISTED, -1, -1):
        parts = _parts(found, contest, rows, most, over_seeds=over_seeds)
        told = ["; ".join(parts)] if several else list(map(capital, parts))
        if max(len(sentence.split()) for sentence in told) <= _MOST_WORDS:
            break
    return [f"{sentence}." for sentence in told]


def _parts(found: Standing, contest: Contest, rows: dict[int, SettingRow], most: int, *, over_seeds: bool) -> list[str]:
    """Best; without a significant difference to it; worse; not to be tested. Each in a few words.

    Args:
        most: names of each kind; 0: their number.
    """
    separation, metric = contest.judged(over_seeds=over_seeds), found.metric
    first, *others = separation.order
    word, below = ("Best", "worse") if CATALOGUE[metric].better in ("higher", "lower") else ("Highest", "lower")
    if len(found.contests) > 1:
        word = f"{word} {under(contest.schedule)}"
    if first not in rows:
        return [f"{word}: unknown, a run does not end with a finite number"]
    known = rows[first]
    told = [f"{word}: {known.name} ({_value(metric, known.value)}, {_seeds(len(known.seeds))})"]
    if not separation.tested:
        reason = next((noise.reason for place in separation.order if (noise := found.noise[place]).reason), "no noise")
        return [*told, f"cannot tell whether the settings differ: {reason}"]
    alike = [place for place in _alike(separation) if place != first]
    worse = [place for place in others if (first, place) in separation.apart]
    unknown = [place for place in others if (first, place) in separation.unknown]
    same = "no significant difference" + " to" * (most > 0)
    for words, places in ((same, alike), (below, worse), ("cannot tell", unknown)):
        named = [rows[place].name if place in rows else found.settings[place].variant for place in places]
        if len(places) == len(others) > most > 0 and places[-1] in rows:
            told.append(f"{words}: all {len(places)} others (to {_value(metric, rows[places[-1]].value)})")
        elif places:
            told.append(f"{words}: {some(named, most=most) if most else len(places)}")
    return told


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _value(metric: str, value: float) -> str:
    return f"{100 * value:.0f}%" if CATALOGUE[metric].share and abs(value) >= 0.1 else quantity(value, metric)


def _collapsed(found: Standing) -> str:
    named = short_names(found.settings)
    fallen = [collapse for collapse in found.fallen if collapse.by_rule]
    told = [f"{named[found.settings.index(each.setting)]} (since step {each.since})" for each in fallen]
    return f"Collapsed: {some(told)}." if told else ""


def _caveat(found: Standing) -> str:
    """Said where a contest has a setting of too few seeds."""
    counts = sorted({int(found.ranking["seeds"][place]) for contest in found.contests for place in contest.here.order})
    if not counts or counts[0] >= FEWEST_SEEDS:
        return ""
    many = "One seed" if counts[-1] == 1 else f"{_span(counts)} seeds"
    return f"{many} each: other seeds may change this order; {MORE_SEEDS}."


def _span(counts: Sequence[int]) -> str:
    return f"{counts[0]} to {counts[-1]}" if counts[0] < counts[-1] else str(counts[0])


def _basis(found: Standing, *, over_seeds: bool) -> str:
    if over_seeds:
        return "95% over seeds (t)"
    known = [found.noise[place] for contest in found.contests for place in contest.here.order]
    known = [noise for noise in known if not noise.reason]
    if not known:
        return ""
    return f"95% of these runs, by {min(known, key=lambda noise: (noise.prompts, -noise.error)).basis}"
