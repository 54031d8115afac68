"""Metrics: the numbers that a user wants to watch, kept in the link."""

import streamlit as st

from ratioscope.dashboard.components.blocks import beside, draw, page_subject
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.sections import metrics
from ratioscope.dashboard.sections.subject import Subject

_HOW_TO_READ = """
Whatever is logged by step can be pinned here: every metric of the catalogue, and each number that the trainer puts
into the steps table (`extra_` columns, losses, norms, seconds). The address of the page holds the choice, so a link or
a bookmark opens the same view, also of another run: change the run and keep the rest.

Below, one number over another: a point a step, the darker the later in light mode, joined in their order. Steps of a
run depend on each other, so the rank correlation describes this run and tests nothing.
"""


def render() -> None:
    """The page."""
    opened = run_page("Metrics", metrics.QUESTION)
    if opened is None:
        return
    subject = page_subject(opened)
    choices = metrics.choices(opened.summary)
    labels = list(choices)
    opening = st.container()
    chosen = st.multiselect(
        "Pinned", labels, default=metrics.usual(choices), key="pin", bind="query-params", filter_mode="contains",
        placeholder="metric or column", help="Kept in the link.",
    )  # fmt: skip
    with opening:
        answer(metrics.answer(choices, chosen))
    beside(*metrics.pinned(subject, {label: choices[label] for label in chosen}), across=2)
    _against(subject, choices, chosen or labels)
    how_to_read(_HOW_TO_READ)


def _against(subject: Subject, choices: dict[str, str], first: list[str]) -> None:
    """One number over another, chosen among all."""
    labels = list(choices)
    if len(labels) < 2:
        return
    usual = [*first[:2], *labels][:2]
    left, right = st.columns(2)
    x = left.selectbox(
        "Over", labels, index=labels.index(usual[1]), key="x", bind="query-params", filter_mode="contains"
    )
    y = right.selectbox(
        "Shown", labels, index=labels.index(usual[0]), key="y", bind="query-params", filter_mode="contains"
    )
    draw(metrics.against(subject, (x, choices[x]), (y, choices[y])), caption="below")
