"""How old the data are, and whether age hurts: version lags over the steps, and staleness of old against fresh tokens.

lags = version_lags(run)                        # step, lag, tokens
effect = age_effect(stratify(run, "lag"), facts.form.staleness)
sentence(lags, stratify(run, "lag"), effect, facts)
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.facts import Facts
from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import tv_text, whose_staleness
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.strata import Strata
from ratioscope.notes import Kind, from_cells


def version_lags(run: Run, first: int | None = None, last: int | None = None) -> pd.DataFrame:
    """How many logged tokens of each step are how old, in updates; sorted.

    Columns: step, lag (NaN: no version is logged; below 0: newer than the policy that it updates), tokens. Rows that
    no ratio can be computed of count as well: they have an age, too.

    Raises:
        RatioscopeError: a file cannot be read any more.
    """
    with relations(run, first, last) as connection:
        return connection.execute(
            """
            select step::bigint as step, version_lag::double as lag, count(*) as tokens
            from token
            group by all
            order by all
            """
        ).df()


class Verdict(Enum):
    """Whether age hurts."""

    HURTS = "the oldest tokens are further from the policy than the freshest"
    DOES_NOT = "the oldest tokens are closer to the policy than the freshest"
    CANNOT_TELL = "the difference may be chance, or a heavy tail"
    ONE_AGE = "all tokens are of one age"


@dataclass(frozen=True)
class AgeEffect:
    """Staleness of the oldest stratum against that of the freshest one."""

    metric: str
    """`s_k` or `s_k_bounded`."""
    verdict: Verdict
    freshest: Number | None = None
    oldest: Number | None = None
    reason: str = ""
    """Why it is unknown."""


def age_effect(strata: Strata, metric: str) -> AgeEffect:
    """Does age hurt?

    Args:
        strata: by "lag".
        metric: the form of staleness that is used for the run; where a tail is too heavy for it, the bounded form.
    """
    rows = _ages(strata, metric)
    if metric == "s_k" and (rows["note_kind"].iloc[[0, -1] if len(rows) else []] == Kind.UNRELIABLE).any():
        metric = "s_k_bounded"
        rows = _ages(strata, metric)
    if len(rows) < 2:
        return AgeEffect(metric, Verdict.ONE_AGE)
    fresh, old = (
        Number(row.label, row.value, row.low, row.high, from_cells(row.note_kind, row.note))
        for row in (rows.iloc[0], rows.iloc[-1])
    )
    if not np.isfinite([fresh.low, fresh.high, old.low, old.high]).all():
        return AgeEffect(metric, Verdict.CANNOT_TELL, fresh, old, "there are too few prompt groups for intervals")
    if old.low > fresh.high:
        return AgeEffect(metric, Verdict.HURTS, fresh, old)
    if old.high < fresh.low:
        return AgeEffect(metric, Verdict.DOES_NOT, fresh, old)
    return AgeEffect(metric, Verdict.CANNOT_TELL, fresh, old, "their 95 % intervals overlap")


def _ages(strata: Strata, metric: str) -> pd.DataFrame:
    """The strata that have an age and a value, freshest first."""
    rows = strata.metric(metric).iloc[:-1]
    return rows[rows["value"].notna() & (rows["label"] != "not logged")]


def sentence(lags: pd.DataFrame, strata: Strata, effect: AgeEffect, facts: Facts) -> str:
    """How old is the data, does age hurt, and is it age at all?

    Args:
        lags: of `version_lags`.
        strata: by "lag", as `effect` was computed from them.
        facts: of the steps that `strata` are of.
    """
    hurts = _does_age_hurt(strata, effect, facts.staleness.limit)
    return " ".join(filter(None, (how_old(lags), hurts, whose_staleness(facts), _of_fresh_tokens(strata, facts))))


def how_old(lags: pd.DataFrame) -> str:
    """Mean and largest age of the tokens, what has no version, and what is newer than it can be."""
    known = lags.dropna()
    if not len(known):
        return "Versions are not logged: the age of the data is unknown."
    total = lags["tokens"].sum()
    mean = float(np.average(known["lag"], weights=known["tokens"]))
    low, high = int(known["lag"].min()), int(known["lag"].max())
    if low == high:
        text = "Every token was sampled by the policy that it updates."
        text = text if high == 0 else f"Every token is {high} updates old."
    else:
        text = f"The tokens are {number(mean)} updates old on average and {high} at most."
    if low < 0:
        ahead = known.loc[known["lag"] < 0, "tokens"].sum() / total
        text += (
            f" {percent(ahead)} of them are newer than the policy that they update, so the version numbers are wrong."
        )
    if len(known) < len(lags):
        unknown = lags.loc[lags["lag"].isna(), "tokens"].sum() / total
        text += f" {percent(unknown)} of the tokens have no logged version."
    return text


_NAMES = {"s_k": "S_k", "s_k_bounded": "S_k in its bounded form"}


def _does_age_hurt(strata: Strata, effect: AgeEffect, limit: float) -> str:
    if effect.freshest is None or effect.oldest is None:
        return "All tokens are of one age, so whether age hurts is unknown."
    against = (
        f"staleness ({_NAMES[effect.metric]}) is {_words(effect.oldest)} at {effect.oldest.label} "
        f"against {_words(effect.freshest)} at {effect.freshest.label}"
    )
    if effect.verdict is Verdict.CANNOT_TELL:
        return f"Whether age hurts is unknown: {against}, and {effect.reason}."
    opening = "Age hurts" if effect.verdict is Verdict.HURTS else "Age does not hurt"
    rows = _ages(strata, effect.metric)
    above = rows[rows["value"] > limit]
    where = (
        f"above the limit of {limit:g} at {', '.join(above['label'])}"
        if len(above)
        else f"below the limit of {limit:g} at every age"
    )
    if len(above) > 3:
        where = f"above the limit of {limit:g} in {len(above)} of {len(rows)} strata of age"
    return f"{opening}: {against}; it is {where}."


def _of_fresh_tokens(strata: Strata, facts: Facts) -> str:
    """The staleness that is not age, where engine and age cannot be separated."""
    rows = strata.metric(facts.form.staleness)
    fresh = rows.loc[rows["label"] == "lag 0", "value"].dropna()
    if facts.split or not len(fresh):
        return ""
    return f"Tokens of lag 0 have a staleness of {tv_text(float(fresh.iloc[0]))}, which age does not explain."


def _words(of: Number) -> str:
    value, low, high = of.value, of.low, of.high
    if not (np.isfinite(low) and np.isfinite(high)):
        return number(value)
    return f"{number(value, low, high)} ({number(low, low, high)} to {number(high, low, high)})"
