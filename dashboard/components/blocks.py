"""The blocks of a section on a page: the same content as in a report, drawn with Streamlit.

subject = page_subject(opened)
draw(drift.distances(subject))
draw_computed(lambda: drift.path(subject, level), height=430)
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Concatenate, assert_never

import pandas as pd
import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import flat_chart, plain_chart, step_chart
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.latest import Latest
from ratioscope.dashboard.sections.model import Chart, Paragraph, Piece, Table, cell_text, has_content
from ratioscope.dashboard.sections.page import Caption
from ratioscope.dashboard.sections.subject import Arguments, Result, Subject, flat
from ratioscope.errors import RatioscopeError
from ratioscope.inert import safe

_WHOLE = 20
"""Rows of a table that are shown; longer ones scroll."""


class PageSubject(Subject):
    """A run on a page: figures draw all of it and show the brushed steps, results are kept for all sessions.

    Results are shared, not copied: blocks must not change them.
    """

    @property
    def shown(self) -> StepSummary:
        return self.opened.summary

    def compute(
        self,
        function: Callable[Concatenate[Run, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        run = self.opened.run
        name = f"{function.__module__}.{function.__qualname__}"
        known, asked = _computed(str(run.folder), name), (arguments, tuple(sorted(options.items())))
        return known.get((run.signature, run.left_out), lambda: function(run, *arguments, **options), asked)


@st.cache_resource(max_entries=400, show_spinner=False)
def _computed(folder: str, name: str) -> Latest:
    return Latest()


def page_subject(opened: Opened) -> PageSubject:
    """What a run's page is about: the brushed steps, in the browser's colours."""
    return PageSubject(opened, state.step_range(), state.mode(), *state.lines())


def draw(*blocks: Piece, caption: Caption = "") -> None:
    """Blocks below each other; nothing for one without content.

    Args:
        caption: where the takeaway of a chart is written; "": only screen readers get it.
    """
    for block in filter(has_content, blocks):
        if isinstance(block, Chart):
            _chart(block, caption)
        elif isinstance(block, Table):
            _table(block)
        elif isinstance(block, Paragraph):
            _paragraph(block)
        else:
            assert_never(block)


def beside(
    *places: Piece | Sequence[Piece], caption: Caption = "", across: int = 0, widths: Sequence[int] = ()
) -> None:
    """Blocks beside each other, as `sections.page.Beside` has them."""
    listed = [[place] if isinstance(place, Chart | Table | Paragraph) else list(place) for place in places]
    if widths:
        for column, blocks in zip(st.columns(widths, gap="medium"), listed, strict=True):
            with column:
                draw(*blocks, caption=caption)
        return
    filled = [kept for blocks in listed if (kept := list(filter(has_content, blocks)))]
    across = across or len(filled)
    for start in range(0, len(filled), max(1, across)):
        for column, blocks in zip(st.columns(across, gap="medium"), filled[start : start + across], strict=False):
            with column:
                draw(*blocks, caption=caption)


def computed(make: Callable[[], Result], *, height: int) -> Result | None:
    """A result that takes time, with a placeholder of this height; None after an error, which is shown."""
    try:
        with st.skeleton(height=height):
            return make()
    except RatioscopeError as error:
        st.text(safe(error))
        return None


def draw_computed(make: Callable[[], Iterable[Piece]], *, height: int, caption: Caption = "") -> None:
    """Blocks that take time, with a placeholder; an error is shown in their place."""
    draw(*(computed(make, height=height) or ()), caption=caption)


def say(text: str) -> None:
    """A sentence below or above what it is about; plain text."""
    if text:
        st.caption(escape(text))


def _chart(chart: Chart, caption: Caption) -> None:
    if says := flat(chart):
        flat_chart(says, key=chart.key, data=chart.data)
        return
    if caption == "above":
        say(chart.takeaway)
    show = partial(step_chart, metric=next(iter(chart.metrics), "")) if chart.by_step else plain_chart
    show(chart.figure, key=chart.key, title=chart.title, takeaway=chart.takeaway, data=chart.data, symbol=chart.symbol)
    if caption == "below":
        say(chart.takeaway)


def _table(table: Table) -> None:
    if table.title:
        st.markdown(f"## {escape(table.title)}")
    # A run's or an algorithm's name may be that of another column.
    head = [
        name if name not in table.head[:place] else f"{name} ({place + 1})" for place, name in enumerate(table.head)
    ]
    frame = pd.DataFrame([tuple(map(cell_text, row)) for row in table.rows], columns=head)
    if table.sentences:  # a grid would cut them off
        st.table(frame.map(escape).rename(columns=escape), border="horizontal", alt=table.title or None)
        say(table.note)
        return
    st.dataframe(
        frame,
        hide_index=True,
        height=whole_rows(len(table.rows), _WHOLE),
        column_config={name: st.column_config.TextColumn(help=table.help.get(name)) for name in head},
        alt=table.title or f"Columns: {', '.join(table.head)}",
    )
    say(table.note)


def _paragraph(paragraph: Paragraph) -> None:
    if paragraph.small:
        say(paragraph.text)
    else:
        lead = f"**{escape(paragraph.lead)}** " if paragraph.lead else ""
        st.markdown(f"{lead}{escape(paragraph.text)}")
