"""Gates: each against its formula written out token by token, and properties that every gate of the catalogue has."""

from math import cosh, exp, inf, log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.rules.gates import (
    GATES,
    Gate,
    GateKind,
    adaptive,
    incremental,
    masked,
    one_side,
    one_side_log,
    ring,
    soft,
    two_side,
)
from ratioscope.rules.parameters import PARAMETERS as RULE_PARAMETERS
from ratioscope.rules.parameters import Judged, inside_out
from ratioscope.rules.ratios import LogRatios
from tests.oracles.gates import FORMULAS, PARAMETERS, Token, far, soft_value, sweep, tensors, tokens

every_gate = pytest.mark.parametrize("name", GATES)
every_hard_gate = pytest.mark.parametrize(
    "name", [gate for gate, row in GATES.items() if row.kind is not GateKind.SOFT]
)


def side_at(name: str, rho: float, advantage: float, rho_k: float = 1.0, **parameters: float) -> int:
    ratios = LogRatios(torch.tensor([rho]).double().log(), torch.tensor([rho_k]).double().log())
    return int(GATES[name].function(ratios, torch.tensor([advantage]), **parameters).side)


def test_every_gate_has_parameters_and_a_formula_here() -> None:
    assert GATES.keys() == PARAMETERS.keys() == FORMULAS.keys()


@every_gate
def test_a_gate_is_its_formula(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        log_ratios, advantage = rng.normal(0, 0.6, (200, 2)), rng.choice([-1.5, 0, 0.5], 200)
        batch = [(b, c, a) for (b, c), a in zip(log_ratios, advantage, strict=True)]
        scale = rng.uniform(0.5, 1.5)
        parameters = {key: value * scale for key, value in PARAMETERS[name].items()}
        expected = [FORMULAS[name](exp(b), exp(c), a, **parameters) for b, c, a in batch]
        gate = GATES[name].function(*tensors(batch), **parameters)
        assert gate.side.tolist() == expected
        values = [
            soft_value(exp(b), a, **parameters) if name == "soft" else 1.0 - abs(side)
            for (b, _, a), side in zip(batch, expected, strict=True)
        ]
        assert gate.value.tolist() == pytest.approx(values, rel=1e-9, abs=1e-12)


@every_gate
def test_the_row_of_a_gate_says_what_the_gate_does(name: str) -> None:
    row, rng = GATES[name], np.random.default_rng(2)
    rho, rho_k, advantage = rng.normal(0, 1, 400), rng.normal(0, 1, 400), rng.choice([-1.0, 1.0], 400)
    gate, moved = (
        row.function(*tensors(list(zip(rho, current, advantage, strict=True))), **PARAMETERS[name])
        for current in (rho_k, rng.permutation(rho_k))
    )
    assert row.stops == bool(gate.clipped.any()) and (row.kind is GateKind.OPEN) == bool((gate.value == 1).all())
    assert (row.judged is Judged.STEP) == bool((gate.side != moved.side).any())
    pulls_back = torch.tensor(advantage * np.where(row.judged is Judged.STEP, rho - rho_k, rho) < 0)
    assert (row.kind is GateKind.MASK) == bool((gate.clipped & pulls_back).any())
    assert row.name == name and row.words and (row.function.__doc__ or "").split("\n")[0].endswith((".", ").", ":"))


@every_gate
@given(batch=tokens, seed=st.integers(0, 1000))
@sweep
def test_a_gate_does_not_look_at_a_tokens_neighbours(name: str, batch: list[Token], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(batch))
    whole = GATES[name].function(*tensors(batch), **PARAMETERS[name])
    permuted = GATES[name].function(*tensors([batch[i] for i in order]), **PARAMETERS[name])
    assert permuted.side.tolist() == whole.side[order].tolist()
    # The last digit of a sigmoid depends on the token's place in the processor's vector.
    assert permuted.value.tolist() == pytest.approx(whole.value[order].tolist(), rel=1e-14)
    alone = GATES[name].function(*tensors(batch[:1]), **PARAMETERS[name])
    assert float(alone.value[0]) == pytest.approx(float(whole.value[0]), rel=1e-14)


@every_gate
@given(batch=tokens)
@sweep
def test_a_gate_is_between_nothing_and_everything(name: str, batch: list[Token]) -> None:
    gate = GATES[name].function(*tensors(batch), **PARAMETERS[name])
    assert isinstance(gate, Gate) and gate.value.shape == gate.side.shape == (len(batch),)
    assert gate.value.dtype == torch.float64 and gate.side.dtype == torch.int8
    assert bool(((gate.value >= 0) & (gate.value <= 1)).all())
    assert set(gate.side.tolist()) <= {-1, 0, 1}


@every_hard_gate
@given(batch=tokens)
@sweep
def test_a_hard_gate_is_closed_exactly_where_it_clips(name: str, batch: list[Token]) -> None:
    gate = GATES[name].function(*tensors(batch), **PARAMETERS[name])
    assert (gate.clipped == (gate.value == 0)).all() and (gate.clipped == (gate.side != 0)).all()
    assert bool(((gate.value == 0) | (gate.value == 1)).all())


@every_gate
@given(batch=tokens)
@sweep
def test_a_token_without_advantage_is_never_clipped(name: str, batch: list[Token]) -> None:
    gate = GATES[name].function(*tensors([(b, c, 0.0) for b, c, _ in batch]), **PARAMETERS[name])
    assert not gate.clipped.any()
    assert GATES[name].kind is GateKind.SOFT or bool((gate.value == 1).all())


@every_gate
@given(batch=tokens)
@sweep
def test_on_policy_nothing_is_clipped(name: str, batch: list[Token]) -> None:
    gate = GATES[name].function(*tensors([(0.0, 0.0, a) for _, _, a in batch]), **PARAMETERS[name])
    assert not gate.clipped.any() and bool((gate.value == 1).all())


@every_gate
@given(batch=st.lists(st.tuples(far, far, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=40))
@sweep
def test_no_ratio_is_too_large_for_a_gate(name: str, batch: list[Token]) -> None:
    """exp(710) is infinite; gates still say something between nothing and everything."""
    gate = GATES[name].function(*tensors(batch), **PARAMETERS[name])
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


def test_a_parameter_may_be_its_lowest_value_where_that_is_not_excluded() -> None:
    for row in RULE_PARAMETERS.values():
        assert row.allows(row.low) is not row.above and not row.allows(row.low - 1e-9)
        assert row.high == inf or (row.allows(row.high) and not row.allows(row.high + 1))


def test_an_outer_bound_inside_of_the_inner_one_is_named() -> None:
    bounds = {"epsilon_low": 0.2, "outer_low": 0.1}
    assert inside_out(bounds) == ("epsilon_low", "outer_low") == inside_out(bounds | {"epsilon_high": 0.2})
    assert inside_out({"epsilon_low": 0.2, "outer_low": 0.2}) is inside_out({"outer_low": 0.1}) is None


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
