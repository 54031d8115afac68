"""The controls of the Compare page; all of them are bound to the URL."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.analysis.compare.aggregates import StatisticName
from ratioscope.analysis.compare.curves import NOTHING, attributes
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.dashboard.components.axis_choice import axis_choice
from ratioscope.dashboard.components.metric_choice import metric_choice
from ratioscope.dashboard.components.tile import tooltip
from ratioscope.dashboard.sections.compare.comparison import ComparedMeasure, Comparison, Look

WINDOWS = (1, 3, 5, 10, 20, 50)
_STATISTICS: dict[str, StatisticName] = {"mean": "mean", "IQM": "iqm"}
_IQM = "Over the seeds: the mean, or the interquartile mean, which is the mean of the middle half."
_WINDOW = "Over so many logged values of each run, before averaging over seeds; 1: none."


def controls() -> tuple[ComparedMeasure, Callable[[Sequence[Setting]], Look]]:
    """What is compared, and what draws the controls of how it is drawn, which depend on the settings."""
    with st.container(width=320):
        metric = metric_choice("metric")
    with st.popover("Definition", icon=":material/help:", type="tertiary"):
        st.markdown(tooltip(metric))
    door = st.popover("Display", icon=":material/tune:", key="view")
    with door:
        by = axis_choice()
        statistic = st.segmented_control(
            "Over seeds", list(_STATISTICS), default="mean", required=True, key="statistic", bind="query-params",
            help=_IQM,
        )  # fmt: skip
        window = st.select_slider(
            "Running mean over", WINDOWS, value=ComparedMeasure.window, key="smooth", bind="query-params", help=_WINDOW
        )
    return ComparedMeasure(metric, by, _STATISTICS.get(str(statistic), "mean"), window), partial(_look, door)


def _look(door: DeltaGenerator, settings: Sequence[Setting]) -> Look:
    """What colours, dashes and panels tell apart; each by algorithm, variant, schedule or any key that differs."""
    keys = [*attributes(settings), NOTHING]
    chosen = {}
    with door:
        for title, key, usual in (
            ("Colour by", "colour", Look.colour),
            ("Dash by", "dash", Look.dash),
            ("Panels by", "facet", Look.facet),
        ):
            chosen[key] = st.selectbox(title, keys, index=keys.index(usual), key=key, bind="query-params")
        seeds = st.toggle("Each seed", key="seeds", bind="query-params", help="Each seed as a faint line.")
        logarithmic = st.toggle(
            "Log scale",
            key="log",
            bind="query-params",
            help="Values of 0 and less are not drawn; below 1e-9 there is only rounding.",
        )
    return Look(**chosen, seeds=seeds, logarithmic=logarithmic)


def baseline(comparison: Comparison) -> int:
    """The setting that all others are held against: the best, until another is chosen."""
    labels, usual = comparison.labels, comparison.standing.best
    if len(labels) < 2:
        return usual
    with st.container(width=320):
        chosen = st.selectbox(
            "Baseline", labels, index=usual, key="baseline", bind="query-params", filter_mode="contains",
            help="Differences are each setting minus this one; the best until another is chosen.",
        )  # fmt: skip
    return labels.index(chosen)
