"""Log-ratios: differences of float32 logs in float64, sums over sequences, total variation."""

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ratioscope.ratios import LogRatios, log_ratio, sequence_log_ratio, total_variation

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
