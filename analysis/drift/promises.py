"""What the certificate's section says: which bounds hold a promise, how far each is from one, what theory would allow.

certificate_sentence(certificate(run))                          # in-sample: never a promise
held_out_sentence(certificate(run, held_out=True))              # what is certified
bounds(certificate(run))                    # one row a bound
"""

from dataclasses import dataclass
from math import isnan, nan

import numpy as np
import pandas as pd
from scipy.special import bdtrc

from ratioscope.analysis.drift.bounds import allowed_distance, trust_region_exponent
from ratioscope.analysis.drift.certificate import ABOVE, VACUOUS, Certificate
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.summary.intervals import LEVEL
from ratioscope.metric import MOST_RELIANCE

IN_SAMPLE = (
    "In-sample, so no promise: the gain is measured on the responses that the update was fitted to. There even an "
    "update on pure noise seems to gain"
)


@dataclass(frozen=True)
class Bound:
    """One bound over the steps of a certificate; numbers are medians over those where it is known."""

    name: str
    against: str
    """Whose return the new policy's is compared with."""
    source: str
    gain: float
    penalty: float
    times: float
    """The penalty as a multiple of the largest difference of returns."""
    n: int
    """Steps where it is known."""
    vacuous: int
    """Of them: the penalty exceeds the largest difference of returns."""
    above: int
    """Of them: the lower end of the interval is above 0, and the bound is not vacuous."""
    estimable: bool = True
    """Whether samples can estimate it: the largest distance of a state is known of visited states only, so a bound by
    it promises nothing."""


_BEFORE, _SAMPLER = "the policy before", "the sampler"

# Penalties below this share of the largest difference of returns are rounding: on-policy data.
_TRIFLE = 1e-4

_BY_CHANCE = (1 - LEVEL) / 2
"""Share of the steps in which the interval of a gain of 0 lies above 0."""


def bounds(found: Certificate) -> tuple[Bound, ...]:
    """Every bound that theory has, of the update's gain against the policy before, or against the sampler."""
    terms = _numeric(found)
    both = terms["update_penalty"] + terms["staleness_penalty"]
    return (
        _bound("Mean distances, discounted", _BEFORE, "S0 Corollary 3.2", terms, "surrogate", both,
               terms["improvement_bound_low"]),
        _bound("Largest distance, discounted (TRPO)", _SAMPLER, "S1 5.3", terms, "surrogate",
               terms["discounted_penalty"], estimable=False),
        _bound("Largest distance, finite horizon", _SAMPLER, "S1 5.3", terms, "surrogate_whole",
               terms["finite_horizon_penalty"], estimable=False),
        _bound("Mean and largest distance, finite horizon", _SAMPLER, "from S1 5.3", terms, "surrogate_whole",
               terms["coupled_penalty"], estimable=False),
        _bound("Mean distances, finite horizon", _SAMPLER, "from S1 5.3", terms, "surrogate_whole",
               terms["mean_distance_penalty"], terms["whole_bound_low"]),
        _bound("Whole responses, importance sampling", _BEFORE, "S4 4.1.2", terms, "gain", 0 * terms["gain"]),
    )  # fmt: skip


def _bound(
    name: str,
    against: str,
    source: str,
    terms: pd.DataFrame,
    gain: str,
    penalty: "pd.Series[float]",
    low: "pd.Series[float] | None" = None,
    *,
    estimable: bool = True,
) -> Bound:
    known = terms[gain].notna() & penalty.notna()
    values, penalty, gap = terms[gain][known], penalty[known], terms["largest_gap"][known]
    lower = (terms[f"{gain}_low"] - penalty if low is None else low)[known]
    vacuous = penalty > gap
    return Bound(
        name, against, source, _median(values), _median(penalty), _median(penalty / gap.where(gap > 0)),
        int(known.sum()), int(vacuous.sum()), int(((lower > 0) & ~vacuous).sum()),
        estimable,
    )  # fmt: skip


def certificate_sentence(found: Certificate) -> str:
    """What theory promises of these updates, and which term stands against it."""
    terms = _numeric(found)
    known = terms[terms["improvement_bound"].notna()]
    if not len(known):
        reasons = terms["note"][terms["note"] != ""]
        return f"The bound cannot be computed: {reasons.iloc[-1] if len(reasons) else 'nothing is logged for it'}."
    above, vacuous = (int((known["mark"] == mark).sum()) for mark in (ABOVE, VACUOUS))
    text = f"{IN_SAMPLE}. The lower end of the bound is above 0 in {above} of {len(known)} steps"
    text += f", and the bound is vacuous in {vacuous}." if vacuous else "."
    update, stale, gain, gap = (
        _median(known[key]) for key in ("update_penalty", "staleness_penalty", "surrogate", "largest_gap")
    )
    text += (
        f" In the median step the surrogate is {number(gain)}, the penalty for the update {number(update)} and for "
        f"staleness {number(stale)}, in units of reward. Returns differ by at most {number(gap)}."
    )
    if update + stale > _TRIFLE * gap:
        name, share = ("staleness", stale) if stale > update else ("the update", update)
        text += f" The larger penalty is that of {name} ({share / (update + stale):.0%})."
    return text


