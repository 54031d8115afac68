"""TRPO's step: a natural gradient by conjugate gradient, then a line search under a bound on the mean KL (S4 4.6)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ratioscope.errors import RatioscopeError
from ratioscope.trainer.model.precision import MasterWeights
from ratioscope.trainer.sampling.rollout import Evaluated

# Where the residual has become this small, relative to the gradient, the linear system is solved.
RESIDUAL = 1e-10


@dataclass(frozen=True)
class TrustRegionStep:
    """What became of the step."""

    accepted: float
    """Share of the full step beta s that was taken; 0: no trial held both conditions."""
    kl: float
    """Mean KL(pi_k || pi_{k+1}) of the accepted step, nats."""
    trials: int
    improvement: float
    """Growth of the surrogate."""
    gradient_norm: float


def trust_region_step(
    weights: MasterWeights,
    forward: Callable[[], Evaluated],
    objective: Callable[[Evaluated], Tensor],
    surrogate: Callable[[Evaluated], Tensor],
    *,
    max_kl: float,
    cg_steps: float,
    damping: float,
    shrink: float,
    line_search_steps: float,
) -> TrustRegionStep:
    """A natural gradient, as far as a bound on the mean KL lets it, changes `weights` in place; the solver works in
    float32 whatever the model computes in (S4 4.6).

    Args:
        weights: of the policy.
        forward: the policy's distributions on the batch.
        objective: has the gradient g of the surrogate (S4 eq. 71).
        surrogate: its value (S4 eq. 69), for the line search.
        max_kl: delta of S4 eq. 70.
        cg_steps: conjugate gradient steps for A s = g (S4 eq. 73).
        damping: added to A's diagonal: with few samples A is far from invertible.
        shrink: xi of the line search.
        line_search_steps: trials at most.

    Raises:
        RatioscopeError: the gradient is not finite.
    """
    parameters = weights.computing
    # Attention's fused kernels have no second derivative.
    with sdpa_kernel(SDPBackend.MATH):
        found = forward()
        fixed = found.distribution.detach()
        gradient = _flat(
            torch.autograd.grad(objective(found), parameters, retain_graph=True, allow_unused=True), parameters
        )
        if not torch.isfinite(gradient).all():
            raise RatioscopeError("The gradient is not finite; choose an algorithm whose weights are bounded.")
        norm = float(gradient.norm())
        before = float(surrogate(found).detach())
        if norm == 0:
            return TrustRegionStep(accepted=0.0, kl=0.0, trials=0, improvement=0.0, gradient_norm=0.0)
        slope = torch.autograd.grad(_mean_kl(fixed, found), parameters, create_graph=True, allow_unused=True)

        def fisher(vector: Tensor) -> Tensor:
            pairs = zip(slope, _pieces(vector, parameters), strict=True)
            product = sum((part * piece).sum() for part, piece in pairs if part is not None)
            second = torch.autograd.grad(product, parameters, retain_graph=True, allow_unused=True)  # type: ignore[arg-type]
            return _flat(second, parameters) + damping * vector

        direction = conjugate_gradient(fisher, gradient, int(cg_steps))
        length = (2 * max_kl / (direction @ fisher(direction)).clamp(min=1e-12)).sqrt()

    origin = [exact.detach().clone() for exact in weights.exact]
    share = 1.0
    with torch.no_grad():
        for trial in range(1, int(line_search_steps) + 1):
            pieces = _pieces(share * length * direction, weights.exact)
            for exact, start, piece in zip(weights.exact, origin, pieces, strict=True):
                exact.copy_(start + piece)
            weights.publish()
            found = forward()
            kl, gain = float(_mean_kl(fixed, found)), float(surrogate(found)) - before
            if kl <= max_kl and gain >= 0:
                return TrustRegionStep(share, kl, trial, gain, norm)
            share *= shrink
        for exact, start in zip(weights.exact, origin, strict=True):
            exact.copy_(start)
        weights.publish()
    return TrustRegionStep(accepted=0.0, kl=0.0, trials=int(line_search_steps), improvement=0.0, gradient_norm=norm)


def conjugate_gradient(matrix: Callable[[Tensor], Tensor], right: Tensor, steps: int) -> Tensor:
    """Solve matrix(x) = right for a symmetric positive definite matrix, approximately."""
    solution = torch.zeros_like(right)
    residual, direction = right.clone(), right.clone()
    remaining = residual @ residual
    for _ in range(steps):
        if remaining <= RESIDUAL * (right @ right):
            break
        product = matrix(direction)
        rate = remaining / (direction @ product)
        solution = solution + rate * direction
        residual = residual - rate * product
        following = residual @ residual
        direction = residual + following / remaining * direction
        remaining = following
    return solution


def _mean_kl(fixed: Tensor, found: Evaluated) -> Tensor:
    return (fixed.exp() * (fixed - found.distribution)).sum(dim=-1).mean()


def _flat(pieces: tuple[Tensor | None, ...], parameters: list[torch.nn.Parameter]) -> Tensor:
    """One vector, of at least float32; zeros stand for parameters that have no part in it."""
    pairs = zip(pieces, parameters, strict=True)
    flat = torch.cat([torch.zeros_like(own).flatten() if piece is None else piece.flatten() for piece, own in pairs])
    return flat.to(torch.promote_types(flat.dtype, torch.float32))


def _pieces(vector: Tensor, parameters: list[torch.nn.Parameter]) -> list[Tensor]:
    sizes = [parameter.numel() for parameter in parameters]
    return [piece.view_as(parameter) for piece, parameter in zip(torch.split(vector, sizes), parameters, strict=True)]
