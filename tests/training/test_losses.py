"""Every loss against the gradient that its source prints, and against the objective that it is a mask of."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.training.formulas import EXACT_BOUNDS, EXACT_RATIOS, FORMULAS
from tests.training.small import QUICK
from trainer.algorithms import ALGORITHMS
from trainer.losses import TokenBatch, policy_loss

LOG_RATIOS = st.one_of(st.sampled_from([math.log(ratio) for ratio in EXACT_RATIOS]), st.floats(-3, 3))
ADVANTAGES = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), st.floats(-3, 3))


class Case:
    """A batch with log-probabilities in float64; behavior's are 0 so that ratios can be exact."""

    def __init__(self, rows: list[tuple[float, float, float]], lengths: list[int]) -> None:
        theta, current, advantage = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
        sequence = [place for place, length in enumerate(lengths) for _ in range(length)]
        sequence += range(len(lengths), len(lengths) + len(rows))  # the rest are one-token sequences
        self.logp = theta.requires_grad_(True)
        self.batch = TokenBatch(torch.zeros_like(current), current, advantage, torch.tensor(sequence[: len(rows)]))

    def gradient(self, name: str) -> list[float]:
        """Of minus the loss with respect to logp: the coefficient of grad log pi."""
        loss = policy_loss(ALGORITHMS[name], parameters_of(name), self.logp, self.batch).loss
        return (-torch.autograd.grad(loss, self.logp)[0]).tolist()

    def gradient_of(self, objective: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[float]:
        """Of the mean of objective(rho, rho_k, A)."""
        rho, rho_k = self.logp.exp(), self.batch.logp_current.exp()
        mean = objective(rho, rho_k, self.batch.advantage).mean()
        return torch.autograd.grad(mean, self.logp)[0].tolist()


def parameters_of(name: str) -> dict[str, float]:
    return {parameter: EXACT_BOUNDS[parameter] for parameter in ALGORITHMS[name].parameters}


CASES = st.builds(
    Case,
    st.lists(st.tuples(LOG_RATIOS, LOG_RATIOS, ADVANTAGES), min_size=1, max_size=24),
    st.lists(st.integers(1, 6), max_size=4),
)
every_algorithm = pytest.mark.parametrize("name", sorted(ALGORITHMS))


def test_every_algorithm_has_its_formula_written_out() -> None:
    assert FORMULAS.keys() == ALGORITHMS.keys()


@every_algorithm
@QUICK
@given(case=CASES)
def test_the_gradient_is_the_one_of_the_source_equation(name: str, case: Case) -> None:
    n = len(case.logp)
    expected = []
    for token in range(n):
        rho, rho_k = math.exp(case.logp[token].item()), math.exp(case.batch.logp_current[token].item())
        expected.append(FORMULAS[name](rho, rho_k, case.batch.advantage[token].item(), parameters_of(name)) / n)
    assert case.gradient(name) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@every_algorithm
def test_the_gradient_at_every_exact_bound_is_the_one_of_the_source_equation(name: str) -> None:
    log_ratios = [math.log(ratio) for ratio in EXACT_RATIOS]
    rows = [(theta, current, a) for theta in log_ratios for current in log_ratios for a in (-1.0, 0.0, 1.0)]
    case, p = Case(rows, []), parameters_of(name)
    expected = [
        FORMULAS[name](rho, rho_k, advantage, p) / len(rows)
        for rho in EXACT_RATIOS
        for rho_k in EXACT_RATIOS
        for advantage in (-1.0, 0.0, 1.0)
    ]
    assert case.gradient(name) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["grpo", "rec_oneside_is"])
@QUICK
@given(case=CASES)
def test_weighted_one_side_losses_have_the_gradient_of_ppo(name: str, case: Case) -> None:
    low, high = 1 - EXACT_BOUNDS["epsilon_low"], 1 + EXACT_BOUNDS["epsilon_high"]
    ppo = case.gradient_of(lambda rho, rho_k, a: torch.minimum(rho * a, rho.clamp(low, high) * a))
    assert case.gradient(name) == pytest.approx(ppo, rel=1e-6, abs=1e-9)


