"""Gates: which tokens keep their policy gradient, and how much of it. Pure functions of log-ratios and advantage.

Every gate has the signature `(ratios: LogRatios, advantage: Tensor, **parameters) -> Gate`; the ratios are those of
tokens or of whole sequences (`ratioscope.ratios.LEVELS`). The trainer's losses and the what-if analysis use the same
functions. Conventions (S3 eq. 8): bounds are inclusive; the mask is strict in the
advantage, but a token with advantage 0 has no gradient to lose, so it is kept and not counted as clipped.

Filters decide by more than a ratio and an advantage: by the rest of the sequence, by probabilities, by age. They have
the signature `(rows: Rows, **parameters) -> Gate`, take token ratios and aggregate them themselves, and follow the same
conventions. No algorithm of the trainer has one; the what-if analysis does.

Masks that have a name elsewhere: IcePop is `two_side` at token level, sequence masking `two_side` at sequence or
geometric level, token masking `masked` at token level.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from ratioscope.ratios import LogRatios, count_sequences, mean_over_sequence, sum_over_sequence
from ratioscope.tensors import Tensor, torch


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


class Rows(NamedTuple):
    """What a filter may look at, each of shape (n_tokens,)."""

    ratios: LogRatios
    """Of tokens, not of sequences."""
    advantage: Tensor
    sequence: Tensor
    """Index of the token's sequence, from 0."""
    logp_behavior: Tensor
    """Log-probability of the token when it was sampled, nats."""
    version_lag: Tensor
    """How many updates ago the token was sampled."""


def opposite_sign(rows: Rows, *, delta: float) -> Gate:
    """OPSM: drop A<0 in sequences whose mean k1, -log rho_theta, is above `delta` nats (DeepSeek-V3.2)."""
    divergence = mean_over_sequence(-rows.ratios.behavior, rows.sequence)
    below = (rows.advantage < 0) & (divergence > delta)
    return _hard(below=below, above=torch.zeros_like(below))


def probability_difference(rows: Rows, *, difference_low: float, difference_high: float) -> Gate:
    """DPPO: PPO's mask on the difference of probabilities, pi_theta - behavior, instead of their ratio."""
    difference = _difference(rows.logp_behavior.double() + rows.ratios.behavior, rows.logp_behavior.double())
    return _hard(
        below=(rows.advantage < 0) & (difference < -difference_low),
        above=(rows.advantage > 0) & (difference > difference_high),
    )


def stale(rows: Rows, *, epsilon_stale: float) -> Gate:
    """Keep |rho_k - 1| <= epsilon_stale (S0 5.6, 7.3)."""
    distance, active = torch.expm1(rows.ratios.current), rows.advantage != 0
    return _hard(below=active & (distance < -epsilon_stale), above=active & (distance > epsilon_stale))


def window(rows: Rows, *, max_lag: float) -> Gate:
    """Keep sequences whose oldest token was sampled at most `max_lag` updates ago; older ones are on side -1.

    S0 5.6's window of the newest W versions is `max_lag` = W - 1 where every update makes a version.
    """
    oldest = _max_over_sequence(rows.version_lag.double(), rows.sequence)
    below = (rows.advantage != 0) & (oldest > max_lag)
    return _hard(below=below, above=torch.zeros_like(below))


def _max_over_sequence(values: Tensor, sequence: Tensor) -> Tensor:
    lowest = torch.full((count_sequences(sequence),), -torch.inf, dtype=values.dtype, device=values.device)
    return lowest.scatter_reduce(0, sequence, values, "amax")[sequence]


_over_sequence: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": sum_over_sequence,
    "mean": mean_over_sequence,
    "max": _max_over_sequence,
}

# Estimators of KL(behavior || pi_theta) from one token's log rho_theta.
_divergence: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda log_rho: -log_rho,
    "k2": lambda log_rho: log_rho**2 / 2,
    "k3": lambda log_rho: torch.expm1(log_rho) - log_rho,
}


def _rejection(estimator: str, over: str) -> Callable[..., Gate]:
    """The filter that drops what has `estimator`, of tokens or aggregated over a sequence, above a threshold."""

    def reject(rows: Rows, *, threshold: float) -> Gate:
        divergence, direction = _divergence[estimator](rows.ratios.behavior), rows.ratios.behavior
        if over != "token":
            divergence = _over_sequence[over](divergence, rows.sequence)
            direction = sum_over_sequence(direction, rows.sequence)
        out = (rows.advantage != 0) & (divergence > threshold)
        return _hard(below=out & (direction <= 0), above=out & (direction > 0))

    reject.__doc__ = (
        f"Drop {'tokens' if over == 'token' else f'sequences by the {over} over their tokens'} with {estimator} above "
        "`threshold` nats; the side is the log-ratio's."
    )
    return reject


_TOKEN_FILTERS: dict[str, Callable[..., Gate]] = {
    "probability_difference": probability_difference,
    "stale": stale,
    **{f"reject_token_{estimator}": _rejection(estimator, "token") for estimator in _divergence},
}
# These have to see whole sequences.
SEQUENCE_FILTERS: dict[str, Callable[..., Gate]] = {
    "opposite_sign": opposite_sign,
    "window": window,
    **{
        f"reject_{over}_{estimator}": _rejection(estimator, over)
        for over in _over_sequence
        for estimator in _divergence
    },
}
FILTERS: dict[str, Callable[..., Gate]] = _TOKEN_FILTERS | SEQUENCE_FILTERS
