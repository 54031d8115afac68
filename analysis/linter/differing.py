"""The tokens of one version on which sampler and trainer differ, and how much of that one part of them holds.

The engine's part of a token is known where the trainer recomputed the sampling version, or the policy's own version
sampled (`LogEvidence.fresh`). What is at one server, one prompt, one turn is found by `place`.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.mark import Mark, MarkReading, mark
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.noise_floor import FLOAT32_FLOOR
from ratioscope.analysis.linter.place import DIVIDED_BY, LEAST_LIFT, expected, places_of, shortfall, strata

FEWEST_FRESH = 1000
# Of a mismatch that begins at a boundary or a step: at its first place, this share of what it is beyond.
AT_ONCE = 0.5


def differing(evidence: LogEvidence) -> pd.DataFrame | None:
    """`LogEvidence.fresh`; None where its tokens are few, or both engines agree to float32 rounding."""
    frame = evidence.fresh
    enough = len(frame) >= FEWEST_FRESH
    level = evidence.once("mismatch", lambda: float(shortfall(frame).mean()) if enough else 0.0)
    return frame if level > max(FLOAT32_FLOOR, evidence.rounding / 2) else None


def _held_by(dimension: str) -> Mark:
    """The mark of a place: its lift, 1 where the dimension holds no more than it should."""

    def look(evidence: LogEvidence) -> MarkReading | None:
        frame = differing(evidence)
        if frame is None or DIVIDED_BY[dimension].levels(frame).nunique() < 2:
            return None
        place = next((each for each in places_of(evidence) if each.dimension == dimension), None)
        if place is None:
            return MarkReading(1.0, "")
        return MarkReading(place.lift, place.clause, evidence.all_steps, engine_columns(evidence), place=place.words)

    look.__name__ = f"mismatch_by_{dimension}"
    look.__doc__ = f"One part by {DIVIDED_BY[dimension].title.rstrip(':')} holds more of the mismatch than it should"
    return mark(needs=(*ENGINE_COLUMNS, *DIVIDED_BY[dimension].needs), limit=LEAST_LIFT)(look)


def engine_columns(evidence: LogEvidence) -> tuple[str, ...]:
    return "logp_behavior", "logp_behavior_train" if evidence.total("n_train") else "logp_current"


HELD_BY = {dimension: _held_by(dimension) for dimension in DIVIDED_BY}


def levels(frame: pd.DataFrame, of: "pd.Series | NDArray[Any]") -> "pd.Series[float]":
    """The mismatch of each part of some tokens, as a multiple of what the probabilities of its tokens explain."""
    distance = shortfall(frame)
    sums = pd.DataFrame({"is": distance, "should": expected(distance, strata(frame))}).groupby(np.asarray(of)).sum()
    return (sums["is"] / sums["should"].where(sums["should"] > 0)).dropna()


def lift(frame: pd.DataFrame, inside: "pd.Series[bool]") -> float:
    """The mismatch of some tokens over that of the others, each over what the probability of its tokens explains."""
    distance = shortfall(frame)
    sums = pd.DataFrame({"is": distance, "should": expected(distance, strata(frame))}).groupby(inside.to_numpy()).sum()
    if len(sums) < 2 or not (sums > 0).all(axis=None):
        return float("nan")
    level = sums["is"] / sums["should"]
    return float(level.loc[True] / level.loc[False])
