"""Distributions over a range of steps, read from the tokens on demand."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.relations import relations
from analysis.store import Run
from ratioscope.tails import Array, fit_tail, kept_size

# Points of a survival curve: even in the logarithm of the share that is left.
_CURVE_POINTS = 160


@dataclass(frozen=True)
class Survival:
    """P(ratio > x) of the tokens of some steps, and the tail fitted to the largest of them."""

    ratio: Array
    share: Array
    n_tokens: int
    khat: float | None
    reason: str
    """Why there is no k-hat."""
    fit_ratio: Array
    fit_share: Array


def survival(run: Run, first: int, last: int) -> Survival:
    """The survival curve of rho_k over the steps first..last, both included.

    Unusable rows (metric definitions, section 10) are left out, as in the step summary.
    """
    with relations(run, first, last) as connection:
        rows = connection.execute("select log_rho from usable").fetchnumpy()
    ordered = np.sort(np.asarray(rows["log_rho"], dtype=float))
    n = len(ordered)
    if n == 0:
        return _empty("no usable tokens in these steps")
    share = np.geomspace(1.0, 1 / n, min(_CURVE_POINTS, n))
    # P(rho > x) = share for x just below the (1 - share) quantile.
    place = np.clip(np.ceil(n * (1 - share)).astype(int), 0, n - 1)
    tail = fit_tail(ordered[::-1][: kept_size(n)], n)
    drawable = tail.khat is not None and tail.cut_off > 0 and np.exp(ordered[-1]) < np.inf
    x = np.geomspace(tail.cut_off, np.exp(ordered[-1]), 60) if drawable else np.empty(0)
    return Survival(np.exp(ordered[place]), share, n, tail.khat, tail.reason, x, tail.survival(x))


def _empty(reason: str) -> Survival:
    none = np.empty(0)
    return Survival(none, none, 0, None, reason, none, none)


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
