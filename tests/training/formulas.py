"""The gradient of every algorithm as its source writes it: a token's coefficient of grad log pi, in plain Python.

rho is pi_theta / behavior, rho_k is pi_k / behavior, A the advantage; the mean over the batch's tokens is the caller's.
"""

from collections.abc import Callable, Mapping

Parameters = Mapping[str, float]
Formula = Callable[[float, float, float, Parameters], float]


def one_side_mask(rho: float, advantage: float, p: Parameters) -> float:
    """S3 eq. 8."""
    if advantage > 0 and rho <= 1 + p["epsilon_high"]:
        return 1.0
    if advantage < 0 and rho >= 1 - p["epsilon_low"]:
        return 1.0
    return 0.0


def reinforce(rho: float, rho_k: float, advantage: float, p: Parameters) -> float:
    """S3 eq. 1."""
    return advantage


def importance_weighted_one_side(rho: float, rho_k: float, advantage: float, p: Parameters) -> float:
    """S3 4.1, REC-OneSide-IS; GRPO with its own advantage."""
    return advantage * rho * one_side_mask(rho, advantage, p)


def unweighted_one_side(rho: float, rho_k: float, advantage: float, p: Parameters) -> float:
    """S3 4.1, REC-OneSide-NoIS."""
    return advantage * one_side_mask(rho, advantage, p)


def unweighted_two_side(rho: float, rho_k: float, advantage: float, p: Parameters) -> float:
    """S3 eq. 18."""
    return advantage if 1 - p["epsilon_low"] <= rho <= 1 + p["epsilon_high"] else 0.0


def unweighted_ring(rho: float, rho_k: float, advantage: float, p: Parameters) -> float:
    """S3 eq. 19, its three bands joined by "or"."""
    inside = 1 - p["epsilon_low"] <= rho <= 1 + p["epsilon_high"]
    pulled_up = advantage > 0 and rho <= 1 - p["outer_low"]
    pulled_down = advantage < 0 and rho >= 1 + p["outer_high"]
    return advantage if inside or pulled_up or pulled_down else 0.0


def method_one(rho: float, rho_k: float, advantage: float, p: Parameters) -> float:
    """S0 5.4: the derivative of min(rho A, clip(rho, rho_k - eps, rho_k + eps) A)."""
    if advantage > 0 and rho > rho_k + p["epsilon"]:
        return 0.0
    if advantage < 0 and rho < rho_k - p["epsilon"]:
        return 0.0
    return rho * advantage


def method_two(rho: float, rho_k: float, advantage: float, p: Parameters) -> float:
    """S0 5.4: the derivative of min(r B, clip(r, 1 - eps, 1 + eps) B) with r = rho / rho_k and B = rho_k A."""
    r, weighted = rho / rho_k, rho_k * advantage
    if weighted > 0 and r > 1 + p["epsilon"]:
        return 0.0
    if weighted < 0 and r < 1 - p["epsilon"]:
        return 0.0
    return r * weighted


FORMULAS: dict[str, Formula] = {
    "reinforce": reinforce,
    "grpo": importance_weighted_one_side,
    "rec_oneside_is": importance_weighted_one_side,
    "rec_oneside_nois": unweighted_one_side,
    "rec_twoside_nois": unweighted_two_side,
    "rec_ring_nois": unweighted_ring,
    "adaptive_clip": method_one,
    "incremental_clip": method_two,
}

# Bounds of 1/4, 1/2, 1, 3/2, 2 and 4: ratios can lie exactly on them, because exp(log x) is exact there.
EXACT_BOUNDS = {"epsilon_low": 0.5, "epsilon_high": 1.0, "outer_low": 0.75, "outer_high": 3.0, "epsilon": 0.5}
EXACT_RATIOS = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0)
