"""How old the data are, and whether age hurts: version lags over the steps, and staleness and reward of older tokens.

effect = age_effect(run)                        # within steps: staleness and reward per update of age
sentence(sampled_by(run).lags, stratify(run, "lag"), effect, facts)
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.facts import STALENESS, Cause, Facts
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import tv_text, whose_staleness
from ratioscope.analysis.linter.noise_floor import FLOAT32_FLOOR
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.staleness.trend import Trend, reward_trend, staleness_trend
from ratioscope.analysis.summary.strata import Strata


class AgeVerdict(Enum):
    """Whether age hurts."""

    HURTS = "within a step, older tokens are further from the policy"
    DOES_NOT = "within a step, older tokens are closer to the policy"
    CANNOT_TELL = "the difference may be chance"
    ONE_AGE = "no step holds several ages"


@dataclass(frozen=True)
class AgeEffect:
    """What an update of age does to staleness and reward, among the tokens of one step."""

    staleness: Trend
    reward: Trend

    @property
    def verdict(self) -> AgeVerdict:
        if np.isnan(self.staleness.slope):
            return AgeVerdict.ONE_AGE
        if self.staleness.rises:
            return AgeVerdict.HURTS
        return AgeVerdict.DOES_NOT if self.staleness.falls else AgeVerdict.CANNOT_TELL


def age_effect(run: Run, first: int | None = None, last: int | None = None) -> AgeEffect:
    """Does age hurt, in the steps first..last?

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    return AgeEffect(staleness_trend(run, first, last), reward_trend(run, first, last))


def age_sentence(lags: pd.DataFrame, strata: Strata, effect: AgeEffect, facts: Facts) -> str:
    """Does age hurt, how old is the data, and is it age at all? What decides, in two sentences.

    Where version numbers are wrong or missing, that is what decides.

    Args:
        lags: of `versions.sampled_by`.
        strata: by "lag".
        facts: of the steps that `strata` and `effect` are of.
    """
    old, doubts = _old(lags)
    aged = bool((lags["lag"] > 0).any())
    trend = in_short(effect) if aged and effect.verdict is not AgeVerdict.ONE_AGE else ""
    one_age = _ONE_AGE if aged and effect.verdict is AgeVerdict.ONE_AGE else ""
    whose = whose_staleness(facts)
    engine = whose if facts.cause_of_staleness is Cause.ENGINE else ""  # then it is not about age
    said = dict.fromkeys((trend, engine, old, _above(strata, facts), one_age, whose))
    return " ".join([old, doubts] if doubts else list(filter(None, said))[:2])


def age_details(lags: pd.DataFrame, strata: Strata, effect: AgeEffect, facts: Facts) -> str:
    """What the answer rests on, with its intervals, and what it leaves out."""
    hurts = does_age_hurt(effect) if (lags["lag"] > 0).any() else ""
    told = age_sentence(lags, strata, effect, facts)
    said = (hurts, _above(strata, facts), whose_staleness(facts), _of_fresh_tokens(strata, facts))
    return " ".join(text for text in said if text and text not in told)


def how_old(lags: pd.DataFrame) -> str:
    """Mean and largest age of the tokens, what has no version, and what is newer than it can be."""
    return " ".join(filter(None, _old(lags)))


def _old(lags: pd.DataFrame) -> tuple[str, str]:
    """How old, and what is doubtful about it."""
    known = lags.dropna()
    if not len(known):
        return "Versions are not logged: the age of the data is unknown.", ""
    total = lags["tokens"].sum()
    mean = float(np.average(known["lag"], weights=known["tokens"]))
    low, high = int(known["lag"].min()), int(known["lag"].max())
    if low == high:
        every = "Every token" if len(known) == len(lags) else "Every token with a version"
        text = f"{every} is {high} update{'s' * (high != 1)} old."
    else:
        text = f"Tokens are {number(mean)} updates old on average, {high} at most."
    doubts = []
    if low < 0:
        ahead = known.loc[known["lag"] < 0, "tokens"].sum() / total
        doubts.append(
            f"{percent(ahead)} of them are newer than the policy that they update, so the version numbers are wrong."
        )
    if len(known) < len(lags):
        unknown = lags.loc[lags["lag"].isna(), "tokens"].sum() / total
        doubts.append(f"{percent(unknown)} of the tokens have no logged version.")
    return text, " ".join(doubts)


