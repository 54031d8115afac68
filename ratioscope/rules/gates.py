"""Gates: which tokens keep their policy gradient, and how much of it. Pure functions of log-ratios and advantage.

Every gate has the signature `(ratios: LogRatios, advantage: Tensor, **parameters) -> Gate`; the ratios are those of
tokens or of whole sequences (`ratios.LEVELS`). The trainer's losses and the what-if analysis use the same
functions, and ask the row that declares a gate for everything else (`GateRow`). Conventions (S3 eq. 8): bounds are
inclusive; the mask is strict in the advantage, but a token with advantage 0 has no gradient to lose, so it is kept and
not counted as clipped.

Masks that have a name elsewhere: IcePop is `two_side` at token level, sequence masking `two_side` at sequence or
geometric level, token masking `masked` at token level. What decides by more than a ratio and an advantage is a filter
(`ratioscope.rules.filters`).

To add a gate, write it here under `@declared`; a new parameter is a row in `ratioscope.rules.parameters`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from ratioscope.rules.parameters import Declared, Judged
from ratioscope.rules.ratios import LogRatios
from ratioscope.tensors import Tensor, as_type, torch, xp


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


class GateKind(Enum):
    """What a gate does to a gradient."""

    OPEN = "open"
    """Nothing."""
    CLIP = "clip"
    """Stops what goes further in the direction of the advantage."""
    MASK = "mask"
    """Stops whatever is out of bounds."""
    SOFT = "soft"
    """Damps, and stops nothing."""


@dataclass(frozen=True)
class GateRow(Declared):
    """A gate, as `declared` says it."""

    kind: GateKind
    reach: Callable[..., Tensor] | None
    """`(rho_k, A > 0, **parameters)`: the ratio at which a token's gradient stops; None where it stops nowhere."""

    @property
    def stops(self) -> bool:
        """Whether there are tokens that get no gradient."""
        return self.kind in (GateKind.CLIP, GateKind.MASK)


GATES: dict[str, GateRow] = {}

_Function = TypeVar("_Function", bound=Callable[..., Gate])


def declared(
    words: str, kind: GateKind, *, judged: Judged = Judged.RATIO, reach: Callable[..., Tensor] | None = None
) -> Callable[[_Function], _Function]:
    """The row of the gate below, in `GATES` by the function's name; the fields are those of `GateRow`."""

    def add(function: _Function) -> _Function:
        GATES[function.__name__] = GateRow(function, words, judged, kind, reach)
        return function

    return add


def hard(below: Tensor, above: Tensor) -> Gate:
    """The gate that is shut on these tokens, bool each, and open on all others."""
    side = as_type(above, "int8") - as_type(below, "int8")
    return Gate(value=as_type(side == 0, "float64"), side=side)


def both(one: Gate, other: Gate) -> Gate:
    """Two gates, one after the other; what both stop is on the side that the first says."""
    return Gate(one.value * other.value, xp.where(one.side != 0, one.side, other.side))


def difference(log_p: Tensor, log_q: Tensor) -> Tensor:
    """p - q from logarithms; infinite, not undefined, where both are beyond the floating-point range."""
    plain = xp.exp(log_p) - xp.exp(log_q)
    beyond = xp.where(log_p == log_q, 0.0, xp.sign(log_p - log_q) * math.inf)
    return xp.where(xp.isnan(plain), beyond, plain)


def _either(up: Tensor, high: float, low: float) -> Tensor:
    """In double: `torch.where` of plain numbers would be single precision."""
    return torch.where(up, torch.tensor(high, dtype=torch.float64), torch.tensor(low, dtype=torch.float64))


def _band(current: Tensor, up: Tensor, *, epsilon_low: float, epsilon_high: float) -> Tensor:
    return _either(up, 1 + epsilon_high, 1 - epsilon_low)


def _margins(
    current: Tensor, up: Tensor, *, epsilon_low: float, epsilon_high: float, outer_low: float, outer_high: float
) -> Tensor:
    """From outside of the ring a ratio is let back to the outer margin; without a gap it is let on into the band."""
    far_below = up & (current <= 1 - outer_low) & (outer_low > epsilon_low)
    far_above = ~up & (current >= 1 + outer_high) & (outer_high > epsilon_high)
    band, margin = _either(up, 1 + epsilon_high, 1 - epsilon_low), _either(up, 1 - outer_low, 1 + outer_high)
    return torch.where(far_below | far_above, margin, band)


@declared("none: every token keeps its gradient", GateKind.OPEN)
def none(ratios: LogRatios, advantage: Tensor) -> Gate:
    """Every token keeps its gradient."""
    never = as_type(xp.zeros_like(advantage), "bool")
    return hard(never, never)


