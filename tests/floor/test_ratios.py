"""Log-ratios: differences of float32 logs in float64, sums over sequences, total variation."""

from math import exp, inf, log, prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ratioscope.rules.ratios import LEVELS, LogRatios, log_ratio, sequence_log_ratio, total_variation

logs = st.lists(st.tuples(st.floats(-5, 0), st.floats(-5, 0), st.floats(-5, 0)), min_size=1, max_size=40)
sweep = settings(deadline=None)


def test_logs_are_subtracted_in_double_precision() -> None:
    current, behavior = torch.tensor([-1.0000001, -inf]), torch.tensor([-20.123456, -1.0])
    found = log_ratio(current, behavior)
    assert found.dtype == torch.float64
    assert found.tolist() == [float(current[0]) - float(behavior[0]), -inf]


def test_the_incremental_ratio_is_against_the_current_policy() -> None:
    ratios = LogRatios(behavior=torch.tensor([0.5, -0.25]).double(), current=torch.tensor([0.25, 0.5]).double())
    assert ratios.incremental.tolist() == [0.25, -0.75]


@given(logs)
@sweep
def test_sequence_ratios_are_products_over_the_tokens_of_a_sequence(batch: list[tuple[float, float, float]]) -> None:
    values = torch.tensor([row[0] for row in batch], dtype=torch.float64)
    sequence = torch.arange(len(values)) % 3
    found = sequence_log_ratio(values, sequence, 4)
    for number in range(4):
        assert float(found[number]) == pytest.approx(sum(values[sequence == number].tolist()), abs=1e-12)


@given(logs)
@sweep
def test_total_variation_is_half_the_mean_distance_and_a_metric(batch: list[tuple[float, float, float]]) -> None:
    b, c, n = torch.tensor(batch, dtype=torch.float64).T
    rho, rho_new = (c - b).exp().numpy(), (n - b).exp().numpy()
    assert float(total_variation(c - b)) == pytest.approx(np.abs(rho - 1).mean() / 2, rel=1e-9, abs=1e-15)
    apart = float(total_variation(n - b, c - b))
    assert apart == pytest.approx(np.abs(rho_new - rho).mean() / 2, rel=1e-9, abs=1e-15)
    assert apart == float(total_variation(c - b, n - b)) and float(total_variation(c - b, c - b)) == 0
    assert float(total_variation(n - b)) <= apart + float(total_variation(c - b)) + 1e-9 * (1 + apart)


def test_total_variation_keeps_the_digits_of_nearly_equal_policies() -> None:
    assert float(total_variation(torch.tensor([1e-12, -1e-12], dtype=torch.float64))) == pytest.approx(5e-13, rel=1e-9)


def brute_force(level: str, values: list[float], sequence: list[int], token: int) -> float:
    """The log-ratio of one token at a level: its own, or that of its sequence as a product (S4 eq. 105, 107)."""
    own = [value for value, place in zip(values, sequence, strict=True) if place == sequence[token]]
    if level == "sequence":
        return log(prod(exp(value) for value in own))
    if level == "geometric":
        return log(prod(exp(value) for value in own) ** (1 / len(own)))
    return values[token]


@pytest.mark.parametrize("level", LEVELS)
@given(batch=st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 5)), max_size=40))
@sweep
def test_a_level_gives_every_token_the_ratio_of_what_it_belongs_to(
    level: str, batch: list[tuple[float, float, int]]
) -> None:
    """Sequences are in any order, of any length, and some numbers have none."""
    behavior, current, sequence = ([row[place] for row in batch] for place in range(3))
    ratios = LogRatios(torch.tensor(behavior).double(), torch.tensor(current).double())
    found = LEVELS[level].of(ratios, torch.tensor(sequence, dtype=torch.long))
    for values, column in ((ratios.behavior.tolist(), found.behavior), (ratios.current.tolist(), found.current)):
        expected = [brute_force(level, values, sequence, token) for token in range(len(batch))]
        assert column.tolist() == pytest.approx(expected, abs=1e-9)


@given(logs)
@sweep
def test_levels_agree_on_sequences_of_one_token(batch: list[tuple[float, float, float]]) -> None:
    b, c, _ = torch.tensor(batch, dtype=torch.float64).T
    alone = torch.arange(len(b))
    for level in LEVELS.values():
        found = level.of(LogRatios(b, c), alone)
        assert found.behavior.tolist() == b.tolist() and found.current.tolist() == c.tolist()


def test_the_incremental_ratio_of_a_level_is_the_level_of_the_incremental_ratio() -> None:
    b, c, _ = torch.randn(3, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sequence = torch.arange(60) // 7
    for level in LEVELS.values():
        direct = level.of(LogRatios(b - c, b - c), sequence).behavior
        assert level.of(LogRatios(b, c), sequence).incremental.tolist() == pytest.approx(direct.tolist(), abs=1e-12)
