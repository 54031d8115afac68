"""The regime of a run: is its off-policyness controlled, and is bias or variance what matters then (S1 6 and 7).

found = regime(summary)                      # or of a range of steps: regime(summary.up_to(100, 120))
found.control, found.concern, found.sentence, found.remedy
regime(summary, limits_of(run.folder))           # with the project's limits

Controlled: the mismatch comes from parameter updates alone, and a clip keeps those small. Uncontrolled: a large change,
stale samples, or an engine that is not the trainer. Total variation measures what bias there can be, the chi-square of
whole responses what variance; a small total variation says nothing of the chi-square (S1 4.3, the blind spot).
"""

from dataclasses import dataclass
from enum import Enum
from math import isnan

import pandas as pd

from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.staleness_form import staleness_metric
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE

# What two number formats of the same weights differ by: an engine below this is the trainer's, rounding apart.
_ROUNDING_TV = 0.002
# Measured, and as the tokens predict it: the larger one counts, or the one that there is.
_LOG_CHI2 = ["log1p_chi2_seq", "log1p_chi2_seq_predicted"]


class Control(Enum):
    """Where the mismatch comes from."""

    CONTROLLED = "controlled"
    UNCONTROLLED = "uncontrolled"
    UNKNOWN = "unknown"


class Concern(Enum):
    """What matters in the gradient estimate."""

    BIAS = "bias"
    VARIANCE = "variance"
    NEITHER = "neither"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Regime:
    """One run or range of steps in S1's table."""

    control: Control
    sources: tuple[str, ...]
    """The uncontrolled sources, in words."""
    not_logged: tuple[str, ...]
    """Sources that the log cannot show."""
    concern: Concern
    origin: str
    """Control and sources, in a sentence."""
    size: str
    """Total variation, chi-square and the concern that they make, in a sentence; empty where nothing is known."""
    remedy: str
    numbers: tuple[Number, ...]
    """Medians over the steps."""
    source: str = "S1 4.3, 6 and 7"

    @property
    def sentence(self) -> str:
        return f"{self.origin} {self.size}".strip()


_REMEDIES = {
    Concern.BIAS: "Token-level importance sampling leaves a bias of the order T²Δ_max. Remove the source first; until "
    "then weigh whole responses, with a truncated ratio, because the plain product pays with variance.",
    Concern.VARIANCE: "Keep token-level importance sampling, whose bias is tolerable while total variation is small; "
    "truncate or mask large ratios, and take no products over whole responses.",
    Concern.NEITHER: "Token-level importance sampling with a clip is reasonable here (PPO, GRPO).",
    Concern.UNKNOWN: "",
}
_AFFORDABLE = (
    "Token-level importance sampling leaves a bias of the order T²Δ_max. Remove the source first; until then weigh "
    "whole responses (sequence-level importance sampling): it has no bias, and its chi-square is still affordable."
)


def regime(summary: StepSummary, limits: Limits = Limits()) -> Regime:
    """Place a summary in S1's table, by the medians of its steps: what is persistent counts, not a single step.

    Args:
        limits: total variation above `staleness` means bias; below it a chi-square of whole responses above `chi2`
            means variance.
    """
    staleness = staleness_metric(summary)
    keys = (staleness, "s_k_version", "s_k_engine", "u_k", *_LOG_CHI2, "delta_max")
    medians = {key: float(summary.values[key].median()) for key in keys}
    numbers = tuple(
        Number(f"{CATALOGUE[key].title}, median", value) for key, value in medians.items() if not isnan(value)
    )
    if isnan(medians[staleness]):
        origin = "No step has a usable token, so the regime is unknown."
        return Regime(Control.UNKNOWN, (), (), Concern.UNKNOWN, origin, "", _REMEDIES[Concern.UNKNOWN], numbers)
    sources = _uncontrolled(medians, staleness, limits)
    not_logged = tuple(
        name for name, key in (("the engine's part", "s_k_engine"), ("the update", "u_k")) if isnan(medians[key])
    )
    control = Control.UNCONTROLLED if sources else Control.CONTROLLED
    tv, tv_limit = medians[staleness], limits.staleness
    log_chi2, chi2_limit = float(summary.values[_LOG_CHI2].median().max()), limits.log_chi2
    concern = Concern.BIAS if tv > tv_limit else Concern.VARIANCE if log_chi2 > chi2_limit else Concern.NEITHER
    affordable = concern is Concern.BIAS and log_chi2 <= chi2_limit
    length = float(summary.values["response_length"].median())
    if not isnan(medians["delta_max"]) and not isnan(length):
        numbers += (Number("T²Δ_max, scale of the token-level bias", length**2 * medians["delta_max"]),)
    remedy = _AFFORDABLE if affordable else _REMEDIES[concern]
    size = _size(concern, tv, tv_limit, log_chi2, chi2_limit)
    return Regime(control, sources, not_logged, concern, _origin(sources, not_logged), size, remedy, numbers)


def log_chi2_of_responses(values: pd.DataFrame) -> "pd.Series[float]":
    """log(1 + chi-square) of whole responses by step; as the tokens predict it where the sample cannot show it."""
    return values[_LOG_CHI2].max(axis=1)


def _uncontrolled(medians: dict[str, float], staleness: str, limits: Limits) -> tuple[str, ...]:
    """S1 6.2's sources, as far as the decomposition of staleness shows them; a NaN shows nothing."""
    version, engine = medians["s_k_version"], medians["s_k_engine"]
    old = medians[staleness] if isnan(version) else version
    found = {
        "a large policy change": medians["u_k"] > limits.update,
        "stale samples": old > limits.staleness,
        "an engine that differs from the trainer": engine > max(_ROUNDING_TV, version),
    }
    return tuple(source for source, present in found.items() if present)


def _origin(sources: tuple[str, ...], not_logged: tuple[str, ...]) -> str:
    if sources:
        text = f"Uncontrolled off-policyness, from {' and '.join(sources)}."
    else:
        text = "Controlled off-policyness: it comes from parameter updates alone"
        text += ", as far as the log shows." if not_logged else "."
    if not_logged:
        verb = "are" if len(not_logged) > 1 else "is"
        text += f" {' and '.join(not_logged).capitalize()} {verb} not logged."
    return text


def _size(concern: Concern, tv: float, tv_limit: float, log_chi2: float, chi2_limit: float) -> str:
    if concern is Concern.BIAS:
        return f"Total variation is {tv:.2g}, above {tv_limit:g}: bias is the primary concern."
    words = {
        Concern.VARIANCE: f"above {chi2_limit:.2g}: variance is the concern, which a trust region does not see.",
        Concern.NEITHER: "small as well: neither bias nor variance is large.",
    }
    return (
        f"Total variation is {tv:.2g}, at most {tv_limit:g}; the logarithm of 1 + χ² of whole responses is "
        f"{log_chi2:.2g}, {words[concern]}"
    )
