"""Importance weights: each against its formula written out token by token, and properties that every weight has."""

from collections.abc import Callable
from math import exp, inf, log, prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ratioscope.rules.parameters import Judged
from ratioscope.rules.ratios import LEVELS, LogRatios
from ratioscope.rules.weights import WEIGHTS

# rho, advantage and sequence of each token of a batch.
Batch = list[tuple[float, float, int]]
Formula = Callable[..., float]

# Parameters that every weight is swept with; a new weight needs a line here and a formula below.
PARAMETERS: dict[str, dict[str, float]] = {
    "none": {},
    "ratio": {},
    "incremental": {},
    "truncated": {"cap": 2.0},
    "upper_clipped": {"epsilon_high": 0.5},
    "geometric_of_clipped": {"epsilon_log": 0.4},
    "truncated_staleness": {"cap": 2.0},
    "truncated_sequence_staleness": {"cap": 2.0},
    "clamped": {"floor": 0.4, "cap": 2.0},
    "tapered": {},
    "gamma_kernel": {"power_positive": 2.0, "decay_positive": 3.0, "power_negative": 3.0, "decay_negative": 2.0},
}


def none(batch: Batch, token: int) -> float:
    return 1.0


def ratio(batch: Batch, token: int) -> float:
    """rho itself (S4 eq. 106)."""
    return batch[token][0]


def incremental(batch: Batch, token: int) -> float:
    """pi_theta / pi_k; here pi_k is the behavior policy."""
    return batch[token][0]


def stepped(batch: Batch, token: int, cap: float) -> float:
    """pi_theta / pi_k, and min(1, C) of data without staleness."""
    return batch[token][0] * min(1.0, cap)


def truncated(batch: Batch, token: int, cap: float) -> float:
    """min(rho, C) (S1 7)."""
    return min(batch[token][0], cap)


def upper_clipped(batch: Batch, token: int, epsilon_high: float) -> float:
    """min(rho, 1 + eps_high): CISPO has no lower bound (MiniMax-M1 eq. 4)."""
    return min(batch[token][0], 1 + epsilon_high)


def geometric_of_clipped(batch: Batch, token: int, epsilon_log: float) -> float:
    """(prod_t clip(rho_t))^(1/T), clipped above where A > 0 and below elsewhere (Zhao et al. 2025, eq. 4)."""
    kept = [
        min(rho, exp(epsilon_log)) if advantage > 0 else max(rho, exp(-epsilon_log))
        for rho, advantage, sequence in batch
        if sequence == batch[token][2]
    ]
    return prod(kept) ** (1 / len(kept))


def clamped(batch: Batch, token: int, floor: float, cap: float) -> float:
    """clip(rho, c, C)."""
    return max(floor, min(batch[token][0], cap))


def tapered(batch: Batch, token: int) -> float:
    """Le Roux et al. 2025: [rho]_0^1 of negative examples, 1 of the others."""
    return min(batch[token][0], 1.0) if batch[token][1] < 0 else 1.0


def gamma_kernel(
    batch: Batch, token: int, power_positive: float, decay_positive: float, power_negative: float, decay_negative: float
) -> float:
    """e^lambda rho^k e^(-lambda rho) with k and lambda of the advantage's sign (Shen et al. 2026)."""
    rho, advantage, _ = batch[token]
    k, decay = (power_positive, decay_positive) if advantage >= 0 else (power_negative, decay_negative)
    return exp(decay) * rho**k * exp(-decay * rho)


FORMULAS: dict[str, Formula] = {
    formula.__name__: formula
    for formula in (
        *(none, ratio, incremental, truncated, upper_clipped, geometric_of_clipped),
        *(clamped, tapered, gamma_kernel),
    )
} | {"truncated_staleness": stepped, "truncated_sequence_staleness": stepped}

# log-ratio, advantage and sequence.
tokens = st.lists(
    st.tuples(st.floats(-3, 3), st.sampled_from([-1.5, 0.0, 0.5]), st.integers(0, 4)), min_size=1, max_size=20
)
every_weight = pytest.mark.parametrize("name", WEIGHTS)
sweep = settings(deadline=None, max_examples=30)


def weights(name: str, batch: Batch, **parameters: float) -> Tensor:
    """The weights of tokens that are given by their log-ratios."""
    log_ratio, advantage, sequence = zip(*batch, strict=True)
    behavior = torch.tensor(log_ratio, dtype=torch.float64)
    ratios = LogRatios(behavior=behavior, current=torch.zeros_like(behavior))
    weigh, values = WEIGHTS[name].function, parameters or PARAMETERS[name]
    found: Tensor = weigh(ratios, torch.tensor(advantage), torch.tensor(sequence), **values)
    return found


def test_every_weight_has_parameters_and_a_formula_here() -> None:
    assert WEIGHTS.keys() == PARAMETERS.keys() == FORMULAS.keys()


@every_weight
@given(batch=tokens, scale=st.floats(0.5, 1.5))
@sweep
def test_a_weight_is_its_formula(name: str, batch: Batch, scale: float) -> None:
    parameters = {key: value * scale for key, value in PARAMETERS[name].items()}
    plain = [(exp(step), advantage, sequence) for step, advantage, sequence in batch]
    expected = [FORMULAS[name](plain, token, **parameters) for token in range(len(batch))]
    found = weights(name, batch, **parameters)
    assert found.dtype == torch.float64 and found.tolist() == pytest.approx(expected, rel=1e-9)


