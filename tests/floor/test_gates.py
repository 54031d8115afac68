"""Gates: each against its formula written out token by token, and properties that every gate of the catalogue has."""

from collections.abc import Callable
from math import cosh, exp, inf, log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ratioscope.gates import (
    FILTERS,
    GATES,
    SEQUENCE_FILTERS,
    Gate,
    Rows,
    adaptive,
    incremental,
    masked,
    one_side,
    one_side_log,
    ring,
    soft,
    two_side,
)
from ratioscope.ratios import LEVELS, LogRatios

Formula = Callable[..., int]
Token = tuple[float, float, float]

# Parameters that every gate is swept with; a new gate needs a line here and a formula below.
PARAMETERS: dict[str, dict[str, float]] = {
    "none": {},
    "one_side": {"epsilon_low": 0.2, "epsilon_high": 0.28},
    "two_side": {"epsilon_low": 0.2, "epsilon_high": 0.28},
    "ring": {"epsilon_low": 0.2, "epsilon_high": 0.28, "outer_low": 0.6, "outer_high": 2.0},
    "adaptive": {"epsilon": 0.2},
    "incremental": {"epsilon": 0.2},
    "one_side_log": {"epsilon_log": 0.4},
    "masked": {"cap": 2.0},
    "soft": {"tau_positive": 1.0, "tau_negative": 1.05},
}


def none_side(rho: float, rho_k: float, a: float) -> int:
    return 0


def one_side_side(rho: float, rho_k: float, a: float, epsilon_low: float, epsilon_high: float) -> int:
    """Mask of S3 eq. 8: keep A > 0 with rho <= 1 + eps_high, and A < 0 with rho >= 1 - eps_low."""
    if a > 0 and not rho <= 1 + epsilon_high:
        return 1
    if a < 0 and not rho >= 1 - epsilon_low:
        return -1
    return 0


def two_side_side(rho: float, rho_k: float, a: float, epsilon_low: float, epsilon_high: float) -> int:
    """S3 eq. 18: keep 1 - eps_low <= rho <= 1 + eps_high."""
    if a == 0 or 1 - epsilon_low <= rho <= 1 + epsilon_high:
        return 0
    return 1 if rho > 1 else -1


def ring_side(
    rho: float, rho_k: float, a: float, epsilon_low: float, epsilon_high: float, outer_low: float, outer_high: float
) -> int:
    """S3 eq. 19: the band, or A > 0 with rho <= 1 - outer_low, or A < 0 with rho >= 1 + outer_high."""
    in_band = 1 - epsilon_low <= rho <= 1 + epsilon_high
    if a == 0 or in_band or (a > 0 and rho <= 1 - outer_low) or (a < 0 and rho >= 1 + outer_high):
        return 0
    return 1 if rho > 1 else -1


def adaptive_side(rho: float, rho_k: float, a: float, epsilon: float) -> int:
    """S0 5.3, Method One: PPO's mask with the band [rho_k - eps, rho_k + eps]."""
    if a > 0 and rho - rho_k > epsilon:
        return 1
    if a < 0 and rho - rho_k < -epsilon:
        return -1
    return 0


def incremental_side(rho: float, rho_k: float, a: float, epsilon: float) -> int:
    """S0 5.3, Method Two: PPO's mask on r = rho / rho_k."""
    if a > 0 and rho / rho_k > 1 + epsilon:
        return 1
    if a < 0 and rho / rho_k < 1 - epsilon:
        return -1
    return 0


def one_side_log_side(rho: float, rho_k: float, a: float, epsilon_log: float) -> int:
    """Zhao et al. 2025, eq. 4: PPO's mask with the band [exp(-eps), exp(eps)]."""
    if a > 0 and log(rho) > epsilon_log:
        return 1
    if a < 0 and log(rho) < -epsilon_log:
        return -1
    return 0


def masked_side(rho: float, rho_k: float, a: float, cap: float) -> int:
    """S1 7: what has a ratio above the cap is left out, whatever the advantage's sign."""
    return 1 if a != 0 and rho > cap else 0


def soft_side(rho: float, rho_k: float, a: float, tau_positive: float, tau_negative: float) -> int:
    return 0


