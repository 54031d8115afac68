"""Setting A minus setting B: by step, at the end, and how probable it is that a run of A beats a run of B.

Runs of the same seed see the same prompts, so where A and B share at least two seeds the difference is taken seed by
seed; otherwise the settings are independent samples (Welch). All numbers are antisymmetric: swapping A and B turns
every sign, and P(A > B) into 1 - P(A > B), exactly.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaincinv, stdtr, stdtrit

from ratioscope.analysis.compare.aggregates import (
    FEWEST_RESAMPLED,
    resamples,
    t_interval,
    t_spread,
    welch_interval,
    welch_spread,
)
from ratioscope.analysis.compare.alignment import Axis, align
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.possible import width
from ratioscope.analysis.summary.intervals import LEVEL, NO_INTERVAL, Interval, percentile_interval
from ratioscope.tails import Array

POWER = 0.8
# An interval narrower than this part of the difference is rounding: with few evaluation prompts, two seeds often agree.
ROUNDING = 1e-9
MOST_SEEDS = 1_000


class SeedsNeeded(NamedTuple):
    """Seeds of each setting that would show the observed difference, with what the spread of so few leaves open."""

    about: int
    low: int
    high: int | None
    """None: more than `MOST_SEEDS`."""


@dataclass(frozen=True)
class Difference:
    """The means' difference A - B at the end, with its uncertainty over seeds; NaN where there is none."""

    a: Array = field(repr=False, compare=False)
    """What the seeds of A end with; where they are paired, in the order of B's, (n_seeds,)."""
    b: Array = field(repr=False, compare=False)
    value: float
    interval: Interval
    """95 %, by t: paired, or Welch's; none where every seed gives the same, for then the spread is not known."""
    paired: bool
    error: float
    """Standard error of the value; NaN without an interval."""
    freedom: float
    """Its degrees of freedom."""

    @property
    def seeds(self) -> tuple[int, int]:
        """Of A and of B; with pairs, their number twice."""
        return len(self.a), len(self.b)

    @property
    def wins(self) -> tuple[int, int, int]:
        """In how many pairs of seeds A ends above B, and B above A, of how many; where seeds are not shared, every run
        of A with every run of B."""
        one, other = (self.a, self.b) if self.paired else (self.a[:, None], self.b[None, :])
        return int((one > other).sum()), int((one < other).sum()), one.size if self.paired else one.size * other.size

    @property
    def flipped(self) -> "Difference":
        """B - A."""
        return replace(self, a=self.b, b=self.a, value=-self.value, interval=self.interval.negative)

    @property
    def p_value(self) -> float:
        """Two-sided, of the t test that `interval` comes from; NaN without one."""
        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error))

    @cached_property
    def probability(self) -> tuple[float, Interval]:
        """P(A > B): that a run of A ends above a run of B, whatever their seeds; a tie counts one half. NaN with fewer
        than 4 seeds of either: two that agree would say 1."""
        if min(self.seeds) < FEWEST_RESAMPLED:
            return float("nan"), NO_INTERVAL
        return probability_of_improvement(self.a, self.b)

    @cached_property
    def seeds_needed(self) -> SeedsNeeded | None:
        """`seeds_needed` for the observed difference and spread."""
        return seeds_needed(self.a, self.b, paired=self.paired) if np.isfinite(self.interval.low) else None


def difference_over_runs(a: "pd.Series[float]", b: "pd.Series[float]", most: float = inf) -> Difference:
    """The difference of two settings from one number a seed, indexed by seed (`Member.unit`).

    Args:
        most: the largest that is possible (`possible.width`): the interval ends there.
    """
    # To find a seed in a dictionary takes a hundredth of what pandas takes, and there is a pair for any two settings.
    sides: list[dict[str, float]] = [dict(zip(side.index.tolist(), side.tolist(), strict=True)) for side in (a, b)]
    shared = sorted(sides[0].keys() & sides[1].keys())
    paired = len(shared) > 1
    x, y = (np.asarray([side[unit] for unit in (shared if paired else sorted(side))], dtype=float) for side in sides)
    with np.errstate(invalid="ignore"):
        value, low, high = map(float, t_interval(x - y) if paired else welch_interval(x, y))
        _, error, freedom = map(float, t_spread(x - y) if paired else welch_spread(x, y))
    if not high - low > ROUNDING * abs(value):
        return Difference(x, y, value, NO_INTERVAL, paired, float("nan"), float("nan"))
    return Difference(x, y, value, Interval(max(low, -most), min(high, most)), paired, error, freedom)