@QUICK
@given(case=CASES)
def test_adaptive_clip_has_the_gradient_of_method_one(case: Case) -> None:
    epsilon = EXACT_BOUNDS["epsilon"]
    method_one = case.gradient_of(
        lambda rho, rho_k, a: torch.minimum(rho * a, rho.clamp(rho_k - epsilon, rho_k + epsilon) * a)
    )
    assert case.gradient("adaptive_clip") == pytest.approx(method_one, rel=1e-6, abs=1e-9)


@QUICK
@given(case=CASES)
def test_incremental_clip_has_the_gradient_of_method_two(case: Case) -> None:
    low, high = 1 - EXACT_BOUNDS["epsilon"], 1 + EXACT_BOUNDS["epsilon"]
    method_two = case.gradient_of(
        lambda rho, rho_k, a: torch.minimum((rho / rho_k) * (rho_k * a), (rho / rho_k).clamp(low, high) * (rho_k * a))
    )
    assert case.gradient("incremental_clip") == pytest.approx(method_two, rel=1e-6, abs=1e-9)


@every_algorithm
@QUICK
@given(case=CASES, seed=st.integers(0, 1_000))
def test_the_order_of_the_tokens_does_not_matter(name: str, case: Case, seed: int) -> None:
    order = torch.randperm(len(case.logp), generator=torch.Generator().manual_seed(seed))
    shuffled = Case([(0.0, 0.0, 0.0)] * len(order), [])
    shuffled.logp = case.logp.detach()[order].requires_grad_(True)
    shuffled.batch = TokenBatch(*(column[order] for column in case.batch))
    gradient = case.gradient(name)
    before = [gradient[place] for place in order.tolist()]
    assert shuffled.gradient(name) == pytest.approx(before, rel=1e-12)


@every_algorithm
@QUICK
@given(advantages=st.lists(ADVANTAGES, min_size=1, max_size=12))
def test_at_ratio_one_every_algorithm_is_reinforce(name: str, advantages: list[float]) -> None:
    case = Case([(0.0, 0.0, advantage) for advantage in advantages], [])
    assert case.gradient(name) == pytest.approx(case.gradient("reinforce"), rel=1e-12)
    assert case.gradient(name) == pytest.approx([advantage / len(advantages) for advantage in advantages])


@every_algorithm
def test_without_advantages_there_is_no_gradient_and_nothing_is_clipped(name: str) -> None:
    case = Case([(theta, current, 0.0) for theta in (-3.0, 0.0, 3.0) for current in (-3.0, 0.0, 3.0)], [])
    assert case.gradient(name) == [0.0] * 9
    assert not policy_loss(ALGORITHMS[name], parameters_of(name), case.logp, case.batch).gate.clipped.any()


@every_algorithm
@pytest.mark.parametrize("advantage", [0.0, 1.0])
def test_a_weight_that_overflows_where_nothing_is_weighted_leaves_the_others_alone(name: str, advantage: float) -> None:
    """exp(800) is infinite: with A > 0 the gates stop the token, with A = 0 it counts for nothing."""
    case = Case([(800.0, 0.0, advantage), (0.0, 0.0, 1.0), (0.0, 0.0, -1.0)], [])
    gradient = case.gradient(name)
    assert gradient[1:] == pytest.approx([1 / 3, -1 / 3])
    stopped = name != "reinforce" or advantage == 0
    assert gradient[0] == pytest.approx(0.0 if stopped else advantage / 3)


@every_algorithm
def test_single_precision_changes_the_gradient_by_rounding_only(name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(200, 3, generator=generator).float().double().tolist()
    case = Case([tuple(row) for row in rows], [])
    exact = case.gradient(name)
    case.logp = case.logp.detach().float().requires_grad_(True)
    case.batch = TokenBatch(*(column.float() if column.is_floating_point() else column for column in case.batch))
    assert case.gradient(name) == pytest.approx(exact, rel=1e-5, abs=1e-9)