def soft_value(rho: float, a: float, tau_positive: float, tau_negative: float) -> float:
    """S4 eq. 118, 120: sech^2(tau (rho - 1) / 2)."""
    tau = tau_positive if a > 0 else tau_negative
    return 1 / cosh(tau * (rho - 1) / 2) ** 2


FORMULAS: dict[str, Formula] = {
    "none": none_side,
    "one_side": one_side_side,
    "two_side": two_side_side,
    "ring": ring_side,
    "adaptive": adaptive_side,
    "incremental": incremental_side,
    "one_side_log": one_side_log_side,
    "masked": masked_side,
    "soft": soft_side,
}
HARD = sorted(GATES.keys() - {"soft"})

tokens = st.lists(
    st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.one_of(st.just(0.0), st.floats(-2, 2))), min_size=1, max_size=30
)
every_gate = pytest.mark.parametrize("name", GATES)
every_hard_gate = pytest.mark.parametrize("name", HARD)
sweep = settings(deadline=None, max_examples=30)


def tensors(batch: list[Token]) -> tuple[LogRatios, Tensor]:
    columns = torch.tensor(batch, dtype=torch.float64).T
    return LogRatios(behavior=columns[0], current=columns[1]), columns[2]


def side_at(name: str, rho: float, advantage: float, rho_k: float = 1.0, **parameters: float) -> int:
    ratios = LogRatios(torch.tensor([rho]).double().log(), torch.tensor([rho_k]).double().log())
    return int(GATES[name](ratios, torch.tensor([advantage]), **parameters).side)


def test_every_gate_has_parameters_and_a_formula_here() -> None:
    assert GATES.keys() == PARAMETERS.keys() == FORMULAS.keys()


