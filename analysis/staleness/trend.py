"""What older data are like beside newer ones of the same step: staleness, and reward, per update of age.

A policy changes over training, and so does the age of its data: old tokens of one step against fresh ones of another
compare two times of training. Within a step the policy is the same.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import cluster_interval

_STALENESS = """
    select
        step, group_id, bool_or(grouped) as grouped, version_lag::double as lag, count(*)::double as n,
        sum(greatest(-expm1(log_rho), 0)) as total
    from usable
    -- at lag 0 there is no age, so nothing but the engine: any age at all would look like an effect
    where version_lag >= 1 and log_rho is not null
    group by step, group_id, lag order by all
"""
_REWARD = """
    with aged as (
        select step, seq_id, avg(version_lag)::double as lag from token where version_lag >= 0 group by all
    )
    select
        step, group_id, bool_or(grouped) as grouped, lag, count(*)::double as n, sum(reward)::double as total
    from aged join sequence using (step, seq_id)
    where reward is not null and isfinite(reward)
    group by step, group_id, lag order by all
"""


@dataclass(frozen=True)
class Trend:
    """A slope per update of age with its 95 % interval over prompt groups; NaN: it cannot be known."""

    slope: float
    low: float
    high: float
    steps: int
    """Steps that hold several ages, and the prompt groups in them."""
    groups: int
    grouped: bool = True
    """They are prompt groups; otherwise responses, because no groups are logged."""

    @property
    def rises(self) -> bool:
        return self.low > 0

    @property
    def falls(self) -> bool:
        return self.high < 0


NO_TREND = Trend(float("nan"), float("nan"), float("nan"), 0, 0)


def staleness_trend(run: Run, first: int | None = None, last: int | None = None) -> Trend:
    """Bounded staleness of tokens by their lag, from lag 1 on.

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    with relations(run, first, last) as connection:
        return within_steps(connection.execute(_STALENESS).df())


def reward_trend(run: Run, first: int | None = None, last: int | None = None) -> Trend:
    """Reward of responses by the mean lag of their tokens.

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    with relations(run, first, last) as connection:
        return within_steps(connection.execute(_REWARD).df())


def within_steps(cells: pd.DataFrame) -> Trend:
    """The slope of a mean on the lag with a level for each step, and its interval with groups as the unit.

    Cluster-robust, by t with the effective number of groups: few of them may carry most of the differences of age.

    Args:
        cells: columns step, group_id, lag, n (how many have them) and total (the sum over these).
    """
    step = pd.factorize(cells["step"])[0]
    n, lag, total = (cells[key].to_numpy(dtype=float) for key in ("n", "lag", "total"))

    def centred(of: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        size = np.bincount(step, n)
        return np.asarray(of - (np.bincount(step, n * of) / size)[step])

    if not len(cells):
        return NO_TREND
    age, mean = centred(lag), centred(total / n)
    leverage = n * age**2
    cells = cells.assign(leverage=leverage)
    mixed = leverage > 1e-9 * n
    if not mixed.any():
        return NO_TREND
    slope = float((n * age * mean).sum() / leverage.sum())
    scores = cells.assign(score=n * age * (mean - slope * age))[np.isin(step, step[mixed])]
    groups = scores.groupby(["step", "group_id"])[["score", "leverage"]].sum()
    count = len(groups)
    weight = groups["leverage"].to_numpy(dtype=float)
    low, high = cluster_interval(groups["score"].to_numpy(dtype=float) + slope * weight, weight)
    grouped = bool(cells["grouped"].any()) if "grouped" in cells else True
    return Trend(slope, low, high, len(set(step[mixed])), count, grouped)
