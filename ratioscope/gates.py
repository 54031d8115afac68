"""Gates: which tokens keep their policy gradient, and how much of it. Pure functions of log-ratios and advantage.

Every gate has the signature `(ratios: LogRatios, advantage: Tensor, **parameters) -> Gate`; the ratios are those of
tokens or of whole sequences (`ratioscope.ratios.LEVELS`). The trainer's losses and the what-if analysis use the same
functions. Conventions (S3 eq. 8): bounds are inclusive; the mask is strict in the
advantage, but a token with advantage 0 has no gradient to lose, so it is kept and not counted as clipped.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ratioscope.ratios import LogRatios


class Gate(NamedTuple):
    """What a gate decided, each of shape (n_tokens,)."""

    value: Tensor
    """Factor on the token's gradient, in [0, 1], float64."""
    side: Tensor
    """-1 stopped below the lower bound, +1 above the upper bound, 0 kept; int8."""

    @property
    def clipped(self) -> Tensor:
        """Bool: the token contributed no policy gradient because of the gate."""
        return self.side != 0


def _hard(below: Tensor, above: Tensor) -> Gate:
    side = above.to(torch.int8) - below.to(torch.int8)
    return Gate(value=(side == 0).double(), side=side)


def _difference(log_p: Tensor, log_q: Tensor) -> Tensor:
    """p - q from logarithms; infinite, not undefined, where both are beyond the floating-point range."""
    plain = log_p.exp() - log_q.exp()
    beyond = torch.where(log_p == log_q, 0.0, torch.sign(log_p - log_q) * torch.inf)
    return torch.where(plain.isnan(), beyond, plain)


def none(ratios: LogRatios, advantage: Tensor) -> Gate:
    """Every token keeps its gradient."""
    never = torch.zeros_like(advantage, dtype=torch.bool)
    return _hard(never, never)


def one_side(ratios: LogRatios, advantage: Tensor, *, epsilon_low: float, epsilon_high: float) -> Gate:
    """PPO's mask: stop A>0 above 1 + epsilon_high, A<0 below 1 - epsilon_low (S3 eq. 8)."""
    rho = ratios.behavior.exp()
    return _hard(below=(advantage < 0) & (rho < 1 - epsilon_low), above=(advantage > 0) & (rho > 1 + epsilon_high))


def two_side(ratios: LogRatios, advantage: Tensor, *, epsilon_low: float, epsilon_high: float) -> Gate:
    """Keep 1 - epsilon_low <= rho <= 1 + epsilon_high, whatever the advantage's sign (S3 eq. 18)."""
    rho, active = ratios.behavior.exp(), advantage != 0
    return _hard(below=active & (rho < 1 - epsilon_low), above=active & (rho > 1 + epsilon_high))


def ring(
    ratios: LogRatios,
    advantage: Tensor,
    *,
    epsilon_low: float,
    epsilon_high: float,
    outer_low: float,
    outer_high: float,
) -> Gate:
    """Two-side band, or far outside of it on the side where the gradient pulls back (S3 eq. 19).

    Kept in addition to the band: A>0 with rho <= 1 - outer_low, and A<0 with rho >= 1 + outer_high.
    """
    rho, band = ratios.behavior.exp(), two_side(ratios, advantage, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    pulls_up = (advantage > 0) & (rho <= 1 - outer_low)
    pulls_down = (advantage < 0) & (rho >= 1 + outer_high)
    return _hard(below=(band.side < 0) & ~pulls_up, above=(band.side > 0) & ~pulls_down)


def adaptive(ratios: LogRatios, advantage: Tensor, *, epsilon: float) -> Gate:
    """Method One: PPO's mask with the band centred at rho_k instead of 1 (S0 5.3, 5.4)."""
    step = _difference(ratios.behavior, ratios.current)
    return _hard(below=(advantage < 0) & (step < -epsilon), above=(advantage > 0) & (step > epsilon))


def incremental(ratios: LogRatios, advantage: Tensor, *, epsilon: float) -> Gate:
    """Method Two: PPO's mask on r = pi_theta / pi_k (S0 5.3, 5.4)."""
    step = torch.expm1(ratios.incremental)
    return _hard(below=(advantage < 0) & (step < -epsilon), above=(advantage > 0) & (step > epsilon))


def one_side_log(ratios: LogRatios, advantage: Tensor, *, epsilon_log: float) -> Gate:
    """PPO's mask with bounds on the log-ratio, -epsilon_log and +epsilon_log (GMPO, Zhao et al. 2025, eq. 4)."""
    step = ratios.behavior
    return _hard(below=(advantage < 0) & (step < -epsilon_log), above=(advantage > 0) & (step > epsilon_log))


def masked(ratios: LogRatios, advantage: Tensor, *, cap: float) -> Gate:
    """Masked importance sampling: nothing of what has a ratio above `cap` counts (S1 7; Liu, Li et al. 2025)."""
    above = (advantage != 0) & (ratios.behavior > math.log(cap))
    return _hard(below=torch.zeros_like(above), above=above)


def soft(ratios: LogRatios, advantage: Tensor, *, tau_positive: float, tau_negative: float) -> Gate:
    """SAPO's sech^2(tau (rho - 1) / 2), with a temperature for each sign of the advantage (S4 eq. 118, 120)."""
    tau = torch.full_like(ratios.behavior, tau_negative).masked_fill(advantage > 0, tau_positive)
    place = tau * torch.expm1(ratios.behavior)
    return Gate(value=torch.cosh(place / 2) ** -2, side=torch.zeros_like(advantage, dtype=torch.int8))


GATES: dict[str, Callable[..., Gate]] = {
    gate.__name__: gate for gate in (none, one_side, two_side, ring, adaptive, incremental, one_side_log, masked, soft)
}
