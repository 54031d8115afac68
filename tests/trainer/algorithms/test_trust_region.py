"""TRPO's step against explicit matrices, on a softmax policy with linear logits."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ratioscope.errors import RatioscopeError
from ratioscope.trainer.algorithms.trust_region import TrustRegionStep, conjugate_gradient, trust_region_step
from ratioscope.trainer.model.precision import MasterWeights
from ratioscope.trainer.sampling.rollout import Evaluated

STATES, FEATURES, ACTIONS = 40, 3, 4
DEFAULTS = {"max_kl": 0.01, "cg_steps": 50, "damping": 0.1, "shrink": 0.8, "line_search_steps": 15}


class LinearSoftmax(torch.nn.Module):
    """pi(a | s) from logits features(s) @ weight, with sampled actions and made-up advantages."""

    def __init__(self, seed: int, *, spare: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.spare = torch.nn.Parameter(normal(2)) if spare else None
        self.weight, self.bias = torch.nn.Parameter(normal(FEATURES, ACTIONS)), torch.nn.Parameter(normal(ACTIONS))
        self.features, self.advantage = normal(STATES, FEATURES), normal(STATES)
        self.actions = torch.multinomial(self.distribution().detach().exp(), 1, generator=generator)
        self.start = self.distribution().detach()

    def distribution(self) -> Tensor:
        return (self.features @ self.weight + self.bias).log_softmax(dim=-1)

    def forward(self) -> Evaluated:
        distribution = self.distribution()
        return Evaluated(distribution.gather(1, self.actions).squeeze(1), distribution, None)

    def surrogate(self, found: Evaluated) -> Tensor:
        """S4 eq. 69."""
        before = self.start.gather(1, self.actions).squeeze(1)
        return ((found.logp - before).exp() * self.advantage).mean()

    def kl(self) -> float:
        """Mean KL(pi_k || pi_theta)."""
        return float((self.start.exp() * (self.start - self.distribution().detach())).sum(dim=-1).mean())

    def vector(self) -> Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters()])

    def fisher(self) -> Tensor:
        """The mean over states of E_a[grad log pi grad log pi^T], all actions enumerated."""
        parameters, total = list(self.parameters()), torch.zeros(len(self.vector()), len(self.vector()))
        total = total.double()
        distribution = self.distribution()
        for state in range(STATES):
            for action in range(ACTIONS):
                pieces = torch.autograd.grad(distribution[state, action], parameters, retain_graph=True)
                score = torch.cat([piece.reshape(-1) for piece in pieces])
                total += distribution[state, action].exp().detach() * torch.outer(score, score)
        return total / STATES

    def gradient(self) -> Tensor:
        pieces = torch.autograd.grad(self.surrogate(self()), list(self.parameters()))
        return torch.cat([piece.reshape(-1) for piece in pieces])

    def step(self, **changed: Any) -> TrustRegionStep:
        surrogate = changed.pop("surrogate", self.surrogate)
        objective = changed.pop("objective", self.surrogate)
        return trust_region_step(
            MasterWeights(list(self.parameters())), self, objective, surrogate, **(DEFAULTS | changed)
        )


@pytest.mark.parametrize("size", [1, 5, 20])
def test_conjugate_gradient_solves_a_positive_definite_system(size: int) -> None:
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size))
    matrix, right = root @ root.T + np.eye(size), rng.normal(size=size)
    found = conjugate_gradient(lambda vector: torch.from_numpy(matrix) @ vector, torch.from_numpy(right), 4 * size)
    assert found.tolist() == pytest.approx(np.linalg.solve(matrix, right).tolist(), rel=1e-3, abs=1e-4)


def test_conjugate_gradient_comes_closer_with_every_step() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    matrix, right = torch.from_numpy(root @ root.T + np.eye(12)), torch.from_numpy(rng.normal(size=12))
    solution = torch.linalg.solve(matrix, right)

    def energy(steps: int) -> float:
        error = conjugate_gradient(lambda vector: matrix @ vector, right, steps) - solution
        return float(error @ matrix @ error)

    distances = [energy(steps) for steps in range(8)]
    assert all(after < before for before, after in itertools.pairwise(distances))


def test_conjugate_gradient_of_nothing_is_nothing() -> None:
    assert not conjugate_gradient(lambda vector: 2 * vector, torch.zeros(3), 10).any()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("damping", [0.01, 0.1, 1.0])
def test_the_step_is_along_the_inverse_of_the_explicit_fisher_matrix(seed: int, damping: float) -> None:
    """S4 eq. 73, 74: s = (A + damping)^-1 g, as long as the quadratic bound allows, times what the search left."""
    policy = LinearSoftmax(seed)
    before, matrix = policy.vector(), policy.fisher()
    matrix = matrix + damping * torch.eye(len(before), dtype=torch.float64)
    direction = torch.linalg.solve(matrix, policy.gradient())
    length = (2 * DEFAULTS["max_kl"] / (direction @ matrix @ direction)).sqrt()
    step = policy.step(damping=damping)
    assert step.accepted > 0
    moved, expected = policy.vector() - before, step.accepted * length * direction
    assert float((moved - expected).norm() / expected.norm()) < 1e-4


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_kl", [1e-4, 0.01, 0.5, 5.0])
def test_an_accepted_step_holds_the_bound_and_improves_the_surrogate(seed: int, max_kl: float) -> None:
    policy = LinearSoftmax(seed)
    before, norm = float(policy.surrogate(policy()).detach()), float(policy.gradient().norm())
    step = policy.step(max_kl=max_kl, line_search_steps=40)
    after = float(policy.surrogate(policy()).detach())
    assert 0 < policy.kl() <= max_kl and after > before
    assert step.kl == pytest.approx(policy.kl(), rel=1e-9)
    assert step.improvement == pytest.approx(after - before, rel=1e-9)
    assert step.gradient_norm == pytest.approx(norm, rel=1e-9)
    assert step.accepted == pytest.approx(0.8 ** (step.trials - 1), rel=1e-12)


def test_without_damping_a_small_full_step_has_the_kl_that_it_was_scaled_to() -> None:
    """S4 eq. 72: the KL is quadratic close to pi_k. Where it is a hair above the bound, half the step is taken."""
    policy = LinearSoftmax(0)
    step = policy.step(max_kl=1e-6, damping=1e-6, shrink=0.5)
    assert step.kl == pytest.approx(1e-6 * step.accepted**2, rel=0.02)


@pytest.mark.parametrize("seed", [0, 1, 7, 11])
def test_the_search_takes_the_first_trial_that_holds_both_conditions(seed: int) -> None:
    """Here the KL grows faster than its quadratic approximation: the trial before the accepted one was too long."""
    policy = LinearSoftmax(seed)
    origin, before = policy.vector(), float(policy.surrogate(policy()).detach())
    step = policy.step(max_kl=1.0, damping=1e-4)
    assert step.trials > 1
    longer = origin + (policy.vector() - origin) / 0.8
    torch.nn.utils.vector_to_parameters(longer, policy.parameters())
    assert policy.kl() > 1.0 or float(policy.surrogate(policy()).detach()) < before


@pytest.mark.parametrize("trials", [1, 15])
def test_when_no_step_is_accepted_the_parameters_are_exactly_what_they_were(trials: int) -> None:
    """A surrogate that is best where the policy is now."""
    policy = LinearSoftmax(2)
    before = policy.vector()
    step = policy.step(
        surrogate=lambda found: -(found.distribution - policy.start).abs().sum(), line_search_steps=trials
    )
    assert torch.equal(policy.vector(), before)
    assert step.accepted == 0 and step.kl == 0 and step.improvement == 0
    assert step.trials == trials and step.gradient_norm > 0


def test_without_a_gradient_nothing_changes() -> None:
    policy = LinearSoftmax(3)
    before = policy.vector()
    step = policy.step(objective=lambda found: 0 * found.logp.sum())
    assert torch.equal(policy.vector(), before)
    assert step == TrustRegionStep(accepted=0.0, kl=0.0, trials=0, improvement=0.0, gradient_norm=0.0)


def test_a_gradient_that_is_not_finite_is_an_error() -> None:
    policy = LinearSoftmax(3)
    before = policy.vector()
    with pytest.raises(RatioscopeError, match="not finite"):
        policy.step(objective=lambda found: (found.logp * torch.inf).sum())
    assert torch.equal(policy.vector(), before)


def test_a_parameter_that_the_policy_does_not_use_stays_as_it_is() -> None:
    with_spare, without = LinearSoftmax(4, spare=True), LinearSoftmax(4)
    without.load_state_dict({name: value for name, value in with_spare.state_dict().items() if name != "spare"})
    for name in ("features", "advantage", "actions", "start"):
        setattr(without, name, getattr(with_spare, name))
    spare = with_spare.spare.detach().clone()
    assert dataclasses.astuple(with_spare.step()) == pytest.approx(dataclasses.astuple(without.step()), rel=1e-9)
    assert torch.equal(with_spare.spare, spare) and torch.allclose(with_spare.weight, without.weight)
