"""Which settings collapse, by the rule that makes findings of runs, and which end below where they began; in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratioscope.analysis.compare.alignment import Axis, End, common_end, ends, logged_values
from ratioscope.analysis.compare.grouping import Member, Setting, end_value
from ratioscope.analysis.compare.margins import margin
from ratioscope.analysis.compare.verdicts.wording import MOST_LISTED, quantity, some, under
from ratioscope.analysis.findings.fall import fall_of, levels_of, setback_of
from ratioscope.analysis.findings.words import listed
from ratioscope.catalogue import CATALOGUE


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


def _can_be_judged(member: Member) -> bool:
    """Whether there are values enough for a fall to be looked for."""
    return bool(levels_of(member.summary))


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


def collapse_sentence(settings: Sequence[Setting], fallen: Sequence[Collapse]) -> str:
    """Which settings collapsed and which did not, without a full stop; empty where nothing is seen to fall."""
    groups: dict[tuple[str, bool], list[Collapse]] = {}
    for collapse in fallen:
        groups.setdefault((collapse.setting.variant, collapse.by_rule), []).append(collapse)
    if not groups:
        return ""
    # By the rule first, then those that collapse under the most schedules.
    by_number = sorted(groups.values(), key=lambda group: (not group[0].by_rule, -len(group)))
    told = [_fall(settings, group) for group in by_number[:MOST_LISTED]]
    if more := by_number[MOST_LISTED:]:
        what = "so did" if by_number[-1][0].by_rule else "below, too:"
        told.append(f"{what} {listed([group[0].setting.variant for group in more])}")
    collapsed = [collapse.setting for collapse in fallen if collapse.by_rule]
    others = [
        place
        for place, setting in enumerate(settings)
        if setting not in collapsed and all(map(_can_be_judged, setting.members))
    ]
    if not collapsed:
        told.append("no collapse is found")
    elif len(others) == 1:
        other, metric = settings[others[0]], fallen[0].metric
        end = float(np.mean([end_value(member.summary.values[metric]) for member in other.members]))
        at_the_end = f" ({quantity(end, metric)} at the end)" if np.isfinite(end) else ""
        told.append(f"{_name(settings, other)} did not{at_the_end}{_for_a_time(settings, others)}")
    elif others:
        told.append(f"none of the other {len(others)} settings did{_for_a_time(settings, others)}")
    return "; ".join([*told, *filter(None, [unjudged_words(settings)])])


def _for_a_time(settings: Sequence[Setting], places: Sequence[int]) -> str:
    """Which of these settings fell and came back."""
    back = [settings[place] for place in places if any(map(_came_back, settings[place].members))]
    if not back:
        return ""
    named = [_name(settings, setting) for setting in back] if len(places) > 1 else ["it"]
    return f", though {listed(named)} fell for a time"


def _came_back(member: Member) -> bool:
    return setback_of(member.summary, member.limits) is not None


def unjudged_words(settings: Sequence[Setting]) -> str:
    """Which settings have too few values for a collapse to be seen; empty where none has."""
    names = [_name(settings, setting) for setting in settings if not all(map(_can_be_judged, setting.members))]
    return f"too few values to see a collapse of {some(names)}" if names else ""


def _name(settings: Sequence[Setting], setting: Setting) -> str:
    same = len({each.schedule for each in settings}) == 1
    return setting.variant if same else setting.label


def _fall(settings: Sequence[Setting], group: Sequence[Collapse]) -> str:
    """One variant: under which schedules, from where to where."""
    variant, title = group[0].setting.variant, CATALOGUE[group[0].metric].title.lower()
    schedules = [setting.schedule for setting in settings if setting.variant == variant]
    several = len({setting.schedule for setting in settings}) > 1
    places = []
    for collapse in group:
        fallen, of = collapse.seeds
        where = f" {under(collapse.setting.schedule)}" * several
        seeds = f", {fallen} of {of} seeds" * (of > 1 and collapse.by_rule)
        best, after, end = (quantity(value, collapse.metric) for value in (collapse.best, collapse.after, collapse.end))
        since = f" since step {collapse.since} ({end} at the end{seeds})" if collapse.by_rule else ""
        low = f"a median of {after}" if collapse.by_rule and after != end else after
        places.append(f"from {best} to {low}{since}{where}")
    if len(places) > 1:
        places = [f"at its worst {places[int(np.argmin([collapse.after for collapse in group]))]}"]
    every = " under every schedule" * (len(group) == len(schedules) > 1)
    if group[0].by_rule:
        return f"{variant} collapsed{every}: {title} fell {some(places)}"
    return f"{variant} ends below where it began{every}, {title} {some(places)}"
