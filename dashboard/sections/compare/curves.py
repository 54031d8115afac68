"""The curves of a comparison: settings as lines with bands over their seeds, on equal axes."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.compare.aggregates import band_words
from ratioscope.analysis.compare.curves import attribute
from ratioscope.analysis.compare.standing import Rank
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.figures.line_styles import Style, legend_names, styles
from ratioscope.dashboard.formats import metric_value
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.model import Chart
from ratioscope.dashboard.sections.subject import chart
from ratioscope.dashboard.theme import OKABE_ITO, Mode

MOST_COLOURED = len(OKABE_ITO)
"""Settings in colour: each has one of its own, in all panels."""
_FEWEST_COLOURED = 3
_OVER_SEEDS = {"mean": "mean over seeds", "iqm": "interquartile mean over seeds"}


def span(comparison: Comparison) -> str:
    """From where to where the settings end, of which one at least has the metric."""
    metric, settings = comparison.measure.metric, comparison.settings
    known = sorted(comparison.standing.rows, key=lambda row: row.value)
    (low, least), (high, most) = (
        (metric_value(metric, row.value), settings[row.place].label) for row in (known[0], known[-1])
    )
    if len(known) == 1:
        return f"{most} ends with {high}."
    return f"The settings end between {low} ({least}) and {high} ({most})."


def legend(comparison: Comparison, look: Look) -> str:
    """What lines, bands and thin lines are, and whether lines look alike."""
    found, measure = comparison.curves, comparison.measure
    seeds = sorted({int(curve.frame["seeds"].max()) for curve in found if len(curve.frame)})
    several = [number for number in seeds if number > 1]
    shown = [_OVER_SEEDS[measure.statistic]] if several else []
    shown += [f"running mean over {measure.window} logged values"] if measure.window > 1 else []
    said = [f"Lines: {', '.join(shown)}."] if shown else []
    said += ["Thin lines: logged values."] if measure.window > 1 else []
    said.append(f"Bands: {'; '.join(dict.fromkeys(map(band_words, several)))}." if several else "One seed: no band.")
    drawn = [
        (attribute(line.curve.setting, look.facet), line.style) for line in lines(comparison, look) if not line.quiet
    ]
    if quiet := len({line.name for line in lines(comparison, look) if line.quiet}):
        said.append(f"Grey: {quiet} more, which may leave the axis.")
    if len(set(drawn)) < len(drawn):
        said.append("Lines that look the same differ in something that colour, dash and panel do not show.")
    return " ".join(said)


def lines(comparison: Comparison, look: Look) -> list[figures.CurveLine]:
    """Curves with the styles that tell them apart; of many looks the best ones are in colour."""
    return figures.lines(comparison.curves, look.colour, look.dash, looks(comparison, look))


def looks(comparison: Comparison, look: Look) -> dict[int, Style]:
    """The styles of those settings, by their places, that are drawn in colour, the same in every plot.

    Where there are more than colours, those of each schedule that may be the best, and the next up to a few.
    """
    settings = comparison.settings
    names = legend_names(settings, look.colour, look.dash)
    ranks = {row.place: rank for group in comparison.standing.groups for rank, row in enumerate(group.rows)}
    order = sorted(ranks, key=lambda place: ranks[place]) + [n for n in range(len(settings)) if n not in ranks]
    loud = list(dict.fromkeys(names[place] for place in order))
    if len(loud) > MOST_COLOURED:
        worse = {row.place for row in comparison.standing.rows if row.rank is Rank.WORSE}
        may_be_best = {names[place] for place in order if place not in worse}
        loud = [name for at, name in enumerate(loud[:MOST_COLOURED]) if at < _FEWEST_COLOURED or name in may_be_best]
    places = [place for place, name in enumerate(names) if name in loud]
    return dict(zip(places, styles([settings[place] for place in places], look.colour, look.dash), strict=True))


def names_at_ends(comparison: Comparison, look: Look) -> bool:
    """Whether the lines are named where they end: in a single panel, which has room for it."""
    facets = {attribute(curve.setting, look.facet) for curve in comparison.curves}
    drawn = lines(comparison, look)
    alone = len({line.name for line in drawn}) == len(drawn)
    return len(facets) == 1 and alone and not look.logarithmic and figures.fits_names(drawn)


def panels(comparison: Comparison, look: Look) -> list[Chart]:
    """The curves, a chart a facet on equal axes; as small multiples see `multiples`."""
    measure, found, title = comparison.measure, comparison.curves, CATALOGUE[comparison.measure.metric].title
    drawn, said = lines(comparison, look), span(comparison)
    facets: dict[str, list[int]] = {}
    for place, curve in enumerate(found):
        facets.setdefault(attribute(curve.setting, look.facet), []).append(place)
    if look.facet == "schedule":  # in the order of the plot above
        order = [*(group.schedule for group in comparison.standing.groups), *facets]
        facets = {schedule: facets[schedule] for schedule in dict.fromkeys(order) if schedule in facets}
    if len(facets) > figures.MOST_IN_A_ROW:  # of many the fullest are seen at once
        facets = dict(sorted(facets.items(), key=lambda facet: -len(facet[1])))
    by_step = measure.by == "step"
    x = comparison.steps if by_step else (None, None)
    y = figures.value_range(drawn, x, seeds=look.seeds, logarithmic=look.logarithmic)
    return [
        chart(
            comparison.mode, f"compare-{number_of}",
            title if len(facets) == 1 else f"{look.facet} = {value}" if "." in look.facet else value,
            partial(
                figures.panel, [drawn[place] for place in places], measure.metric, by=measure.by, x=x, y=y,
                extent=figures.extent_of(drawn), logarithmic=look.logarithmic, seeds=look.seeds,
                named=names_at_ends(comparison, look),
                height=270 if len(facets) < 3 else 220 if len(facets) <= figures.MOST_IN_A_ROW else 165,
            ),
            said, _numbers(comparison, places), (measure.metric,), by_step=by_step,
        )
        for number_of, (value, places) in enumerate(facets.items())
    ]  # fmt: skip


def multiples(comparison: Comparison, takeaway: str, shown: Mapping[int, Style] | None = None) -> Chart:
    """The curves as one figure for paper: a panel a schedule, equal axes.

    Args:
        shown: see `looks`; None: those of this comparison.
    """
    measure, facets = comparison.measure, dict[str, list[figures.CurveLine]]()
    styled = looks(comparison, Look()) if shown is None else shown
    for line in figures.lines(comparison.curves, looks=styled):
        facets.setdefault(line.curve.setting.schedule, []).append(line)

    def draw(mode: Mode) -> go.Figure:
        return figures.small_multiples(facets, measure.metric, mode)

    said, data = f"{takeaway} {legend(comparison, Look())}", _numbers(comparison, range(len(comparison.settings)))
    key = f"compare-{measure.metric}"
    return chart(comparison.mode, key, CATALOGUE[measure.metric].title, draw, said, data, (measure.metric,))


def _numbers(comparison: Comparison, places: Sequence[int]) -> pd.DataFrame:
    """The numbers behind curves: the settings below each other."""
    found = comparison.curves
    frames = [found[place].frame.assign(setting=comparison.labels[place]).reset_index() for place in places]
    return pd.concat(frames, ignore_index=True)
