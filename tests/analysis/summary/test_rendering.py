"""One term, four readers: SQL, what is compiled, numpy and torch agree, whatever the term."""

from math import isfinite, nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ratioscope.analysis.runs.database import connect
from ratioscope.analysis.summary.rendering import DEVIATIONS, python, sql
from ratioscope.catalogue import CATALOGUE
from ratioscope.metric import Grain
from ratioscope.terms import (
    Term,
    absent,
    case,
    column,
    constant,
    equal,
    evaluate_term,
    exp,
    expm1,
    finite,
    greatest,
    known,
    least,
    ln,
    log_size,
    true,
    unequal,
)

WHOLE, LACKING = ("log_rho", "log_engine"), ("log_rho_new", "advantage")
ROWS = {
    "log_rho": [0.0, 0.5, -1.25, 2.0, -0.003, 1e-5, -2.0, 0.75],
    "log_engine": [0.5, 0.5, 0.0, -1.0, 0.004, -1e-5, -2.0, 1.5],
    "log_rho_new": [0.25, nan, -1.25, 2.0, 0.0, nan, 1.0, -0.5],
    "advantage": [nan, nan, 1.0, -0.5, 0.0, 2.0, -1.0, 0.25],
}

constants = st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, 1 / 3, -0.125])
# Of exact arithmetic alone: what differs in the last digit must not decide.
exact = st.sampled_from([*map(column, ROWS), *(column(name) - 0.5 for name in ROWS), *(abs(column(n)) for n in ROWS)])
compared = st.builds(
    lambda made, x, y: made(x, y),
    st.sampled_from([Term.__lt__, Term.__le__, Term.__gt__, Term.__ge__, equal, unequal]),
    exact,
    st.one_of(exact, constants),
)
asked = st.builds(lambda made, x: made(x), st.sampled_from([known, absent, finite, constant]), exact)
simple = st.one_of(compared, asked)
conditions = st.one_of(simple, st.builds(Term.__and__, simple, simple))
of_whole = st.builds(
    lambda made, x, y: made(column(x), y), st.sampled_from([greatest, least]), st.sampled_from(WHOLE), constants
)


def larger(inside: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    two = st.sampled_from([Term.__add__, Term.__sub__, Term.__mul__])
    one = st.sampled_from([exp, expm1, abs, Term.__neg__, lambda x: ln(abs(x) + 1)])
    return st.one_of(
        st.builds(lambda made, x, y: made(x, y), two, inside, st.one_of(inside, constants)),
        st.builds(lambda made, x: made(x), one, inside),
        st.builds(lambda x, y: x / y, inside, constants.filter(bool)),
        st.builds(case, conditions, inside, st.one_of(inside, constants)),
    )


numbers = st.recursive(st.one_of(exact, of_whole), larger, max_leaves=8)


def by_sql(term: Term, rows: dict[str, list[float]]) -> list[float]:
    names = ", ".join(f"nullif(unnest(?::double[]), 'nan'::double) as {name}" for name in rows)
    clipped = ", advantage > 0 as clipped" if "advantage" in rows else ""
    text = f"select ({sql(term)})::double from (select *, {DEVIATIONS}{clipped} from (select {names}))"
    with connect([]) as connection:
        found = connection.execute(text, list(rows.values())).fetchall()
    return [nan if value is None else float(value) for (value,) in found]


def by_python(term: Term, rows: dict[str, list[float]]) -> list[float]:
    text = python(term, {column(name): name for name in rows})
    return [
        float(eval(text, {"np": np}, dict(zip(rows, row, strict=True)))) for row in zip(*rows.values(), strict=True)
    ]


def by_arrays(term: Term, rows: dict[str, list[float]], library: Any, found: dict[Term, Any]) -> list[float]:
    make = np.array if library is np else lambda values: torch.tensor(values, dtype=torch.float64)
    made = evaluate_term(term, {name: make(values) for name, values in rows.items()}, library, found)
    return [float(value) for value in made]


@given(st.one_of(numbers, conditions))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_all_readers_agree(term: Term) -> None:
    seen: dict[Term, Any] = {}
    with np.errstate(all="ignore"):
        expected = by_arrays(term, ROWS, np, seen)
        others = [by_arrays(term, ROWS, torch, {}), by_python(term, ROWS)]
    sizes = [float(np.nanmax(np.abs(np.append(values, 0.0)))) for values in seen.values()]
    assume(all(isfinite(size) and size < 1e9 for size in sizes))
    # In SQL a condition of what is unknown is unknown, where others say that it does not hold.
    others.append([float(value == 1) if term.is_condition else value for value in by_sql(term, ROWS)])
    for found in others:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * max(sizes, default=0), nan_ok=True)


TOKENS = ROWS | {
    "log_reference": [0.1, -0.5, 1.0, 0.0, -0.003, 2.5, -3.0, 0.75],
    "log_teacher": [-0.2, 0.3, nan, 0.0, 1.5, -2.0, 0.01, -0.4],
    "clip_side": [0.0, 1.0, -1.0, nan, 0.0, nan, 1.0, -1.0],
    "clipped": [nan, nan, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0],
    "gate": [1.0, 0.5, nan, 0.25, 0.0, 1.0, 1.0, 0.0],
    "entropy": [0.5, nan, 1.0, 0.0, 2.0, 0.1, 0.2, 0.3],
    "version_lag": [0.0, 1.0, 2.0, 3.0, nan, 1.0, 0.0, 0.0],
    **dict.fromkeys(("tv_current_behavior", "tv_new_current", "chi2_current_behavior"), [0.0, 0.1, 0.2, nan] * 2),
}
MEANS = [key for key, metric in CATALOGUE.items() if metric.mean and metric.grain is Grain.TOKEN]


@pytest.mark.parametrize("key", MEANS)
def test_all_readers_agree_of_a_metric_and_a_part_is_its_logarithm(key: str) -> None:
    mean = CATALOGUE[key].mean
    assert mean
    term, rows = mean.term, TOKENS
    with np.errstate(all="ignore"):
        expected = by_arrays(term, rows, np, {})
        sizes = np.exp(by_arrays(log_size(term), rows, np, {}))
    wanted = expected if term.is_condition else [value for value in expected if not np.isnan(value)]
    assert len(wanted) > 3
    for found in (by_arrays(term, rows, torch, {}), by_python(term, rows)):
        assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)
    there = {name: values for name, values in rows.items() if name != "clipped"}
    by_query = [float(value == 1) if term.is_condition else value for value in by_sql(term, there)]
    assert by_query == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert sizes.tolist() == pytest.approx(np.abs(expected).tolist(), rel=1e-12, nan_ok=True)


def test_a_column_that_is_true_or_not_is_a_condition() -> None:
    assert true(column("clipped")).is_condition and not column("clipped").is_condition
