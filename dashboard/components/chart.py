"""A chart on a page: brush for the step range, alternative text, the data behind it."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from dashboard import state

# A drag selects steps (for all charts, kept in the URL); Streamlit would forget a zoom whenever new data arrive.
CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["zoom2d", "pan2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"],
    "showSendToCloud": False,
}


def step_chart(fig: go.Figure, *, key: str, title: str, takeaway: str, data: pd.DataFrame | None = None) -> None:
    """A chart over steps with a title; dragging over it sets the step range of every chart.

    Args:
        takeaway: what the chart says, in a sentence; read aloud by screen readers.
        data: the numbers behind it, folded away beside the title.
    """
    _head(title, key, data)
    widget = f"chart-{key}"
    st.plotly_chart(
        fig,
        theme=None,
        key=widget,
        config=CONFIG,
        alt=takeaway,
        on_select=lambda: _brush(widget),
        selection_mode="box",
    )


def plain_chart(fig: go.Figure, *, key: str, title: str, takeaway: str, data: pd.DataFrame | None = None) -> None:
    """A chart whose x axis is not the step."""
    _head(title, key, data)
    config = CONFIG | {"modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"]}
    st.plotly_chart(fig, theme=None, key=f"chart-{key}", config=config, alt=takeaway)


def _head(title: str, key: str, data: pd.DataFrame | None) -> None:
    """The chart's title, and beside it the table behind it."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"###### {title}", width="content")
        if data is not None:
            _data(data, key)


def _data(data: pd.DataFrame, key: str) -> None:
    """The table behind a chart; built only when it is opened."""
    with st.popover("Data", key=f"data-{key}", on_change="rerun", type="tertiary") as popover:
        if popover.open:
            st.dataframe(data, height=360)
            st.download_button(
                "CSV",
                data=lambda: data.to_csv().encode(),
                file_name=f"{key}.csv",
                mime="text/csv",
                on_click="ignore",
                key=f"csv-{key}",
            )


def _brush(widget: str) -> None:
    selection: dict[str, Any] = st.session_state[widget].get("selection", {})
    boxes = selection.get("box") or []
    if boxes and "x" in boxes[0]:
        first, last = sorted(float(x) for x in boxes[0]["x"])
        state.set_range(max(0, round(first)), max(0, round(last)))
