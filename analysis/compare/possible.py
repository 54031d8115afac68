"""What a metric can be: no interval over seeds reaches beyond, however few the seeds and however wide their spread."""

from collections.abc import Iterable

import numpy as np

from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.reward_scale import reward_scale
from ratioscope.analysis.summary.intervals import Interval
from ratioscope.catalogue import CATALOGUE
from ratioscope.catalogue.total_variation import DISTANCES
from ratioscope.tails import Array


def possible(metric: str, settings: Iterable[Setting], values: Array) -> Interval:
    """The lowest and the highest that the mean of a metric can be in these settings.

    A total variation is 1 at most, also where its estimate has no such limit; a mean reward lies between the least and
    the largest reward that was ever given. A value that lies beyond all the same moves its end there.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    low, high = CATALOGUE[metric].possible
    if metric in DISTANCES:
        high = min(high, 1.0)
    if metric == "reward":
        scales = [reward_scale(member.run) for setting in settings for member in setting.members]
        low = min((scale.lowest for scale in scales), default=low)
        high = max((scale.highest for scale in scales), default=high)
    known = values[np.isfinite(values)]
    return Interval(*map(float, (min([low, *known]), max([high, *known]))))


def width(metric: str, settings: Iterable[Setting], values: Array) -> float:
    """The largest difference that two means of a metric can have: `possible`."""
    low, high = possible(metric, settings, values)
    return high - low
