"""Bias or variance: the answer in words with what it rests on, and the numbers behind the page's charts.

answer(facts).sentence                      # the regime (`findings.regime`), and whether its numbers can be trusted
points = blind_spot(summary)                # by step: total variation, and chi-square of tokens and whole responses
frame = response_staleness(run, 100, 120)   # by step: total variation of whole responses
"""

from dataclasses import dataclass
from math import log1p

import numpy as np
import pandas as pd

from ratioscope.analysis.drift.pairs import PAIRS, create_units
from ratioscope.analysis.findings.facts import STALENESS, Concern, Facts, chi2_is_trusted
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import capital, number, of_log1p
from ratioscope.analysis.findings.regime import log_chi2_of_responses, regime
from ratioscope.analysis.findings.setup import UNKNOWN, Setup
from ratioscope.analysis.findings.words import chi2_source, over_limit, tv_text
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import cluster_intervals, sums
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.analysis.variance.gradients import best_step, progress

_MEASURED, _PREDICTED = "log1p_chi2_seq", "log1p_chi2_seq_predicted"


@dataclass(frozen=True)
class FailureModeAnswer:
    """Which failure mode it is, as far as the log can tell."""

    sentence: str
    """What matters and the number that decides it: one sentence, and a second where something is left open."""
    rests_on: str
    """Where the off-policyness comes from, and what is said against the numbers."""
    remedy: str
    """What to do; empty where nothing is known."""
    source: str
    numbers: tuple[Number, ...]
    """What it rests on: medians over the steps."""


def answer(facts: Facts, setup: Setup = UNKNOWN) -> FailureModeAnswer:
    """The regime, and where the log cannot tell.

    Args:
        setup: what was run, which the remedy is for.
    """
    if not facts.n_steps:
        return FailureModeAnswer("No step of this run lies in the chosen range.", "", "", "", ())
    found = regime(facts, setup)
    if found.concern is Concern.UNKNOWN:
        return FailureModeAnswer(found.sentence, "", found.remedy, found.source, found.numbers)
    doubts = [doubt for doubt in (_doubted_chi2(facts), _infinite_chi2(facts)) if doubt]
    is_open = found.concern is Concern.NEITHER and bool(doubts) and setup.weighted is not False
    remedy = found.remedy
    if is_open and setup.truncate and facts.variance_is_open:
        remedy += f" Until the variance is known: {setup.truncate[:1].lower()}{setup.truncate[1:]}."
    sentence = _cannot_tell(facts, doubts[0]) if is_open else _what_matters(facts, setup)
    return FailureModeAnswer(sentence, " ".join([found.origin, *doubts]), remedy, found.source, found.numbers)


def _cannot_tell(facts: Facts, doubt: str) -> str:
    return f"{small_bias(facts)}. Cannot tell whether variance is: {doubt[0].lower()}{doubt[1:]}"


def small_bias(facts: Facts) -> str:
    """That the median step is below the limit, with the steps that are not, as every page counts them."""
    level = facts.staleness
    above = f", but above it {over_limit(level, facts)}" if level.over else ""
    return f"Bias is small in the median step: staleness is {tv_text(level.median)} (limit {level.limit:g}){above}"


def _what_matters(facts: Facts, setup: Setup) -> str:
    level, variation = facts.staleness, f"total variation is {tv_text(facts.staleness.median)}"
    chi2 = f"the χ² of whole responses, {chi2_source(facts)}, is {of_log1p(facts.log_chi2)}"
    if facts.concern is Concern.BIAS:
        return f"Bias is the primary concern: {variation} in the median step, above {level.limit:g}."
    if facts.concern is Concern.VARIANCE:
        size = f"{chi2} in the median step, above {facts.limits.chi2:g}"
        if setup.weighted is False:
            return f"{small_bias(facts)}. Importance weights would vary a lot, but this loss has none."
        return f"Variance is the concern, which a trust region does not see. {capital(size)}."
    return f"Neither bias nor variance is large: {variation} and {chi2} in the median step."


def _doubted_chi2(facts: Facts) -> str:
    if facts.variance_is_open:
        return f"In {facts.n_open_chi2} of {facts.n_chi2} steps the χ² of whole responses rests on one ratio."
    if facts.concern is Concern.NEITHER or facts.n_doubtful_chi2 <= facts.n_chi2 / 2:
        return ""
    return (
        f"In {facts.n_doubtful_chi2} of {facts.n_chi2} steps the larger of both estimates of χ² (measured, or as the "
        "tokens predict it) rests on the largest ratio. Such samples mostly underestimate it."
    )


def _infinite_chi2(facts: Facts) -> str:
    if not facts.n_infinite_chi2:
        return ""
    return (
        f"From full distributions the χ² is infinite in {facts.n_infinite_chi2} of {facts.n_exact_chi2} steps: the "
        "sampler excludes tokens that the policy can produce, which no sample shows."
    )


def blind_spot(summary: StepSummary) -> pd.DataFrame:
    """What a trust region sees against what it does not, by step.

    Columns: tv, the total variation of the tokens; chi2_token; chi2_seq, that of whole responses, as the tokens predict
    it where the sample shows less (predicted); and <column>_trusted.
    """
    values = summary.values
    with np.errstate(over="ignore"):
        of_responses = np.expm1(log_chi2_of_responses(values).astype(float))
    return pd.DataFrame(
        {
            "tv": values[STALENESS],
            "tv_trusted": summary.trusted(STALENESS),
            "chi2_token": values["chi2_token"],
            "chi2_token_trusted": summary.trusted("chi2_token"),
            "chi2_seq": of_responses,
            "predicted": values[_PREDICTED] > values[_MEASURED].fillna(-np.inf),
            "chi2_seq_trusted": chi2_is_trusted(summary),
        }
    )


