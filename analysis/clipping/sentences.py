"""The answer of the Clipping page, in words."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.course import sync_period, why_missing
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.rules.gates import GATES, GateKind
from ratioscope.run_format.manifest import Manifest

SHARES = ("clip_fraction", "clip_fraction_low", "clip_fraction_high", "clip_fraction_positive",
          "clip_fraction_negative")  # fmt: skip
"""What is 0 by construction where the algorithm has no gate that stops a token."""
# Of a difference of two means over steps that is more than chance.
_STANDARD_ERRORS = 3.0


def cannot_clip(manifest: Manifest, values: pd.DataFrame) -> str:
    """Why no token is ever clipped; empty where one may be, or where the log says that one was.

    Args:
        values: of the step summary of the whole run.
    """
    gate = GATES.get(str(manifest.parts.get("gate")))
    if gate is None or gate.stops or (values[list(SHARES)] > 0).any(axis=None):
        return ""
    if gate.kind is GateKind.OPEN:
        return "This algorithm clips no token."
    return "This algorithm damps gradients and clips no token."


def clipping_headline(summary: StepSummary, unclipped: str = "") -> str:
    """How much the loss clipped, on which side, and whether it follows the weight syncs.

    Args:
        unclipped: of `cannot_clip`, where that says why.
    """
    clipped = summary.values["clip_fraction"].dropna()
    if unclipped:
        return unclipped
    if not len(clipped):
        return f"{CATALOGUE['clip_fraction'].title} {why_missing(summary, 'clip_fraction')}."
    if clipped.max() == 0:
        low, high = summary.values["ratio_min"].min(), summary.values["ratio_max"].max()
        text = "The loss clipped no token in any step"
        return (
            f"{text}; the ratios to the sampler go from {number(low)} to {number(high)}." if low <= high else f"{text}."
        )
    low, high = summary.values["clip_fraction_low"].mean(), summary.values["clip_fraction_high"].mean()
    text = f"The loss clipped {percent(clipped.mean())} of the tokens, {percent(clipped.max())} in step "
    text += str(clipped.idxmax())
    if low + high > 0:
        side = "below the lower bound" if low > high else "above the upper bound"
        text += f"; {percent(max(low, high) / (low + high))} of these {side}"
    text += "."
    period = sync_period(summary.values["version_lag"])
    if period:
        lag = summary.values["version_lag"].reindex(clipped.index)
        oldest = period - 1
        fresh, stale = clipped[lag <= 0.25 * oldest], clipped[lag >= 0.75 * oldest]
        noise = _STANDARD_ERRORS * np.sqrt(fresh.var() / len(fresh) + stale.var() / len(stale))
        rises = "rises" if stale.mean() - fresh.mean() > noise else "does not clearly rise"
        text += f" Between weight syncs clipping {rises}: "
        text += f"{percent(fresh.mean())} on fresh data, {percent(stale.mean())} on the oldest."
    return text
