"""The SQL functions of a log-ratio, against many-digit arithmetic: no digits lost near 0, no NaN far from it."""

from collections.abc import Callable
from math import inf

import mpmath as mp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratioscope.analysis.runs.database import connect

Pair = tuple[float, float]

EDGES = (
    -inf, 0.0, 1e-4, -1e-4, 1e-2, -1e-2, 1.0, -1.0, 30.0, -30.0, 700.0, 709.0, 710.0, -745.0, -800.0, 1000.0, -1000.0,
)  # fmt: skip
log_ratios = st.one_of(st.floats(-1100, 1100), st.floats(-0.02, 0.02), st.floats(-1e-6, 1e-6), st.sampled_from(EDGES))
many = st.lists(log_ratios, min_size=40, max_size=80)
sweep = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))


def evaluate(function: str, pairs: list[Pair]) -> list[float]:
    """The SQL function of x (and y) for every pair."""
    with connect([]) as connection:
        rows = connection.execute(
            f"select {function} from (select unnest(?::double[]) as x, unnest(?::double[]) as y)",
            [[x for x, _ in pairs], [y for _, y in pairs]],
        ).fetchall()
    return [row[0] for row in rows]


def holds(function: str, exact: Callable[[float, float], mp.mpf], pairs: list[Pair], **tolerance: float) -> None:
    """The SQL function equals `exact`, which is evaluated with enough digits for (1e-300)^2 beside 1."""
    with mp.workdps(700):
        expected = [exact(x, y) for x, y in pairs]
        rounded = [
            float(value) if abs(value) < mp.mpf("1.797e308") else inf * int(mp.sign(value)) for value in expected
        ]
    assert evaluate(function, pairs) == pytest.approx(rounded, **({"rel": 1e-10, "abs": 1e-300} | tolerance))


def alone(values: list[float]) -> list[Pair]:
    return [(value, 0.0) for value in (*EDGES, *values)]


@given(many)
@sweep
def test_expm1_keeps_its_digits(values: list[float]) -> None:
    holds("expm1(x)", lambda x, _: mp.expm1(x), alone(values))


@given(many)
@sweep
def test_the_k3_term_keeps_its_digits_and_is_never_negative(values: list[float]) -> None:
    holds("expm1_minus(x)", lambda x, _: mp.expm1(x) - mp.mpf(x) if x > -inf else mp.inf, alone(values))
    assert min(evaluate("expm1_minus(x)", alone(values))) >= 0


@given(many)
@sweep
def test_the_reverse_term_keeps_its_digits_and_is_never_negative(values: list[float]) -> None:
    holds("reverse_kl(x)", lambda x, _: mp.mpf(x) * mp.exp(x) - mp.expm1(x) if x > -inf else mp.mpf(1), alone(values))
    assert min(evaluate("reverse_kl(x)", alone(values))) >= 0


@given(many)
@sweep
def test_the_log_of_the_deviation_is_finite_beyond_the_floating_point_range(values: list[float]) -> None:
    holds("log_abs_expm1(x)", lambda x, _: mp.log(abs(mp.expm1(x))) if x else -mp.inf, alone(values), abs=1e-12)


@given(many)
@sweep
def test_the_distance_of_two_ratios_keeps_its_digits(values: list[float]) -> None:
    """A small step from a large ratio, a step from a ratio of 0, and a step to one."""
    pairs = [(x, y) for x in EDGES for y in EDGES]
    pairs += list(zip(values, reversed(values), strict=True)) + [(x, x + 1e-9) for x in values]
    holds("ratio_distance(y, x)", lambda x, y: abs(mp.exp(y) - mp.exp(x)), pairs)
