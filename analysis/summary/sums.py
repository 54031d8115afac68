"""The sums that entries of the catalogue ask for, filled into the queries of the step summary.

A query counts and adds up what several metrics share; the term of a metric that is a mean is in its entry, and here it
becomes a column named by the metric's key.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ratioscope.analysis.runs.database import filled
from ratioscope.analysis.summary.rendering import DEVIATIONS, sql
from ratioscope.catalogue import CATALOGUE
from ratioscope.catalogue.denominators import NEW
from ratioscope.metric import RATIOS, Denominator, Grain, Metric
from ratioscope.terms import DEVIATION, DEVIATION_NEW, LOG_RHO, Term, absent, column, known, unequal

_BETWEEN = ",\n    "


class Sum(NamedTuple):
    """What is added up over the tokens of each response, or counted where the term is a condition."""

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


@cache
def token_sums() -> dict[str, Sum]:
    """All sums over the tokens of each response, for which no column is needed that few logs have."""
    means = _means(Grain.TOKEN, apart=False)
    return WITHIN | {metric.numerator: Sum(metric.mean.term, metric.over) for metric in means if metric.mean}


@cache
def token_counts() -> dict[str, Term]:
    """All counts of the tokens of each response; beside them, n_tokens and n_grouped are of all tokens."""
    denominators = _denominators(Grain.TOKEN, apart=False)
    return {
        "n_recomputed": known(LOG_RHO) & absent(column("logp_behavior")),
        "n_signal": unequal(column("advantage"), 0),
        **{over.count: over.where for over in denominators if over.where},
    }


def sequence_sums() -> str:
    """The query that sums over the usable tokens of each sequence."""
    counts = [f"count_if({sql(where)}) as {name}" for name, where in token_counts().items()]
    totals = [_sum(name, each) for name, each in token_sums().items()]
    return filled("summary/sequence_sums", deviations=DEVIATIONS, sums=_BETWEEN.join([*counts, *totals]))


def group_sums() -> str:
    """The query that adds up the sums of `sequence_sums` over the sequences of each prompt group."""
    made = [f"sum({sql(term)}) as {name}" for name, term in MADE.items()]
    # A count of nothing but unknowns is null in SQL; here it is 0.
    counts = [f"coalesce(sum({name}), 0)::bigint as {name}" for name in token_counts()]
    totals = [
        f"{f'coalesce(sum({name}), 0)' if each.term.is_condition else f'sum({name})'}::double as {name}"
        for name, each in token_sums().items()
        if name not in WITHIN
    ]
    return filled("summary/group_sums", sums=_BETWEEN.join([*made, *counts, *totals]))


def optional_sums() -> str:
    """The query that sums over the tokens of each prompt group, for the columns of `optional_columns`."""
    return filled("summary/optional_sums", sums=_of_rows(Grain.TOKEN, apart=True))


def response_sums(which: str) -> str:
    """The query that sums over the responses of each prompt group for which some SQL is true."""
    return filled("summary/response_sums", sums=_of_rows(Grain.RESPONSE, apart=False), which=which)


def response_names() -> frozenset[str]:
    """The columns that the catalogue asks for of the scan of responses: counts, and sums by their metric's key."""
    counts = (over.count for over in _denominators(Grain.RESPONSE, apart=False))
    return frozenset((*counts, *(metric.key for metric in _means(Grain.RESPONSE, apart=False))))


def optional_columns() -> frozenset[str]:
    """Columns that few logs have: without any of them `optional_sums` has nothing to find."""
    return frozenset(name for over in _denominators(Grain.TOKEN, apart=True) for name in over.columns)


def _of_rows(grain: Grain, *, apart: bool) -> str:
    counts = [
        f"count_if({sql(over.where)}) as {over.count}" for over in _denominators(grain, apart=apart) if over.where
    ]
    means = _means(grain, apart=apart)
    return _BETWEEN.join([*counts, *(_sum(each.key, Sum(each.mean.term, each.over)) for each in means if each.mean)])


def _sum(name: str, of: Sum) -> str:
    """Conditions are inside: a `filter` behind an aggregate takes a third longer."""
    term, where = of.term, of.over.where
    if term.is_condition:
        return f"count_if({sql(where & term if where else term)}) as {name}"
    value = f"({sql(term)})::double"
    return f"sum({f'case when {sql(where)} then {value} end' if where else value}) as {name}"


def _means(grain: Grain, *, apart: bool) -> Iterator[Metric]:
    """Metrics whose terms are summed over rows of this grain, in the scan of columns that few logs have or not."""
    for metric in CATALOGUE.values():
        made = metric.mean is None or metric.numerator in MADE
        if not made and metric.grain is grain and metric.over.apart is apart:
            yield metric


def _denominators(grain: Grain, *, apart: bool) -> list[Denominator]:
    """What metrics of this grain are taken over; all rows are counted by the queries themselves."""
    used = (part for metric in CATALOGUE.values() for part in metric.over.chain if part.grain is grain)
    return list({over.count: over for over in used if over.where and over.apart is apart}.values())
