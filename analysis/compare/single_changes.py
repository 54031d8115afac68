"""What one change of an algorithm does: pairs of settings that differ in one component only, under every schedule.

changes = single_changes(settings(members), "eval_accuracy")
changes[0].what                    # "gate: one_side → none"
changes[0].end.value               # after minus before at the end, mean over schedules, with interval and basis
changes[0].schedules[0].verdict    # "better", "worse", "alike", "cannot tell", under one schedule
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.aggregates import t_interval
from ratioscope.analysis.compare.alignment import Axis, End, align, common_end, ends, logged_values
from ratioscope.analysis.compare.changed_component import Component, changed_component, configured
from ratioscope.analysis.compare.contrast import ROUNDING, Difference, difference_over_runs
from ratioscope.analysis.compare.curves import smoothed
from ratioscope.analysis.compare.grouping import Setting, check_metric
from ratioscope.analysis.compare.margins import margin, orientation
from ratioscope.analysis.compare.possible import width
from ratioscope.analysis.compare.sentences import why_not
from ratioscope.analysis.compare.standing import setting_names
from ratioscope.analysis.compare.tasks import tasks
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval

ChangeVerdict = Literal["better", "worse", "alike", "cannot tell"]

# Of what an interval is over: these have none.
ONE_SEED, NO_VALUE = "one seed each", "no value"


class ChangeEffect(NamedTuple):
    """After minus before, in the metric's unit whichever way is better."""

    value: float
    interval: Interval
    """95 %, by t; none where nothing is known of the spread."""
    basis: str
    """What the interval is over, in words."""


@dataclass(frozen=True)
class UnderSchedule:
    """A change under one schedule, over seeds."""

    schedule: str
    before: Setting
    after: Setting
    end: Difference
    """After minus before, of what the runs end with."""
    speed: Difference
    """Of the mean over the first half of what all runs reach."""
    fall: Difference
    """Of the fall from the best running mean to the end: above 0, the change makes it less stable."""
    margin: float
    verdict: ChangeVerdict
    reason: str
    """Why it is unknown, and what to do; else empty."""


@dataclass(frozen=True)
class SingleChange:
    """One change of one component, under every schedule that has both settings."""

    component: Component
    of: str
    """The variant before the change."""
    to: str
    metric: str
    schedules: tuple[UnderSchedule, ...]
    """In the settings' order, fresh data first."""
    end: ChangeEffect
    """Mean over schedules, each of which counts once; over seeds where there is one schedule only."""
    speed: ChangeEffect
    fall: ChangeEffect
    margin: float
    verdict: ChangeVerdict
    """Of the end: alike where the interval lies within the margin, else better or worse where it leaves out 0."""
    reason: str
    """Why it is unknown, and what to do; else empty."""

    @property
    def what(self) -> str:
        """The component, from what, to what; text as in the logs."""
        return self.component.words


@np.errstate(invalid="ignore")  # infinities of both signs have no mean
def single_changes(settings: Sequence[Setting], metric: str, by: Axis = "step") -> tuple[SingleChange, ...]:
    """Every change of exactly one component that two settings of one schedule make, over all schedules.

    A component is a part of the algorithm, with the parameters that only one side has; or, where all parts are the
    same, one parameter (the two sides of a bound are one); or, where the algorithms are the same, one other key of the
    configuration. How many updates were planned is none. An algorithm that does not log its parts is changed by its
    parameters only. A change goes from what does something to what does not, and from small numbers to large ones.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    check_metric(metric)
    named = tasks(settings, metric)
    if len(set(named)) > 1:  # no change leads from one task to another, and the runs of each have their own end
        blocks = [
            [each for each, name in zip(settings, named, strict=True) if name == task] for task in dict.fromkeys(named)
        ]
        return tuple(change for block in blocks for change in single_changes(block, metric, by))
    flat = [configured(setting) for setting in settings]
    found: dict[tuple[Component, str, str], list[tuple[int, int]]] = {}
    for one, other in permutations(range(len(settings)), 2):
        same = settings[one].schedule == settings[other].schedule
        component = changed_component(flat[one], flat[other]) if same else None
        if component is not None:
            found.setdefault((component, settings[one].variant, settings[other].variant), []).append((one, other))
    if not found:
        return ()
    end = common_end(settings, metric, by)
    measures = _measures(settings, metric, end)
    most = width(metric, settings, np.concatenate([each.end for each in measures]))
    return tuple(
        _change(component, metric, [_under(settings, measures, metric, most, *pair) for pair in pairs], most)
        for (component, _, _), pairs in found.items()
    )


class _Measures(NamedTuple):
    """What each seed of a setting has, by `Member.unit`."""

    end: "pd.Series[float]"
    speed: "pd.Series[float]"
    fall: "pd.Series[float]"


def _measures(settings: Sequence[Setting], metric: str, end: End) -> list[_Measures]:
    first = _first_half(settings, metric, end)
    return [
        _Measures(ends(setting, metric, end), _by_seed(setting, first), _by_seed(setting, _falls(setting, metric, end)))
        for setting in settings
    ]


def _first_half(settings: Sequence[Setting], metric: str, end: End) -> dict[str, float]:
    """Each run's mean over the first half of the common range: from where all have begun to where the first ends."""
    frame = align([member for setting in settings for member in setting.members], metric, end.by).frame
    begins = [place for _, run in frame.items() if (place := run.first_valid_index()) is not None]
    if not begins:
        return {}
    begin = float(max(begins))  # type: ignore[type-var, arg-type]
    means = frame[(frame.index >= begin) & (frame.index <= (begin + end.until) / 2)].mean()
    return {str(run_id): float(mean) for run_id, mean in means.items()}


