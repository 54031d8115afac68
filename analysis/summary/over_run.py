"""What the steps of a run say of each other: numbers that cannot be trusted in steps that look harmless.

Where the terms of a mean are rare and large, a step that has drawn some has a wide interval that covers, and the step
beside it that has drawn none has a narrow one that does not. A mark of single steps would leave the wrong ones; many
marked steps mark all.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.summary.metrics import one_sided
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import MOST_RELIANCE, MOST_SPREAD, Metric, Moment
from ratioscope.notes import Kind, Note, cells

# By the simulation of `tests/oracles/trust.py`. Groups that differ too much show it in an eighth of the steps or more,
# others in a twentieth at most. Rare large ratios are drawn in a third of the steps or more; in light tails the largest
# ratio matters in less than a quarter, but for four groups of unequal sizes.
UNEQUAL_STEPS, RELYING_STEPS = 0.1, 0.25
FEWEST_STEPS = 3


def judge_over_run(values: pd.DataFrame, low: pd.DataFrame, high: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Open the intervals that only the other steps show to be too narrow.

    Args:
        values, low, high: one row a step, one column a metric; the ends are changed in place.

    Yields:
        Notes on the steps that had none of their own: step, key, note_kind, note.
    """
    for key, metric in CATALOGUE.items():
        # Of what is one-sided a single step says no more than what holds.
        if metric.one_sided or not metric.can_be_unreliable:
            continue
        there = np.isfinite(values[key].to_numpy(dtype=float))
        marked = there & _doubted(values, metric)
        note = _note(values, metric, there, marked)
        left = there & ~marked
        if note is None or not left.any():
            continue
        low[key], high[key] = one_sided(metric, low[key].to_numpy(), high[key].to_numpy(), left)
        yield pd.DataFrame({"step": values.index[left], "key": key, **cells(note)})


def _doubted(values: pd.DataFrame, metric: Metric) -> NDArray[np.bool_]:
    """The steps that are marked by themselves, where the metric is there."""
    if metric.moment is not Moment.SECOND:
        return np.zeros(len(values), dtype=bool)
    return ~(values[metric.reliance].to_numpy() <= MOST_RELIANCE)


def _note(values: pd.DataFrame, metric: Metric, there: NDArray[np.bool_], marked: NDArray[np.bool_]) -> Note | None:
    """Why no step of the run can be trusted; None where those can that are not marked."""
    relying, of = int(marked.sum()), int(there.sum())
    if relying >= FEWEST_STEPS and relying > RELYING_STEPS * of:
        return Note(
            Kind.UNRELIABLE,
            f"unreliable: in {relying} of {of} steps it rests on its largest {metric.unit_of_ratio}, "
            "which the others may not have drawn",
        )
    unequal = int((there & (values[metric.spread].to_numpy() > MOST_SPREAD)).sum()) if metric.spread else 0
    if unequal >= FEWEST_STEPS and unequal > UNEQUAL_STEPS * of:
        return Note(
            Kind.UNRELIABLE,
            f"unreliable: in {unequal} of {of} steps prompt groups spread by more than {MOST_SPREAD:g} times the mean, "
            "so those that were not drawn could move it",
        )
    return None
