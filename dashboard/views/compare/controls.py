"""The controls of the Compare page; all of them are bound to the URL."""

from collections.abc import Sequence

import streamlit as st

from ratioscope.analysis.compare import AXES, NOTHING, Setting, attributes
from ratioscope.analysis.compare.aggregates import StatisticName
from ratioscope.dashboard.components.metric_choice import metric_choice
from ratioscope.dashboard.sections.compare.comparison import Look, Measure

WINDOWS = (1, 3, 5, 10, 20, 50)
_STATISTICS: dict[str, StatisticName] = {"mean": "mean", "IQM": "iqm"}
_IQM = "Over the seeds: the mean, or the interquartile mean, which is the mean of the middle half."
_WINDOW = "Over so many logged values of each run, before averaging over seeds; 1: none."


def measure() -> Measure:
    """Metric, axis, statistic and running mean."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        with st.container(width=300):
            metric = metric_choice("metric")
        by = st.segmented_control(
            "Along", list(AXES), default="step", required=True, key="along", bind="query-params",
            help="Updates, tokens trained on, or time since the first update.",
        )  # fmt: skip
        statistic = st.segmented_control(
            "Over seeds", list(_STATISTICS), default="mean", required=True, key="statistic", bind="query-params",
            help=_IQM,
        )  # fmt: skip
        with st.container(width=170):
            window = st.select_slider(
                "Running mean over", WINDOWS, value=Measure.window, key="smooth", bind="query-params", help=_WINDOW
            )
    return Measure(metric, by, _STATISTICS.get(str(statistic), "mean"), window)


def look(settings: Sequence[Setting]) -> Look:
    """What colours, dashes and panels tell apart; each by algorithm, variant, schedule or any key that differs."""
    keys = [*attributes(settings), NOTHING]
    chosen = {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for title, key, usual in (
            ("Colour by", "colour", Look.colour),
            ("Dash by", "dash", Look.dash),
            ("Panels by", "facet", Look.facet),
        ):
            with st.container(width=165):
                chosen[key] = st.selectbox(title, keys, index=keys.index(usual), key=key, bind="query-params")
        seeds = st.toggle("Each seed", key="seeds", bind="query-params", help="Each seed as a faint line.")
        logarithmic = st.toggle(
            "Log scale",
            key="log",
            bind="query-params",
            help="Values of 0 and less are not drawn; below 1e-9 there is only rounding.",
        )
    return Look(**chosen, seeds=seeds, logarithmic=logarithmic)
