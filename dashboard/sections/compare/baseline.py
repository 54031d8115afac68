"""Every setting against a baseline: in what they differ, by how far they end apart, and the difference on the way."""

from functools import partial

import pandas as pd

from ratioscope.analysis.compare.differences import component_differences, differences
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.sections.compare import pair
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.compare.curves import lines
from ratioscope.dashboard.sections.model import Piece
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


def along(comparison: Comparison, baseline: int, look: Look) -> list[Piece]:
    """The difference of every setting to the baseline along the axis; with its band where there is one."""
    partner = compared_with(comparison, baseline)
    measure, drawn = comparison.measure, lines(comparison, look)
    tables = {place: pair.along(comparison, place, other) for place, other in partner.items()}
    known = [(drawn[place].name, drawn[place].style, table) for place, table in tables.items() if len(table)]
    if not known:
        return []
    by_step = measure.by == "step"
    draw = partial(
        figures.differences, known, measure.metric, by=measure.by, x=comparison.steps if by_step else (None, None),
        name=f"minus {comparison.settings[baseline].variant}", height=_LOW,
    )  # fmt: skip
    frame = pd.concat([table.assign(setting=comparison.labels[place]).reset_index() for place, table in tables.items()])
    title = f"{CATALOGUE[measure.metric].title}: each minus {comparison.settings[baseline].variant}"
    said = f"{len(known)} settings minus the baseline, {comparison.labels[baseline]}."
    return [chart(comparison.mode, _KEY, title, draw, said, frame, (measure.metric,), by_step=by_step)]
