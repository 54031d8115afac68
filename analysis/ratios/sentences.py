"""What the step summary says of the ratios' tails, in words: how heavy, since when, what to do."""

from collections import Counter

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.facts import facts_of, heavy_tails, unreliable_steps
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.setup import UNKNOWN, Setup
from ratioscope.analysis.summary.metrics import INVALID_CAUSES
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.metric import Moment, khat_limit
from ratioscope.notes import is_unreliable

# The step since which tails are heavy is named if most steps after it are, and hardly any before it.
_MOST, _HARDLY_ANY = 0.6, 0.15

_CAUSES = {
    "nan": "NaN",
    "infinite": "infinite log-prob",
    "positive": "log-prob above 0",
    "advantage": "advantage not finite",
}
assert tuple(_CAUSES) == INVALID_CAUSES


def answer(summary: StepSummary, limits: Limits = Limits(), setup: Setup = UNKNOWN) -> str:
    """How heavy are the tails?

    Args:
        setup: what was run, which the advice is for.
    """
    khat = summary.values["khat_token"].dropna()
    if not len(khat):
        if not summary.values["ratio_max"].notna().any():
            return f"How heavy the tails are is unknown: {summary.why_unknown('ratio_max')}."
        return "No step has enough spread in its ratios for a tail index: the data are on-policy, or too few."
    limit, steps = limits.khat, len(summary.values)
    heavy, high = heavy_tails(summary, limits), khat[khat >= limit]
    top = summary.values["top1pct_share"]
    largest = f"{khat.max():.2f} in step {khat.idxmax()}"
    if len(high) < limits.step_share * steps:
        text = f"The tails are light: a tail index of {khat.median():.2f} in the median step, at most {largest}."
        text += _loud(top, limits)
    elif len(heavy) < limits.step_share * steps:
        text = (
            f"The tail index is {limit:g} or more in {len(high)} of {steps} steps and reaches {largest}, but its "
            f"weight is small. There the top 1% of the tokens hold {percent(top[high.index].median())} of Σρ² (median)."
            f"{_loud(top, limits) or ' Nothing to truncate.'}"
        )
    else:
        marks = summary.values.index.isin(heavy.index)
        where = pd.Series(marks, index=summary.values.index)
        text = (
            f"The tails are heavy (tail index {limit:g} or more) in {len(heavy)} of {steps} steps"
            f"{_with_age(where, summary) or _since(where)}. {setup.lighter(facts_of(summary, limits))}"
        )
    return text


def _loud(top: "pd.Series[float]", limits: Limits) -> str:
    """In which steps few tokens carry weight, where these are few; a sentence behind others, "" for none."""
    loud = top[top >= limits.tail_share]
    if not len(loud):
        return ""
    most, step = percent(loud.max()), loud.idxmax()
    if len(loud) == 1:
        return f" In step {step} alone the top 1% of the tokens hold {most} of Σρ²."
    least = percent(limits.tail_share)
    return f" In {len(loud)} steps the top 1% of the tokens hold {least} or more, {most} in step {step}."


def rests_on(summary: StepSummary, limits: Limits = Limits()) -> str:
    """How much hangs on heavy tails, and in how many steps squares of the ratio cannot be trusted; "" for neither."""
    heavy, text = heavy_tails(summary, limits), ""
    if len(heavy) >= max(1.0, limits.step_share * len(summary.values)):
        top = summary.values["top1pct_share"][heavy.index].median()
        text = (
            f"Where the tails are heavy, the top 1% of the tokens hold {percent(top)} of Σρ² (median). Bounded "
            "staleness is distorted by no tail."
        )
    n, of = unreliable_steps(summary, "chi2_token")
    doubt = f"Squares of the ratio (χ², effective sample size) are unreliable in {n} of {of} steps." if n else ""
    return f"{text} {doubt}".strip()


def mean_limits(n: "pd.Series[float]") -> "pd.Series[float]":
    """From which tail index on a mean of n ratios cannot be estimated, by step; NaN without any."""
    limits = [khat_limit(Moment.FIRST, int(size)) if size > 0 else np.nan for size in n]
    return pd.Series(limits, index=n.index, dtype=float)


