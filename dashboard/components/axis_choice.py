"""What charts over steps lie along: the same control, in the URL as `along`, on the pages of a run and on Compare."""

import streamlit as st

from ratioscope.analysis.compare.alignment import AXES, Axis


def axis_choice() -> Axis:
    """The control; returns what is chosen."""
    chosen: Axis = st.segmented_control(
        "Along", list(AXES), default="step", required=True, key="along", bind="query-params",
        help="Updates, tokens trained on, or time since the first update.",
    )  # fmt: skip
    return chosen
