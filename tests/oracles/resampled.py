"""How often intervals hold on runs as they are: steps drawn anew from the prompt groups of their neighbours.

    python -m tests.oracles.resampled [run ...]

The groups of eight steps in a row are taken for a population, whose mean is known, and steps of as many groups as the
run has are drawn of it. That is milder than the truth: what these eight steps did not draw is not in it.
"""

import sys
from collections.abc import Iterator

import numpy as np

from ratioscope.analysis.summary.intervals import cluster_intervals
from ratioscope.analysis.summary.partials import joined_partials, partials_of
from ratioscope.analysis.summary.units import scan_units
from tests.making.samples import NAMES, run_of, summary_of

STEPS, DRAWS = 8, 100
# The sums of each group over its tokens.
SUMS = {"s_k_bounded": "shortfall", "kl_k2": "kl_k2", "kl_k3": "kl_k3", "chi2_token": "deviation_squared"}


def coverage(name: str, key: str) -> float:
    """Of the closed intervals of a metric, marked or not; NaN where a sum is not finite throughout."""
    groups = joined_partials([tables for _, tables in partials_of(scan_units(run_of(name)))]).groups
    groups = groups[groups["n_ratios"] > 0]
    steps, rng, held = groups["step"].unique(), np.random.default_rng(0), []
    for first in range(0, len(steps) - STEPS + 1, STEPS // 2):
        pool = groups[groups["step"].isin(steps[first : first + STEPS])]
        x, n = (pool[column].to_numpy(float) for column in (SUMS[key], "n_ratios"))
        if np.isfinite(x).all() and x.sum() > 0:
            size = round(len(n) / STEPS)
            drawn = rng.integers(len(n), size=DRAWS * size)
            low, high = cluster_intervals(x[drawn], n[drawn], np.arange(DRAWS) * size, lowest=0.0)
            held.append(np.mean((low <= x.sum() / n.sum()) & (x.sum() / n.sum() <= high)))
    return float(np.mean(held)) if held else float("nan")


def lines(names: list[str]) -> Iterator[str]:
    """A Markdown table: a row for each run, for each metric how often its intervals hold and what share is marked."""
    yield f"| {' | '.join(('run', *(f'`{key}` | marked' for key in SUMS)))} |"
    yield f"|{' --- |' * (1 + 2 * len(SUMS))}"
    for name in names:
        marked = {key: summary_of(name).unreliable(key).mean() for key in SUMS}
        yield f"| {' | '.join((name, *(f'{coverage(name, key):.2f} | {marked[key]:.0%}' for key in SUMS)))} |"


if __name__ == "__main__":
    print("\n".join(lines(sys.argv[1:] or NAMES)))
