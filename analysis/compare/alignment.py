"""Runs on one axis: by update, by tokens trained on, or by wall time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.grouping import LAST_VALUES, Member, Setting, check_metric, end_count, end_value
from ratioscope.errors import RatioscopeError
from ratioscope.tails import Array

Axis = Literal["step", "tokens", "time"]


@dataclass(frozen=True)
class AlignedMetric:
    """One metric of several runs over one axis."""

    frame: pd.DataFrame
    """Indexed by the axis, one column a run; NaN where a run has no value."""
    absent: Mapping[str, str]
    """Runs that do not have the axis, with the reason."""


def _steps(member: Member) -> "pd.Series[float]":
    steps = member.summary.values.index
    return pd.Series(steps.to_numpy(dtype=float), index=steps)


def _tokens(member: Member) -> "pd.Series[float]":
    values = member.summary.values
    tokens = (values["n_tokens"] + values["n_invalid"]).cumsum()
    if not tokens.max() > 0:
        raise RatioscopeError(f"{member.run_id}: no tokens are on disk, so it cannot be aligned by tokens; use steps.")
    return tokens


def _seconds(member: Member) -> "pd.Series[float]":
    steps = member.summary.steps
    times = steps["wall_time"].dropna() if "wall_time" in steps else pd.Series(dtype="datetime64[us, UTC]")
    if not len(times):
        raise RatioscopeError(f"{member.run_id}: it logs no wall time, so it cannot be aligned by time; use steps.")
    if not times.is_monotonic_increasing:
        raise RatioscopeError(
            f"{member.run_id}: its wall time runs backwards, so it cannot be aligned by it; use steps."
        )
    return (times - times.iloc[0]).dt.total_seconds()


AXES: Mapping[Axis, Callable[[Member], "pd.Series[float]"]] = {"step": _steps, "tokens": _tokens, "time": _seconds}
"""Where each step of a run lies: update k; tokens of all updates up to and including k; seconds since the first update
ended. A pause between an interruption and its continuation counts as time."""

_UNITS: Mapping[Axis, str] = {"step": "step {:.0f}", "tokens": "{:,.0f} tokens", "time": "{:,.4g} seconds"}
AXIS_NAMES: Mapping[Axis, str] = {"step": "step", "tokens": "tokens", "time": "seconds"}


def logged_values(member: Member, metric: str, by: Axis) -> "pd.Series[float]":
    """A run's values of a metric, indexed by where they lie on the axis; steps without a value are left out.

    Raises:
        RatioscopeError: there is no such metric, or the run does not have the axis.
    """
    check_metric(metric)
    places = AXES[by](member)
    values = member.summary.values[metric].dropna()
    where = places.index.get_indexer(values.index)
    there = where >= 0
    return pd.Series(values.to_numpy()[there], index=pd.Index(places.to_numpy()[where[there]], name=AXIS_NAMES[by]))


def align(members: Iterable[Member], metric: str, by: Axis = "step") -> AlignedMetric:
    """One metric of several runs over one axis.

    By step nothing is interpolated: a value stands at its step. By tokens and time the grid has even distances, from
    the earliest first to the latest last value, and as many points as the densest run has values; a run is
    interpolated between its logged values, and NaN before its first and after its last.

    Raises:
        RatioscopeError: there is no such metric.
    """
    check_metric(metric)
    found: dict[str, pd.Series[float]] = {}
    absent: dict[str, str] = {}
    for member in members:
        try:
            found[member.run_id] = logged_values(member, metric, by)
        except RatioscopeError as error:
            absent[member.run_id] = str(error)
    if by == "step":
        frame = pd.DataFrame(found).sort_index()
        frame.index = frame.index.astype("int64").rename("step")
        return AlignedMetric(frame, absent)
    known = [series for series in found.values() if len(series)]
    if not known:
        return AlignedMetric(pd.DataFrame(columns=list(found), index=pd.Index([], name=AXIS_NAMES[by])), absent)
    first, last = min(series.index[0] for series in known), max(series.index[-1] for series in known)
    grid = np.linspace(first, last, max(map(len, known)))
    columns = {run_id: _interpolated(series, grid) for run_id, series in found.items()}
    return AlignedMetric(pd.DataFrame(columns, index=pd.Index(grid, name=AXIS_NAMES[by])), absent)


def _interpolated(series: "pd.Series[float]", grid: Array) -> Array:
    if not len(series):
        return np.full(len(grid), np.nan)
    places, values = series.index.to_numpy(dtype=float), series.to_numpy()
    return np.interp(grid, places, values, left=np.nan, right=np.nan)


@dataclass(frozen=True)
class End:
    """Where runs of different lengths are compared: at the end of the shortest."""

    by: Axis
    places: Array
    """The last places (`end_count` of them) of the run that ends first, ascending; by step those
    that all runs have in common, where there are enough. Empty without values."""
    common: bool = False
    """Whether every run has a value at each of these places."""
    first: str = ""
    """The run that ends first, where others go on for long; else empty."""
    longer: int = 0
    """How many do."""
    furthest: float = float("nan")
    """Where the last of them ends."""

    @property
    def until(self) -> float:
        """The last place, which every run reaches; NaN where no run has a value."""
        return float(self.places[-1]) if len(self.places) else float("nan")

    @property
    def words(self) -> str:
        """`until` with its unit."""
        return _UNITS[self.by].format(self.until)

    @property
    def values_words(self) -> str:
        """Which values the end is the mean of."""
        if not len(self.places):
            return "no values"
        if not self.common:
            return f"mean of {len(self.places)} values up to {self.words}"
        if len(self.places) == 1:
            return f"the value of {self.words}"
        return f"mean of {len(self.places)} values, steps {self.places[0]:.0f}–{self.until:.0f}"

    @property
    def shortened(self) -> str:
        """That runs go on beyond this end, as a sentence without its full stop; empty where none does."""
        if not self.longer:
            return ""
        others = "the other run goes on" if self.longer == 1 else f"{self.longer} other runs go on"
        return (
            f"{self.first} ends at {self.words}, and all runs are compared there: {others} to "
            f"{_UNITS[self.by].format(self.furthest)}, which is left out here"
        )


# A run that is longer by less has the same length: the last evaluation falls where it falls.
_LONGER = 0.05


def common_end(settings: Sequence[Setting], metric: str, by: Axis = "step") -> End:
    """The end that every run with a value of the metric reaches.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    every = {
        member.run_id: series
        for setting in settings
        for member in setting.members
        if len(series := logged_values(member, metric, by))
    }
    if not every:
        return End(by, np.array([]))
    first = min(every, key=lambda run_id: (every[run_id].index[-1], tuple(every[run_id].index)))
    until, own = float(every[first].index[-1]), every[first].index.to_numpy(dtype=float)
    last = [float(series.index[-1]) for series in every.values()]
    longer = [place for place in last if place - until > _LONGER * place]
    beyond = (first, len(longer), max(longer)) if longer else ("", 0, float("nan"))
    shared = own[np.logical_and.reduce([np.isin(own, series.index) for series in every.values()])]
    common = by == "step" and len(shared) >= min(LAST_VALUES, len(own))
    places = shared if common else own
    return End(by, places[-end_count(len(places)) :], common, *beyond)


def ends(setting: Setting, metric: str, end: End) -> "pd.Series[float]":
    """What each seed ends with, indexed by `Member.unit`; a seed without a value up to the end is left out.

    By step it is the mean of a run's values at `end.places`, or where the runs have too few steps in common of as many
    of its last ones; by tokens and time the mean of its interpolated values there, where all runs have spent as much.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    found = {}
    for member in setting.members:
        series = logged_values(member, metric, end.by)
        if end.by != "step" and len(series):
            reached = end.places[end.places >= series.index[0]]
            series = pd.Series(_interpolated(series, reached), index=reached)
        kept = series[series.index.isin(end.places) if end.common else series.index <= end.until]
        found[member.run_id] = [end_value(kept, len(end.places))]
    return setting.by_seed(pd.DataFrame(found)).iloc[0].dropna()
