"""Overview: is this run healthy?"""

from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.overview.sentences import headline
from ratioscope.dashboard import state, theme
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import page_subject
from ratioscope.dashboard.components.chart import step_chart
from ratioscope.dashboard.components.finding_card import finding_cards, notice
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.figures.kept import over_steps
from ratioscope.dashboard.figures.series import Limit, learning_curves

TILES = ("reward", "eval_accuracy", "s_k", "u_k", "clip_fraction", "ess_token", "khat_token", "entropy")


class _Chart(NamedTuple):
    key: str
    title: str
    keys: list[str]
    unit: str
    limits: Sequence[Limit] = ()


def render() -> None:
    """The page."""
    opened = run_page("Overview", "Is this run healthy?")
    if opened is None:
        return
    summary, mode, steps = opened.summary, state.mode(), state.step_range()
    facts = opened.facts()
    form = facts.form
    answer(headline(summary, facts, opened.findings))
    grave = [finding for finding in opened.findings if finding.severity > Severity.NOTICE]
    notices = opened.findings[len(grave) :]
    finding_cards(grave, summary, mode, opened.run_id)
    if notices:
        with st.expander(f"{len(notices)} notice{'s' * (len(notices) > 1)}", icon=theme.SEVERITY_ICON[Severity.NOTICE]):
            for finding in notices:
                notice(finding, opened.run_id)

    metric_row(summary, form.keys(TILES[:4]))
    metric_row(summary, TILES[4:])

    limits = [
        Limit(opened.limits.staleness, "ε<sub>stale</sub>/2"),
        Limit(opened.limits.update, "ε/2"),
    ]
    charts = (
        *(_Chart(keys[0], f"Is it learning? {name}", keys, unit) for name, keys, unit in learning_curves(summary)),
        _Chart("staleness", "How off-policy is it? Staleness and update drift", form.keys(("s_k", "u_k")),
               "total variation", limits),
        _Chart("entropy", "What does it cost? Entropy, KL to the initial policy", ["entropy", "kl_to_initial"], "nats"),
        _Chart("clip", "What is thrown away? Clip fraction", ["clip_fraction"], "share of tokens"),
        _Chart("length", "Does it ramble? Mean length of the responses", ["response_length"], "tokens"),
        _Chart("ess", "Is the sample worth its size? Effective sample size", ["ess_token", "ess_seq"],
               "share of the sample"),
    )  # fmt: skip
    for start in range(0, len(charts), 2):
        for column, chart in zip(st.columns(2, gap="medium"), charts[start : start + 2], strict=False):
            with column:
                step_chart(
                    over_steps(summary, chart.keys, mode, y_title=chart.unit, limits=chart.limits, steps=steps),
                    key=chart.key,
                    title=chart.title,
                    takeaway=course(summary, *chart.keys),
                    data=summary.values[chart.keys],
                )
    as_reported(page_subject(opened), "overview")
    how_to_read(
        r"""
Findings come first, worst first: each says what was measured, the likely cause, and what to change; *Show me* opens the
page and the steps that are its evidence. Their limits are the catalogue's, moved by a `ratioscope.toml` beside the run.

A run is off-policy by two causes: the data are old or come from another engine (staleness $S_k$), and the update moves
the policy (drift $U_k$). $S_k$ small and $U_k$ small: on-policy in effect. Bands are 95 % intervals over prompt groups,
open circles are values that this log cannot support, ticks mark the steps where fresh weights had reached the sampler.
Drag over a chart to see some steps everywhere, double click to go back, click a step to see its worst responses.
"""
    )