def blind_spot_sentence(points: pd.DataFrame, limits: Limits = Limits()) -> str:
    """How many steps have a variance that their total variation does not show."""
    known = points.dropna(subset=["tv", "chi2_seq"])
    if not len(known):
        return "No step has both a total variation and a χ² of its ratios."
    near, far = limits.staleness, limits.chi2
    hidden = (known["tv"] <= near) & (known["chi2_seq"] > far)
    if not hidden.any():
        return (
            f"In none of {len(known)} steps does a total variation of at most {near:g} hide a χ² of whole responses "
            f"above {far:g}."
        )
    # A value that rests on its largest ratio is no example.
    sure = hidden & known["chi2_seq_trusted"]
    most = f", most so in step {known.loc[sure, 'chi2_seq'].idxmax()}" if sure.any() else ""
    hides = "hides" if most else "may hide"
    return (
        f"In {int(hidden.sum())} of {len(known)} steps total variation up to {near:g} {hides} a χ² of whole "
        f"responses above {far:g}{most}."
    )


def growth_sentence(summary: StepSummary) -> str:
    """What becomes of the tokens' variance over whole responses: measured against what the tokens predict."""
    both = summary.values[[_MEASURED, _PREDICTED, "response_length"]].dropna(subset=[_MEASURED, _PREDICTED])
    if not len(both):
        return "No step has a χ² of whole responses."
    measured, predicted = float(both[_MEASURED].median()), float(both[_PREDICTED].median())
    length = float(both["response_length"].median())
    over = f" over responses of {number(length)} tokens" if not np.isnan(length) else ""
    text = f"Median log(1 + χ²){over}: {measured:.2g} measured, {predicted:.2g} if tokens were independent."
    if measured < 0.5 * predicted and predicted > log1p(0.1):
        text += " Much less is measured than predicted: the sample is too small to show the tail."
    elif measured > 2 * predicted and measured > log1p(0.1):
        text += (
            " Token ratios within a response are correlated, so products vary more than those of independent tokens."
        )
    return text


_RESPONSES = """
select step, group_id, sum(greatest(-expm1(x), 0)) as shortfall, count(*)::double as n
from sequence_unit
where usable
group by step, group_id
order by step, group_id
"""


def response_staleness(run: Run, first: int, last: int) -> pd.DataFrame:
    """Total variation between current policy and sampler over whole responses, of the steps first..last.

    Returns:
        indexed by step: tv (mean (1 - W)^+), low, high (95 %, cluster-robust over prompt groups; none with one group).

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    with relations(run, first, last) as connection:
        create_units(connection, PAIRS["current/behavior"])
        groups = connection.execute(_RESPONSES).df()
    shortfall, n = (groups[name].to_numpy(dtype=float) for name in ("shortfall", "n"))
    steps, starts = np.unique(groups["step"].to_numpy(dtype=np.int64), return_index=True)
    low, high = cluster_intervals(shortfall, n, starts, lowest=0.0, highest=1.0)
    tv = sums(shortfall, starts) / sums(n, starts)
    return pd.DataFrame({"tv": tv, "low": low, "high": high}, index=pd.Index(steps, name="step"))


def staleness_sentence(summary: StepSummary, responses: pd.DataFrame) -> str:
    """Tokens against whole responses, at the last step that has both."""
    both = responses["tv"].rename("responses").to_frame().join(summary.values[STALENESS].rename("tokens")).dropna()
    if not len(both):
        return "No response has a usable ratio."
    step, found = both.index[-1], both.iloc[-1]
    return (
        f"At step {step} the total variation is {tv_text(found['tokens'])} over tokens and "
        f"{tv_text(found['responses'])} over whole responses."
    )


def lemma_terms(probes: pd.DataFrame, learning_rate: float, smoothness: float) -> pd.DataFrame:
    """The terms of the SGA lemma for each row of `analysis.variance.gradients.probes`.

    Columns: step; A (true progress), B (error of the bias along the gradient), C_variance and C_bias (the two parts of
    the noise penalty C), total = A + B - C, and standard errors A_error, B_error, C_error, total_error.

    Raises:
        RatioscopeError: a negative learning rate, or a smoothness that is not positive.
    """
    rows = []
    for _, probe in probes.iterrows():
        found = progress(probe, learning_rate, smoothness)
        rows.append(
            {
                "step": int(probe["step"]),
                "A": float(found.true_progress),
                "A_error": float(found.true_progress_error),
                "B": float(found.bias_error),
                "B_error": float(found.bias_error_error),
                "C_variance": float(found.noise_of_variance),
                "C_bias": float(found.noise_penalty) - float(found.noise_of_variance),
                "C_error": float(found.noise_penalty_error),
                "total": float(found.total),
                "total_error": float(found.total_error),
            }
        )
    return pd.DataFrame(rows)


def lemma_curve(probe: "pd.Series[float]", learning_rate: float, smoothness: float) -> pd.DataFrame:
    """A + B - C of one probe: total and total_error, indexed by the learning rate.

    The rates go from far below the best one to where the bound is negative, and hold `learning_rate`.
    """
    best = best_step(probe, smoothness).learning_rate
    centre = best if best > 0 else learning_rate
    rates = np.geomspace(min(centre, learning_rate) / 100, max(3 * centre, learning_rate), 200)
    found = progress(probe, rates, smoothness)
    frame = pd.DataFrame({"total": found.total, "total_error": found.total_error}, index=rates)
    return frame.rename_axis("learning_rate")
