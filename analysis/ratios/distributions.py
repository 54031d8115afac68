"""Distributions of a pair's ratios over a range of steps, read from the tokens on demand.

both = survival(open_run("runs/x"), 10, 20, pair="new/behavior")   # both tails, with a Pareto fit each
steps = by_step(open_run("runs/x"), 10, 20, "new/current")         # quantiles and histogram, step by step
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import duckdb
import numpy as np
import pandas as pd

from ratioscope.analysis.drift.pairs import PAIRS, create_units
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.order_statistics import LAST_BIN, bin_log_ratio
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.errors import unknown
from ratioscope.metric import Moment, khat_limit, not_logged
from ratioscope.tails import QUANTILES, Array, fit_tail, kept_size

# Points of a tail: even in the logarithm of the share that is left.
_CURVE_POINTS = 160
_FIT_POINTS = 60
# Of as large a ratio as the largest one, by the fitted tail: below it there is another tail behind that one.
_CHANCE = 1e-3
# exp of more than this leaves the floating-point range, and a logarithmic axis ends there.
_LARGEST_LOG = 700.0
# A tail of tokens whose probability rose or fell by more than this factor is worth counting.
FAR = 10.0

RatioLevel = Literal["token", "sequence"]
_VIEWS: dict[RatioLevel, str] = {"token": "token_unit", "sequence": "sequence_unit"}


@dataclass(frozen=True)
class DrawnTail:
    """One tail, from the median outwards, of the weights w: the ratios, or 1 / ratio for the lower one."""

    weight: Array
    """Ascending, in (0, inf)."""
    share: Array
    """Share of all ratios whose weight is at least that: P(w >= weight)."""
    khat: float | None
    reason: str
    """Why there is no k-hat."""
    fit_weight: Array
    fit_share: Array
    """The fitted Pareto tail above its cut-off; empty where nothing was fitted."""


@dataclass(frozen=True)
class Survival:
    """Both tails of the ratios of some steps, and how many ratios have no place on a logarithmic axis."""

    upper: DrawnTail
    """Of the ratio: what the variance of importance weights comes from."""
    lower: DrawnTail
    """Of 1 / ratio: tokens that the policy has abandoned."""
    n: int
    """Ratios: of tokens, or of sequences."""
    n_undefined: int
    """Tokens or sequences without one, because a log-probability is missing or cannot be used."""
    n_zero: int
    n_infinite: int
    far_below: float
    far_above: float
    """Share of the ratios below 1 / FAR, and above FAR."""
    reason: str
    """Why there is no ratio at all, "" where there is one."""

    @property
    def answer(self) -> str:
        """What both tails say, in words."""
        if not self.n:
            return f"No ratio in these steps: {self.reason}."
        lost = percent(self.far_below) if self.far_below else "none"
        lost += f" {'are' if self.far_below else 'is'} below {1 / FAR:g}"
        lost += f", {self.n_zero} are 0" if self.n_zero else ""
        beyond = f" {self.n_infinite} ratios are infinite." if self.n_infinite else ""
        upper, lower = (_verdict(tail, self.n) for tail in (self.upper, self.lower))
        if upper == lower:
            return f"Both tails: {upper}; {lost}.{beyond}"
        return f"Upper tail: {upper}. Lower tail (1/ratio): {lower}; {lost}.{beyond}"


def _verdict(tail: DrawnTail, n: int) -> str:
    if tail.khat is None:
        return f"no tail index, {tail.reason}"
    # By the fit so many of n ratios are as large as the largest one: one that is larger belongs to another tail.
    if len(tail.fit_share) and n * tail.fit_share[-1] < _CHANCE:
        return "the largest ratios lie beyond the fit, so k̂ is too small"
    return moments(tail.khat, n)


def moments(khat: float, n: int) -> str:
    """What can be estimated of n ratios with this tail index."""
    if khat >= (khat_limit(Moment.FIRST, n) or 0):
        return "even the mean is unreliable"
    doubtful = khat >= (khat_limit(Moment.SECOND, n) or 0)
    return "the mean is reliable, the variance is not" if doubtful else "mean and variance are reliable"


def survival(
    run: Run, first: int, last: int, *, pair: str = "current/behavior", level: RatioLevel = "token"
) -> Survival:
    """Both tails of a pair's ratios over the steps first..last, both included.

    Every sampled token (or sequence: the product over its tokens) counts the same, whatever the pair. Unusable rows
    (`docs/metrics.md`, bad numbers) are left out, as in the step summary, and counted.

    Raises:
        RatioscopeError: no such pair, or a file vanished while it was read.
    """
    return survivals(run, first, last, pair=pair, levels=(level,))[level]


def survivals(
    run: Run,
    first: int,
    last: int,
    *,
    pair: str = "current/behavior",
    levels: Sequence[RatioLevel] = ("token", "sequence"),
) -> dict[RatioLevel, Survival]:
    """`survival` at several levels, in one reading of the files."""
    if pair not in PAIRS:
        raise unknown("a pair", pair, PAIRS)
    with relations(run, first, last) as connection:
        create_units(connection, PAIRS[pair])
        return {level: _survival(connection, _VIEWS[level]) for level in levels}


def _survival(connection: duckdb.DuckDBPyConnection, view: str) -> Survival:
    every, missing = connection.execute(f"select count(*), min(missing) from {view}").fetchall()[0]
    rows = connection.execute(f"select z from {view} where usable").fetchnumpy()
    ordered = np.sort(np.asarray(rows["z"], dtype=float))
    n, far = len(ordered), np.log(FAR)
    below, within = np.searchsorted(ordered, -far, "left"), np.searchsorted(ordered, far, "right")
    reason = "every row has an unusable number" if every else "there is no token"
    return Survival(
        upper=_tail(ordered),
        lower=_tail(-ordered[::-1]),
        n=n,
        n_undefined=every - n,
        n_zero=int(np.isneginf(ordered).sum()),
        n_infinite=int(np.isposinf(ordered).sum()),
        far_below=float(below) / max(n, 1),
        far_above=float(n - within) / max(n, 1),
        reason="" if n else not_logged(missing).text if missing else reason,
    )


def _tail(ordered: Array) -> DrawnTail:
    """Args: ordered: log-weights, ascending."""
    none, n = np.empty(0), len(ordered)
    if n == 0:
        return DrawnTail(none, none, None, "there is no ratio", none, none)
    fit = fit_tail(ordered[::-1][: kept_size(n)], n)
    left = np.geomspace(0.5, 1 / n, min(_CURVE_POINTS, n)) if n > 1 else np.ones(1)
    places = np.clip(np.ceil(n * (1 - left)).astype(int), 0, n - 1)
    shown = np.unique(ordered[np.r_[(n - 1) // 2, places]])  # from the lower median: at least half of all
    shown = shown[np.abs(shown) < _LARGEST_LOG]
    share = (n - np.searchsorted(ordered, shown, "left")) / n
    fitted = fit.khat is not None and np.isfinite(fit.khat) and fit.cut_off > 0 and ordered[-1] < _LARGEST_LOG
    weight = np.geomspace(fit.cut_off, np.exp(ordered[-1]), _FIT_POINTS) if fitted else none
    reason = fit.note.reason if fit.note else ""
    return DrawnTail(np.exp(shown), share, fit.khat, reason, weight, fit.survival(weight) if fitted else none)


@dataclass(frozen=True)
class ByStep:
    """Quantiles and histogram of a pair's token ratios, step by step."""

    quantiles: pd.DataFrame
    """Indexed by step: ratio_min, the keys of `QUANTILES`, ratio_max."""
    histogram: pd.DataFrame
    """step, bin, tokens, as in the step summary."""

    def in_place_of(self, summary: StepSummary) -> StepSummary:
        """The summary with these ratios instead of those of current/behavior: figures draw either."""
        steps = summary.values.index
        ratios = self.quantiles.reindex(steps)
        return replace(summary, values=summary.values.assign(**ratios), histogram=self.histogram)


