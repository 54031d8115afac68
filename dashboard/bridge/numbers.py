"""What is sent of a step: the metrics that it has, each with its interval and whether it can be trusted.

A number that is undefined, not logged or infinite is not sent: no chart shows a 0 that is none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

import pandas as pd

from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import unknown
from ratioscope.notes import Note, is_unreliable, text_of

PREFIX = "ratioscope"


@dataclass(frozen=True)
class Marked:
    """A metric of one step; NaN: there is none."""

    value: float
    low: float
    high: float
    note: Note | None
    doubted: bool
    """Whether it is of a kind that can be unreliable: then a chart of its doubt says so where it is not."""

    @property
    def text(self) -> str:
        """Why it is missing or cannot be trusted."""
        return text_of(self.note)


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of one step."""

    step: int
    wall_time: float | None
    """Seconds since 1970; None where the run does not say."""
    metrics: dict[str, Marked]

    @property
    def flat(self) -> dict[str, float]:
        """What services take: ratioscope/KEY, and below it low, high and doubt (1: unreliable) where there are any."""
        found: dict[str, float] = {}
        for key, metric in self.metrics.items():
            name = f"{PREFIX}/{key}"
            if isfinite(metric.value):
                ends = {f"{name}/low": metric.low, f"{name}/high": metric.high}
                found |= {name: metric.value} | {end: at for end, at in ends.items() if isfinite(at)}
                unreliable = is_unreliable(metric.note)
                if unreliable or metric.doubted:
                    found[f"{name}/doubt"] = float(unreliable)
        return found


def chosen(metrics: Sequence[str] | None) -> list[str]:
    """The metrics to send, in the catalogue's order; None: all.

    Raises:
        RatioscopeError: there is no such metric.
    """
    for name in metrics or ():
        if name not in CATALOGUE:
            raise unknown("a metric", name, CATALOGUE)
    return [key for key in CATALOGUE if not metrics or key in metrics]


def steps_beyond(summary: StepSummary, metrics: Sequence[str], after: int) -> Iterator[StepNumbers]:
    """The steps beyond `after`, in ascending order."""
    times = summary.steps["wall_time"] if "wall_time" in summary.steps else pd.Series(dtype=object)
    for label in summary.values.index[summary.values.index > after]:
        step = int(label)
        values, low, high = (frame.loc[label] for frame in (summary.values, summary.low, summary.high))
        yield StepNumbers(
            step,
            _seconds(times.get(step)),
            {
                key: Marked(
                    float(values[key]), float(low[key]), float(high[key]), summary.note(step, key),
                    CATALOGUE[key].can_be_unreliable,
                )
                for key in metrics
            },
        )  # fmt: skip


def _seconds(time: object) -> float | None:
    return time.timestamp() if isinstance(time, datetime) and not pd.isna(time) else None
