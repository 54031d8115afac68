"""Setting A minus setting B: by step, at the end, and how probable it is that a run of A beats a run of B.

Runs of the same seed see the same prompts, so where A and B share at least two seeds the difference is taken seed by
seed; otherwise the settings are independent samples (Welch). All numbers are antisymmetric: swapping A and B turns
every sign, and P(A > B) into 1 - P(A > B), exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaincinv, stdtr, stdtrit

from ratioscope.analysis.compare.aggregates import (
    FEWEST_RESAMPLED,
    bootstrap_interval,
    can_resample,
    resamples,
    t_interval,
    welch_interval,
)
from ratioscope.analysis.compare.alignment import AlignedMetric, Axis, End, align, ends
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.possible import width
from ratioscope.analysis.summary.intervals import LEVEL, NO_INTERVAL, Interval
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

    value: float
    interval: Interval
    """95 %, by t: paired, or Welch's; none where every seed gives the same, for then the spread is not known."""
    bootstrap: Interval
    """95 %, by resampling seeds; none with fewer than 4 of either setting."""
    probability: float
    """P(A > B): that a run of A ends above a run of B, whatever their seeds; a tie counts one half. NaN with fewer than
    4 seeds of either: two that agree would say 1."""
    probability_interval: Interval
    seeds: tuple[int, int]
    """Of A and of B; with pairs, their number twice."""
    paired: bool
    wins: tuple[int, int, int]
    """In how many pairs of seeds A ends above B, and B above A, of how many; where seeds are not shared, every run of A
    with every run of B."""
    p_value: float
    """Two-sided, of the t test that `interval` comes from; NaN without one."""
    seeds_needed: SeedsNeeded | None
    """`seeds_needed` for the observed difference and spread."""


def end_difference(a: Setting, b: Setting, metric: str, end: End) -> Difference:
    """The difference of what the settings end with (`ends`), over seeds.

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    x, y = ends(a, metric, end), ends(b, metric, end)
    return difference_over_runs(x, y, width(metric, (a, b), np.concatenate([x, y])))


def difference_over_runs(a: "pd.Series[float]", b: "pd.Series[float]", most: float = inf) -> Difference:
    """The difference of two settings from one number a seed, indexed by seed (`Member.unit`).

    Args:
        most: the largest that is possible (`possible.width`): the interval ends there.
    """
    paired, a, b = _pair(a, b)
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    with np.errstate(invalid="ignore"):
        value, low, high = map(float, t_interval(x - y) if paired else welch_interval(x, y))
    known = high - low > ROUNDING * abs(value)
    probability, probability_interval = float("nan"), NO_INTERVAL
    if min(len(x), len(y)) >= FEWEST_RESAMPLED:
        probability, probability_interval = probability_of_improvement([(x, y)])
    bootstrap = NO_INTERVAL
    if paired and can_resample([len(x)]):
        bootstrap = bootstrap_interval(resamples((len(x),)) @ (x - y) / len(x), [len(x)])
    elif can_resample([len(x)]) and can_resample([len(y)]):
        drawn_x, drawn_y = _draws_of_two([x], [y])
        bootstrap = bootstrap_interval(drawn_x @ x / len(x) - drawn_y @ y / len(y), [len(x), len(y)])
    return Difference(
        value,
        Interval(max(low, -most), min(high, most)) if known else NO_INTERVAL,
        bootstrap if known else NO_INTERVAL,
        probability,
        probability_interval,
        (len(x), len(y)),
        paired,
        _wins(x, y, paired=paired),
        p_value(x, y, paired=paired) if known else float("nan"),
        seeds_needed(x, y, paired=paired) if known else None,
    )


def p_over_seeds(a: "pd.Series[float]", b: "pd.Series[float]") -> float:
    """The p value of `difference_over_runs` alone, which costs no resampling."""
    paired, a, b = _pair(a, b)
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    with np.errstate(invalid="ignore"):
        value, low, high = map(float, t_interval(x - y) if paired else welch_interval(x, y))
    return p_value(x, y, paired=paired) if high - low > ROUNDING * abs(value) else float("nan")


def _wins(x: Array, y: Array, *, paired: bool) -> tuple[int, int, int]:
    one, other = (x, y) if paired else (x[:, None], y[None, :])
    return int((one > other).sum()), int((one < other).sum()), len(x) if paired else len(x) * len(y)


def p_value(x: Array, y: Array, *, paired: bool) -> float:
    """Two-sided, of the paired or of Welch's t test; NaN where the spread is not known.

    Args:
        x, y: what the runs end with, (n_seeds,).
    """
    spread, freedom = _spread(x, y, paired=paired)
    if not spread > 0:
        return float("nan")
    return float(2 * stdtr(freedom, -abs(x.mean() - y.mean()) / spread))


def _spread(x: Array, y: Array, *, paired: bool) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom; NaN from fewer than two seeds."""
    if min(len(x), len(y)) < 2:
        return float("nan"), float("nan")
    if paired:
        return float(np.std(x - y, ddof=1)) / len(x) ** 0.5, len(x) - 1.0
    parts = [float(np.var(side, ddof=1)) / len(side) for side in (x, y)]
    total = sum(parts)
    if not total > 0:
        return 0.0, float("nan")
    return total**0.5, total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (x, y), strict=True))


