"""The sums that entries of the catalogue ask for, filled into the queries of the step summary.

A query counts and adds up what several metrics share; the term of a metric that is a mean is in its entry, and here it
becomes a column named by the metric's key.
"""

from collections.abc import Iterator

from ratioscope.analysis.runs.database import filled
from ratioscope.analysis.summary.rendering import sql
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import Denominator, Grain, Metric

_BETWEEN = ",\n    "


def sequence_sums() -> str:
    """The query that sums over the usable tokens of each sequence."""
    return filled("summary/sequence_sums", sums=_of_rows(Grain.TOKEN, apart=False))


def group_sums() -> str:
    """The query that adds up the sums of `sequence_sums` over the sequences of each prompt group."""
    # A count of nothing but unknowns is null in SQL; here it is 0.
    names = [over.count for over in _denominators(Grain.TOKEN, apart=False)]
    counts = [f"coalesce(sum({name}), 0)::bigint as {name}" for name in names]
    totals = []
    for metric in _means(Grain.TOKEN, apart=False):
        counted = metric.mean is not None and metric.mean.term.is_condition
        total = f"coalesce(sum({metric.key}), 0)" if counted else f"sum({metric.key})"
        totals.append(f"{total}::double as {metric.key}")
    return filled("summary/group_sums", sums=_BETWEEN.join([*counts, *totals]))


def optional_sums() -> str:
    """The query that sums over the tokens of each prompt group, for the columns of `optional_columns`."""
    return filled("summary/optional_sums", sums=_of_rows(Grain.TOKEN, apart=True))


def response_sums(which: str) -> str:
    """The query that sums over the responses of each prompt group for which some SQL is true."""
    return filled("summary/response_sums", sums=_of_rows(Grain.RESPONSE, apart=False), which=which)


def names(grain: Grain) -> frozenset[str]:
    """The columns that the catalogue asks for of the scan of such rows: counts, and sums by their metric's key."""
    counts = (over.count for over in _denominators(grain, apart=False))
    return frozenset((*counts, *(metric.key for metric in _means(grain, apart=False))))


def optional_columns() -> frozenset[str]:
    """Columns that few logs have: without any of them `optional_sums` has nothing to find."""
    return frozenset(name for over in _denominators(Grain.TOKEN, apart=True) for name in over.columns)


def _of_rows(grain: Grain, *, apart: bool) -> str:
    counts = [
        f"count_if({sql(over.where)}) as {over.count}" for over in _denominators(grain, apart=apart) if over.where
    ]
    return _BETWEEN.join([*counts, *map(_sum, _means(grain, apart=apart))])


def _sum(metric: Metric) -> str:
    """A mean's numerator. Conditions are inside: a `filter` behind an aggregate takes a third longer."""
    mean, where = metric.mean, metric.over.where
    assert mean is not None
    if mean.term.is_condition:
        return f"count_if({sql(where & mean.term if where else mean.term)}) as {metric.key}"
    term = f"({sql(mean.term)})::double"
    return f"sum({f'case when {sql(where)} then {term} end' if where else term}) as {metric.key}"


def _means(grain: Grain, *, apart: bool) -> Iterator[Metric]:
    """Metrics whose terms are summed over rows of this grain, in the scan of columns that few logs have or not."""
    for metric in CATALOGUE.values():
        mean = metric.mean
        if mean is not None and not mean.sum and metric.grain is grain and metric.over.apart is apart:
            yield metric


def _denominators(grain: Grain, *, apart: bool) -> list[Denominator]:
    """What metrics of this grain are taken over; all rows are counted by the queries themselves."""
    used = (part for metric in CATALOGUE.values() for part in metric.over.chain if part.grain is grain)
    return list({over.count: over for over in used if over.where and over.apart is apart}.values())