@every_gate
def test_a_gate_is_its_formula(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        log_ratios, advantage = rng.normal(0, 0.6, (200, 2)), rng.choice([-1.5, 0, 0.5], 200)
        batch = [(b, c, a) for (b, c), a in zip(log_ratios, advantage, strict=True)]
        scale = rng.uniform(0.5, 1.5)
        parameters = {key: value * scale for key, value in PARAMETERS[name].items()}
        expected = [FORMULAS[name](exp(b), exp(c), a, **parameters) for b, c, a in batch]
        gate = GATES[name](*tensors(batch), **parameters)
        assert gate.side.tolist() == expected
        values = [
            soft_value(exp(b), a, **parameters) if name == "soft" else 1.0 - abs(side)
            for (b, _, a), side in zip(batch, expected, strict=True)
        ]
        assert gate.value.tolist() == pytest.approx(values, rel=1e-9, abs=1e-12)


@every_gate
@given(batch=tokens, seed=st.integers(0, 1000))
@sweep
def test_a_gate_does_not_look_at_a_tokens_neighbours(name: str, batch: list[Token], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(batch))
    whole = GATES[name](*tensors(batch), **PARAMETERS[name])
    permuted = GATES[name](*tensors([batch[i] for i in order]), **PARAMETERS[name])
    assert permuted.side.tolist() == whole.side[order].tolist()
    # The last digit of a sigmoid depends on the token's place in the processor's vector.
    assert permuted.value.tolist() == pytest.approx(whole.value[order].tolist(), rel=1e-14)
    alone = GATES[name](*tensors(batch[:1]), **PARAMETERS[name])
    assert float(alone.value[0]) == pytest.approx(float(whole.value[0]), rel=1e-14)


@every_gate
@given(batch=tokens)
@sweep
def test_a_gate_is_between_nothing_and_everything(name: str, batch: list[Token]) -> None:
    gate = GATES[name](*tensors(batch), **PARAMETERS[name])
    assert isinstance(gate, Gate) and gate.value.shape == gate.side.shape == (len(batch),)
    assert gate.value.dtype == torch.float64 and gate.side.dtype == torch.int8
    assert bool(((gate.value >= 0) & (gate.value <= 1)).all())
    assert set(gate.side.tolist()) <= {-1, 0, 1}


@every_hard_gate
@given(batch=tokens)
@sweep
def test_a_hard_gate_is_closed_exactly_where_it_clips(name: str, batch: list[Token]) -> None:
    gate = GATES[name](*tensors(batch), **PARAMETERS[name])
    assert (gate.clipped == (gate.value == 0)).all() and (gate.clipped == (gate.side != 0)).all()
    assert bool(((gate.value == 0) | (gate.value == 1)).all())


@every_gate
@given(batch=tokens)
@sweep
def test_a_token_without_advantage_is_never_clipped(name: str, batch: list[Token]) -> None:
    gate = GATES[name](*tensors([(b, c, 0.0) for b, c, _ in batch]), **PARAMETERS[name])
    assert not gate.clipped.any()
    assert name == "soft" or bool((gate.value == 1).all())


@every_gate
@given(batch=tokens)
@sweep
def test_on_policy_nothing_is_clipped(name: str, batch: list[Token]) -> None:
    gate = GATES[name](*tensors([(0.0, 0.0, a) for _, _, a in batch]), **PARAMETERS[name])
    assert not gate.clipped.any() and bool((gate.value == 1).all())


far = st.one_of(st.floats(-1000, 1000), st.sampled_from([-1000.0, -710.0, -1e-300, 0.0, 709.0, 710.0, 1000.0]))


@every_gate
@given(batch=st.lists(st.tuples(far, far, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=40))
@sweep
def test_no_ratio_is_too_large_for_a_gate(name: str, batch: list[Token]) -> None:
    """exp(710) is infinite; gates still say something between nothing and everything."""
    gate = GATES[name](*tensors(batch), **PARAMETERS[name])
    assert not gate.value.isnan().any() and bool(((gate.value >= 0) & (gate.value <= 1)).all())
    assert bool((gate.side.abs() <= 1).all())


def test_a_step_between_two_ratios_that_overflow_is_still_a_step() -> None:
    """rho = exp(900) is above rho_k + epsilon = exp(800) + epsilon, although both are infinite as numbers."""
    up, down, same = (900.0, 800.0, 1.0), (800.0, 900.0, -1.0), (800.0, 800.0, 1.0)
    assert adaptive(*tensors([up, down, same]), epsilon=0.2).side.tolist() == [1, -1, 0]
    assert incremental(*tensors([up, down, same]), epsilon=0.2).side.tolist() == [1, -1, 0]


log_bounds = st.floats(1e-3, 0.6)


@given(log_bounds)
@sweep
def test_bounds_are_inclusive(bound: float) -> None:
    """At the bound itself a token is kept; the next floating-point number beyond it is stopped."""
    for log_rho, sign in ((bound, 1.0), (-bound, -1.0)):
        beyond = float(np.nextafter(log_rho, sign * inf)) + sign * 1e-12
        # The rounded exponential of torch itself, so that "at the bound" is exact.
        epsilon = abs(float(torch.tensor(log_rho, dtype=torch.float64).exp()) - 1)
        both = {"epsilon_low": epsilon, "epsilon_high": epsilon}
        for gate, parameters in ((one_side, both), (two_side, both), (adaptive, {"epsilon": epsilon})):
            kept, stopped = (gate(*tensors([(x, 0.0, sign)]), **parameters).side for x in (log_rho, beyond))
            assert (int(kept), int(stopped)) == (0, int(sign))
        width = {"epsilon": abs(float(torch.tensor(log_rho, dtype=torch.float64).expm1()))}
        kept, stopped = (incremental(*tensors([(x, 0.0, sign)]), **width).side for x in (log_rho, beyond))
        assert (int(kept), int(stopped)) == (0, int(sign))
        band = {"epsilon_log": bound}
        kept, stopped = (one_side_log(*tensors([(x, 0.0, sign)]), **band).side for x in (log_rho, beyond))
        assert (int(kept), int(stopped)) == (0, int(sign))


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_a_ratio_equal_to_the_cap_is_not_masked(advantage: float) -> None:
    for cap in (1.0, 2.0, 5.0):
        kept, stopped = (masked(*tensors([(x, 0.0, advantage)]), cap=cap) for x in (log(cap), log(cap) + 1e-12))
        assert (int(kept.side), int(stopped.side)) == (0, 1)


@given(tokens)
@sweep
def test_the_soft_gate_is_open_at_one_and_never_shut(batch: list[Token]) -> None:
    gate = soft(*tensors(batch), tau_positive=1.0, tau_negative=1.05)
    assert bool(((gate.value > 0) & (gate.value <= 1)).all()) and not gate.clipped.any()
    at_one = soft(*tensors([(0.0, c, a) for _, c, a in batch]), tau_positive=1.0, tau_negative=1.05)
    assert bool((at_one.value == 1).all())


@pytest.mark.parametrize("distance", [1e-4, 0.1, 1.0, 10.0, 30.0, 100.0])
def test_the_soft_gate_keeps_its_digits_far_from_one(distance: float) -> None:
    """A token at rho = 40 still has a gradient, tiny and positive."""
    gate = soft(*tensors([(float(np.log1p(distance)), 0.0, 1.0)]), tau_positive=1.0, tau_negative=1.05)
    assert float(gate.value) == pytest.approx(1 / cosh(distance / 2) ** 2, rel=1e-9, abs=0)


@given(tokens)
@sweep
def test_a_soft_gate_with_a_higher_temperature_lets_less_through(batch: list[Token]) -> None:
    warm, hot = (soft(*tensors(batch), tau_positive=tau, tau_negative=2 * tau).value for tau in (0.5, 1.0))
    assert bool((hot <= warm).all())


def test_the_outer_bounds_of_the_ring_are_inclusive() -> None:
    outside = {"epsilon_low": 0.2, "epsilon_high": 0.2, "outer_low": 0.5, "outer_high": 1.0}
    assert side_at("ring", 0.5, 1.0, **outside) == 0 and side_at("ring", 0.51, 1.0, **outside) == -1
    assert side_at("ring", 2.0, -1.0, **outside) == 0 and side_at("ring", 1.99, -1.0, **outside) == 1
    assert side_at("ring", 0.5, -1.0, **outside) == -1 and side_at("ring", 2.0, 1.0, **outside) == 1


@given(tokens)
@sweep
def test_a_ring_without_an_outside_is_the_two_sided_band(batch: list[Token]) -> None:
    band = {"epsilon_low": 0.2, "epsilon_high": 0.28}
    infinite = ring(*tensors(batch), **band, outer_low=inf, outer_high=inf)
    assert infinite.side.tolist() == two_side(*tensors(batch), **band).side.tolist()


@given(tokens)
@sweep
def test_methods_one_and_two_are_ppo_where_the_data_are_fresh(batch: list[Token]) -> None:
    ratios, advantage = tensors([(b, 0.0, a) for b, _, a in batch])
    ppo = one_side(ratios, advantage, epsilon_low=0.2, epsilon_high=0.2).side.tolist()
    assert adaptive(ratios, advantage, epsilon=0.2).side.tolist() == ppo
    assert incremental(ratios, advantage, epsilon=0.2).side.tolist() == ppo


@given(tokens)
@sweep
def test_an_infinite_band_clips_nothing(batch: list[Token]) -> None:
    assert not one_side(*tensors(batch), epsilon_low=inf, epsilon_high=inf).clipped.any()
    assert not two_side(*tensors(batch), epsilon_low=inf, epsilon_high=inf).clipped.any()
    assert not adaptive(*tensors(batch), epsilon=inf).clipped.any()
    assert not incremental(*tensors(batch), epsilon=inf).clipped.any()
    assert not one_side_log(*tensors(batch), epsilon_log=inf).clipped.any()
    assert not masked(*tensors(batch), cap=inf).clipped.any()


@given(tokens)
@sweep
def test_the_one_sided_gate_stops_no_more_than_the_two_sided_one(batch: list[Token]) -> None:
    band = {"epsilon_low": 0.2, "epsilon_high": 0.28}
    one, two = one_side(*tensors(batch), **band), two_side(*tensors(batch), **band)
    assert not (one.clipped & ~two.clipped).any()


def test_what_a_gate_stops_is_what_would_go_further() -> None:
    """A > 0 pushes the ratio up, A < 0 down: only the push away from 1 is stopped."""
    band = {"epsilon_low": 0.2, "epsilon_high": 0.2}
    sides = {(rho, a): side_at("one_side", rho, a, **band) for rho in (0.5, 1.0, 1.5) for a in (-1.0, 1.0)}
    assert sides == {(0.5, -1.0): -1, (0.5, 1.0): 0, (1.0, -1.0): 0, (1.0, 1.0): 0, (1.5, -1.0): 0, (1.5, 1.0): 1}


# Filters ------------------------------------------------------------------------------------------------------------

# log rho, log rho_k, advantage, sequence, log-probability when sampled, version lag.
Row = tuple[float, float, float, int, float, int]

FILTER_PARAMETERS: dict[str, dict[str, float]] = {
    "opposite_sign": {"delta": 0.1},
    "probability_difference": {"difference_low": 0.1, "difference_high": 0.15},
    "stale": {"epsilon_stale": 0.3},
    "window": {"max_lag": 2},
    **{name: {"threshold": 0.05} for name in FILTERS if name.startswith("reject_")},
}
OF_ESTIMATOR: dict[str, Callable[[float], float]] = {
    "k1": lambda x: -x, "k2": lambda x: x * x / 2, "k3": lambda x: exp(x) - 1 - x,
}  # fmt: skip
OVER: dict[str, Callable[[list[float]], float]] = {
    "sum": sum, "max": max, "mean": lambda values: sum(values) / len(values),
}  # fmt: skip


def filter_side(name: str, batch: list[Row], place: int, **p: float) -> int:
    """Every filter, a token at a time."""
    x, x_k, a, sequence, b, _ = batch[place]
    mates = [row for row in batch if row[3] == sequence]
    if a == 0:
        return 0
    if name == "opposite_sign":
        return -1 if a < 0 and sum(-row[0] for row in mates) / len(mates) > p["delta"] else 0
    if name == "probability_difference":
        moved = exp(b + x) - exp(b)
        return 1 if a > 0 and moved > p["difference_high"] else -1 if a < 0 and moved < -p["difference_low"] else 0
    if name == "stale":
        return 0 if abs(exp(x_k) - 1) <= p["epsilon_stale"] else 1 if x_k > 0 else -1
    if name == "window":
        return -1 if max(row[5] for row in mates) > p["max_lag"] else 0
    _, over, estimator = name.split("_")
    chosen = [row[0] for row in mates] if over != "token" else [x]
    divergence = OVER.get(over, sum)([OF_ESTIMATOR[estimator](value) for value in chosen])
    return 0 if divergence <= p["threshold"] else 1 if sum(chosen) > 0 else -1


def rows_of(batch: list[Row]) -> Rows:
    x, x_k, a, sequence, b, lag = zip(*batch, strict=True)
    ratios = LogRatios(torch.tensor(x, dtype=torch.float64), torch.tensor(x_k, dtype=torch.float64))
    return Rows(ratios, torch.tensor(a), torch.tensor(sequence), torch.tensor(b), torch.tensor(lag))


def random_rows(seed: int, n: int = 60, spread: float = 0.4) -> list[Row]:
    rng = np.random.default_rng(seed)
    steps = rng.normal(0, spread, (n, 2)) * rng.choice([0.1, 1.0], (n, 1))
    return [
        (float(x), float(y), float(rng.choice([-1.5, 0, 0.5])), int(rng.integers(0, 12)),
         float(-rng.exponential()), int(rng.integers(0, 4)))
        for x, y in steps
    ]  # fmt: skip


every_filter = pytest.mark.parametrize("name", FILTERS)
seeds = pytest.mark.parametrize("seed", range(3))


def test_every_filter_has_parameters_here_and_a_name_of_its_own() -> None:
    assert FILTERS.keys() == FILTER_PARAMETERS.keys() and not FILTERS.keys() & GATES.keys()
    assert SEQUENCE_FILTERS.items() <= FILTERS.items()
    assert all(stop.__doc__ for stop in FILTERS.values())


@every_filter
@seeds
def test_a_filter_is_its_formula(name: str, seed: int) -> None:
    batch = random_rows(seed)
    found = FILTERS[name](rows_of(batch), **FILTER_PARAMETERS[name])
    expected = [filter_side(name, batch, place, **FILTER_PARAMETERS[name]) for place in range(len(batch))]
    assert found.side.tolist() == expected and any(expected) and not all(expected)
    assert found.value.tolist() == [1.0 - abs(side) for side in expected]
    assert found.value.dtype == torch.float64 and found.side.dtype == torch.int8


@every_filter
@seeds
def test_a_filter_does_not_look_at_the_order_of_the_tokens(name: str, seed: int) -> None:
    batch = random_rows(seed)
    order = np.random.default_rng(seed).permutation(len(batch))
    before = FILTERS[name](rows_of(batch), **FILTER_PARAMETERS[name]).side[order].tolist()
    assert FILTERS[name](rows_of([batch[place] for place in order]), **FILTER_PARAMETERS[name]).side.tolist() == before


@every_filter
@seeds
def test_a_filter_with_a_wider_bound_drops_a_subset(name: str, seed: int) -> None:
    rows = rows_of(random_rows(seed, spread=1.0))
    previous = torch.ones(60, dtype=torch.bool)
    for scale in (0.0, 0.5, 1.0, 2.0, inf):
        parameters = {key: value * scale if scale else 0.0 for key, value in FILTER_PARAMETERS[name].items()}
        dropped = FILTERS[name](rows, **parameters).clipped
        assert not (dropped & ~previous).any()
        previous = dropped
    assert not previous.any()


@every_filter
@seeds
def test_fresh_tokens_pass_every_filter(name: str, seed: int) -> None:
    batch = [(0.0, 0.0, a, sequence, b, 0) for _, _, a, sequence, b, _ in random_rows(seed)]
    assert not FILTERS[name](rows_of(batch), **dict.fromkeys(FILTER_PARAMETERS[name], 0.0)).clipped.any()


@every_filter
def test_a_token_without_advantage_passes_every_filter(name: str) -> None:
    batch = [(x, y, 0.0, sequence, b, 9) for x, y, _, sequence, b, _ in random_rows(0, spread=3.0)]
    assert not FILTERS[name](rows_of(batch), **FILTER_PARAMETERS[name]).clipped.any()


@every_filter
@given(batch=st.lists(st.tuples(far, far, st.sampled_from([-1.0, 0.0, 1.0]), st.integers(0, 3), st.floats(-900, 0), st.integers(0, 9)), min_size=1))  # fmt: skip  # noqa: E501
@sweep
def test_no_ratio_is_too_large_for_a_filter(name: str, batch: list[Row]) -> None:
    found = FILTERS[name](rows_of(batch), **FILTER_PARAMETERS[name])
    assert set(found.value.tolist()) <= {0.0, 1.0} and set(found.side.tolist()) <= {-1, 0, 1}


def test_the_bounds_of_filters_are_inclusive() -> None:
    half, two = log(0.5), log(2.0)
    for name, x, advantage, parameters in (
        ("stale", two, 1.0, {"epsilon_stale": 1.0}),
        ("stale", half, 1.0, {"epsilon_stale": 0.5}),
        ("probability_difference", two, 1.0, {"difference_low": 0.0, "difference_high": 0.25}),
        ("probability_difference", half, -1.0, {"difference_low": 0.125, "difference_high": 0.0}),
        ("opposite_sign", -0.25, -1.0, {"delta": 0.25}),
        ("reject_token_k1", -0.25, 1.0, {"threshold": 0.25}),
        ("reject_sum_k2", 0.5, 1.0, {"threshold": 0.125}),
        ("window", 0.0, 1.0, {"max_lag": 3}),
    ):
        rows = rows_of([(x, x, advantage, 0, log(0.25), 3)])
        assert not FILTERS[name](rows, **parameters).clipped.any(), name
        tighter = {key: value - 1e-6 for key, value in parameters.items()}
        assert FILTERS[name](rows, **tighter).clipped.all(), name


def test_a_ratio_of_0_is_rejected_by_every_divergence() -> None:
    rows = rows_of([(-inf, -inf, 1.0, 0, -1.0, 0), (0.1, 0.1, 1.0, 0, -1.0, 0)])
    for over in ("sum", "mean", "max"):
        for estimator in OF_ESTIMATOR:
            assert FILTERS[f"reject_{over}_{estimator}"](rows, threshold=1e6).side.tolist() == [-1, -1]


def test_rejection_by_k1_is_a_lower_bound_on_the_ratio_of_the_level() -> None:
    """The sum of k1 is minus the log of the product, its mean minus the log of the geometric mean."""
    rows = rows_of(random_rows(5))
    for level, over in (("token", "token"), ("sequence", "sum"), ("geometric", "mean")):
        ratios = LEVELS[level](rows.ratios, rows.sequence)
        below = two_side(ratios, rows.advantage, epsilon_low=1 - exp(-0.1), epsilon_high=inf)
        assert FILTERS[f"reject_{over}_k1"](rows, threshold=0.1).side.tolist() == below.side.tolist()