@every_weight
def test_the_row_of_a_weight_says_what_the_weight_does(name: str) -> None:
    row, rho = WEIGHTS[name], torch.linspace(-5, 5, 101, dtype=torch.float64)
    alone, together = torch.arange(101), torch.zeros(101, dtype=torch.long)
    advantage = torch.tensor([1.0, -1.0, 0.0]).repeat(34)[:101]

    def weigh(current: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = row.function(LogRatios(rho, current), advantage, sequence, **PARAMETERS[name])
        return found

    plain = weigh(torch.zeros(101), alone)
    far = LogRatios(torch.full((1,), 20.0).double(), torch.zeros(1).double())
    largest = row.function(far, torch.ones(1), torch.zeros(1, dtype=torch.long), **PARAMETERS[name])
    assert row.unbounded == (row.judged is Judged.RATIO and float(largest) > 1e4)
    assert (row.judged is Judged.STEP) == bool((weigh(rho.flip(0), alone) != plain).any())
    assert row.geometric == bool((weigh(torch.zeros(101), together) != plain).any())


@every_weight
@given(batch=tokens, seed=st.integers(0, 1000))
@sweep
def test_the_order_of_the_tokens_does_not_matter(name: str, batch: Batch, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(batch))
    before = weights(name, batch)[order].tolist()
    assert weights(name, [batch[place] for place in order]).tolist() == pytest.approx(before, rel=1e-12)


@every_weight
@given(batch=tokens)
@sweep
def test_on_policy_every_weight_is_one(name: str, batch: Batch) -> None:
    assert weights(name, [(0.0, advantage, sequence) for _, advantage, sequence in batch]).tolist() == [1.0] * len(
        batch
    )


@every_weight
@given(
    batch=st.lists(st.tuples(st.floats(-1000, 1000), st.sampled_from([-1.0, 0.0, 1.0]), st.integers(0, 3)), min_size=1)
)
@sweep
def test_no_ratio_is_too_large_for_a_weight(name: str, batch: Batch) -> None:
    found = weights(name, batch)
    assert not found.isnan().any() and bool((found >= 0).all())
    if name in ("truncated", "upper_clipped"):
        assert bool((found <= 2.0 + 1e-12).all())


@given(batch=tokens)
@sweep
def test_a_weight_with_an_infinite_bound_is_the_ratio(batch: Batch) -> None:
    plain = weights("ratio", batch).tolist()
    assert weights("truncated", batch, cap=inf).tolist() == plain
    assert weights("upper_clipped", batch, epsilon_high=inf).tolist() == plain


@given(batch=tokens)
@sweep
def test_an_unclipped_geometric_mean_is_the_geometric_level(batch: Batch) -> None:
    behavior, sequence = (torch.tensor([row[place] for row in batch]) for place in (0, 2))
    level = LEVELS["geometric"].of(LogRatios(behavior.double(), behavior.double()), sequence).behavior.exp()
    assert weights("geometric_of_clipped", batch, epsilon_log=inf).tolist() == pytest.approx(level.tolist(), rel=1e-6)


def test_a_weight_at_its_bound_is_the_bound() -> None:
    batch = [(log(bound), 1.0, 0) for bound in (1.0, 1.5, 2.0, 4.0)]
    assert weights("truncated", batch, cap=2.0).tolist() == pytest.approx([1.0, 1.5, 2.0, 2.0], rel=1e-15)
    assert weights("upper_clipped", batch, epsilon_high=0.5).tolist() == pytest.approx([1.0, 1.5, 1.5, 1.5], rel=1e-15)


def test_a_truncated_staleness_is_that_of_tokens_or_of_their_response() -> None:
    """min(rho_k, C) r and min(rho_k rho_k', C) r; rho_k is 3, 1/2 and 3, r is 2 everywhere."""
    current = torch.tensor([3.0, 0.5, 3.0], dtype=torch.float64).log()
    ratios, one, sequence = LogRatios(current + log(2), current), torch.ones(3), torch.tensor([0, 0, 1])
    for name, expected in (
        ("truncated_staleness", [4.0, 1.0, 4.0]),
        ("truncated_sequence_staleness", [3.0, 3.0, 4.0]),
    ):
        found = WEIGHTS[name].function(ratios, one, sequence, cap=2.0)
        assert found.tolist() == pytest.approx(expected, rel=1e-12)
    gone = LogRatios(torch.tensor([-inf, 0.0]).double(), torch.tensor([-inf, -inf]).double())
    assert WEIGHTS["truncated_staleness"].function(gone, one[:2], sequence[:2], cap=2.0).tolist() == [0.0, 1.0]


def test_the_incremental_weight_is_the_step_from_the_current_policy() -> None:
    behavior, current = [log(3.0), log(0.5), -inf, -inf, 900.0], [log(2.0), 0.0, 0.0, -inf, 899.0]
    ratios = LogRatios(*torch.tensor([behavior, current], dtype=torch.float64))
    found = WEIGHTS["incremental"].function(ratios, torch.ones(5), torch.arange(5)).tolist()
    assert found == pytest.approx([1.5, 0.5, 0.0, 1.0, exp(1)], rel=1e-12)
