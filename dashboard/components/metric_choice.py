"""A select box over the catalogue: titles with their symbols, in their order."""

import streamlit as st

from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.formats import metric_label

METRICS = tuple(entry.key for entry in sorted(CATALOGUE.values(), key=lambda entry: entry.order) if entry.comparable)
"""Metrics that runs can be compared by."""


def metric_choice(key: str) -> str:
    """A searchable select box, bound to the URL under this key; returns the chosen metric."""
    return st.selectbox(
        "Metric", METRICS, format_func=metric_label, key=key, bind="query-params", filter_mode="contains"
    )
