"""The fall of a run, and any series before it and in it.

A mark of a fall is present where something has changed between the best level and the fall: what was so while the run
was at its best is no cause of its fall. The fall's steps are those after the best level up to where it was found, and a
clause quotes no later one: what came after the fall is no cause of it.
"""

from collections.abc import Sequence
from math import inf, nan, sqrt

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of
from ratioscope.analysis.findings.drop import as_fall, drop_of
from ratioscope.analysis.findings.fall import (
    Fall,
    fall_of,
    level_of,
    own_noise,
    setback_of,
)
from ratioscope.analysis.findings.mark import MarkReading
from ratioscope.analysis.findings.numbers import level
from ratioscope.analysis.findings.watched import WatchedCourse, watched

FEW_VALUES = 3
"""Values whose median is a level before or at the fall."""
MORE = 1.5
"""Times what it was up to the best level: less is no change."""
CLEAR = 4.0
"""Standard errors between the means of the first and the last values."""


def fall_seen(evidence: RunEvidence) -> Fall | None:
    """The fall that lasts, else the one that lasted for a time, else the drop that the run ends in."""

    def look() -> Fall | None:
        summary, limits = evidence.summary, evidence.limits
        if fall := fall_of(summary, limits) or setback_of(summary, limits):
            return fall
        drop = drop_of(summary, limits)
        return as_fall(summary, drop) if drop is not None and drop.is_low else None

    return evidence.once("fall", look)


def courses_of(evidence: RunEvidence) -> dict[str, WatchedCourse]:
    """What is watched of this run; tokens are read once, and only where something fell."""
    return evidence.once("watched", lambda: watched(evidence.summary, evidence.run if fall_seen(evidence) else None))


def steps_while_well(evidence: RunEvidence, fall: Fall) -> "pd.Index[int]":
    """The steps in which the run was well: up to the best level, and between values at that level up to noise."""

    def look() -> "pd.Index[int]":
        steps = evidence.values.index
        level = level_of(evidence.summary, fall.metric, fall.window)
        good = (level >= fall.best - sqrt(2) * fall.noise).astype(float)
        both = good.reindex(steps).ffill().eq(1) & good.reindex(steps).bfill().eq(1)
        return steps[(steps <= fall.best_step) | (both & (steps <= fall.still_good))]

    return evidence.once("well", look)


class Around:
    """A series while the run was well, and from there to where the fall was found."""

    def __init__(self, series: "pd.Series[float]", fall: Fall, well: "pd.Index[int]") -> None:
        known = series.replace([inf, -inf], nan).dropna()
        self.before: pd.Series[float] = known[known.index.isin(well)]
        after = known[(known.index > fall.best_step) & ~known.index.isin(well)]
        self.during: pd.Series[float] = after[after.index <= fall.found]

    @property
    def known(self) -> bool:
        return len(self.before) > 0 and len(self.during) > 0


def around_fall(evidence: RunEvidence, key: str) -> Around | None:
    """The series of a metric around the fall; None where nothing fell, or where it is not known on both sides."""
    fall, course = fall_seen(evidence), courses_of(evidence).get(key)
    if fall is None or course is None:
        return None
    found = Around(course.series, fall, steps_while_well(evidence, fall))
    return found if found.known else None


def begun_in_fall(evidence: RunEvidence, steps: Sequence[int]) -> list[int]:
    """Those of some steps that lie between the best level and the fall; none where the run was well in one of them."""
    fall = fall_seen(evidence)
    if fall is None or {*steps} & {*steps_while_well(evidence, fall)}:
        return []
    return [step for step in steps if fall.best_step < step <= fall.found]


def noise_of_one(series: "pd.Series[float]", few: int) -> float:
    """Standard deviation of one value: by successive differences, and about the means of the first and last values."""
    around = sqrt(float(series.head(few).var() + series.tail(few).var()) / 2)
    return max(around, float(np.nan_to_num(own_noise(series))))


def rise(evidence: RunEvidence, key: str, clause: str) -> MarkReading | None:
    """How often its largest value before the fall is that up to the best level.

    Args:
        clause: takes the two values and the step.
    """
    around = around_fall(evidence, key)
    if around is None:
        return None
    before, during = float(around.before.max()), float(around.during.max())
    share = courses_of(evidence)[key].share
    ratio = during / before if before > 0 else (inf if during > 0 else 1.0)
    steps = tuple(int(step) for step in around.during.index[around.during > before])
    told = clause.format(level(before, share=share), level(during, share=share), step_of(around.during.idxmax()))
    return MarkReading(ratio, told, steps)
