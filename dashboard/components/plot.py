"""A Plotly figure in the browser, drawn by Plotly itself.

Streamlit's own chart forgets zoom and hidden lines whenever the data grow, and does not report a click on a chart that
can be brushed. This component draws with `Plotly.react`, which keeps both, and reports brush, click and double click.
Figures and events are all that passes; the program is `plot.js`, Plotly comes from the installed package.
"""

from collections.abc import Callable
from pathlib import Path

import plotly
import plotly.graph_objects as go
import streamlit as st

# Served by the launcher; the version in the name lets browsers keep it for ever.
PLOTLY_ADDRESS = f"/plotly-{plotly.__version__}.min.js"
PLOTLY_FILE = Path(plotly.__file__).with_name("package_data") / "plotly.min.js"

_CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,  # an upload
    "responsive": False,  # the component watches its own width
    "modeBarButtonsToRemove": [
        "zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d",
    ],
}  # fmt: skip

_component = st.components.v2.component(
    "ratioscope_plot", js=Path(__file__).with_suffix(".js").read_text("utf-8"), isolate_styles=False
)


def plot(
    fig: go.Figure | str,
    *,
    key: str,
    alt: str,
    on_brush: Callable[[float, float], None] | None = None,
    on_step: Callable[[float, str], None] | None = None,
    on_reset: Callable[[], None] | None = None,
    still: bool = False,
) -> None:
    """Draw a figure.

    Args:
        fig: the figure or its JSON; its height is the layout's, its width the page's.
        key: unique on the page; what the user has zoomed or hidden is kept for as long as it stays the same.
        alt: what the figure says, for screen readers.
        on_brush: called with both ends of a dragged range of x.
        on_step: called with the x of a clicked point and the `meta` of its curve, or with the x that the arrow keys
            have reached at Enter and "".
        on_reset: called on a double click.
        still: no hover, no mode bar: a picture.
    """

    def brushed() -> None:
        ends = st.session_state.get(key, {}).get("brush")
        if on_brush and ends:
            on_brush(float(ends[0]), float(ends[1]))

    def chosen() -> None:
        clicked = st.session_state.get(key, {}).get("step")
        if on_step and clicked:
            on_step(float(clicked[0]), str(clicked[1]))

    def reset() -> None:
        if on_reset and st.session_state.get(key, {}).get("reset"):
            on_reset()

    asked = {"brush": on_brush, "step": on_step, "reset": on_reset}
    _component(
        key=key,
        data={
            "figure": fig if isinstance(fig, str) else fig.to_json(),
            "config": _CONFIG | ({"staticPlot": True} if still else {}),
            "alt": alt,
            "source": PLOTLY_ADDRESS,
            "events": [event for event, handler in asked.items() if handler],
        },
        on_brush_change=brushed,
        on_step_change=chosen,
        on_reset_change=reset,
    )
