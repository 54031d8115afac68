"""The formulas of the gates, a token at a time, and what gates and filters are swept with."""

from collections.abc import Callable
from math import cosh, log

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from ratioscope.rules.ratios import LogRatios

Formula = Callable[..., int]
Token = tuple[float, float, float]

# Parameters that every gate is swept with; a new gate needs a line here and a formula below.
PARAMETERS: dict[str, dict[str, float]] = {
    "none": {},
    "one_side": {"epsilon_low": 0.2, "epsilon_high": 0.28},
    "two_side": {"epsilon_low": 0.2, "epsilon_high": 0.28},
    "ring": {"epsilon_low": 0.2, "epsilon_high": 0.28, "outer_low": 0.6, "outer_high": 2.0},
    "adaptive": {"epsilon": 0.2},
    "incremental": {"epsilon": 0.2},
    "one_side_log": {"epsilon_log": 0.4},
    "masked": {"cap": 2.0},
    "dual_clip": {"epsilon_low": 0.2, "epsilon_high": 0.28, "dual": 2.0},
    "soft": {"tau_positive": 1.0, "tau_negative": 1.05},
}


def none_side(rho: float, rho_k: float, a: float) -> int:
    return 0


def one_side_side(rho: float, rho_k: float, a: float, epsilon_low: float, epsilon_high: float) -> int:
    """Mask of S3 eq. 8: keep A > 0 with rho <= 1 + eps_high, and A < 0 with rho >= 1 - eps_low."""
    if a > 0 and not rho <= 1 + epsilon_high:
        return 1
    if a < 0 and not rho >= 1 - epsilon_low:
        return -1
    return 0


def dual_clip_side(rho: float, rho_k: float, a: float, epsilon_low: float, epsilon_high: float, dual: float) -> int:
    """Ye et al. 2020: max(min(rho A, clip(rho) A), c A) where A < 0 is constant above c, too."""
    if a < 0 and rho > dual:
        return 1
    return one_side_side(rho, rho_k, a, epsilon_low, epsilon_high)


def two_side_side(rho: float, rho_k: float, a: float, epsilon_low: float, epsilon_high: float) -> int:
    """S3 eq. 18: keep 1 - eps_low <= rho <= 1 + eps_high."""
    if a == 0 or 1 - epsilon_low <= rho <= 1 + epsilon_high:
        return 0
    return 1 if rho > 1 else -1


def ring_side(
    rho: float, rho_k: float, a: float, epsilon_low: float, epsilon_high: float, outer_low: float, outer_high: float
) -> int:
    """S3 eq. 19: the band, or A > 0 with rho <= 1 - outer_low, or A < 0 with rho >= 1 + outer_high."""
    in_band = 1 - epsilon_low <= rho <= 1 + epsilon_high
    if a == 0 or in_band or (a > 0 and rho <= 1 - outer_low) or (a < 0 and rho >= 1 + outer_high):
        return 0
    return 1 if rho > 1 else -1


def adaptive_side(rho: float, rho_k: float, a: float, epsilon: float) -> int:
    """S0 5.3, Method One: PPO's mask with the band [rho_k - eps, rho_k + eps]."""
    if a > 0 and rho - rho_k > epsilon:
        return 1
    if a < 0 and rho - rho_k < -epsilon:
        return -1
    return 0


def incremental_side(rho: float, rho_k: float, a: float, epsilon: float) -> int:
    """S0 5.3, Method Two: PPO's mask on r = rho / rho_k."""
    if a > 0 and rho / rho_k > 1 + epsilon:
        return 1
    if a < 0 and rho / rho_k < 1 - epsilon:
        return -1
    return 0


def one_side_log_side(rho: float, rho_k: float, a: float, epsilon_log: float) -> int:
    """Zhao et al. 2025, eq. 4: PPO's mask with the band [exp(-eps), exp(eps)]."""
    if a > 0 and log(rho) > epsilon_log:
        return 1
    if a < 0 and log(rho) < -epsilon_log:
        return -1
    return 0


def masked_side(rho: float, rho_k: float, a: float, cap: float) -> int:
    """S1 7: what has a ratio above the cap is left out, whatever the advantage's sign."""
    return 1 if a != 0 and rho > cap else 0


def soft_side(rho: float, rho_k: float, a: float, tau_positive: float, tau_negative: float) -> int:
    return 0


def soft_value(rho: float, a: float, tau_positive: float, tau_negative: float) -> float:
    """S4 eq. 118, 120: sech^2(tau (rho - 1) / 2)."""
    tau = tau_positive if a > 0 else tau_negative
    return 1 / cosh(tau * (rho - 1) / 2) ** 2


FORMULAS: dict[str, Formula] = {
    "none": none_side,
    "one_side": one_side_side,
    "two_side": two_side_side,
    "ring": ring_side,
    "adaptive": adaptive_side,
    "incremental": incremental_side,
    "one_side_log": one_side_log_side,
    "masked": masked_side,
    "dual_clip": dual_clip_side,
    "soft": soft_side,
}

tokens = st.lists(
    st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.one_of(st.just(0.0), st.floats(-2, 2))), min_size=1, max_size=30
)
far = st.one_of(st.floats(-1000, 1000), st.sampled_from([-1000.0, -710.0, -1e-300, 0.0, 709.0, 710.0, 1000.0]))
sweep = settings(deadline=None, max_examples=20)


def tensors(batch: list[Token]) -> tuple[LogRatios, Tensor]:
    columns = torch.tensor(batch, dtype=torch.float64).T
    return LogRatios(behavior=columns[0], current=columns[1]), columns[2]
