"""What the difference of the engines is like: rounding, a temperature, a truncation, other weights, or nothing known.

A difference of logits moves a log-probability by about (1 - p) times itself: what rounding, kernels and other weights
do vanishes as p -> 1. Temperature and truncation are found by the linter, whose words hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

from ratioscope.analysis.engine.measured import Measured
from ratioscope.analysis.engine.where import Where
from ratioscope.analysis.findings.finding import Finding, Outcome
from ratioscope.analysis.frameworks.remedies import Like
from ratioscope.analysis.linter.noise_floor import FLOAT32_FLOOR, HEALTHY_TV

# Between strata of probability |Δ| / (1 - p) differs by less where it is a difference of logits of one size.
_SAME = 4.0
_FEWEST = 30
# Rounding moves up as often as down: of what moves, the mean is a small part.
_ONE_SIDED = 0.5


@dataclass(frozen=True)
class Signature:
    """What it is like, with the number that says so."""

    like: Like
    number: float = nan
    """The temperature, the mean ratio of a truncation, else mean |Δ log-prob| over mean 1 - p: nats of a logit."""
    vanishes: bool | None = None
    """Whether the difference vanishes as p -> 1; None: too few strata to say."""
    rest: float = nan
    """Of a truncation: the share of the distance that it cannot make, mean (e^x - 1)+ over mean (1 - e^x)+, x the
    log-ratio: truncation moves all ratios down by the mass that was kept."""


def engine_signature(measured: Measured, found: Where | None, remarks: Sequence[Finding]) -> Signature:
    """Of the steps that both are of."""
    if found is None or measured.tv < FLOAT32_FLOOR / 10:
        return Signature(Like.NOTHING)
    vanishes, level, one_sided = _shape(found)
    for check, like, label in (
        ("temperature", Like.TEMPERATURE, "temperature ratio"),
        ("truncated_support", Like.TRUNCATION, "mean ratio, same weights"),
    ):
        for remark in remarks:
            if remark.rule == check and remark.outcome is Outcome.FOUND:
                number = next((one.value for one in remark.numbers if one.label == label), nan)
                rest = (measured.tv + measured.mean_ratio - 1) / measured.tv if like is Like.TRUNCATION else nan
                return Signature(like, number, vanishes, rest)
    if vanishes and not one_sided:
        return Signature(Like.ROUNDING if measured.tv <= HEALTHY_TV else Like.WEIGHTS, level, vanishes)
    return Signature(Like.UNKNOWN, level, vanishes)


def _shape(found: Where) -> tuple[bool | None, float, bool]:
    """Whether it vanishes as p -> 1, how many nats of a logit it is, whether it is to one side."""
    rows = found.of("probability")
    rows = rows[(rows["n"] >= _FEWEST) & (rows["uncertainty"] > 1e-4)]
    if not len(rows):
        return None, nan, False
    n, apart = rows["n"], rows["apart"]
    level = float((n * apart).sum() / (n * rows["uncertainty"]).sum())
    one_sided = bool(abs((n * rows["signed"]).sum()) > _ONE_SIDED * (n * apart).sum())
    if len(rows) < 2 or isnan(level) or level == 0:
        return None, level, one_sided
    each = apart / rows["uncertainty"]
    return bool(each.iloc[0] <= _SAME * level), level, one_sided
