"""How far the log-probability columns are from each other, on tokens of the policy's own version and on older ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.sample import COLUMNS, Floats, Sample

FEWEST_ROWS = 100
# What float32 passes over one model differ by; below it nothing is nearer than anything else.
FLOOR = 1e-4


@dataclass(frozen=True)
class Distances:
    """Mean |difference| of pairs of columns, at most 1 a token, on fresh tokens and on older ones.

    NaN where one is not logged, or there are too few such tokens.
    """

    fresh: Mapping[tuple[str, str], float]
    old: Mapping[tuple[str, str], float]
    every: Mapping[tuple[str, str], float]
    late: Mapping[tuple[str, str], float]
    """In the second half of the steps, where a frozen reference has been left behind."""

    def cost(self, names: Mapping[str, str]) -> float:
        """The log of what must be near, if column `names[x]` holds what `x` should: smallest for the right names."""
        b, t, c, n, f = (names[column] for column in COLUMNS)
        # A frozen reference is left behind by the later steps.
        update = self.every if np.isnan(self.late.get((f, c), np.nan)) else self.late
        near = [(self.fresh, t, c), (self.every, b, t), (update, c, n)]
        if not np.isfinite(self.every.get((b, t), np.nan)):
            near.append((self.fresh, b, c))
        found = [of[one, other] for of, one, other in near if np.isfinite(of.get((one, other), np.nan))]
        return float(np.log(np.maximum(found, FLOOR)).sum()) if found else float("nan")


def distances_of(evidence: LogEvidence) -> Distances:
    """The distances of a log, found once."""
    return evidence.once("distances", lambda: distances(evidence.sample))


def distances(sample: Sample) -> Distances:
    """All pairs of log-probability columns."""
    values = {name: sample.column(name) for name in COLUMNS if sample.logged(name)}
    usable = sample.rows["invalid"].isna().to_numpy()
    lag, step = sample.column("version_lag"), sample.column("step")
    late = usable & (step > np.median(step)) if len(sample) else usable
    return Distances(*(_of(values, rows) for rows in (usable & (lag == 0), usable & (lag > 0), usable, late)))


def _of(values: Mapping[str, Floats], rows: NDArray[np.bool_]) -> dict[tuple[str, str], float]:
    found = {}
    for one, other in combinations(values, 2):
        apart = np.abs(values[one][rows] - values[other][rows])
        apart = apart[np.isfinite(apart)]
        mean = float(np.minimum(apart, 1).mean()) if len(apart) >= FEWEST_ROWS else float("nan")
        found[one, other] = found[other, one] = mean
    return found