def held_out_sentence(found: Certificate) -> str:
    """In how many steps an improvement is certified, on prompt groups that the update did not see."""
    if not found.held_out:
        raise ValueError("A certificate of the responses that the update was fitted to certifies nothing.")
    terms = _numeric(found)
    groups = _median(terms["n_groups"])
    of = f"On prompt groups that the update did not see ({number(groups)} a step)"
    # One bound, named before its result: the best of several would be above 0 by chance more often.
    whole = bounds(found)[-1]
    if not whole.n:
        return f"{of}, no improvement can be computed: {found.terms['note'].iloc[-1] or 'nothing is logged for it'}."
    what = "the improvement that whole responses measure (importance sampling)"
    if not whole.above:
        text = f"{of}, no update is certified to help: the 95% interval of {what} is above 0 in 0 of "
        text += f"{_steps(whole.n)}."
    else:
        text = f"{of}, an improvement is certified in {whole.above} of {_steps(whole.n)}: the 95% interval of "
        text += f"{what} is above 0."
        if bdtrc(whole.above - 1, whole.n, _BY_CHANCE) > 1 - LEVEL:  # so many or more
            text += f" That is no more than chance gives where nothing is gained: {percent(_BY_CHANCE)} of the steps."
    doubted = int(((terms["gain_low"] > 0) & (terms["gain_doubted"] > 0)).sum())
    if doubted:
        text += f" In {doubted} of these the largest response alone moves it by more than {MOST_RELIANCE} standard "
        text += "errors, so those that were not drawn could move it, too."
    return text


def gains(in_sample: Certificate, held_out: Certificate) -> pd.DataFrame:
    """By step that has held-out responses: gain, gain_low, gain_high of these, and gain_in_sample."""
    found = _numeric(held_out)[["gain", "gain_low", "gain_high"]]
    return found.assign(gain_in_sample=_numeric(in_sample)["gain"].reindex(found.index))


def gains_sentence(found: pd.DataFrame) -> str:
    """How much of the improvement that the batch shows is there on other prompts; `found` of `gains`."""
    held, seen = _median(found["gain"]), _median(found["gain_in_sample"])
    return (
        f"Median improvement on prompts that the update did not see {number(held)}, on its own batch {number(seen)}, "
        "in units of reward. The difference is what the update fitted of the noise."
    )


def _steps(n: int) -> str:
    return "1 step" if n == 1 else f"{n} steps"


def conservative_step(found: Certificate) -> str:
    """How much of the update conservative policy iteration would take; empty where the surrogate is unknown."""
    step = _numeric(found)["cpi_step"].dropna()
    if not len(step):
        return ""
    taken = step[step > 0]
    text = "Of an update, conservative policy iteration takes the share at which its lower bound is largest: "
    if not len(taken):
        return text + f"nothing in these {len(step)} steps, because the in-sample gain is not above 0."
    text += f"{percent(_median(step))} of it in the median step"
    if len(taken) < len(step):
        text += f", nothing in {len(step) - len(taken)} of {len(step)}, where the in-sample gain is not above 0"
    if found.gamma == 0:
        text += ". With γ = 0 no state comes after another, so it takes an update whole or not at all"
    return text + "."


def trust_region_sentence(found: Certificate) -> str:
    """How small a trust region the finite horizon asks for, and whether it shrinks with the length as theory asks."""
    terms = _numeric(found)
    horizon, bound, gap = (_median(terms[key]) for key in ("longest", "advantage_bound", "largest_gap"))
    if isnan(horizon + bound + gap) or not bound * horizon:
        return ""
    allowed = allowed_distance(bound, horizon, gap)
    text = (
        f"A trust region has to shrink like 1/T². With responses of up to {number(horizon)} tokens, the "
        f"finite-horizon penalty means something only within {number(allowed, digits=2)} of the sampler in every "
        "state."
    )
    largest = _median(terms["largest_distance"])
    if not isnan(largest):
        text += f" The largest distance of a visited state is at most {number(largest, digits=2)} (median step)"
        text += f", {number(largest / allowed, digits=2)} × that." if largest > allowed else "."
    power = trust_region_exponent(terms["length"].to_numpy(), terms["distance"].to_numpy())
    if not isnan(power.value):
        shortest, longest = terms["length"].min(), terms["length"].max()
        text += (
            f" Between steps with {number(shortest)} and with {number(longest)} tokens a response, the mean distance "
            f"goes with the length to the power {power.value:.1f} ({power.low:.1f} to {power.high:.1f}). Theory asks "
            "for −2, a constant clip aims at 0. Both may also change with training."
        )
    return text


def _numeric(found: Certificate) -> pd.DataFrame:
    words = {"mark", "note", "lower_estimate"}
    return found.terms.astype({name: float for name in found.terms.columns if name not in words})


def _median(values: "pd.Series[float]") -> float:
    finite = values[~np.isnan(values)]
    return float(finite.median()) if len(finite) else nan
