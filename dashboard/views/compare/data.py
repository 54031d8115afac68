"""What the Compare page has computed: kept by the runs' states, so that a change of colours computes nothing again.

Arguments whose names begin with an underscore are no part of a cache's key: the key names the runs and their states.
Everything that is returned is shared between sessions and never changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare import (
    Answer,
    Axis,
    Curve,
    End,
    Member,
    PromptDifference,
    Setting,
    Standing,
    align,
    curves,
    difference_over,
    labels,
    pairs_by_seed,
    prompt_difference,
    settings,
    smoothed,
    standing,
    verdict,
)
from ratioscope.analysis.compare.aggregates import StatisticName
from ratioscope.analysis.runs.store import Listed, open_run, signature
from ratioscope.analysis.summary.summary import Summariser
from ratioscope.dashboard import state
from ratioscope.errors import RatioscopeError

Key = tuple[tuple[str, str, str], ...]
"""Of each run its id, its folder and its state."""


@dataclass(frozen=True)
class Groups:
    """Runs as settings on one axis."""

    key: Key
    settings: list[Setting]
    labels: list[str]
    """A name for each setting that no other has."""
    absent: dict[str, str]
    """Runs that do not have the axis, with the reason."""


@st.cache_resource(max_entries=200, show_spinner=False)
def _summariser(folder: str) -> Summariser:
    return Summariser()


@st.cache_resource(max_entries=400, show_spinner=False)
def _member(run_id: str, folder: str, news: str) -> Member:
    run = open_run(folder)
    return Member(run_id, run, _summariser(folder).summarise(run))


def member(listed: Listed) -> Member:
    """The run in its present state. Its findings are not looked for: that takes ten times as long as all the rest.

    Raises:
        RatioscopeError: it cannot be read.
    """
    if listed.problem:
        raise RatioscopeError(listed.problem)
    return _member(listed.run_id, str(listed.folder), signature(listed.folder))


def groups(members: Sequence[Member], by: Axis) -> Groups:
    """The runs that have the axis, as settings."""
    return _groups(tuple((each.run_id, str(each.run.folder), each.run.signature) for each in members), by, members)


@st.cache_resource(max_entries=50, show_spinner=False)
def _groups(key: Key, by: Axis, _members: Sequence[Member]) -> Groups:
    absent = dict(align(_members, "reward", by).absent)
    found = settings([each for each in _members if each.run_id not in absent])
    return Groups(key, found, labels(found), absent)


def drawn(of: Groups, metric: str, by: Axis, statistic: StatisticName, window: int) -> list[Curve]:
    """`curves` of all settings."""
    return _drawn(of.key, metric, by, statistic, window, of.settings)


@st.cache_resource(max_entries=100, show_spinner=False)
def _drawn(
    key: Key, metric: str, by: Axis, statistic: StatisticName, window: int, _settings: list[Setting]
) -> list[Curve]:
    return curves(_settings, metric, by, statistic, window)


def ends(of: Groups, metric: str, by: Axis) -> Standing:
    """`standing` of all settings."""
    return _ends(of.key, metric, by, of.settings)


@st.cache_resource(max_entries=100, show_spinner=False)
def _ends(key: Key, metric: str, by: Axis, _settings: list[Setting]) -> Standing:
    return standing(_settings, metric, by)


def contrast(of: Groups, a: int, b: int, measured: Standing, window: int) -> tuple[pd.DataFrame, Answer]:
    """`difference_over` of the running means of two settings, and `verdict` on their ends."""
    return _contrast(of.key, a, b, measured.metric, measured.end.by, window, of.settings, measured.end)


@st.cache_resource(max_entries=100, show_spinner=False)
def _contrast(
    key: Key, a: int, b: int, metric: str, by: Axis, window: int, _settings: list[Setting], _end: End
) -> tuple[pd.DataFrame, Answer]:
    pair = _settings[a], _settings[b]
    running_a, running_b = smoothed(pair, metric, window)
    table, _ = difference_over(running_a, running_b, metric, by)
    return table, verdict(*pair, metric, _end)


def on_prompts(of: Groups, a: int, b: int, first: int | None, last: int | None) -> PromptDifference:
    """`prompt_difference` of two settings over these steps.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    return _on_prompts(of.key, a, b, first, last, of.settings)


@st.cache_data(max_entries=100, show_spinner=False)
def _on_prompts(
    key: Key, a: int, b: int, first: int | None, last: int | None, _settings: list[Setting]
) -> PromptDifference:
    return prompt_difference(pairs_by_seed(_settings[a], _settings[b]), first, last)


def findings(listed: Listed) -> dict[str, str]:
    """The worst severity of each rule that found something in the run.

    Raises:
        RatioscopeError: it cannot be read.
    """
    found: dict[str, str] = {}
    for finding in sorted(state.open_listed(listed).findings, key=lambda finding: finding.severity, reverse=True):
        found.setdefault(finding.rule.replace("_", " "), finding.severity.word)
    return found