def _pair(a: "pd.Series[float]", b: "pd.Series[float]") -> tuple[bool, "pd.Series[float]", "pd.Series[float]"]:
    """Whether the two are compared seed by seed, and what is compared."""
    shared = sorted(set(a.index) & set(b.index))
    return (True, a[shared], b[shared]) if len(shared) > 1 else (False, a.sort_index(), b.sort_index())


def difference_over(a: Setting, b: Setting, metric: str, by: Axis = "step") -> tuple[pd.DataFrame, AlignedMetric]:
    """A - B along the axis: difference, low, high (95 % by t, as in `Difference`) and seeds; and the aligned runs.

    Seeds are those of the smaller side that have a value there; rows in which a side has none are left out.

    Raises:
        RatioscopeError: there is no such metric.
    """
    aligned = align([*a.members, *b.members], metric, by)
    of_a, of_b = a.by_seed(aligned.frame), b.by_seed(aligned.frame)
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
    table = pd.DataFrame(dict(zip(("difference", "low", "high"), numbers, strict=True)), index=aligned.frame.index)
    return table.assign(seeds=seeds)[seeds > 0], aligned


def probability_of_improvement(blocks: Sequence[tuple[Array, Array]]) -> tuple[float, Interval]:
    """Mean over blocks of P(X > Y), ties counting one half, with its stratified bootstrap interval (Agarwal et al.).

    Args:
        blocks: the numbers of X and of Y in each block (task, schedule), one a seed. Every run of X meets every run
            of Y of its block.

    Returns:
        The probability (NaN when a block lacks either side) and its 95 % interval: none with fewer than 4 runs of
        either side in all, or fewer than 2 in a block.
    """
    wins = [(x[:, None] > y) + 0.5 * (x[:, None] == y) for x, y in blocks]
    if not wins or min(win.size for win in wins) == 0:
        return float("nan"), NO_INTERVAL
    probability = float(np.mean([win.mean() for win in wins]))
    xs, ys = [x for x, _ in blocks], [y for _, y in blocks]
    if not (can_resample([len(x) for x in xs]) and can_resample([len(y) for y in ys])):
        return probability, NO_INTERVAL
    drawn_x, drawn_y = _draws_of_two(xs, ys)
    drawn = np.zeros(len(drawn_x))
    from_x = from_y = 0
    for win in wins:
        to_x, to_y = from_x + win.shape[0], from_y + win.shape[1]
        drawn += ((drawn_x[:, from_x:to_x] @ win) * drawn_y[:, from_y:to_y]).sum(axis=1) / win.size / len(wins)
        from_x, from_y = to_x, to_y
    return probability, bootstrap_interval(drawn, [len(x) for x in xs])


def _draws_of_two(x: Sequence[Array], y: Sequence[Array]) -> tuple[Array, Array]:
    """Independent resamples of the strata of x and of y; swapped when x and y are: results are antisymmetric."""
    sides = [tuple(tuple(part.tolist()) for part in side) for side in (x, y)]
    if sides[0] > sides[1]:
        drawn_y, drawn_x = _draws_of_two(y, x)
        return drawn_x, drawn_y
    sizes = [[len(part) for part in side] for side in (x, y)]
    drawn = resamples((*sizes[0], *sizes[1]))
    return drawn[:, : sum(sizes[0])], drawn[:, sum(sizes[0]) :]


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
        variance, (_, freedom) = sum(parts), _spread(x, y, paired=False)
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
