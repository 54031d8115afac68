"""Importance weights: what a token's gradient is multiplied with, before the gate. Pure functions of log-ratios.

Every weight has the signature `(ratios: LogRatios, advantage: Tensor, sequence: Tensor, **parameters) -> Tensor`, all
of shape (n_tokens,) and float64; `sequence` is the index of a token's sequence, from 0. The ratios are those of tokens
or of whole sequences (`ratioscope.ratios.LEVELS`).
"""

import math
from collections.abc import Callable

from ratioscope.ratios import LogRatios, geometric_level
from ratioscope.tensors import Tensor, torch


def none(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """1: the data are taken as they are."""
    return torch.ones_like(ratios.behavior)


def ratio(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """rho_theta = pi_theta / behavior: importance sampling."""
    return ratios.behavior.exp()


def incremental(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """r = pi_theta / pi_k: the data are taken as if pi_k had sampled them (PPO with recomputed log-probs)."""
    # Where both policies exclude a token, which one does not change.
    unchanged = ratios.behavior == ratios.current
    return ratios.incremental.masked_fill(unchanged, 0.0).exp()


def truncated(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, cap: float) -> Tensor:
    """min(rho, cap): truncated importance sampling (S1 7)."""
    return ratios.behavior.clamp(max=math.log(cap)).exp()


def upper_clipped(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, epsilon_high: float) -> Tensor:
    """min(rho, 1 + epsilon_high): the weight is clipped, the token keeps its gradient (CISPO, MiniMax-M1 eq. 4)."""
    return ratios.behavior.clamp(max=math.log1p(epsilon_high)).exp()


def geometric_of_clipped(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, epsilon_log: float) -> Tensor:
    """Geometric mean over the sequence of token ratios, each clipped on the advantage's side (GMPO eq. 4).

    The clipping is that of `ratioscope.gates.one_side_log`: what lies beyond the bound stands on it.
    """
    step = ratios.behavior
    kept = torch.where(advantage > 0, step.clamp(max=epsilon_log), step.clamp(min=-epsilon_log))
    return geometric_level(LogRatios(kept, kept), sequence).behavior.exp()


WEIGHTS: dict[str, Callable[..., Tensor]] = {
    weight.__name__: weight for weight in (none, ratio, incremental, truncated, upper_clipped, geometric_of_clipped)
}
