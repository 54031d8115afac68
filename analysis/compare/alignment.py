"""Runs on one axis: by update, by tokens trained on, or by wall time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.grouping import LAST_VALUES, Member, Setting, check_metric, end_value
from ratioscope.analysis.summary.intervals import Array
from ratioscope.errors import RatioscopeError

Axis = Literal["step", "tokens", "time"]


@dataclass(frozen=True)
class Aligned:
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


def logged(member: Member, metric: str, by: Axis) -> "pd.Series[float]":
    """A run's values of a metric, indexed by where they lie on the axis; steps without a value are left out.

    Raises:
        RatioscopeError: there is no such metric, or the run does not have the axis.
    """
    check_metric(metric)
    places = AXES[by](member)
    values = member.summary.values[metric].dropna()
    values = values[values.index.isin(places.index)]
    return pd.Series(values.to_numpy(), index=pd.Index(places.loc[values.index], name=AXIS_NAMES[by]))


def align(members: Iterable[Member], metric: str, by: Axis = "step") -> Aligned:
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
            found[member.run_id] = logged(member, metric, by)
        except RatioscopeError as error:
            absent[member.run_id] = str(error)
    if by == "step":
        frame = pd.DataFrame(found).sort_index()
        frame.index = frame.index.astype("int64").rename("step")
        return Aligned(frame, absent)
    known = [series for series in found.values() if len(series)]
    if not known:
        return Aligned(pd.DataFrame(columns=list(found), index=pd.Index([], name=AXIS_NAMES[by])), absent)
    first, last = min(series.index[0] for series in known), max(series.index[-1] for series in known)
    grid = np.linspace(first, last, max(map(len, known)))
    columns = {run_id: _interpolated(series, grid) for run_id, series in found.items()}
    return Aligned(pd.DataFrame(columns, index=pd.Index(grid, name=AXIS_NAMES[by])), absent)


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
    """The last logged places (at most `LAST_VALUES`) of the run that ends first, ascending; empty without values."""

    @property
    def until(self) -> float:
        """The last place, which every run reaches; NaN where no run has a value."""
        return float(self.places[-1]) if len(self.places) else float("nan")

    @property
    def words(self) -> str:
        """`until` with its unit."""
        return _UNITS[self.by].format(self.until)


def common_end(settings: Sequence[Setting], metric: str, by: Axis = "step") -> End:
    """The end that every run with a value of the metric reaches.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    every = [logged(member, metric, by) for setting in settings for member in setting.members]
    last = [series.index.to_numpy(dtype=float)[-LAST_VALUES:] for series in every if len(series)]
    return End(by, min(last, key=lambda places: (places[-1], tuple(places)), default=np.array([])))


def ends(setting: Setting, metric: str, end: End) -> "pd.Series[float]":
    """What each seed ends with, indexed by `Member.unit`; a seed without a value up to the end is left out.

    By step it is the mean of a run's last `LAST_VALUES` logged values up to `end.until`; by tokens and time the mean
    of its interpolated values at `end.places`, where all runs have spent as much.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    found = {}
    for member in setting.members:
        series = logged(member, metric, end.by)
        if end.by != "step" and len(series):
            reached = end.places[end.places >= series.index[0]]
            series = pd.Series(_interpolated(series, reached), index=reached)
        found[member.run_id] = [end_value(series[series.index <= end.until])]
    return setting.by_seed(pd.DataFrame(found)).iloc[0].dropna()
