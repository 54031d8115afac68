"""The charts of the Compare page: a panel a facet on equal axes, and the key to their lines."""

from collections.abc import Sequence
from html import escape as attribute_text

import streamlit as st

from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.components.blocks import draw, say
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.figures.compare import MOST_IN_A_ROW, CurveLine
from ratioscope.dashboard.figures.cut_names import cut_apart
from ratioscope.dashboard.figures.line_styles import Style
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections.compare import curves
from ratioscope.dashboard.sections.compare.comparison import Comparison, Look
from ratioscope.dashboard.sections.model import Chart, has_content
from ratioscope.inert import one_line

_LONGEST = 40  # signs of a name in the key; tables have all of it
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


def panels(comparison: Comparison, look: Look) -> None:
    """A chart a facet, up to four beside each other, else three; on a narrow screen they stand below each other."""
    measure = comparison.measure
    drawn = curves.lines(comparison, look)
    charts = [chart for chart in curves.panels(comparison, look) if has_content(chart)]
    if len(charts) > 1:  # a single one has it as its title
        st.markdown(f"## {escape(CATALOGUE[measure.metric].title)}")
    across = len(charts) if len(charts) <= MOST_IN_A_ROW else 3
    _beside(charts[:across], across)
    if more := charts[across:]:
        with fold("panels", f"And {len(more)} more panels") as door:
            if door.open:
                for start in range(0, len(more), across):
                    _beside(more[start : start + across], across)
    if not curves.names_at_ends(comparison, look):
        _key(drawn)
    infinite = sum(len(curve.infinite) for curve in comparison.curves)
    told = [
        curves.legend(comparison, look),
        "Touch a grey line for its name." if any(line.quiet for line in drawn) else "",
        f"Triangles: infinite values, at {infinite} points." if infinite else "",
        "Drag over a panel to select steps." if measure.by == "step" else "Drag over a panel to zoom.",
    ]
    say(" ".join(filter(None, (*told, *comparison.words.remarks))))


def _beside(charts: Sequence[Chart], across: int) -> None:
    for column, chart in zip(st.columns(across or 1, gap="small", vertical_alignment="bottom"), charts, strict=False):
        with column:  # a title may take two lines
            draw(chart)


def _key(lines: Sequence[CurveLine]) -> None:
    """What each look means; as elements of the page it wraps and never covers a panel."""
    looks: dict[tuple[str, Style], None] = dict.fromkeys((line.name, line.style) for line in lines if not line.quiet)
    named = cut_apart([name for name, _ in looks], _LONGEST)
    with st.container(horizontal=True, gap="xsmall"):
        for name, (_, style) in zip(named, looks, strict=True):
            with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
                st.image(_sample(style), width=34, alt="")
                st.caption(escape(one_line(name)), width="content")


def _sample(style: Style) -> str:
    """A short piece of the line as an SVG; it holds no text from a log."""
    colour = attribute_text(style.colour)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='34' height='14' viewBox='0 0 34 14' fill='{colour}' "
        f"stroke='{colour}'><path d='M1 7H33' stroke-width='2.5' stroke-dasharray='{_IN_PLOTLY[style.dash]}'/>"
        f"{_SHAPES.get(style.symbol, '')}</svg>"
    )