def _since(heavy: "pd.Series[bool]") -> str:
    """The step since which most are, where hardly any are before it; else the first one."""
    n, marks = len(heavy), heavy.to_numpy(dtype=float)
    if marks.mean() >= 0.8:
        return ""
    fewest = max(3, n // 20)
    if n >= 2 * fewest:
        ends = np.arange(fewest, n - fewest + 1)
        before = np.cumsum(marks)[ends - 1] / ends
        after = (marks.sum() - np.cumsum(marks)[ends - 1]) / (n - ends)
        best = int(np.argmax(after - before))
        if after[best] >= _MOST and before[best] <= _HARDLY_ANY:
            return f", most of them since step {heavy.index[ends[best]]}"
    return f", first in step {heavy.index[int(np.argmax(marks))]}"


def _with_age(heavy: "pd.Series[bool]", summary: StepSummary) -> str:
    """Whether they come with the age of the data, where that makes the difference."""
    lag = summary.values["version_lag"]
    if lag.nunique() <= 2:
        return ""
    fresh, stale = heavy[lag <= lag.quantile(0.25)].mean(), heavy[lag >= lag.quantile(0.75)].mean()
    if stale - fresh < 0.4:
        return ""
    return ", mostly on stale data"


def unfitted(summary: StepSummary, key: str) -> "pd.Series[str]":
    """Why a tail index could not be fitted, by step; only the steps without one."""
    missing = summary.values.index[summary.values[key].isna()]
    notes = [summary.note(step, key) for step in missing]
    return pd.Series([note.reason if note else "not logged" for note in notes], index=missing, dtype=object)


def why_unfitted(summary: StepSummary, key: str) -> str:
    """The same as a sentence, "" where every step has its index."""
    reasons = unfitted(summary, key)
    if not len(reasons):
        return ""
    counted = Counter(reasons).most_common(3)
    which = "; ".join(f"{reason} ({count})" for reason, count in counted)
    return f"not fitted in {len(reasons)} of {len(summary.values)} steps: {which}"


def spread(summary: StepSummary) -> str:
    """Where the ratios of the last step lie, and the widest step, in a sentence."""
    inside = summary.values[["ratio_p01", "ratio_p99", "ratio_min", "ratio_max"]].dropna()
    if not len(inside):
        return f"There is no ratio in these steps: {summary.why_unknown('ratio_max')}."
    last, step = inside.iloc[-1], inside.index[-1]
    text = f"In step {step}, 98% of the ratios lie between {number(last['ratio_p01'])} and {number(last['ratio_p99'])}."
    with np.errstate(divide="ignore"):
        width = np.log(inside["ratio_max"]) - np.log(inside["ratio_min"])
    widest = inside.loc[width.idxmax()]
    return (
        f"{text} The widest step is {width.idxmax()}: from {number(widest['ratio_min'])} to "
        f"{number(widest['ratio_max'])}."
        if len(inside) > 1
        else text
    )


def cost(summary: StepSummary) -> str:
    """What weighting would cost at worst, in a sentence."""
    parts = []
    for key, what in (("ess_token", "tokens"), ("ess_seq", "responses")):
        known = summary.values[key].dropna()
        if len(known):
            lowest = int(known.index[int(np.argmin(known))])
            doubt = " (unreliable)" if is_unreliable(summary.note(lowest, key)) else ""
            parts.append(f"{percent(known.min())} of the {what} in step {lowest}{doubt}")
    return (
        f"At worst, weighting leaves {' and '.join(parts)} effective."
        if parts
        else f"There is no effective sample size in these steps: {summary.why_unknown('ess_token')}."
    )


def left_out(summary: StepSummary) -> pd.DataFrame:
    """Rows without a usable ratio, by step: a column for each cause that occurs, and the responses without W."""
    causes = {f"n_invalid_{cause}": f"tokens: {name}" for cause, name in _CAUSES.items()}
    names = causes | {"n_undefined": "responses without a sequence ratio"}
    found = summary.values[list(names)].rename(columns=names)
    return found.loc[:, found.sum() > 0]


def left_out_words(summary: StepSummary) -> str:
    """The same as a sentence."""
    found = left_out(summary)
    if not (summary.values["n_ratios"] > 0).any() and found.empty:
        return f"There is no ratio in these steps: {summary.why_unknown('ratio_max')}."
    if found.empty and (summary.values["n_ratios"] < summary.values["n_tokens"]).any():
        n = int((summary.values["n_tokens"] - summary.values["n_ratios"]).sum())
        return f"No row is unusable; {n:,} tokens have no ratio, because a log-probability of theirs is not logged."
    if found.empty:
        return f"No row was left out in these {len(summary.values)} steps: every token has a usable ratio."
    totals = ", ".join(f"{int(total):,} {name}" for name, total in found.sum().items())
    return f"Left out of every ratio, in {int((found.sum(axis=1) > 0).sum())} steps: {totals}."
