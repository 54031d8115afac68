"""Marks of the clip that ran: what was clipped against the ratio to the sampler, and its part at the same weights."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.loss_tokens import (
    ALIKE_FACTORS,
    FEW_OF_LOSS,
    FEWEST_OF_LOSS,
    WITH_CLIPPED,
    first_rows,
    steps_in,
    tokens_of_loss,
)
from ratioscope.analysis.what_if.rule import takes_several_passes
from ratioscope.rules.gates import GATES, GateKind
from ratioscope.rules.parameters import Judged
from ratioscope.run_format.manifest import as_finite

_FEWEST_BEYOND = 20
"""Clipped tokens, where many that the configured clip would stop are not."""


# The clip -------------------------------------------------------------------------------------------------------------


def _band(evidence: LogEvidence) -> tuple[float, float] | None:
    """Ends of the clip around a ratio of 1 to the sampler, logs, as configured; None where none of that kind is."""
    parts, parameters = evidence.run.manifest.parts, evidence.run.manifest.parameters
    if "gate" in parts:
        gate = GATES.get(str(parts["gate"]))
        if gate is None or gate.kind is not GateKind.CLIP or gate.judged is not Judged.RATIO:
            return None
    if parts.get("level", "token") != "token" or parts.get("filter", "none") != "none":
        return None
    low, high = (as_finite(parameters.get(f"epsilon_{end}", parameters.get("epsilon"))) for end in ("low", "high"))
    if low is None or high is None or not 0 < low < 1 or not high > 0:
        return None
    return float(np.log1p(-low)), float(np.log1p(high))


@mark(needs=WITH_CLIPPED, limit=0.005)
def clip_stops_nothing(evidence: LogEvidence) -> MarkReading | None:
    """Ratios to the sampler are beyond the configured clip in their advantage's direction, and none was clipped."""
    band, rows = _band(evidence), tokens_of_loss(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    at, good = rows["at"], rows["advantage"] > 0
    beyond = (good & (at > band[1] + 1e-3)) | (~good & (at < band[0] - 1e-3))
    if len(rows) < FEWEST_OF_LOSS or beyond.sum() < FEW_OF_LOSS:
        return None
    stopped = rows["clipped"].fillna(False).astype(bool) | (rows["clip_side"].fillna(0) != 0)
    stopped |= rows["gradient_weight"] == 0
    share = float(beyond.mean()) if float(stopped[beyond].mean()) < ALIKE_FACTORS else 0.0
    low, high = (number(float(np.exp(end))) for end in band)
    return MarkReading(
        share, f"none of the {int(beyond.sum()):,} tokens with a ratio beyond {low} to {high} was clipped",
        steps_in(rows[beyond]), ("clipped",), first_rows(rows[beyond]),
    )  # fmt: skip


@mark(needs=WITH_CLIPPED, limit=0.1)
def clip_at_another_ratio(evidence: LogEvidence) -> MarkReading | None:
    """What is clipped and what is not part at another ratio than the configured one; as a share of the range."""
    band, rows = _band(evidence), tokens_of_loss(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    found = []
    for sign, configured in ((1, band[1]), (-1, -band[0])):
        bounds = _observed(rows, sign, configured)
        if bounds is None:
            continue
        inner, outer, clipped = bounds
        if outer < inner * (1 - ALIKE_FACTORS):
            return MarkReading(0.0, "")  # no ratio parts them
        off = max(inner - configured, configured - outer, 0.0) / configured
        found.append(
            (off, float(np.exp(sign * outer)), float(np.exp(sign * configured)), first_rows(rows.loc[clipped]))
        )
    if not found:
        return None
    off, ran, wanted, examples = max(found)
    return MarkReading(
        off, f"tokens are clipped from a ratio of {number(ran)} on, where the manifest says {number(wanted)}",
        evidence.all_steps, ("clipped",), examples,
    )  # fmt: skip


def _observed(rows: pd.DataFrame, sign: int, configured: float) -> "tuple[float, float, pd.Index[int]] | None":
    """The farthest log-ratio that was not clipped on a side, the nearest that was, and the rows that were; None where
    too few are."""
    side = (np.sign(rows["advantage"]) == sign) & (sign * rows["at"] > 0) & rows["clipped"].notna()
    beyond, clipped = sign * rows["at"][side], rows["clipped"][side].astype(bool)
    fewest = _FEWEST_BEYOND if (~clipped & (beyond > configured + 1e-3)).sum() >= FEW_OF_LOSS else FEW_OF_LOSS
    if clipped.sum() < fewest or (~clipped).sum() < FEW_OF_LOSS:
        return None
    inner, outer = float(beyond[~clipped].quantile(1 - ALIKE_FACTORS)), float(beyond[clipped].quantile(ALIKE_FACTORS))
    return inner, outer, clipped.index[clipped]


@mark(needs=WITH_CLIPPED, limit=0.9)
def lower_bound_is_epsilon(evidence: LogEvidence) -> MarkReading | None:
    """Below, tokens are clipped from a ratio of epsilon on, in place of 1 less epsilon; the nearness of the two."""
    band, rows = _band(evidence), tokens_of_loss(evidence)
    if band is None or (takes_several_passes(evidence.run) and not evidence.log.has("logp_gate")):
        return None
    bounds = _observed(rows, -1, -band[0])
    epsilon = 1 - float(np.exp(band[0]))
    if bounds is None or epsilon > 0.4:  # the two are nearly the same
        return None
    inner, outer, clipped = bounds
    _, upper, _ = _observed(rows, 1, band[1]) or (0.0, np.nan, None)
    near = np.exp(-abs(outer + np.log(epsilon))) if np.exp(-inner) > epsilon else 0.0
    above = f", above from {number(float(np.exp(upper)))}" if np.isfinite(upper) else ""
    return MarkReading(
        float(near), f"from below tokens are clipped from a ratio of {number(float(np.exp(-outer)))} on{above}",
        evidence.all_steps, ("clipped",), first_rows(rows.loc[clipped]),
    )  # fmt: skip


@mark(needs=(*WITH_CLIPPED, ("logp_gate",)), limit=0.99)
def gate_is_the_policy_itself(evidence: LogEvidence) -> MarkReading | None:
    """The log-probabilities of the gate are those of the policy at the start of the update: their ratio is 1."""
    rows = tokens_of_loss(evidence)
    if len(rows) < FEWEST_OF_LOSS:
        return None
    same = float((rows["logp_gate"] == rows["logp_current"]).mean())
    return MarkReading(same, "the policy at the gate is the one before the update, so their ratio is 1")


@mark(needs=WITH_CLIPPED, limit=0.5)
def clipped_at_the_same_weights(evidence: LogEvidence) -> MarkReading | None:
    """Most of the clipped tokens are out of bounds by the mismatch alone, which is there at the same weights."""
    rows = tokens_of_loss(evidence)
    clipped = rows["clipped"].fillna(False).astype(bool) & np.isfinite(rows["at"])
    engine, n_clipped = rows["engine"], clipped.sum()
    clipped &= engine.notna()
    if clipped.sum() < max(FEW_OF_LOSS, n_clipped / 2, 1e-3 * len(rows)):
        return None
    high = clipped & (rows["advantage"] > 0) & (rows["at"] > 0)
    low = clipped & (rows["advantage"] < 0) & (rows["at"] < 0)
    if (high | low).sum() < ALIKE_FACTORS * clipped.sum():
        return None
    beyond = pd.Series(False, rows.index)
    if high.any():  # the bounds are the nearest ratios that were clipped
        beyond |= high & (engine >= rows["at"][high].quantile(ALIKE_FACTORS))
    if low.any():
        beyond |= low & (engine <= rows["at"][low].quantile(1 - ALIKE_FACTORS))
    share = float(beyond.sum() / clipped.sum())
    return MarkReading(
        share, f"{percent(share)} of {int(clipped.sum()):,} clipped tokens are out of bounds at the same weights",
        steps_in(rows[beyond]), ("logp_behavior",), first_rows(rows[beyond]),
    )  # fmt: skip


@mark(needs=WITH_CLIPPED, limit=0.05)
def much_is_clipped(evidence: LogEvidence) -> MarkReading | None:
    """More than one token in twenty is clipped."""
    rows = tokens_of_loss(evidence)
    share = float(rows["clipped"].fillna(False).astype(bool).mean()) if len(rows) >= FEWEST_OF_LOSS else np.nan
    return MarkReading(share, f"{percent(share)} of the tokens are clipped")
