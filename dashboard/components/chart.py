"""A chart on a page: brush for the step range, click for a step, alternative text, the data behind it."""

import math

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from ratioscope.dashboard import state
from ratioscope.dashboard.components.plot import plot
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.dashboard.figures.along import drawn_along
from ratioscope.dashboard.figures.pins import with_pins
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.session import session


def step_chart(
    fig: go.Figure | str,
    *,
    key: str,
    title: str,
    takeaway: str,
    data: pd.DataFrame | None = None,
    metric: str = "",
    symbol: str = "",
) -> None:
    """A chart over steps: a drag sets the step range of all charts, a double click resets it, a click opens a step.

    Args:
        title: plain text.
        takeaway: what the chart says, in a sentence; read aloud by screen readers.
        data: the numbers behind it, folded away beside the title.
        metric: of the catalogue, what a click opens beside the curves that name theirs.
        symbol: LaTeX behind the title.
    """
    along = session().along

    def brush(first: float, last: float) -> None:
        _brush(*map(float, along.steps_of([first, last])) if along else (first, last))

    def opens(place: float, of_curve: str) -> None:
        state.open_step(round(float(along.steps_of(place)) if along else place), of_curve or metric)

    written = fig if isinstance(fig, str) else str(fig.to_json())
    written = with_pins(written, session().pins, state.mode())
    if along:
        written = drawn_along(written, along)
    with st.container(gap=None):
        _head(title, key, data, symbol)
        plot(written, key=f"chart-{key}", alt=takeaway, on_brush=brush, on_step=opens, on_reset=state.clear_range)


def plain_chart(
    fig: go.Figure | str, *, key: str, title: str, takeaway: str, data: pd.DataFrame | None = None, symbol: str = ""
) -> None:
    """A chart whose x axis is not the step; a drag zooms."""
    with st.container(gap=None):
        _head(title, key, data, symbol)
        plot(fig, key=f"chart-{key}", alt=takeaway)


def flat_chart(says: str, *, key: str, data: pd.DataFrame) -> None:
    """One line in place of a chart whose lines are all flat, with the table behind it."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(escape(says), width="content")
        _data(data, key)


def _head(title: str, key: str, data: pd.DataFrame | None, symbol: str) -> None:
    """The chart's title, and beside it the table behind it."""
    # A title that is too long for its column takes two lines beside the button, not one above it.
    head = None if data is None else f"head-{key}"
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", key=head):
        st.markdown(f"## {escape(title)}{f' ${symbol}$' if symbol else ''}", width="content")
        if data is not None and st.query_params.get("show") in data.columns:
            st.badge("the finding's evidence", icon=":material/search_insights:", color="violet")
        if data is not None:
            _data(data, key)


def _data(data: pd.DataFrame, key: str) -> None:
    """The table behind a chart; built only when it is opened."""
    with st.popover("Data", key=f"data-{key}", on_change="rerun", type="tertiary") as popover:
        if popover.open:
            st.dataframe(data, height=whole_rows(len(data), 9))
            st.download_button(
                "CSV",
                data=lambda: data.to_csv().encode(),
                file_name=f"{key}.csv",
                mime="text/csv",
                on_click="ignore",
                key=f"csv-{key}",
            )


def _brush(first: float, last: float) -> None:
    """The steps inside the dragged range; at least the nearest one."""
    steps = max(0, math.ceil(first)), max(0, math.floor(last))
    if steps[0] > steps[1]:
        steps = (max(0, round(first)),) * 2
    state.set_range(*steps)
