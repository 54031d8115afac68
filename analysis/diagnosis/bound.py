"""What an update cannot do: how far the level of a run can have moved by the updates between two of its steps.

bound = move_bound(summary, 20, 25)      # NaN: not known
drop = beyond_bound(summary, fall)       # the two steps between which it fell by more, if any

Take two policies p and q, responses of any length, and a reward in [0, 1]. For one prompt let P and Q be their laws
over whole responses.

1. E_P r - E_Q r <= the sum of (P - Q)+ over responses = TV(P, Q), as r lies in [0, 1]; the same with P and Q changed.
2. Let H_t draw its first t tokens from p and the others from q: H_0 = Q, and H_T = P. H_t+1 and H_t have the same law
   of the state s_t before token t, that of p; there they draw one token from p and from q; then both go on with q,
   which brings no two laws further apart. So TV(H_t+1, H_t) <= E_p TV(p(.|s_t), q(.|s_t)), 0 where the response
   has ended.
3. Summed over t: TV(P, Q) <= E_p of the sum of TV over the states of a response. Over prompts that is T U: the mean
   length of p's responses times the mean of the total variation over the states that p goes through.
4. Over several updates the distances add up: |J(new) - J(old)| <= the sum of T_k U_k. Rewards in [a, b]: times b - a.

The training reward is that of the sampler m. By 1 to 3 its distance from the policy of its step is at most T S, with S
the staleness over its own states; so the move of the training reward is at most that of the policy, and T S at both
ends.

It rests on the states of the batch: U_k is a mean over those that the sampler went through. Old data, and evaluation
prompts of another kind, have other states, in which an update may move the policy more; so a fall counts only where it
is several times the bound, and the prompts stay among what may have changed.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import isnan, nan, sqrt

import numpy as np

from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.analysis.findings.fall import Fall, finite_values, noise_of_mean
from ratioscope.analysis.summary.summary import StepSummary

_KNOWN = 0.75
"""Share of the updates that must be measured; the others count as the largest of these."""
_SURE = 2.0
"""Half widths of the 95 % interval of a difference that are taken off a fall: many pairs of values are looked at."""


@dataclass(frozen=True)
class BoundedDrop:
    """A fall between two values of the level, and the most that the updates between can have done."""

    first: int
    last: int
    """Steps of the two values."""
    size: float
    """How much lower the second is."""
    bound: float
    times: float
    """The part of the fall beyond noise, in bounds."""


def move_bound(summary: StepSummary, first: int, last: int, *, sampled: bool = False, span: float = 1.0) -> float:
    """The most by which the updates first..last, both included, can have moved the mean reward; NaN where unknown.

    Args:
        sampled: of the training reward, which is the sampler's: with its distance from the policy at both ends.
        span: highest less lowest reward there is.
    """
    values = summary.values.loc[first:last]
    moved = values["response_length"] * values[UPDATE_METRIC]
    if not len(moved) or moved.notna().mean() < _KNOWN:
        return nan
    total = float(moved.fillna(moved.max()).sum())
    if sampled:
        away = (values["response_length"] * values[STALENESS]).dropna()
        if len(away) < 2:
            return nan
        total += float(away.iloc[0] + away.iloc[-1])
    return span * total


def beyond_bound(summary: StepSummary, fall: Fall, span: float = 1.0) -> BoundedDrop | None:
    """The largest drop of a fall, from one value to the next, in units of what updates can have done.

    None where no drop is beyond noise, or where updates are not logged.

    Args:
        span: highest less lowest reward there is.
    """
    sampled = fall.metric == "reward"
    level = finite_values(summary, fall.metric)
    width = fall.window if sampled else 1
    noise = _SURE * sqrt(2) * noise_of_mean(summary, fall.metric, width)
    steps = level.index[(level.index >= fall.best_step - width) & (level.index <= fall.low.idxmin())]
    found = []
    for first, last in pairwise(steps):
        # The means of the values up to `first`, and of those from `last` on; the updates of all of them lie between.
        before, after = level.loc[:first].tail(width), level.loc[last:].head(width)
        size = float(before.mean() - after.mean())
        bound = move_bound(summary, int(before.index[0]), int(after.index[-1]), sampled=sampled, span=span)
        if size > noise and not isnan(bound):
            times = (size - noise) / bound if bound > 0 else np.inf
            found.append(BoundedDrop(int(first), int(last), size, bound, float(times)))
    return max(found, key=lambda drop: (drop.times, drop.size), default=None)
