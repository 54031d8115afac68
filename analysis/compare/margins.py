"""Which way of a metric is better, and within what its differences make no difference."""

import numpy as np

from ratioscope.catalogue import CATALOGUE

# Differences within it are alike: five points of a share that is good or bad, of anything else a tenth. A share that is
# neither may be small by its nature, as clip fractions are.
SHARE_MARGIN = 0.05
RELATIVE_MARGIN = 0.1


def margin(metric: str, level: float) -> float:
    """Differences of the metric within it are alike; NaN where the level is not finite.

    Args:
        level: what a difference is relative to; without a say where the margin is in points.
    """
    if in_points(metric):
        return SHARE_MARGIN
    return RELATIVE_MARGIN * abs(level) if np.isfinite(level) else float("nan")


def in_points(metric: str) -> bool:
    """Whether the margin does not depend on the level."""
    return CATALOGUE[metric].share and CATALOGUE[metric].better != ""


def orientation(metric: str) -> int:
    """-1 where lower is better, else +1."""
    return -1 if CATALOGUE[metric].better == "lower" else 1
