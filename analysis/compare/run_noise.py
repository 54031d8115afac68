"""Whether these runs differ: how well the end of a run is known from its prompts, whatever other seeds would give.

An evaluation on n prompts has the variance p(1 - p)/n at most. The same prompts come back at every evaluation, mostly
in every run, too: so the mean of the last evaluations is no better known than one of them, and two runs are called
different more rarely than the 5 % of the interval. What the evaluations swing from one to the next by more than the
noise of one is added to the interval, because a run's end is to be the same whichever of them is the last. Of metrics
that are means over a step's prompt groups, the intervals of the step summary say as much; these groups are new in every
step.

Of several pairs two runs differ where the prompts alone say so, corrected for all pairs, and the interval of the pair,
with its swing, leaves out 0. Five evaluations know their own swing badly: correcting that, too, left a run that ends
with 57 % and swings from 27 to 82 % undecided beside one with 92 %.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import hypot, isfinite, sqrt

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtrit

from ratioscope.analysis.compare.alignment import AXES, End, logged_values
from ratioscope.analysis.compare.grouping import Member, Setting
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.summary.intervals import LEVEL, NO_INTERVAL, Interval
from ratioscope.notes import Kind, Note, remark
from ratioscope.tails import Array

EVALUATIONS = "eval_accuracy"
_Z = float(ndtri((1 + LEVEL) / 2))
_LARGEST_Z = 37.0  # beyond it the tail of the normal distribution is 0 in double precision


@dataclass(frozen=True)
class Noise:
    """What a setting's runs end with, and how well their prompts let it be known."""

    value: float
    """Mean over the runs; of runs that share a seed, first over these."""
    prompts: int = 0
    """Evaluation prompts of a run, the fewest of all; 0: not known, or not what the metric is a mean over."""
    error: float = 0.0
    """Standard error: of the evaluations around their mean, besides that of the prompts; or from the prompt groups."""
    reason: str = ""
    """Why the noise is not known; else empty."""

    def limits(self, z: float) -> tuple[float, float]:
        """The interval of z standard errors: Wilson's on the evaluation prompts, widened; else symmetric."""
        p, n, wider = self.value, self.prompts, z * self.error
        if not n:
            return p - wider, p + wider
        centre, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        below, above = p - (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n) - p
        return max(0.0, p - hypot(below, wider)), min(1.0, p + hypot(above, wider))

    @property
    def interval(self) -> Interval:
        """95 %; none where the noise is not known."""
        return NO_INTERVAL if self.reason else Interval(*map(float, self.limits(_Z)))

    @property
    def basis(self) -> str:
        """What the noise is that of."""
        return f"{self.prompts:,} evaluation prompts" if self.prompts else "the prompts of these steps"


@dataclass(frozen=True)
class RunDifference:
    """A - B of these runs, with the noise of their prompts; it does not know what other seeds would give."""

    value: float
    interval: Interval
    """95 %; none with a reason."""
    p_value: float
    """Two-sided; below .05 where the interval leaves out 0. NaN with a reason."""
    p_prompts: float
    """The same without the swing of the evaluations."""
    basis: str
    """What the noise is that of."""
    reason: str = ""

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.interval.low > 0 or self.interval.high < 0

    @property
    def flipped(self) -> "RunDifference":
        """B - A."""
        return replace(self, value=-self.value, interval=self.interval.negative)

    def to_json(self, label: str) -> dict[str, object]:
        """As every report has an estimate, and its p value."""
        note = Note(Kind.UNDEFINED, self.reason) if self.reason else remark(f"noise of {self.basis}")
        p_value = self.p_value if isfinite(self.p_value) else None
        return Number(label, self.value, *self.interval, note).to_json() | {"p_value": p_value}


def noise_of_runs(setting: Setting, metric: str, end: End, by_seed: "pd.Series[float]") -> Noise:
    """How well the end of a setting's runs is known.

    Args:
        by_seed: what its seeds end with (`ends`).

    Raises:
        RatioscopeError: there is no such metric, or a run does not have the axis.
    """
    members = [member for member in setting.members if len(logged_values(member, metric, end.by))]
    value = float(by_seed.mean()) if len(by_seed) else float("nan")
    if not np.isfinite(value):
        return Noise(value, reason="a run has no finite end")
    return (_of_evaluations if metric == EVALUATIONS else _of_groups)(value, members, metric, end)


