"""What a chart of a comparison shows: each setting as a curve with its band, and what its settings differ in.

Running means are taken over the logged values of each run, before anything is aggregated: so the band is that of what
is drawn, and a metric that is logged now and then is not diluted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ratioscope.analysis.compare.aggregates import StatisticName, aggregate
from ratioscope.analysis.compare.alignment import Axis, align
from ratioscope.analysis.compare.configuration import UNSET, configuration_of, differing_keys
from ratioscope.analysis.compare.grouping import Member, Setting, check_metric

NOTHING = "nothing"
"""An attribute that does not distinguish settings."""
_NAMES = ("algorithm", "variant", "schedule")


@dataclass(frozen=True)
class SettingCurve:
    """One setting along the axis."""

    setting: Setting
    frame: pd.DataFrame
    """value, low, high (of the running mean) and seeds, indexed by the axis; rows without a value are left out."""
    raw: "pd.Series[float]"
    """The statistic of what was logged, without a running mean."""
    seeds: pd.DataFrame
    """What was logged, one column a seed."""

    @property
    def infinite(self) -> "pd.Index[float]":
        """Where a seed's value is infinite."""
        return self.seeds.index[np.isinf(self.seeds.to_numpy()).any(axis=1)]


def smoothed(settings: Sequence[Setting], metric: str, window: int) -> list[Setting]:
    """The same settings, this metric as the running mean over the last `window` logged values of each run.

    An infinite value makes the mean infinite wherever it is among them.

    Raises:
        RatioscopeError: there is no such metric.
    """
    check_metric(metric)
    if window < 2:
        return list(settings)
    return [
        replace(setting, members=tuple(_smoothed(member, metric, window) for member in setting.members))
        for setting in settings
    ]


def _smoothed(member: Member, metric: str, window: int) -> Member:
    values = member.summary.values
    mean = _running_mean(values[metric].dropna(), window).reindex(values.index)
    kept = pd.DataFrame(
        {name: values[name] for name in ("n_tokens", "n_invalid")} | {metric: mean}
    )  # what `align` needs
    return replace(member, summary=replace(member.summary, values=kept))


def _running_mean(logged: "pd.Series[float]", window: int) -> "pd.Series[float]":
    infinite = logged.abs() == np.inf
    if not infinite.any():
        return logged.rolling(window, min_periods=1).mean()
    finite = logged.mask(infinite).rolling(window, min_periods=1).mean()
    side = logged.where(infinite, 0.0).clip(-1, 1).rolling(window, min_periods=1).sum()
    with np.errstate(invalid="ignore"):
        beyond = side * np.inf  # NaN between infinities of both signs
    return finite.mask(infinite.astype(float).rolling(window, min_periods=1).max() > 0, beyond)


def curves(
    settings: Sequence[Setting],
    metric: str,
    by: Axis = "step",
    statistic: StatisticName = "mean",
    window: int = 1,
) -> list[SettingCurve]:
    """Each setting along one common axis, over its seeds; in the order of the settings.

    Args:
        window: over so many logged values of a run goes its running mean; 1: none.

    Raises:
        RatioscopeError: there is no such metric.
    """
    every = [member for setting in settings for member in setting.members]
    logged = align(every, metric, by).frame
    means = smoothed(settings, metric, window)
    drawn = logged
    if window > 1:
        drawn = align([member for setting in means for member in setting.members], metric, by).frame
    found = []
    for setting in settings:
        seeds, frame = setting.by_seed(logged).dropna(how="all"), aggregate(setting.by_seed(drawn), statistic)
        raw = aggregate(seeds, statistic, band=False)["value"]
        found.append(SettingCurve(setting, frame.dropna(subset=["value"]), raw, seeds))
    return found


def attributes(settings: Sequence[Setting]) -> list[str]:
    """By what settings can be told apart: algorithm, variant, schedule, then each key that differs."""
    flat = [configuration_of(member.run.manifest) for setting in settings for member in setting.members]
    return [*_NAMES, *(key for key in differing_keys(flat) if key != "algorithm.name")]


def attribute(setting: Setting, key: str) -> str:
    """What a setting has there, as text; "-" where it sets no such key, "" for `NOTHING`."""
    if key in _NAMES:
        return str(getattr(setting, key))
    return "" if key == NOTHING else str(configuration_of(setting.members[0].run.manifest).get(key, UNSET))
