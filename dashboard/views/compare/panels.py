"""The charts of the Compare page: a panel a facet on equal axes, and the key to their lines."""

from collections.abc import Iterator, Sequence
from html import escape as attribute_text

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare import Curve, attribute, band_words
from ratioscope.analysis.compare.alignment import AXIS_NAMES
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.components.tile import tooltip
from ratioscope.dashboard.figures import compare as figures
from ratioscope.dashboard.figures.compare import Line
from ratioscope.dashboard.figures.line_styles import Style
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.theme import Mode
from ratioscope.dashboard.views.compare.controls import Look, Measure

_LONGEST = 60  # signs of a name in the key; tables have all of it
_IN_PLOTLY = {
    "solid": "", "dash": "9 5", "dot": "2 3", "dashdot": "9 4 2 4", "longdash": "14 5", "longdashdot": "14 4 2 4",
}  # fmt: skip
_SHAPES = {
    "circle": "<circle cx='17' cy='7' r='4'/>",
    "square": "<rect x='13' y='3' width='8' height='8'/>",
    "diamond": "<path d='M17 2 22 7 17 12 12 7Z'/>",
    "triangle-up": "<path d='M17 2 22 11 12 11Z'/>",
    "triangle-down": "<path d='M17 12 22 3 12 3Z'/>",
    "x": "<path d='M13 3 21 11M21 3 13 11' stroke-width='3'/>",
    "cross": "<path d='M17 2V12M12 7H22' stroke-width='3'/>",
    "star": "<path d='M17 1 19 5 23 6 20 9 21 13 17 11 13 13 14 9 11 6 15 5Z'/>",
    "pentagon": "<path d='M17 2 22 6 20 12 14 12 12 6Z'/>",
    "hourglass": "<path d='M12 2H22L12 12H22Z'/>",
}


def panels(found: Sequence[Curve], measure: Measure, look: Look, mode: Mode, takeaway: str) -> None:
    """A chart a facet, up to four beside each other, else three; on a narrow screen they stand below each other."""
    lines = figures.lines(found, look.colour, look.dash)
    facets: dict[str, list[Line]] = {}
    for line in lines:
        facets.setdefault(attribute(line.curve.setting, look.facet), []).append(line)
    by_step = measure.by == "step"
    first, last = state.step_range() if by_step else (None, None)
    y = figures.value_range(lines, (first, last), seeds=look.seeds, logarithmic=look.logarithmic)
    wide = {1: 420, 2: 360}.get(len(facets), 300)
    title = CATALOGUE[measure.metric].title
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"##### {title} ${CATALOGUE[measure.metric].symbol}$, {_statistic(measure)}", width="content")
        with st.popover("About this metric", icon=":material/help:", type="tertiary"):
            st.markdown(tooltip(measure.metric))
    _key(lines, mode)
    names = list(facets)
    across = len(names) if len(names) <= figures.MOST_IN_A_ROW else 3
    draw = step_chart if by_step else plain_chart
    for start in range(0, len(names), across):
        columns = st.columns(across, gap="small", vertical_alignment="bottom")  # a title may take two lines
        for column, name in zip(columns, names[start : start + across], strict=False):
            with column:
                inside = facets[name]
                draw(
                    figures.panel(
                        inside, measure.metric, mode, by=measure.by, x=(first, last), y=y,
                        extent=figures.extent_of(lines), logarithmic=look.logarithmic, seeds=look.seeds, height=wide,
                    ),
                    key=f"compare-{names.index(name)}",
                    title=escape(_facet(look.facet, name)) or "All settings",
                    takeaway=takeaway,
                    data=_data(inside, measure),
                )  # fmt: skip
    st.caption(" ".join(_legend(found, facets, measure)))


def _statistic(measure: Measure) -> str:
    words = {"mean": "mean over seeds", "iqm": "interquartile mean over seeds"}[measure.statistic]
    return words if measure.window == 1 else f"{words}, running over {measure.window} logged values"


def _legend(found: Sequence[Curve], facets: dict[str, list[Line]], measure: Measure) -> Iterator[str]:
    """What the bands, the thin lines and the marks are, and what a drag does."""
    sizes = sorted({int(curve.frame["seeds"].max()) for curve in found if len(curve.frame)})
    yield f"Bands: {'; '.join(dict.fromkeys(map(band_words, sizes)))}."
    if measure.window > 1:
        yield "Thin lines are what was logged, without the running mean."
    if any(len({line.style for line in lines}) < len(lines) for lines in facets.values()):
        yield "Lines of the same look differ in what neither colour nor dash nor panel tells apart."
    if infinite := sum(len(curve.infinite) for curve in found):
        yield f"Triangles: infinite there, in {infinite} places."
    yield "Drag over a panel to look at some steps." if measure.by == "step" else "Drag over a panel to zoom."


def _facet(key: str, value: str) -> str:
    return f"{key} = {value}" if "." in key else value


def _data(inside: Sequence[Line], measure: Measure) -> pd.DataFrame:
    """The numbers behind a panel: one block of columns a setting."""
    names = [line.curve.setting.label for line in inside]
    called = [f"{name} [{place}]" if names.count(name) > 1 else name for place, name in enumerate(names, start=1)]
    frames = [line.curve.frame.add_prefix(f"{name}: ") for name, line in zip(called, inside, strict=True)]
    table = pd.concat(frames, axis=1).sort_index()
    table.index.name = AXIS_NAMES[measure.by]
    return table


def _key(lines: Sequence[Line], mode: Mode) -> None:
    """What each look means; as elements of the page it wraps and never covers a panel."""
    looks: dict[tuple[str, Style], None] = dict.fromkeys((line.name, line.style) for line in lines)
    with st.container(horizontal=True, gap="medium"):
        for name, style in looks:
            with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
                st.image(_sample(style), width=34, alt="")
                st.text(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…", width="content")


def _sample(style: Style) -> str:
    """A short piece of the line as an SVG; it holds no text from a log."""
    colour = attribute_text(style.colour)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='34' height='14' viewBox='0 0 34 14' fill='{colour}' "
        f"stroke='{colour}'><path d='M1 7H33' stroke-width='2.5' stroke-dasharray='{_IN_PLOTLY[style.dash]}'/>"
        f"{_SHAPES.get(style.symbol, '')}</svg>"
    )