_ONE_AGE = "No step holds old tokens of two ages, so age cannot be separated from training time."


def in_short(effect: AgeEffect) -> str:
    """The verdict with one number."""
    slope = number(abs(effect.staleness.slope))
    return {
        AgeVerdict.HURTS: f"Age hurts: within a step staleness rises by {slope} an update of age.",
        AgeVerdict.DOES_NOT: f"Age does not hurt: within a step staleness falls by {slope} an update of age.",
        AgeVerdict.CANNOT_TELL: "Whether age hurts is unknown: the difference within steps may be chance.",
        AgeVerdict.ONE_AGE: _ONE_AGE,
    }[effect.verdict]


def does_age_hurt(effect: AgeEffect) -> str:
    """The verdict in words, with the slopes per update of age."""
    trend = effect.staleness
    if effect.verdict is AgeVerdict.ONE_AGE:
        return _ONE_AGE
    slope, half = abs(trend.slope), (trend.high - trend.low) / 2
    size = f"by {_slope(slope, slope - half, slope + half)} an update of age"
    unit = "prompt groups" if trend.grouped else "responses, as no groups are logged"
    of = f"({trend.steps:,} step{'s' * (trend.steps != 1)} with several ages, {trend.groups:,} {unit})"
    if effect.verdict is AgeVerdict.HURTS:
        text = f"Age hurts: within a step staleness rises {size} {of}."
    elif effect.verdict is AgeVerdict.DOES_NOT:
        text = f"Age does not hurt: within a step staleness falls {size} {of}."
    else:
        changes = f"changes by {_slope(trend.slope, trend.low, trend.high)} an update of age"
        text = f"Whether age hurts is unknown: within a step staleness {changes} {of}."
    reward = effect.reward
    if reward.rises or reward.falls:
        word = "higher" if reward.rises else "lower"
        text += f" The reward of older responses is {word}: {_slope(reward.slope, reward.low, reward.high)} an update."
    return text


def _slope(value: float, low: float, high: float) -> str:
    if not (np.isfinite(low) and np.isfinite(high)):
        return f"{number(value)} (no interval: too few prompt groups)"
    return f"{number(value, low, high)} ({number(low, low, high)} to {number(high, low, high)})"


def _above(strata: Strata, facts: Facts) -> str:
    """At which ages staleness is above its limit; empty where at none."""
    rows = strata.metric(facts.staleness.key).iloc[:-1]
    rows = rows[rows["value"].notna() & (rows["label"] != "not logged")]
    above = rows.loc[rows["value"] > facts.staleness.limit, "label"]
    if not len(above):
        return ""
    where = f"at {' and '.join(above)}" if len(above) <= 3 else f"at {len(above)} of {len(rows)} strata of age"
    if 1 < len(above) < len(rows) and above.index[0] == rows.index[-len(above)]:
        where = f"from {above.iloc[0].partition(' to ')[0]} on"
    return f"Staleness is above its limit of {facts.staleness.limit:g} {where}."


def _of_fresh_tokens(strata: Strata, facts: Facts) -> str:
    """The staleness that is neither age nor rounding, where engine and age cannot be separated."""
    rows = strata.metric(STALENESS)
    fresh = rows.loc[rows["label"] == "lag 0", "value"].dropna()
    if facts.split or not len(fresh) or fresh.iloc[0] < FLOAT32_FLOOR:
        return ""
    return f"Tokens of lag 0 have a staleness of {tv_text(float(fresh.iloc[0]))}, which age does not explain."