@declared("one-sided clip (PPO)", GateKind.CLIP, reach=_band)
def one_side(ratios: LogRatios, advantage: Tensor, *, epsilon_low: float, epsilon_high: float) -> Gate:
    """PPO's mask: stop A>0 above 1 + epsilon_high, A<0 below 1 - epsilon_low (S3 eq. 8)."""
    rho = xp.exp(ratios.behavior)
    return hard(below=(advantage < 0) & (rho < 1 - epsilon_low), above=(advantage > 0) & (rho > 1 + epsilon_high))


@declared(
    "dual clip (PPO's, and A < 0 far above)",
    GateKind.MASK,
    reach=lambda current, up, *, dual, **band: _band(current, up, **band),
)
def dual_clip(ratios: LogRatios, advantage: Tensor, *, epsilon_low: float, epsilon_high: float, dual: float) -> Gate:
    """PPO's mask, and A<0 stopped above `dual`, too (Ye et al. 2020): clip_ratio_c, c_clip, TRL's delta."""
    once = one_side(ratios, advantage, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    far = (advantage < 0) & (xp.exp(ratios.behavior) > dual)
    return hard(below=once.side < 0, above=(once.side > 0) | far)


@declared("two-sided band (IcePop)", GateKind.MASK, reach=_band)
def two_side(ratios: LogRatios, advantage: Tensor, *, epsilon_low: float, epsilon_high: float) -> Gate:
    """Keep 1 - epsilon_low <= rho <= 1 + epsilon_high, whatever the advantage's sign (S3 eq. 18)."""
    rho, active = xp.exp(ratios.behavior), advantage != 0
    return hard(below=active & (rho < 1 - epsilon_low), above=active & (rho > 1 + epsilon_high))


@declared("ring: band and far outside", GateKind.MASK, reach=_margins)
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
    rho, band = xp.exp(ratios.behavior), two_side(ratios, advantage, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    pulls_up = (advantage > 0) & (rho <= 1 - outer_low)
    pulls_down = (advantage < 0) & (rho >= 1 + outer_high)
    return hard(below=(band.side < 0) & ~pulls_up, above=(band.side > 0) & ~pulls_down)


@declared(
    "clip centred at ρ_k (Method One)",
    GateKind.CLIP,
    judged=Judged.STEP,
    reach=lambda current, up, *, epsilon: current + _either(up, epsilon, -epsilon),
)
def adaptive(ratios: LogRatios, advantage: Tensor, *, epsilon: float) -> Gate:
    """Method One: PPO's mask with the band centred at rho_k instead of 1 (S0 5.3, 5.4)."""
    step = difference(ratios.behavior, ratios.current)
    return hard(below=(advantage < 0) & (step < -epsilon), above=(advantage > 0) & (step > epsilon))


@declared(
    "clip on π_θ/π_k (Method Two)",
    GateKind.CLIP,
    judged=Judged.STEP,
    reach=lambda current, up, *, epsilon: current * _either(up, 1 + epsilon, 1 - epsilon),
)
def incremental(ratios: LogRatios, advantage: Tensor, *, epsilon: float) -> Gate:
    """Method Two: PPO's mask on r = pi_theta / pi_k (S0 5.3, 5.4)."""
    step = xp.expm1(ratios.incremental)
    return hard(below=(advantage < 0) & (step < -epsilon), above=(advantage > 0) & (step > epsilon))


@declared(
    "one-sided clip of the log-ratio (GMPO)",
    GateKind.CLIP,
    reach=lambda current, up, *, epsilon_log: _either(up, epsilon_log, -epsilon_log).exp(),
)
def one_side_log(ratios: LogRatios, advantage: Tensor, *, epsilon_log: float) -> Gate:
    """PPO's mask with bounds on the log-ratio, -epsilon_log and +epsilon_log (GMPO, Zhao et al. 2025, eq. 4)."""
    step = ratios.behavior
    return hard(below=(advantage < 0) & (step < -epsilon_log), above=(advantage > 0) & (step > epsilon_log))


@declared("mask above a cap (MIS)", GateKind.MASK, reach=lambda current, up, *, cap: _either(up, cap, 0.0))
def masked(ratios: LogRatios, advantage: Tensor, *, cap: float) -> Gate:
    """Masked importance sampling: nothing of what has a ratio above `cap` counts (S1 7; Liu, Li et al. 2025)."""
    above = (advantage != 0) & (ratios.behavior > math.log(cap))
    return hard(below=xp.zeros_like(above), above=above)


@declared("soft gate (SAPO)", GateKind.SOFT)
def soft(ratios: LogRatios, advantage: Tensor, *, tau_positive: float, tau_negative: float) -> Gate:
    """SAPO's sech^2(tau (rho - 1) / 2), with a temperature for each sign of the advantage (S4 eq. 118, 120)."""
    tau = xp.where(advantage > 0, tau_positive, xp.full_like(ratios.behavior, tau_negative))
    place = tau * xp.expm1(ratios.behavior)
    return Gate(value=xp.cosh(place / 2) ** -2, side=as_type(xp.zeros_like(advantage), "int8"))
