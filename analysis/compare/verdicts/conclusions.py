"""What an ablation says in at most five sentences, each with its numbers, most important first; from the data alone.

Who leads and how sure that is; what collapses, and which change is enough for it; what the other changes do; which
make no difference that matters; how sure all this is. Text from logs stands in the sentences as it is.
"""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from ratioscope.analysis.compare.alignment import Axis
from ratioscope.analysis.compare.changed_component import ABSENT, components_between, number
from ratioscope.analysis.compare.grouping import Setting, check_metric
from ratioscope.analysis.compare.margins import margin, orientation
from ratioscope.analysis.compare.single_changes import NO_VALUE, ONE_SEED, SingleChange, UnderSchedule, single_changes
from ratioscope.analysis.compare.verdicts.collapses import Collapse, collapses
from ratioscope.analysis.compare.verdicts.standing import MOST_NAMED, Contest, Standing, standing
from ratioscope.analysis.compare.verdicts.wording import (
    capital,
    differing,
    listed,
    margin_words,
    quantity,
    some,
    under,
)
from ratioscope.catalogue import CATALOGUE

_FALLBACK = "reward"
# How a part is called in a sentence, where its name alone would not be understood.
_PARTS = {"weight": "importance weights"}


@np.errstate(invalid="ignore")  # infinities of both signs have no mean
def conclusions(settings: Sequence[Setting], metric: str = "eval_accuracy", by: Axis = "step") -> tuple[str, ...]:
    """At most five sentences, most important first; none without settings.

    Where evaluation accuracy is asked for and no run logs any, they are about the training reward.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    check_metric(metric)
    if not settings:
        return ()
    instead = metric == "eval_accuracy" and not _has_values(settings, metric) and _has_values(settings, _FALLBACK)
    metric = _FALLBACK if instead else metric
    stands = standing(settings, metric, by)
    if len(stands.without) == len(settings):
        title = CATALOGUE[metric].title
        return (f"{title} has no value in any of these runs: nothing to conclude; choose another metric.",)
    fallen = collapses(settings, metric, by)
    changes = single_changes(settings, metric, by)
    causes = [change for change in changes if _decides_collapse(change, fallen)]
    others = [change for change in changes if change not in causes]
    sentences = (
        _lead(settings, stands, ", for no run logs evaluation accuracy" * instead),
        _what_collapses(settings, stands, fallen, causes),
        _what_changes(settings, changes, others, fallen),
        _what_makes_no_difference(others),
        _how_sure(settings, stands, changes),
    )
    return tuple(f"{sentence}." for sentence in sentences if sentence)


def change_words(change: SingleChange) -> str:
    """The change as what one does: "taking the gate away (one_side → none)"; text as in the logs."""
    kind, names, before, after = change.component
    arrow = change.what.partition(": ")[2]
    if kind == "part":
        name = _PARTS.get(names[0], names[0].replace("_", " "))
        return f"taking the {name} away ({arrow})" if after[0] in ABSENT else f"changing the {name} ({arrow})"
    pairs = [(number(old), number(new)) for old, new in zip(before, after, strict=True)]
    rises = all(old is not None and new is not None and old <= new for old, new in pairs)
    if rises and names == ("epsilon_low", "epsilon_high"):
        return f"widening the clip {arrow}"
    return f"{'raising' if rises else 'changing'} {listed([name.rpartition('.')[2] for name in names])} ({arrow})"


def _has_values(settings: Sequence[Setting], metric: str) -> bool:
    return any(member.summary.values[metric].notna().any() for setting in settings for member in setting.members)


def _lead(settings: Sequence[Setting], stands: Standing, note: str) -> str:
    """Who leads, and whether that is more than chance."""
    title = CATALOGUE[stands.metric].title
    where = f"{title} at the end ({stands.end.words}{note})"
    if not stands.contests:
        [place] = set(range(len(settings))) - set(stands.without)
        only = "this is the only setting" if len(settings) == 1 else "no other setting has values"
        return f"{where}: {settings[place].label} ends with {_mean(stands, place)}; {only}, so nothing to compare"
    if len(stands.contests) == 1:
        return f"{where}: {_one_lead(settings, stands, stands.contests[0])}"
    leads: dict[str, list[str]] = {}
    for contest in stands.contests[:MOST_NAMED]:
        place = contest.pairs[0][0]
        leads.setdefault(settings[place].variant, []).append(f"{under(contest.schedule)} ({_mean(stands, place)})")
    told = listed(
        [f"{variant} {'leads ' * (not place)}{listed(where)}" for place, (variant, where) in enumerate(leads.items())]
    )
    more = len(stands.contests) - MOST_NAMED
    rest = f" ({more} more schedule{'s' * (more > 1)} not named here)" if more > 0 else ""
    close = _close(stands)
    return f"{where}: {told}{rest}; {_certainty(stands)}{', and ' * bool(close)}{close}"


def _mean(stands: Standing, place: int) -> str:
    return quantity(_end(stands, place), stands.metric)


def _end(stands: Standing, place: int) -> float:
    return float(stands.ranking["mean"].loc[place])


def _one_lead(settings: Sequence[Setting], stands: Standing, contest: Contest) -> str:
    best, second = contest.pairs[0]
    names = [settings[place].variant if contest.schedule else settings[place].label for place in (best, second)]
    answer, close = contest.answers[0], _close(stands)
    means = _mean(stands, best), _mean(stands, second)
    text = f"{names[0]} leads with {means[0]}, {names[1]} has {means[1]}; "
    if answer.better is None and means[0] == means[1]:
        text = f"{names[0]} and {names[1]} are level with {means[0]}; "
    if answer.better is None:
        text += f"whether that is more than chance is unknown: {answer.reason}"
    else:
        seeds = f"paired over {answer.difference.seeds[0]} seeds" if answer.difference.paired else "unpaired seeds"
        found = differing(answer.difference.value, stands.metric, answer.difference.interval)
        text += f"that is more than chance ({found}, {seeds})"
    return f"{text}{'; ' * bool(close)}{close}"


def _certainty(stands: Standing) -> str:
    sure = [under(contest.schedule) for contest in stands.contests if contest.answers[0].better is not None]
    if len(sure) == len(stands.contests):
        return "each of these leads is more than chance"
    if sure:
        return f"only the lead{'s' * (len(sure) > 1)} {some(sure)} {'are' if len(sure) > 1 else 'is'} more than chance"
    alone = all(min(contest.answers[0].difference.seeds) < 2 for contest in stands.contests)
    return f"{'with one seed each ' * alone}no lead is certain"


def _close(stands: Standing) -> str:
    """How many end about as well as the leader; empty where there is no other."""
    counts, widths = [], set()
    for contest in stands.contests:
        best = _end(stands, contest.pairs[0][0])
        within = margin(stands.metric, best)
        widths.add(quantity(within, stands.metric))
        counts.append(sum(abs(_end(stands, other) - best) <= within for _, other in contest.pairs))
    alone = max(len(contest.pairs) for contest in stands.contests) < 2
    if alone or len(widths) > 1 or not max(counts):
        return ""
    least, most = min(counts), max(counts)
    counted = f"{most}" if least == most else f"{least} to {most}"
    return f"{counted} other{'s' * (most != 1)} end{'s' * (counted == '1')} within {widths.pop()} of the leader"


def _decides_collapse(change: SingleChange, fallen: Sequence[Collapse]) -> bool:
    """Whether, under every schedule, one side of the change collapses and the other does not: always the same one."""
    collapsed = [
        collapse.setting for collapse in fallen if collapse.by_rule and 2 * collapse.seeds[0] > collapse.seeds[1]
    ]
    sides = {(place.before in collapsed, place.after in collapsed) for place in change.schedules}
    return sides in ({(True, False)}, {(False, True)})


def _what_collapses(
    settings: Sequence[Setting], stands: Standing, fallen: Sequence[Collapse], causes: Sequence[SingleChange]
) -> str:
    groups: dict[tuple[str, bool], list[Collapse]] = {}
    for collapse in fallen:
        groups.setdefault((collapse.setting.variant, collapse.by_rule), []).append(collapse)
    if not groups:
        return f"No collapse is found{' in any setting' * (len(settings) > 1)}"
    # By the rule first, then those that collapse under the most schedules.
    by_number = sorted(groups.values(), key=lambda group: (not group[0].by_rule, -len(group)))
    told = [some((_fall(settings, stands, group) for group in by_number), "; ")]
    if not any(by_rule for _, by_rule in groups):
        told.append("no collapse is found")
    elif len(fallen) < len(settings):
        told.append("no other setting does")
    collapsed = {collapse.setting.variant for collapse in fallen if collapse.by_rule}
    decided = []
    for component, brings in dict.fromkeys((change.component, change.to in collapsed) for change in causes):
        same = [change for change in causes if (change.component, change.to in collapsed) == (component, brings)]
        decided.append(f"{change_words(same[0])} {'is enough for' if brings else 'prevents'} it: {_starts(same)}")
    return "; ".join([*told, some(decided, "; ")] if decided else told)


def _starts(changes: Sequence[SingleChange]) -> str:
    """What one change does to several settings; what the intervals are over once, where it is the same."""
    bases = list(dict.fromkeys(change.end.basis for change in changes))
    told = [
        f"from {change.of} it ends {differing(change.end.value, change.metric, change.end.interval)}"
        f"{f' ({change.end.basis})' * (len(bases) > 1)}"
        for change in changes
    ]
    return some(told) + f", {bases[0]}" * (len(bases) == 1)


def _fall(settings: Sequence[Setting], stands: Standing, group: Sequence[Collapse]) -> str:
    """One variant: under which schedules, from where to where."""
    variant, title = group[0].setting.variant, CATALOGUE[group[0].metric].title.lower()
    schedules = [setting.schedule for setting in settings if setting.variant == variant]
    several = len({setting.schedule for setting in settings}) > 1
    places = []
    for collapse in group:
        fallen, of = collapse.seeds
        where = f" {under(collapse.setting.schedule)}" * several
        seeds = f" ({fallen} of {of} seeds)" * (of > 1 and collapse.by_rule)
        ends = [quantity(value, collapse.metric) for value in (collapse.best, collapse.end)]
        # A run that goes on after the others have ended is told as far as it goes.
        beyond = stands.end.by == "step" and collapse.by_rule and collapse.last > stands.end.until
        places.append(f"from {ends[0]} to {ends[1]}{f' (step {collapse.last})' * beyond}{where}{seeds}")
    every = " under every schedule" * (len(group) == len(schedules) > 1)
    what = "collapses" if group[0].by_rule else "ends below where it began"
    return f"{variant} {what}{every}, {title} {some(places)}"


def _effect(change: SingleChange) -> str:
    return f"{differing(change.end.value, change.metric, change.end.interval)}, {change.end.basis}"


def _named(change: SingleChange, among: Sequence[SingleChange]) -> str:
    """What one does, and from where, when the same is done to several."""
    several = sum(other.component == change.component for other in among) > 1
    return f"{change_words(change)}{f' in {change.of}' * several}"


def _what_changes(
    settings: Sequence[Setting],
    changes: Sequence[SingleChange],
    others: Sequence[SingleChange],
    fallen: Sequence[Collapse],
) -> str:
    """Changes for the better or worse, then those of which it is unknown."""
    if not changes:
        return _no_single_change(settings)
    shown = [change for change in others if change.verdict in ("better", "worse")]
    open_ones = [change for change in others if change.verdict == "cannot tell" and change.end.basis != NO_VALUE]
    alone = [change for change in open_ones if change.end.basis == ONE_SEED and isfinite(change.end.value)]
    told = [_in_words(change, others, fallen) for change in shown]
    told += [_in_words(change, others, fallen) for change in open_ones if change not in alone]
    text = some(told, "; ")
    if alone:
        text += "; " * bool(text) + f"possibly chance, with one seed each: {_alone(alone)}"
    return capital(text)


def _alone(changes: Sequence[SingleChange]) -> str:
    """Changes of which there is one seed under one schedule: differences, and no more."""
    told = []
    for component in dict.fromkeys(change.component for change in changes):
        same = [change for change in changes if change.component == component]
        ends = [f"{differing(change.end.value, change.metric)} in {change.of}" for change in same]
        told.append(f"{change_words(same[0])} ends {some(ends)}")
    return some(told, "; ")


def _no_single_change(settings: Sequence[Setting]) -> str:
    untold = "so the effect of a single change is unknown"
    if len(settings) < 2:
        return ""
    if not all(setting.members[0].run.manifest.algorithm.get("parts") for setting in settings):
        return f"Not every log says which parts its algorithm has, {untold}"
    names = components_between(*settings[:2])
    if len(settings) > 2 or settings[0].schedule != settings[1].schedule or len(names) < 2:
        return f"No two settings of one schedule differ in one component only, {untold}"
    variants = listed([setting.variant for setting in settings])
    return f"Between {variants}, {len(names)} components differ ({some(names)}), {untold}"


def _in_words(change: SingleChange, among: Sequence[SingleChange], fallen: Sequence[Collapse]) -> str:
    text, metric = _named(change, among), change.metric
    if not isfinite(change.end.value):
        return f"{text} cannot be judged: {change.reason}"
    if change.verdict != "cannot tell":
        return f"{text} ends {_effect(change)}{_on_the_way(change, fallen)}"
    gains = change.end.value * orientation(metric) > 0
    text += " brings a gain that may be chance" if gains else " brings no gain that these runs can show"
    if len(change.schedules) == 1:
        return f"{text}: it ends {_effect(change)} ({change.reason}){_on_the_way(change, fallen)}"
    places = [_place(place, metric) for place in change.schedules]
    return f"{text}: it ends {some(places)}, over all {_effect(change)}{_on_the_way(change, fallen)}"


def _place(place: UnderSchedule, metric: str) -> str:
    """A change under one schedule; with its interval where that says something."""
    if place.verdict not in ("better", "worse"):
        return f"{differing(place.end.value, metric)} {under(place.schedule)}"
    found = differing(place.end.value, metric, place.end.interval)
    return f"{found} {under(place.schedule)} (more than chance, {min(place.end.seeds)} seeds)"


def _on_the_way(change: SingleChange, fallen: Sequence[Collapse]) -> str:
    """How fast and how stable it is; of what collapses that is said elsewhere."""
    collapsed = [collapse.setting for collapse in fallen if collapse.by_rule]
    if any(setting in collapsed for place in change.schedules for setting in (place.before, place.after)):
        return ""
    near = {
        name: all(abs(getattr(place, name).value) <= place.margin for place in change.schedules)
        for name in ("speed", "fall")
    }
    fast = {"better": "faster", "worse": "slower"}.get(
        change.faster, "about as fast" if near["speed"] else "of unclear speed"
    )
    steady = {"better": "more stable", "worse": "less stable"}.get(
        change.steadier, "about as stable" if near["fall"] else "of unclear stability"
    )
    half = differing(change.speed.value, change.metric)
    further = _further(change.fall.value, change.metric)
    kept = "no collapse, " * bool(collapsed)
    return f"; it is {fast} ({half} in the first half) and {steady} ({kept}fall from the peak {further})"


def _further(value: float, metric: str) -> str:
    """A difference of falls: above 0, it falls further."""
    return differing(value, metric).replace("higher", "larger").replace("lower", "smaller")


def _what_makes_no_difference(others: Sequence[SingleChange]) -> str:
    same = [change for change in others if change.verdict == "alike"]
    if not same:
        return ""
    bases = list(dict.fromkeys(change.end.basis for change in same))
    widths = list(dict.fromkeys(margin_words(change.metric, change.margin) for change in same))
    told = []
    for change in same:
        text = f"{change_words(change)}, from {change.of} to {change.to}, ends "
        text += differing(change.end.value, change.metric, change.end.interval)
        if len(change.schedules) > 1:
            largest = max(abs(place.end.value) for place in change.schedules)
            text += f", at most {quantity(largest, change.metric, 3)} apart under any schedule"
        text += f" (within {margin_words(change.metric, change.margin)})" * (len(widths) > 1)
        told.append(text + f", {change.end.basis}" * (len(bases) > 1))
    beyond = f" beyond {widths[0]}" * (len(widths) == 1)
    return f"No difference{beyond}{f', {bases[0]}' * (len(bases) == 1)}: {some(told, '; ')}"


def _how_sure(settings: Sequence[Setting], stands: Standing, changes: Sequence[SingleChange]) -> str:
    """Seeds, what was traded, what has no value."""
    told = [_seeds(settings, stands)] if changes or len(stands.contests) > 1 else []
    trades = [
        f"{_named(change, changes)} trades {_traded(change, place)} {under(place.schedule)} "
        f"({differing(place.speed.value, change.metric)} in the first half, "
        f"fall from the peak {_further(place.fall.value, change.metric)})"
        for change in changes
        for place in change.trades
    ]
    if any(change.end.basis != NO_VALUE for change in changes):
        told.append(some(trades) or "no single change is seen to trade speed for stability")
    bounded = sum(isfinite(change.end.interval.low) for change in changes)
    if bounded > 1:
        told.append(f"the {bounded} intervals cover 95 % each, not all together")
    if stands.without and stands.contests:
        missing = some(settings[place].label for place in stands.without)
        told.append(f"no value of {CATALOGUE[stands.metric].title.lower()}: {missing}")
    return f"How sure: {'; '.join(told)}" if told else ""


def _traded(change: SingleChange, place: UnderSchedule) -> str:
    faster = place.speed.value * orientation(change.metric) > 0
    return "stability for speed" if faster else "speed for stability"


def _seeds(settings: Sequence[Setting], stands: Standing) -> str:
    """How many seeds there are under which schedules, and what that means for intervals."""
    by_schedule: dict[str, list[int]] = {}
    for place, setting in enumerate(settings):
        if seeds := int(stands.ranking["seeds"].loc[place]):
            by_schedule.setdefault(setting.schedule, []).append(seeds)
    places: dict[tuple[int, int], list[str]] = {}
    for schedule, counts in by_schedule.items():
        places.setdefault((min(counts), max(counts)), []).append(under(schedule))
    words = {
        (least, most): "one seed" if most == 1 else f"{least}{f' to {most}' * (least < most)} seeds"
        for least, most in places
    }
    several = len(places) > 1
    text = listed([f"{words[span]} of each setting{f' {some(where)}' * several}" for span, where in places.items()])
    if min(least for least, _ in places) > 1:
        return text
    where = "under a single schedule " * (len(by_schedule) > 1)
    return f"{text}, and from one seed no difference {where}has an interval (run at least 3)"
