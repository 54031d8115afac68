"""What an ablation says in a few sentences, each with its numbers, most important first; from the data alone.

What collapses, and which change is enough for it; what the other changes do, and which make no difference that
matters; who leads in these runs, and whether other seeds would repeat it; what was not compared; what was traded. Text
from logs stands in the sentences as it is.
"""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from ratioscope.analysis.compare.alignment import Axis
from ratioscope.analysis.compare.changed_component import components_between, number_in
from ratioscope.analysis.compare.configuration import ABSENT
from ratioscope.analysis.compare.grouping import Setting, check_metric
from ratioscope.analysis.compare.margins import orientation
from ratioscope.analysis.compare.single_changes import NO_VALUE, ONE_SEED, SingleChange, UnderSchedule, single_changes
from ratioscope.analysis.compare.verdicts.collapses import Collapse, collapse_sentence, unjudged_words
from ratioscope.analysis.compare.verdicts.standing import Standing, standing
from ratioscope.analysis.compare.verdicts.wording import (
    by_how_much,
    capital,
    differing_in_words,
    margin_words,
    quantity,
    some,
    under,
)
from ratioscope.analysis.findings.words import listed
from ratioscope.catalogue import CATALOGUE

# How a part is called in a sentence, where its name alone would not be understood.
_PARTS = {"weight": "importance weights"}