_EDGES: Array = bin_log_ratio(np.arange(-LAST_BIN, LAST_BIN, dtype=float) + 0.5)


def by_step(run: Run, first: int, last: int, pair: str) -> ByStep:
    """Quantiles and histogram of the usable token ratios of the steps first..last, both included.

    Raises:
        RatioscopeError: no such pair, or a file vanished while it was read.
    """
    if pair not in PAIRS:
        raise unknown("a pair", pair, PAIRS)
    with relations(run, first, last) as connection:
        create_units(connection, PAIRS[pair])
        rows = connection.execute("select step, z from token_unit where usable").fetchnumpy()
    step, z = (np.asarray(rows[name]) for name in ("step", "z"))
    order = np.lexsort((z, step))
    step, z = step[order], z[order]
    numbers, starts = np.unique(step, return_index=True)
    shares = {"ratio_min": 0.0, **QUANTILES, "ratio_max": 1.0}
    places = np.array(list(shares.values()))
    quantiles, histograms = [], []
    for number, inside in zip(numbers, np.split(z, starts[1:]), strict=False):
        quantiles.append(_quantiles(inside, places))
        counts = np.diff(np.searchsorted(inside, _EDGES), prepend=0, append=len(inside))
        filled = np.flatnonzero(counts)
        histograms.append(pd.DataFrame({"step": number, "bin": filled - LAST_BIN, "tokens": counts[filled]}))
    index = pd.Index(numbers.astype(np.int64), name="step")
    table = np.reshape(quantiles, (len(numbers), len(shares)))
    empty = pd.DataFrame({"step": [], "bin": [], "tokens": []}, dtype=np.int64)
    return ByStep(
        pd.DataFrame(np.exp(table), index=index, columns=list(shares)),
        pd.concat(histograms, ignore_index=True) if histograms else empty,
    )


def _quantiles(ordered: Array, shares: Array) -> Array:
    """Log-ratios at some shares, by linear interpolation; towards an infinite neighbour there is none."""
    place = shares * (len(ordered) - 1)
    low = ordered[place.astype(int)]
    high = ordered[np.minimum(place.astype(int) + 1, len(ordered) - 1)]
    fraction = place - place.astype(int)
    with np.errstate(invalid="ignore"):
        between = low + fraction * (high - low)
    return np.where((low == high) | (fraction == 0) | np.isneginf(low), low, between)


def quadrants(run: Run, first: int, last: int) -> pd.DataFrame:
    """Advantage sign by ratio side over the steps first..last: where the tokens are, and where the gradient comes from.

    One row a quadrant: advantage ("A > 0", "A < 0"), ratio ("ρ > 1", "ρ ≤ 1"), tokens, share of tokens, clipped (share
    of the quadrant's tokens), gradient (share of the sum of |gradient_weight|). What the run does not log is NaN.
    """
    with relations(run, first, last) as connection:
        frame = connection.execute(
            """
            select
                case when advantage > 0 then 'A > 0' else 'A < 0' end as advantage,
                case when log_rho > 0 then 'ρ > 1' else 'ρ ≤ 1' end as ratio,
                count(*)::double as tokens,
                avg(clipped::int) as clipped,
                sum(abs(gradient_weight::double)) as gradient
            from usable
            where advantage <> 0
            group by 1, 2
            order by 1 desc, 2 desc
            """
        ).df()
    frame.insert(3, "share", frame["tokens"] / frame["tokens"].sum())
    frame["gradient"] = frame["gradient"] / frame["gradient"].sum()
    return frame
