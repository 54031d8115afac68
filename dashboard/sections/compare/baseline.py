"""Every setting against a baseline: in what they differ, by how far they end apart, and the difference on the way."""

from dataclasses import replace
from functools import partial
from math import isfinite, nan

import pandas as pd

from ratioscope.analysis.compare import component_differences, differences
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.sections.compare import pair
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.compare.curves import lines
from ratioscope.dashboard.sections.model import Chart, Piece, Table
from ratioscope.dashboard.sections.subject import chart

# Settings that follow from another one, or that every two runs have for themselves.
_NO_CHOICE = ("algorithm.", "seed")
_MOST_NAMED = 4
_LOW = 250  # pixels: the panels are above it
_KEY = "baseline"  # of the chart; any two settings have one, too


def compared_with(comparison: Comparison, baseline: int) -> dict[int, int]:
    """Of each other setting the one that it is held against: the baseline's variant under its own schedule, if any.

    Settings of another task are left out: their numbers are other quantities. All are places among the settings.
    """
    settings, tasks = comparison.settings, comparison.standing.tasks
    alike = {place for place in range(len(settings)) if tasks[place] == tasks[baseline]}
    variant = settings[baseline].variant
    under = {each.schedule: place for place, each in enumerate(settings) if each.variant == variant and place in alike}
    found = {place: under.get(each.schedule, baseline) for place, each in enumerate(settings) if place in alike}
    return {place: baseline if against == place else against for place, against in found.items() if place != baseline}


def differing_from_baseline(comparison: Comparison) -> str:
    """In which settings the runs differ; the parts of the algorithms first."""
    table = component_differences(comparison.settings)
    named = [str(name) for name in table.index]
    if len(comparison.settings) == 2:
        named = [f"{name} ({' / '.join(map(str, row))})" for name, row in zip(named, table.to_numpy(), strict=True)]
    members = [member for setting in comparison.settings for member in setting.members]
    named += [str(key) for key in differences(members).index if not str(key).startswith(_NO_CHOICE)]
    if not named:
        return ""
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED + 1 else ""
    return f"{', '.join(named[:_MOST_NAMED] if more else named)}{more}"


def against(comparison: Comparison, baseline: int) -> list[Table]:
    """The end of every setting minus that of the baseline, in the order of the ranking; none of a single setting."""
    metric, found, label = comparison.measure.metric, comparison.standing, comparison.labels
    partner = compared_with(comparison, baseline)
    explained = {
        "Setting": "",
        "Schedule": "",
        "Minus": "The baseline's variant under the same schedule, or the baseline where it did not run under it.",
        "Difference": "End of the setting minus end of the baseline, mean over the seeds.",
        "95% of these runs": "The noise of the prompts, this pair by itself.",
        "95% over seeds": "t interval, paired where both share seeds; this pair by itself.",
        "Significant": "All pairs of settings are judged together (Holm); settings of different schedules are not.",
    }
    rows = []
    for place in map(int, found.ranking.index):
        if place not in partner:
            continue
        answer = pair.contrast(comparison, place, partner[place])[1]
        here, over = answer.runs, answer.difference
        rows.append(
            (comparison.settings[place].variant, comparison.settings[place].schedule, label[partner[place]],
             pair.difference_words(metric, here.value, *here.interval), _ends(metric, *here.interval),
             _ends(metric, *over.interval) if min(over.seeds) > 1 else "one seed",
             _significant(comparison, place, partner[place], here.value))
        )  # fmt: skip
    if not rows:
        return []
    same = len({row[2] for row in rows}) == 1
    alike = {"Minus": same, "Schedule": len({row[1] for row in rows}) == 1}
    kept = [column for column, head in enumerate(explained) if not alike.get(head, False)]
    heads = tuple(head for column, head in enumerate(explained) if column in kept)
    shown = tuple(tuple(row[column] for column in kept) for row in rows)
    minus = f"minus {rows[0][2]}" if same else "minus the baseline"
    helps = {head: explained[head] for head in heads if explained[head]}
    return [Table(f"{CATALOGUE[metric].title} at the end, {minus}", heads, shown, "", helps)]


def span(comparison: Comparison, baseline: int) -> str:
    """From where to where the differences to the baseline go, in a few words."""
    metric, partner = comparison.measure.metric, compared_with(comparison, baseline)
    ends = {row.place: row.value for row in comparison.best.rows}
    found = sorted(ends[place] - ends[other] for place, other in partner.items() if {place, other} <= set(ends))
    if not found or not isfinite(found[0]) or not isfinite(found[-1]):
        return ""
    told = [f"{'+' * (value > 0)}{pair.difference_words(metric, value, nan, nan)}" for value in (found[0], found[-1])]
    return " to ".join(dict.fromkeys(told))


def along(comparison: Comparison, baseline: int, look: Look) -> list[Piece]:
    """The difference of every setting to the baseline along the axis; with its band where there is one."""
    partner = compared_with(comparison, baseline)
    if not partner:
        return []
    if len(partner) == 1:
        ((place, other),) = partner.items()
        drawn_alone = pair.pair_difference(comparison, place, other)
        return [replace(piece, key=_KEY) if isinstance(piece, Chart) else piece for piece in drawn_alone]
    measure, drawn = comparison.measure, lines(comparison, look)
    tables = {place: pair.contrast(comparison, place, other)[0] for place, other in partner.items()}
    known = [(drawn[place], table) for place, table in tables.items() if len(table)]
    if not known:
        return []
    by_step = measure.by == "step"
    draw = partial(
        figures.differences, known, measure.metric, by=measure.by, x=comparison.steps if by_step else (None, None),
        baseline=comparison.settings[baseline].variant, height=_LOW,
    )  # fmt: skip
    frame = pd.concat([table.assign(setting=comparison.labels[place]).reset_index() for place, table in tables.items()])
    title = f"{CATALOGUE[measure.metric].title}: each minus {comparison.settings[baseline].variant}"
    said = f"{len(known)} settings minus the baseline, {comparison.labels[baseline]}."
    return [chart(comparison.mode, _KEY, title, draw, said, frame, (measure.metric,), by_step=by_step)]


def _significant(comparison: Comparison, place: int, other: int, value: float) -> str:
    """Better or worse where the two differ, all pairs judged together."""
    differ = comparison.standing.differ(place, other, over_seeds=comparison.best.over_seeds)
    if differ is None:
        return "unknown"
    return _word(comparison.measure.metric, value) if differ else "no"


def _word(metric: str, value: float) -> str:
    """Better or worse, for a metric that has a better way."""
    better = CATALOGUE[metric].better
    if better not in ("higher", "lower"):
        return "higher" if value > 0 else "lower"
    return "better" if (value > 0) == (better == "higher") else "worse"


def _ends(metric: str, low: float, high: float) -> str:
    return pair.between(metric, low, high) or "unknown"
