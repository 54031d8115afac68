"""What the Compare page has computed: kept for the runs' latest states; a change of colours computes nothing again.

Everything that is returned is shared between sessions and never changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate

import streamlit as st

from ratioscope.analysis.compare.alignment import Axis, align
from ratioscope.analysis.compare.chosen_metric import chosen_metric
from ratioscope.analysis.compare.grouping import Member, Setting, grouped_settings
from ratioscope.analysis.runs.store import Listed, open_run, run_signature
from ratioscope.analysis.summary.summary import Summariser
from ratioscope.dashboard import state
from ratioscope.dashboard.latest import Latest
from ratioscope.dashboard.sections.compare.comparison import ComparedMeasure, Comparison
from ratioscope.dashboard.sections.subject import Arguments, Result
from ratioscope.errors import RatioscopeError

Key = tuple[tuple[str, str, str], ...]
"""Of each run its id, its folder and its state."""


@dataclass(frozen=True)
class PageComparison(Comparison):
    """A comparison on the page: the brushed steps, in the browser's colours; results are kept for all sessions."""

    key: Key = ()
    instead: str = ""
    """That the measure's metric is not the one that was asked for; else empty."""

    def compute(
        self,
        function: Callable[Concatenate[Sequence[Setting], Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        name = f"{function.__module__}.{function.__qualname__}"
        # On another axis other runs may be left out.
        known = _computed(_runs(self.key), self.measure.by, name, arguments, options)
        return known.get(self.key, lambda: function(self.settings, *arguments, **options))


def _runs(key: Key) -> tuple[tuple[str, str], ...]:
    """Which runs, in whatever state."""
    return tuple((run_id, folder) for run_id, folder, _ in key)


@st.cache_resource(max_entries=400, show_spinner=False)
def _computed(runs: tuple[tuple[str, str], ...], by: Axis, name: str, arguments: Any, options: Any) -> Latest:
    return Latest()


@st.cache_resource(max_entries=200, show_spinner=False)
def _summariser(folder: str) -> Summariser:
    return Summariser()


@st.cache_resource(max_entries=400, show_spinner=False)
def _members(run_id: str, folder: str) -> Latest:
    return Latest()


def member(listed: Listed) -> Member:
    """The run in its present state. Its findings are not computed: that takes ten times as long as all the rest.

    Raises:
        RatioscopeError: it cannot be read.
    """
    if listed.problem:
        raise RatioscopeError(listed.problem)
    folder = str(listed.folder)

    def read() -> Member:
        run = open_run(folder)
        return Member(listed.run_id, run, _summariser(folder).summarise(run))

    return _members(listed.run_id, folder).get(run_signature(listed.folder), read)


def comparison(members: Sequence[Member], measure: ComparedMeasure) -> tuple[PageComparison, Mapping[str, str]]:
    """The runs that have the axis, as settings; and those that do not have it, with the reason."""
    key = tuple((each.run_id, str(each.run.folder), each.run.signature) for each in members)
    found, absent = _settings(_runs(key), measure.by).get(key, lambda: _settings_of(members, measure.by))
    return PageComparison(found, measure, state.step_range(), state.mode(), key=key), absent


@st.cache_resource(max_entries=50, show_spinner=False)
def _settings(runs: tuple[tuple[str, str], ...], by: Axis) -> Latest:
    return Latest()


def _settings_of(members: Sequence[Member], by: Axis) -> tuple[list[Setting], Mapping[str, str]]:
    absent = align(members, "reward", by).absent
    return grouped_settings([each for each in members if each.run_id not in absent]), absent


def by_a_metric_that_is_there(comparison: PageComparison) -> PageComparison:
    """The same by the metric that is asked for, or by the next sensible one where no two settings have it."""
    chosen = comparison.compute(chosen_metric, comparison.measure.metric)
    return replace(comparison, measure=replace(comparison.measure, metric=chosen.metric), instead=chosen.instead)
