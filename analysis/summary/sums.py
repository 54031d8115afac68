"""The sums that entries of the catalogue ask for, filled into the queries of the step summary.

A query counts and adds up what several metrics share; the term of a metric that is a mean is in its entry, and here it
becomes a column named by the metric's key. Most of those of tokens have a twin in `token_sums.py`.
"""

from collections.abc import Iterator

from ratioscope.analysis.runs.database import filled
from ratioscope.analysis.summary.token_sums import SUMS
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import Denominator, Grain, Metric

_BETWEEN = ",\n    "


def group_sums() -> str:
    """The query that adds up the sums of `token_sums.py` over the sequences of each prompt group."""
    counts = [f"sum({over.count})::bigint as {over.count}" for over in _denominators(Grain.TOKEN, apart=False)]
    totals = [f"sum({metric.key})::double as {metric.key}" for metric in _means(Grain.TOKEN, apart=False)]
    return filled("summary/group_sums", sums=_BETWEEN.join([*counts, *totals]))


def optional_sums() -> str:
    """The query that sums over the tokens of each prompt group whatever `token_sums.py` does not."""
    return filled("summary/optional_sums", sums=_of_rows(Grain.TOKEN, apart=True))


def response_sums(which: str) -> str:
    """The query that sums over the responses of each prompt group for which some SQL is true."""
    return filled("summary/response_sums", sums=_of_rows(Grain.RESPONSE, apart=False), which=which)


def needs_optional(logged: frozenset[str]) -> bool:
    """Whether `optional_sums` has something to find where these columns are logged: few logs have them."""
    overs = {metric.over for metric in _means(Grain.TOKEN, apart=True)}
    overs.update(_denominators(Grain.TOKEN, apart=True))
    return any(not over.columns or logged & set(over.columns) for over in overs)


def _of_rows(grain: Grain, *, apart: bool) -> str:
    counts = [f"count_if({over.where}) as {over.count}" for over in _denominators(grain, apart=apart)]
    return _BETWEEN.join([*counts, *map(_sum, _means(grain, apart=apart))])


def _sum(metric: Metric) -> str:
    """A mean's numerator. Conditions are inside: a `filter` behind an aggregate takes a third longer."""
    mean, where = metric.mean, metric.over.where
    assert mean is not None
    if mean.holds:
        return f"count_if(({where or True}) and ({mean.holds})) as {metric.key}"
    term = f"({mean.term})::double"
    return f"sum({f'case when {where} then {term} end' if where else term}) as {metric.key}"


def _means(grain: Grain, *, apart: bool) -> Iterator[Metric]:
    """Metrics whose terms are summed over rows of this grain: apart those of tokens that `token_sums.py` lacks."""
    for metric in CATALOGUE.values():
        mean = metric.mean
        if mean is not None and not mean.sum and metric.grain is grain and _is_apart(metric.key, grain) is apart:
            yield metric


def _denominators(grain: Grain, *, apart: bool) -> list[Denominator]:
    """What metrics of this grain are taken over; all rows are counted by the queries themselves."""
    used = (part for metric in CATALOGUE.values() for part in metric.over.chain if part.grain is grain)
    return list({over.count: over for over in used if over.where and _is_apart(over.count, grain) is apart}.values())


def _is_apart(name: str, grain: Grain) -> bool:
    return grain is Grain.TOKEN and name not in SUMS