@np.errstate(invalid="ignore")  # infinities of both signs have no mean
def conclusions(settings: Sequence[Setting], metric: str = "eval_accuracy", by: Axis = "step") -> tuple[str, ...]:
    """At most a dozen sentences, most important first; none without settings.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    check_metric(metric)
    if not settings:
        return ()
    stands = standing(settings, metric, by)
    if len(stands.without) == len(settings):
        return stands.sentences
    fallen = stands.fallen
    changes = single_changes(settings, metric, by)
    causes = [change for change in changes if _decides_collapse(change, fallen)]
    others = [change for change in changes if change not in causes]
    collapsed = "; ".join(filter(None, (stands.collapsed, _what_decides(stands, causes))))
    stand = (
        *(stands.leads if stands.contests else (_alone_at_the_end(settings, stands),)),
        stands.other_seeds,
        *stands.remarks,
        "" if collapsed else _nothing_collapsed(settings, stands),
    )
    effects = (_what_changes(settings, changes, others, fallen), _what_makes_no_difference(others))
    # An ablation is about what was changed; settings that differ in more than that are only ranked.
    known = any(change.end.basis not in (NO_VALUE, ONE_SEED) for change in changes)
    sentences = (collapsed, *(effects + stand if known else stand + effects), _how_sure(changes))
    return tuple(f"{sentence}." for sentence in sentences if sentence)


def _alone_at_the_end(settings: Sequence[Setting], stands: Standing) -> str:
    known = [place for place in range(len(settings)) if place not in stands.without]
    if len(known) != 1:
        return stands.leads[0]
    only = "this is the only setting" if len(settings) == 1 else "no other setting has values"
    end = quantity(stands.noise[known[0]].value, stands.metric)
    where = f"{CATALOGUE[stands.metric].title} at the end ({stands.ends[known[0]].values_words})"
    return f"{where}: {settings[known[0]].label} ends with {end}; {only}, so nothing to compare"


def _nothing_collapsed(settings: Sequence[Setting], stands: Standing) -> str:
    """What ends below where it began; else that no collapse is found."""
    told = collapse_sentence(settings, stands.fallen)
    unjudged = unjudged_words(settings)
    nothing = f"No collapse is found{' in any setting' * (len(settings) > 1)}{'; ' * bool(unjudged)}{unjudged}"
    return told or nothing


def change_words(change: SingleChange) -> str:
    """The change as what one does: "taking the gate away (one_side → none)"; text as in the logs."""
    kind, names, before, after = change.component
    arrow = change.what.partition(": ")[2]
    if kind == "part":
        name = _PARTS.get(names[0], names[0].replace("_", " "))
        return f"taking the {name} away ({arrow})" if after[0] in ABSENT else f"changing the {name} ({arrow})"
    pairs = [(number_in(old), number_in(new)) for old, new in zip(before, after, strict=True)]
    rises = all(old is not None and new is not None and old <= new for old, new in pairs)
    if rises and names == ("epsilon_low", "epsilon_high"):
        return f"widening the clip {arrow}"
    return f"{'raising' if rises else 'changing'} {listed([name.rpartition('.')[2] for name in names])} ({arrow})"


def _decides_collapse(change: SingleChange, fallen: Sequence[Collapse]) -> bool:
    """Whether, under every schedule, one side of the change collapses and the other does not: always the same one."""
    collapsed = [
        collapse.setting for collapse in fallen if collapse.by_rule and 2 * collapse.seeds[0] > collapse.seeds[1]
    ]
    sides = {(place.before in collapsed, place.after in collapsed) for place in change.schedules}
    return sides in ({(True, False)}, {(False, True)})


def _what_decides(stands: Standing, causes: Sequence[SingleChange]) -> str:
    """Which change is enough for a collapse, or prevents it."""
    collapsed = {collapse.setting.variant for collapse in stands.fallen if collapse.by_rule}
    decided = []
    for component, brings in dict.fromkeys((change.component, change.to in collapsed) for change in causes):
        same = [change for change in causes if (change.component, change.to in collapsed) == (component, brings)]
        decided.append(f"{change_words(same[0])} {'is enough for' if brings else 'prevents'} it: {_starts(same)}")
    return some(decided, "; ")


def _starts(changes: Sequence[SingleChange]) -> str:
    """What one change does to several settings; what the intervals are over once, where it is the same."""
    bases = list(dict.fromkeys(change.end.basis for change in changes))
    told = [
        f"from {change.of} it ends {differing_in_words(change.end.value, change.metric, change.end.interval)}"
        f"{f' ({change.end.basis})' * (len(bases) > 1)}"
        for change in changes
    ]
    return some(told) + f", {bases[0]}" * (len(bases) == 1)


def _effect(change: SingleChange) -> str:
    return f"{differing_in_words(change.end.value, change.metric, change.end.interval)}, {change.end.basis}"


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
        ends = [f"{differing_in_words(change.end.value, change.metric)} in {change.of}" for change in same]
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
        return f"{differing_in_words(place.end.value, metric)} {under(place.schedule)}"
    found = differing_in_words(place.end.value, metric, place.end.interval)
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
    if fast == "about as fast" and steady == "about as stable":
        return f"; it is {fast} and {steady}"
    half = differing_in_words(change.speed.value, change.metric)
    further = _further(change.fall.value, change.metric)
    kept = "no collapse, " * bool(collapsed)
    return f"; it is {fast} ({half} in the first half) and {steady} ({kept}fall from the peak {further})"


def _further(value: float, metric: str) -> str:
    """A difference of falls: above 0, it falls further."""
    return differing_in_words(value, metric).replace("higher", "larger").replace("lower", "smaller")


def _what_makes_no_difference(others: Sequence[SingleChange]) -> str:
    same = [change for change in others if change.verdict == "alike"]
    if not same:
        return ""
    bases = list(dict.fromkeys(change.end.basis for change in same))
    widths = list(dict.fromkeys(margin_words(change.metric, change.margin) for change in same))
    told = []
    for change in same:
        text = f"{change_words(change)}, from {change.of} to {change.to}, ends "
        text += differing_in_words(change.end.value, change.metric, change.end.interval)
        if len(change.schedules) > 1:
            largest = max(abs(place.end.value) for place in change.schedules)
            text += f", at most {by_how_much(largest, change.metric)} apart under any schedule"
        text += f" (within {margin_words(change.metric, change.margin)})" * (len(widths) > 1)
        told.append(text + f", {change.end.basis}" * (len(bases) > 1))
    beyond = f" beyond {widths[0]}" * (len(widths) == 1)
    return f"No difference{beyond}{f', {bases[0]}' * (len(bases) == 1)}: {some(told, '; ')}"


def _how_sure(changes: Sequence[SingleChange]) -> str:
    """What was traded, and what the intervals cover."""
    told = []
    trades = [
        f"{_named(change, changes)} trades {_traded(change, place)} {under(place.schedule)} "
        f"({differing_in_words(place.speed.value, change.metric)} in the first half, "
        f"fall from the peak {_further(place.fall.value, change.metric)})"
        for change in changes
        for place in change.trades
    ]
    if any(change.end.basis != NO_VALUE for change in changes):
        told.append(some(trades) or "no single change is seen to trade speed for stability")
    bounded = sum(isfinite(change.end.interval.low) for change in changes)
    if bounded > 1:
        told.append(f"the {bounded} intervals cover 95% each, not all together")
    return capital("; ".join(told))


def _traded(change: SingleChange, place: UnderSchedule) -> str:
    faster = place.speed.value * orientation(change.metric) > 0
    return "stability for speed" if faster else "speed for stability"
