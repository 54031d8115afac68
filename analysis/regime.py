"""The regime of a run: is its off-policyness controlled, and is bias or variance what matters then (S1 6 and 7).

found = regime(summary)                      # or of a range of steps: regime(summary.up_to(100, 120))
found.control, found.concern, found.sentence, found.remedy

Controlled: the mismatch comes from parameter updates alone, and a clip keeps those small. Uncontrolled: a large change,
stale samples, or an engine that is not the trainer. Total variation measures what bias there can be, the chi-square of
whole responses what variance; a small total variation says nothing of the chi-square (S1 4.3, the blind spot).
"""

from dataclasses import dataclass
from enum import Enum
from math import isnan, log

from analysis.diagnosis import Number, staleness_metric
from analysis.summary import StepSummary
from ratioscope.catalogue import CATALOGUE, EPSILON, EPSILON_STALE

# What two number formats of the same weights differ by: an engine below this is the trainer's, rounding apart.
_ROUNDING_TV = 0.002
# Weights cost more than half of the responses from here on: the effective sample size is 1 / (1 + chi-square).
_LARGE_LOG_CHI2 = log(2)


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
    sentence: str
    remedy: str
    numbers: tuple[Number, ...]
    """Medians over the steps."""
    source: str = "S1 4.3, 6 and 7"


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


def regime(summary: StepSummary) -> Regime:
    """Place a summary in S1's table, by the medians of its steps: what is persistent counts, not a single step."""
    staleness = staleness_metric(summary)
    keys = (staleness, "s_k_version", "s_k_engine", "u_k", "log1p_chi2_seq", "log1p_chi2_seq_predicted", "delta_max")
    medians = {key: float(summary.values[key].median()) for key in keys}
    numbers = tuple(
        Number(f"{CATALOGUE[key].title}, median", value) for key, value in medians.items() if not isnan(value)
    )
    if isnan(medians[staleness]):
        sentence = "No step has a usable token, so the regime is unknown."
        return Regime(Control.UNKNOWN, (), (), Concern.UNKNOWN, sentence, _REMEDIES[Concern.UNKNOWN], numbers)
    sources = _uncontrolled(medians, staleness)
    not_logged = tuple(
        name for name, key in (("the engine's part", "s_k_engine"), ("the update", "u_k")) if isnan(medians[key])
    )
    concern = _concern(medians, staleness)
    control = Control.UNCONTROLLED if sources else Control.CONTROLLED
    log_chi2 = _log_chi2(medians)
    affordable = concern is Concern.BIAS and log_chi2 <= _LARGE_LOG_CHI2
    sentence = f"{_origin(sources, not_logged)} {_size(concern, medians[staleness], log_chi2)}"
    length = float(summary.values["response_length"].median())
    if not isnan(medians["delta_max"]) and not isnan(length):
        numbers += (Number("T²Δ_max, scale of the token-level bias", length**2 * medians["delta_max"]),)
    remedy = _AFFORDABLE if affordable else _REMEDIES[concern]
    return Regime(control, sources, not_logged, concern, sentence, remedy, numbers)


def _uncontrolled(medians: dict[str, float], staleness: str) -> tuple[str, ...]:
    """S1 6.2's sources, as far as the decomposition of staleness shows them; a NaN shows nothing."""
    version, engine = medians["s_k_version"], medians["s_k_engine"]
    old = medians[staleness] if isnan(version) else version
    found = {
        "a large policy change": medians["u_k"] > EPSILON.value / 2,
        "stale samples": old > EPSILON_STALE.value / 2,
        "an engine that differs from the trainer": engine > max(_ROUNDING_TV, version),
    }
    return tuple(source for source, present in found.items() if present)


def _log_chi2(medians: dict[str, float]) -> float:
    """log(1 + chi-square) of responses; the tokens' prediction where the sample is too small to see it."""
    measured, predicted = medians["log1p_chi2_seq"], medians["log1p_chi2_seq_predicted"]
    return predicted if isnan(measured) else max(measured, predicted)  # no response without an unusable token


def _concern(medians: dict[str, float], staleness: str) -> Concern:
    if medians[staleness] > EPSILON_STALE.value / 2:
        return Concern.BIAS
    return Concern.VARIANCE if _log_chi2(medians) > _LARGE_LOG_CHI2 else Concern.NEITHER


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


def _size(concern: Concern, tv: float, log_chi2: float) -> str:
    limit = EPSILON_STALE.value / 2
    if concern is Concern.BIAS:
        return f"Total variation is {tv:.2g}, above {limit:g}: bias is the primary concern."
    words = {
        Concern.VARIANCE: f"above {_LARGE_LOG_CHI2:.2g}: variance is the concern, which a trust region does not see.",
        Concern.NEITHER: "small as well: neither bias nor variance is large.",
    }
    return (
        f"Total variation is {tv:.2g}, at most {limit:g}; the logarithm of 1 + χ² of whole responses is "
        f"{log_chi2:.2g}, {words[concern]}"
    )