def _falls(setting: Setting, metric: str, end: End) -> dict[str, float]:
    """Each run's fall from the best running mean to its end, which is one of them."""
    better = orientation(metric)
    found = {}
    for member, mean in zip(setting.members, smoothed([setting], metric, len(end.places))[0].members, strict=True):
        last = better * ends(replace(setting, members=(member,)), metric, end)
        if len(last):
            means = better * logged_values(mean, metric, end.by)
            value = float(last.iloc[0])
            found[member.run_id] = max(float(means[means.index <= end.until].max()), value) - value
    return found


def _by_seed(setting: Setting, of_runs: Mapping[str, float]) -> "pd.Series[float]":
    known = {member.run_id: [of_runs[member.run_id]] for member in setting.members if member.run_id in of_runs}
    return setting.by_seed(pd.DataFrame(known, index=[0])).iloc[0].dropna()


def _under(
    settings: Sequence[Setting], measures: Sequence[_Measures], metric: str, most: float, before: int, after: int
) -> UnderSchedule:
    end, speed, fall = (
        difference_over_runs(*pair, most) for pair in zip(measures[after], measures[before], strict=True)
    )
    a, b = settings[after], settings[before]
    allowed = margin(metric, float(measures[before].end.mean()))
    verdict = _verdict_of(_effect(end), allowed, orientation(metric))
    reason = why_not(end, *setting_names(a, b), metric) if verdict == "cannot tell" else ""
    return UnderSchedule(a.schedule, b, a, end, speed, fall, allowed, verdict, reason)


def _change(component: Component, metric: str, schedules: Sequence[UnderSchedule], most: float) -> SingleChange:
    end, speed, fall = (_over([getattr(under, name) for under in schedules], most) for name in ("end", "speed", "fall"))
    allowed = float(np.mean([under.margin for under in schedules if min(under.end.seeds)] or [float("nan")]))
    verdict = _verdict_of(end, allowed, orientation(metric))
    reason = "" if verdict != "cannot tell" else _why_not(end, schedules)
    of, to = schedules[0].before.variant, schedules[0].after.variant
    return SingleChange(component, of, to, metric, tuple(schedules), end, speed, fall, allowed, verdict, reason)


def _over(schedules: Sequence[Difference], most: float) -> ChangeEffect:
    """Over schedules as blocks, one difference of means from each; a schedule in which a side has no value is none."""
    known = [found for found in schedules if min(found.seeds)]
    if len(known) < 2:
        return _effect(known[0] if known else schedules[0])
    values = np.array([found.value for found in known])
    basis = f"paired over {len(known)} schedules"
    if not np.isfinite(values).all():
        return ChangeEffect(float("nan"), NO_INTERVAL, basis)
    mean, low, high = map(float, np.clip(t_interval(values), -most, most))
    return ChangeEffect(mean, Interval(low, high) if high - low > ROUNDING * abs(mean) else NO_INTERVAL, basis)


def _effect(found: Difference) -> ChangeEffect:
    after, before = found.seeds
    if not min(after, before):
        basis = NO_VALUE
    elif after == before == 1:
        basis = ONE_SEED
    elif found.paired:
        basis = f"paired over {after} seeds"
    else:
        basis = f"unpaired, {after} and {before} seeds"
    return ChangeEffect(found.value, found.interval, basis)


def _verdict_of(effect: ChangeEffect, allowed: float, better: int) -> ChangeVerdict:
    low, high = effect.interval
    if -allowed <= low and high <= allowed:
        return "alike"
    if low > 0 or high < 0:
        return "better" if (low > 0) == (better > 0) else "worse"
    return "cannot tell"


def _why_not(end: ChangeEffect, schedules: Sequence[UnderSchedule]) -> str:
    known = [under for under in schedules if min(under.end.seeds)]
    if len(known) < 2:
        return (known or list(schedules))[0].reason
    if not np.isfinite(end.value):
        return "a run does not end with a finite number"
    if not np.isfinite(end.interval.low):
        return "every schedule gives the same, so the spread is not known"
    fewest = min(min(under.end.seeds) for under in known)
    return f"the interval over {len(known)} schedules contains 0" + "; run at least 3 seeds under each" * (fewest < 3)
