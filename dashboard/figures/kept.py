"""Charts over steps that are kept as they were drawn: most of a page's time goes into drawing the same ones again."""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any
from weakref import ref

from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.dashboard.figures import series
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.theme import Mode

# About 50 kB each; a page has up to ten.
_KEPT = 200


def over_steps_json(
    summary: StepSummary, keys: Sequence[str], mode: Mode, *, limits: Sequence[Limit] = (), **options: Hashable
) -> str:
    """`figures.series.over_steps` as JSON, drawn once for each state of a run, range of steps and colours."""
    return _drawn(ref(summary), tuple(keys), mode, tuple(limits), tuple(options.items()))


@lru_cache(maxsize=_KEPT)
def _drawn(
    state: ref[StepSummary], keys: tuple[str, ...], mode: Mode, limits: tuple[Limit, ...], options: tuple[Any, ...]
) -> str:
    """By weak references: the charts of a run that is written would keep all of its states in memory."""
    summary = state()
    assert summary is not None  # the caller has it
    return str(series.over_steps(summary, list(keys), mode, limits=limits, **dict(options)).to_json())
