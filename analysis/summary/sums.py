"""The sums that entries of the catalogue ask for, filled into the queries of the step summary.

A query counts and adds up what several metrics share; the term of a metric that is a mean is in its entry, and here it
becomes a column named by the metric's key.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from ratioscope.analysis.runs.database import filled
from ratioscope.analysis.summary.rendering import DEVIATIONS, sql
from ratioscope.catalogue import CATALOGUE
from ratioscope.catalogue.denominators import EXACT_NEW, EXACT_OF_RATIOS, NEW
from ratioscope.metric import RATIOS, Denominator, Grain
from ratioscope.terms import (
    DEVIATION,
    DEVIATION_NEW,
    LOG_RHO,
    LOG_RHO_NEW,
    Term,
    absent,
    apart,
    column,
    finite,
    known,
    negative_part,
    true,
    unequal,
)

_BETWEEN = ",\n    "


class Sum(NamedTuple):
    """What is added up over rows, or counted where the term is a condition."""

    term: Term
    over: Denominator


MADE: dict[str, Term] = {
    "rho": column("n_ratios") + column("signed_deviation"),
    "rho_squared": column("n_ratios") + 2 * column("signed_deviation") + column("deviation_squared"),
    "deviation": column("signed_deviation") + 2 * column("shortfall"),
    "deviation_new": column("signed_deviation_new") + 2 * column("shortfall_new"),
    "k1": -column("log_w"),
}
"""Sums over prompt groups, of sums over responses. Positive parts are summed by themselves: as differences of other
sums they would not survive a heavy tail."""

WITHIN = {
    "log_w": Sum(LOG_RHO, RATIOS),
    "signed_deviation": Sum(DEVIATION, RATIOS),
    "signed_deviation_new": Sum(DEVIATION_NEW, NEW),
}
"""Sums over responses that no metric is made of directly."""

NEGATIVE_LOGS = {"ppl_behavior": -column("logp_behavior"), "ppl_current": -column("logp_current")}
"""Terms of which a perplexity is the exponential of the mean."""

_REWARD, _TV, _TV_NEW = map(column, ("reward", "tv_current_behavior", "tv_new_current"))
# Beside those of entries that are means, by grain and whether they are of columns that few logs have.
_COUNTS: dict[tuple[Grain, bool], dict[str, Term]] = {
    (Grain.TOKEN, False): {
        "n_recomputed": known(LOG_RHO) & absent(column("logp_behavior")),
        "n_signal": unequal(column("advantage"), 0),
    },
    (Grain.RESPONSE, False): {
        "n_listed_in_group": true(column("grouped")),
        "n_graded": finite(_REWARD) & unequal(_REWARD, 0) & unequal(_REWARD, 1),
    },
}
_SUMS: dict[tuple[Grain, bool], dict[str, Sum]] = {
    (Grain.TOKEN, False): WITHIN | {key: Sum(term, CATALOGUE[key].over) for key, term in NEGATIVE_LOGS.items()},
    (Grain.TOKEN, True): {
        "sampled_minus_exact": Sum(
            negative_part(DEVIATION) - _TV, replace(EXACT_OF_RATIOS, where=finite(_TV) & known(LOG_RHO))
        ),
        "sampled_minus_exact_new": Sum(apart(LOG_RHO_NEW, LOG_RHO) / 2 - _TV_NEW, EXACT_NEW),
    },
}


@cache
def sum_names(grain: Grain, *, few: bool = False) -> dict[str, Sum]:
    """All sums over rows of this grain.

    Args:
        few: those of columns that few logs have, or the others.
    """
    found = dict(_SUMS.get((grain, few), {}))
    for metric in CATALOGUE.values():
        if metric.mean and metric.numerator not in MADE and metric.grain is grain and metric.over.apart is few:
            found[metric.numerator] = Sum(metric.mean.term, metric.over)
    return found


@cache
def count_names(grain: Grain, *, few: bool = False) -> dict[str, Term]:
    """All counts of rows of this grain: what metrics are taken over; all rows are counted by the queries themselves."""
    found = dict(_COUNTS.get((grain, few), {}))
    for part in (part for metric in CATALOGUE.values() for part in metric.over.chain):
        if part.where and part.grain is grain and part.apart is few:
            found[part.count] = part.where
    return found


def sequence_sums() -> str:
    """The query that sums over the usable tokens of each sequence."""
    return filled("summary/sequence_sums", deviations=DEVIATIONS, sums=_of_rows(Grain.TOKEN))


def group_sums() -> str:
    """The query that adds up the sums of `sequence_sums` over the sequences of each prompt group."""
    made = [f"sum({sql(term)}) as {name}" for name, term in MADE.items()]
    # A count of nothing but unknowns is null in SQL; here it is 0.
    counted = [f"coalesce(sum({name}), 0)::bigint as {name}" for name in count_names(Grain.TOKEN)]
    summed = [
        f"{f'coalesce(sum({name}), 0)' if each.term.is_condition else f'sum({name})'}::double as {name}"
        for name, each in sum_names(Grain.TOKEN).items()
        if name not in WITHIN
    ]
    return filled("summary/group_sums", sums=_BETWEEN.join([*made, *counted, *summed]))


def optional_sums() -> str:
    """The query that sums over the tokens of each prompt group, for the columns of `optional_columns`."""
    return filled("summary/optional_sums", deviations=DEVIATIONS, sums=_of_rows(Grain.TOKEN, few=True))


def response_sums(which: str) -> str:
    """The query that sums over the responses of each prompt group for which some SQL is true."""
    return filled("summary/response_sums", sums=_of_rows(Grain.RESPONSE), which=which)


def optional_columns() -> frozenset[str]:
    """Columns that few logs have: without any of them `optional_sums` has nothing to find."""
    parts = (part for metric in CATALOGUE.values() for part in metric.over.chain)
    return frozenset(name for over in parts if over.apart and over.grain is Grain.TOKEN for name in over.columns)


def sum_columns(grain: Grain) -> frozenset[str]:
    """The columns of which counts and sums are made, but for those that few logs have."""
    terms = (term for each in sum_names(grain).values() for term in (each.term, each.over.where) if term)
    return frozenset().union(*(term.columns for term in (*count_names(grain).values(), *terms)))


def _of_rows(grain: Grain, *, few: bool = False) -> str:
    counted = [f"coalesce(count_if({sql(where)}), 0) as {name}" for name, where in count_names(grain, few=few).items()]
    return _BETWEEN.join([*counted, *(_sum(name, each) for name, each in sum_names(grain, few=few).items())])


def _sum(name: str, of: Sum) -> str:
    """Conditions are inside: a `filter` behind an aggregate takes a third longer."""
    term, where = of.term, of.over.where
    if term.is_condition:
        return f"count_if({sql(where & term if where else term)}) as {name}"
    value = f"({sql(term)})::double"
    return f"sum({f'case when {sql(where)} then {value} end' if where else value}) as {name}"