def difference_over(a: Setting, b: Setting, metric: str, by: Axis = "step") -> pd.DataFrame:
    """A - B along the axis: difference, low, high (95 % by t, as in `Difference`) and seeds.

    Seeds are those of the smaller side that have a value there; rows in which a side has none are left out.

    Raises:
        RatioscopeError: there is no such metric.
    """
    aligned = align([*a.members, *b.members], metric, by).frame
    of_a, of_b = a.by_seed(aligned), b.by_seed(aligned)
    shared = sorted(set(of_a.columns) & set(of_b.columns))
    if len(shared) > 1:
        with np.errstate(invalid="ignore"):
            pairs = of_a[shared].to_numpy() - of_b[shared].to_numpy()
        numbers, seeds = t_interval(pairs), (~np.isnan(pairs)).sum(axis=1)
    else:
        x, y = of_a.to_numpy(dtype=float), of_b.to_numpy(dtype=float)
        numbers = welch_interval(x, y)
        seeds = np.minimum((~np.isnan(x)).sum(axis=1), (~np.isnan(y)).sum(axis=1))
    most = width(metric, (a, b), np.concatenate([of_a, of_b], axis=None))
    numbers = numbers[0], np.maximum(numbers[1], -most), np.minimum(numbers[2], most)
    table = pd.DataFrame(dict(zip(("difference", "low", "high"), numbers, strict=True)), index=aligned.index)
    return table.assign(seeds=seeds)[seeds > 0]


def probability_of_improvement(x: Array, y: Array) -> tuple[float, Interval]:
    """P(X > Y) of every number with every other, ties counting one half (Agarwal et al. 2021).

    Returns:
        The probability and its 95 % bootstrap interval: none with fewer than 4 numbers of either.
    """
    sides = tuple(x.tolist()), tuple(y.tolist())
    if sides[0] > sides[1]:  # the draws are those of one order: results are antisymmetric
        value, interval = probability_of_improvement(y, x)
        return 1 - value, Interval(1 - interval.high, 1 - interval.low)
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    if min(len(x), len(y)) < FEWEST_RESAMPLED:
        return float(wins.mean()) if wins.size else float("nan"), NO_INTERVAL
    drawn = resamples((len(x), len(y)))
    chances = ((drawn[:, : len(x)] @ wins) * drawn[:, len(x) :]).sum(axis=1) / wins.size
    return float(wins.mean()), percentile_interval(chances)


def seeds_needed(x: Array, y: Array, *, paired: bool) -> SeedsNeeded | None:
    """How many seeds of each setting would show the observed difference: the smallest n with power 0.8.

    n at which |mean difference| >= (t_{.975} + t_{.8}) sigma / sqrt(n), with the observed spread: sigma is that of the
    seeds' differences (n - 1 degrees of freedom) or sqrt(sigma_x^2 + sigma_y^2) (Welch's degrees). The interval is that
    of sigma (95 %, chi-square); the observed difference is itself uncertain, too.

    Returns:
        None with fewer than 4 seeds of a setting, when the spread is unknown, or when more than 1,000 are needed.
    """
    if min(len(x), len(y)) < FEWEST_RESAMPLED:
        return None
    effect = abs(float(x.mean() - y.mean()))
    if paired:
        variance, shape, freedom = float(np.var(x - y, ddof=1)), 1.0, len(x) - 1.0
    else:
        parts = float(np.var(x, ddof=1)), float(np.var(y, ddof=1))
        variance, freedom = sum(parts), float(welch_spread(x, y)[2])
        shape = variance**2 / (parts[0] ** 2 + parts[1] ** 2) if variance > 0 else 2.0
    if not (effect > 0 and variance > 0):
        return None
    low, high = (freedom / (2 * gammaincinv(freedom / 2, end)) for end in ((1 + LEVEL) / 2, (1 - LEVEL) / 2))
    about, least, most = (_enough(effect, variance * by, shape) for by in (1.0, low, high))
    return None if about is None or least is None else SeedsNeeded(about, least, most)


def _enough(effect: float, variance: float, shape: float) -> int | None:
    """The smallest number of seeds at which a difference is found with power 0.8; None: more than `MOST_SEEDS`."""
    n = np.arange(2, MOST_SEEDS + 1, dtype=float)
    freedom = shape * (n - 1)
    detectable = (stdtrit(freedom, (1 + LEVEL) / 2) + stdtrit(freedom, POWER)) * np.sqrt(variance / n)
    enough = n[detectable <= effect]
    return int(enough[0]) if len(enough) else None