def _of_evaluations(value: float, members: Sequence[Member], metric: str, end: End) -> Noise:
    counts = [member.run.manifest.evaluation_prompts for member in members]
    silent = [member.run_id for member, count in zip(members, counts, strict=True) if not count]
    if silent:
        return Noise(
            value, reason=f"{silent[0]} does not say on how many prompts it evaluates (task.evaluation_prompts)"
        )
    if not 0 <= value <= 1:
        return Noise(value, reason="accuracies beyond 0 and 1 are no shares")
    values = [member.summary.values[metric].loc[logged_steps(member, metric, end)].to_numpy() for member in members]
    return evaluation_noise(value, values, min(counts))


def evaluation_noise(value: float, evaluations: Sequence[Array], prompts: int) -> Noise:
    """How well an accuracy is known.

    Args:
        value: the mean of the evaluations, over the runs.
        evaluations: of each run, those that its end is the mean of, (n_evaluations,).
        prompts: on how many prompts each of them was.
    """
    of_one = value * (1 - value) / prompts
    swings = [float(values.var(ddof=1)) if len(values) > 1 else 0.0 for values in evaluations]
    variances = [max(0.0, swing - of_one) / len(values) for swing, values in zip(swings, evaluations, strict=True)]
    # So few values do not know their own spread: the factor by which t is wider than the normal distribution.
    wider = float(stdtrit(max(min(map(len, evaluations)) - 1, 1), (1 + LEVEL) / 2)) / _Z
    return Noise(value, prompts, wider * sqrt(sum(variances)) / len(evaluations))


def _of_groups(value: float, members: Sequence[Member], metric: str, end: End) -> Noise:
    """From the intervals of the steps; the prompts of steps and of runs are taken to be independent."""
    variances = []
    for member in members:
        steps = logged_steps(member, metric, end)
        halves = ((member.summary.high[metric] - member.summary.low[metric]) / 2).reindex(steps).to_numpy(dtype=float)
        if not (len(halves) and np.isfinite(halves).all()):
            return Noise(value, reason=f"the log of {member.run_id} has no interval for the values at the end")
        variances.append((halves**2).sum() / len(halves) ** 2)
    error = float(np.sqrt(np.sum(variances))) / len(variances) / _Z
    return Noise(value, error=error) if error > 0 else Noise(value, reason="every prompt group gives the same")


def logged_steps(member: Member, metric: str, end: End) -> list[int]:
    """The steps that a run's end is the mean of; by tokens and time, as many of the last ones."""
    places = AXES[end.by](member)
    places = places[places.index.isin(member.summary.values[metric].dropna().index)]
    inside = places.isin(end.places) if end.common else places <= end.until
    return places.index[inside][-len(end.places) :].tolist()


def run_difference(a: Noise, b: Noise) -> RunDifference:
    """A - B. The interval is made of those of both sides (Newcombe's hybrid score interval where they are Wilson's)."""
    value = a.value - b.value
    basis = min((a, b), key=lambda side: (side.prompts, -side.error)).basis
    reason = min(filter(None, (a.reason, b.reason)), default="")
    if reason:
        return RunDifference(value, NO_INTERVAL, float("nan"), float("nan"), basis, reason)
    still = [replace(side, error=0.0) if side.prompts else side for side in (a, b)]
    p_value = 2 * float(ndtr(-_excludes(a, b)))
    p_prompts = p_value if still == [a, b] else 2 * float(ndtr(-_excludes(*still)))
    return RunDifference(value, Interval(*_between(a, b, _Z)), p_value, p_prompts, basis)


def _between(a: Noise, b: Noise, z: float) -> tuple[float, float]:
    (low_a, high_a), (low_b, high_b), value = a.limits(z), b.limits(z), a.value - b.value
    return value - hypot(a.value - low_a, high_b - b.value), value + hypot(high_a - a.value, b.value - low_b)


def _excludes(a: Noise, b: Noise) -> float:
    """The z at which an end of the interval reaches 0."""
    return _largest(lambda z: (ends_at := _between(a, b, z))[0] > 0 or ends_at[1] < 0)


def _largest(holds: Callable[[float], bool]) -> float:
    """The z up to which something holds that holds at small ones."""
    low, high = 0.0, _LARGEST_Z
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def holm(p_values: Sequence[float], level: float = 1 - LEVEL) -> list[bool]:
    """Which of several hypotheses are rejected while the chance of any false rejection stays within the level.

    Holm 1979, "A simple sequentially rejective multiple test procedure". NaN is no test and is not rejected.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if isfinite(p))
    rejected = [False] * len(p_values)
    for rank, (p, place) in enumerate(known):
        if p > level / (len(known) - rank):
            break
        rejected[place] = True
    return rejected
