"""Importance weights: what a token's gradient is multiplied with, before the gate. Pure functions of log-ratios.

Every weight has the signature `(ratios: LogRatios, advantage: Tensor, sequence: Tensor, **parameters) -> Tensor`, all
of shape (n_tokens,) and float64; `sequence` is the index of a token's sequence, from 0. The ratios are those of tokens
or of whole sequences (`ratioscope.rules.ratios.LEVELS`). What else is to be known about a weight stands in the row that
declares it (`WeightRow`).

To add a weight, write it here under `@declared`; a new parameter is a row in `ratioscope.rules.parameters`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ratioscope.rules.parameters import Declared, Judged
from ratioscope.rules.ratios import LogRatios, geometric_level, sum_over_sequence
from ratioscope.tensors import Tensor, xp


@dataclass(frozen=True)
class WeightRow(Declared):
    """A weight, as `declared` says it."""

    unbounded: bool
    """Whether it grows with rho_theta without end."""
    geometric: bool
    """Whether it is a geometric mean over the sequence at every level: its tokens share it, and it is no ratio."""
    sequences: bool
    """Whether it takes the ratios of tokens and looks at their whole sequence by itself."""


WEIGHTS: dict[str, WeightRow] = {}

_Function = TypeVar("_Function", bound=Callable[..., Tensor])


def declared(
    words: str,
    *,
    judged: Judged = Judged.RATIO,
    unbounded: bool = False,
    geometric: bool = False,
    sequences: bool = False,
) -> Callable[[_Function], _Function]:
    """The row of the weight below, in `WEIGHTS` by the function's name; the fields are those of `WeightRow`."""

    def add(function: _Function) -> _Function:
        WEIGHTS[function.__name__] = WeightRow(function, words, judged, unbounded, geometric, sequences)
        return function

    return add


@declared("none: 1")
def none(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """1: the data are taken as they are."""
    return xp.ones_like(ratios.behavior)


@declared("ratio ρ", unbounded=True)
def ratio(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """rho_theta = pi_theta / behavior: importance sampling."""
    return xp.exp(ratios.behavior)


@declared("π_θ/π_k", judged=Judged.STEP)
def incremental(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """r = pi_theta / pi_k: the data are taken as if pi_k had sampled them (PPO with recomputed log-probs)."""
    # Where both policies exclude a token, which one does not change.
    unchanged = ratios.behavior == ratios.current
    return xp.exp(xp.where(unchanged, 0.0, ratios.incremental))


@declared("truncated ratio, min(ρ, C)")
def truncated(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, cap: float) -> Tensor:
    """min(rho, cap): truncated importance sampling (S1 7)."""
    return xp.exp(xp.clip(ratios.behavior, None, math.log(cap)))


@declared("truncated staleness, min(ρ_k, C) π_θ/π_k", judged=Judged.STEP)
def truncated_staleness(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, cap: float) -> Tensor:
    """min(rho_k, cap) r: only how old the data are is truncated (verl's rollout_is=token, AReaL's decoupled loss)."""
    return xp.exp(ratios.behavior + xp.clip(math.log(cap) - ratios.current, None, 0.0))


@declared("truncated staleness of responses, min(Π ρ_k, C) π_θ/π_k", judged=Judged.STEP, sequences=True)
def truncated_sequence_staleness(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, cap: float) -> Tensor:
    """The same with the product of rho_k over the response (verl's rollout_is=sequence, TRL's sequence_truncate)."""
    whole = sum_over_sequence(ratios.current, sequence)
    return incremental(ratios, advantage, sequence) * xp.exp(xp.clip(whole, None, math.log(cap)))


@declared("ratio between two bounds")
def clamped(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, floor: float, cap: float) -> Tensor:
    """rho moved to the nearest of `floor` <= rho <= `cap` (OpenRLHF's is_correction_mode=clip, verl's CISPO)."""
    return xp.clip(xp.exp(ratios.behavior), floor, cap)


@declared("ratio clipped above (CISPO)")
def upper_clipped(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, epsilon_high: float) -> Tensor:
    """min(rho, 1 + epsilon_high): the weight is clipped, the token keeps its gradient (CISPO, MiniMax-M1 eq. 4)."""
    return xp.exp(xp.clip(ratios.behavior, None, math.log1p(epsilon_high)))


@declared("geometric mean of clipped ratios (GMPO)", geometric=True)
def geometric_of_clipped(ratios: LogRatios, advantage: Tensor, sequence: Tensor, *, epsilon_log: float) -> Tensor:
    """Geometric mean over the sequence of token ratios, each clipped on the advantage's side (GMPO eq. 4).

    The clipping is that of `ratioscope.rules.gates.one_side_log`: what lies beyond the bound stands on it.
    """
    step = ratios.behavior
    kept = xp.where(advantage > 0, xp.clip(step, None, epsilon_log), xp.clip(step, -epsilon_log, None))
    return xp.exp(geometric_level(LogRatios(kept, kept), sequence).behavior)


@declared("truncated at 1 where A < 0 (TOPR)")
def tapered(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """min(rho, 1) where A < 0, and 1 elsewhere (TOPR, Le Roux et al. 2025)."""
    return xp.exp(xp.where(advantage < 0, xp.clip(ratios.behavior, None, 0.0), 0.0))


@declared("gamma kernel of the ratio (VESPO)")
def gamma_kernel(
    ratios: LogRatios,
    advantage: Tensor,
    sequence: Tensor,
    *,
    power_positive: float,
    decay_positive: float,
    power_negative: float,
    decay_negative: float,
) -> Tensor:
    """rho^k e^(lambda (1 - rho)), k and lambda by the advantage's sign; 1 on-policy (VESPO, Shen et al. 2026)."""
    up, log_rho = advantage >= 0, ratios.behavior
    power = xp.where(up, power_positive, xp.full_like(log_rho, power_negative))
    decay = xp.where(up, decay_positive, xp.full_like(log_rho, decay_negative))
    return xp.exp(power * log_rho - decay * xp.expm1(log_rho))
