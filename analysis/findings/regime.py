"""The regime of a run in words: is its off-policyness controlled, is bias or variance what matters then (S1 6 and 7).

found = regime(facts)                        # of a run, or of a window of it
found.control, found.concern, found.sentence, found.remedy

Controlled: the mismatch comes from parameter updates alone, and a clip keeps those small. Uncontrolled: a large change,
stale samples, or an engine that is not the trainer. Total variation measures what bias there can be, the chi-square of
whole responses what variance; a small total variation says nothing of the chi-square (S1 4.3, the blind spot). What is
so is decided in `facts`, by medians of the steps: what is persistent counts, not a single step.
"""

from dataclasses import dataclass
from math import isnan

import pandas as pd

from ratioscope.analysis.findings.facts import LOG_CHI2, Cause, Concern, Control, Facts
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.numbers import capital, of_log1p
from ratioscope.analysis.findings.setup import UNKNOWN, Setup
from ratioscope.analysis.findings.words import chi2_source
from ratioscope.catalogue import CATALOGUE


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


# So many steps beyond a limit are said beside a median below it.
_FEWEST = 3
_SOURCES = {
    Cause.UPDATE: "a large policy change",
    Cause.AGE: "stale samples",
    Cause.ENGINE: "engine mismatch",
    Cause.ENGINE_OR_AGE: "stale samples or engine mismatch, which cannot be separated",
}


def regime(facts: Facts, setup: Setup = UNKNOWN) -> Regime:
    """S1's table in words.

    Args:
        setup: what was run, which the remedy is for.
    """
    numbers = _numbers(facts)
    if facts.control is Control.UNKNOWN:
        origin = f"The regime is unknown: {facts.unknown}."
        return Regime(facts.control, (), (), facts.concern, origin, "", "", numbers)
    not_logged = tuple(
        name for name, known in (("the engine's part", facts.split), ("the update", facts.updates_logged)) if not known
    )
    return Regime(
        facts.control,
        tuple(_SOURCES[cause] for cause in facts.sources),
        not_logged,
        facts.concern,
        _origin(facts, not_logged),
        _size(facts, setup),
        _remedy(facts, setup),
        numbers,
    )


def _remedy(facts: Facts, setup: Setup) -> str:
    if facts.concern is Concern.BIAS:
        if setup.weighted is False:
            opening = "This loss has no importance weights, so all of the mismatch is bias"
        elif setup.level == "sequence":
            opening = "Weights of whole responses are what corrects it"
        else:
            opening = "Token-level importance sampling leaves a bias of the order T²Δ_max"
        how = (
            "whole responses (sequence-level importance sampling): it has no bias, and its chi-square is still "
            "affordable."
            if facts.log_chi2 <= facts.limits.log_chi2
            else "whole responses with a truncated ratio, because the plain product has too much variance."
        )
        return f"{opening}. Remove the source first; until then weight {how}"
    if facts.concern is Concern.VARIANCE:
        if setup.weighted is False:
            return "Nothing, for the variance: this loss multiplies by no ratio."
        if setup.bounded:
            return "Nothing, for the variance: this loss multiplies by bounded ratios."
        truncate = "truncate or mask large ratios" if facts.few_dominate else "shorten the responses"
        if setup.level == "sequence" and setup.weighted:
            return (
                f"Weights of whole responses pay for it. {truncate.capitalize()}, truncate the product, or use "
                "weights of tokens, whose bias is tolerable while total variation is small."
            )
        keep = "Keep token-level importance sampling" if setup.weighted else "Token-level importance sampling is enough"
        mask = "truncate or mask large ratios, and " if facts.few_dominate else ""
        return (
            f"{keep}: its bias is tolerable while total variation is small. "
            f"{capital(f'{mask}take no products over whole responses')}."
        )
    return setup.correction


def log_chi2_of_responses(values: pd.DataFrame) -> "pd.Series[float]":
    """log(1 + chi-square) of whole responses by step; as the tokens predict it where the sample cannot show it."""
    return values[LOG_CHI2].max(axis=1)


def _numbers(facts: Facts) -> tuple[Number, ...]:
    """Medians over the steps: staleness, its parts where it has several, the update, chi-square."""
    medians = {facts.staleness.key: facts.staleness.median}
    if facts.path.part(Cause.AGE) and facts.path.part(Cause.ENGINE):
        medians |= {part.cause.key: part.median for part in facts.path.parts if part.cause is not Cause.UPDATE}
    medians[facts.update.key] = facts.update.median
    medians |= {key: facts.medians[key] for key in (*LOG_CHI2, "delta_max")}
    numbers = [Number(f"{CATALOGUE[key].title}, median", value) for key, value in medians.items() if not isnan(value)]
    scale = facts.medians["response_length"] ** 2 * facts.medians["delta_max"]
    if not isnan(scale):
        numbers.append(Number("T²Δ_max, scale of the token-level bias", scale))
    return tuple(numbers)


def _origin(facts: Facts, not_logged: tuple[str, ...]) -> str:
    if facts.sources:
        sources = " and ".join(_SOURCES[cause] for cause in facts.sources)
        text = (
            f"Off-policyness is small in the median step, but no clip controls where it comes from: {sources}"
            if facts.is_small
            else f"Uncontrolled off-policyness, from {sources}."
        )
    else:
        text = (
            "Controlled off-policyness, as far as the log shows: in the median step nothing that can be measured is a "
            "large source"
            if not_logged
            else "Controlled off-policyness: in the median step neither the age of the data nor the engine nor the "
            "update is a large source"
        )
    if facts.is_small:
        n, of = len(facts.staleness.over), facts.staleness.n_known
        text += f"; staleness is clearly above its limit in {n} of {of} steps." if n >= _FEWEST else "."
    if not_logged:
        verb = "are" if len(not_logged) > 1 else "is"
        text += f" {' and '.join(not_logged).capitalize()} {verb} not logged."
    return text


def _size(facts: Facts, setup: Setup) -> str:
    tv = f"total variation is {facts.staleness.median:.2g}"
    chi2 = f"the χ² of whole responses ({chi2_source(facts)}) is {of_log1p(facts.log_chi2)}"
    if facts.concern is Concern.BIAS:
        return f"Bias is the primary concern: {tv} in the median step, above {facts.staleness.limit:g}."
    if facts.concern is Concern.NEITHER:
        return f"Neither bias nor variance is large: {tv} and {chi2} in the median step."
    large = f"{chi2} in the median step, above {facts.limits.chi2:g}"
    if setup.weighted is False:
        return f"Importance weights of whole responses would vary too much, but this loss uses none. {capital(large)}."
    return f"Variance is the concern, which a trust region does not see. {capital(large)}."
