"""The gradients of the algorithms of the field, as `tests.oracles.formulas` has those of the seeds."""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from tests.making.batches import Response
from tests.oracles.formulas import (
    Formula,
    Parameters,
    Share,
    centred,
    grpo,
    normalised,
    of_responses,
    of_the_longest,
    one_side,
    vanilla_pg,
)


def p_theta(y: Response, t: int) -> float:
    return math.exp(y.theta[t])


def p_behavior(y: Response, t: int) -> float:
    return math.exp(y.behavior[t])


def everyone(y: Response) -> list[tuple[Response, int]]:
    """All tokens of the optimiser step that a response is in."""
    return [(other, t) for other in y.batch for t in range(len(other))]


def once_a_step(compute: Callable[[Response, Parameters], Any]) -> Callable[[Response, Parameters], Any]:
    """What is the same for all tokens of an optimiser step is computed for the first of them."""
    seen: list[Any] = []

    @wraps(compute)
    def found(y: Response, p: Parameters) -> Any:
        if not seen or seen[0] is not y.batch:
            seen[:] = [y.batch, compute(y, p)]
        return seen[1]

    return found


def grpo_dual_clip(y: Response, t: int, p: Parameters) -> float:
    """Ye et al. 2020: max(min(rho A, clip(rho) A), c A) where A < 0."""
    return 0.0 if normalised(y) < 0 and y.rho(t) > p["dual"] else grpo(y, t, p)


def dppo_tv(y: Response, t: int, p: Parameters) -> float:
    """Qi et al. 2026."""
    moved, a = p_theta(y, t) - p_behavior(y, t), centred(y)
    far = moved > p["difference_high"] if a > 0 else moved < -p["difference_low"]
    return 0.0 if far else a * y.rho(t)


def dppo_kl(y: Response, t: int, p: Parameters) -> float:
    """Qi et al. 2026, of "this token or another"."""
    old, new = (min(max(value, 1e-6), 1 - 1e-6) for value in (p_behavior(y, t), p_theta(y, t)))
    divergence = old * math.log(old / new) + (1 - old) * math.log((1 - old) / (1 - new))
    onward = (y.theta[t] - y.behavior[t]) * centred(y) > 0
    return 0.0 if onward and divergence > p["threshold"] else centred(y) * y.rho(t)


def prime_rl(y: Response, t: int, p: Parameters) -> float:
    """default_loss_fn of PrimeIntellect-ai/prime-rl 559b44772, src/prime_rl/trainer/rl/loss.py: the derivative of
    keep A rho - kl_tau (log rho)^2, kl_tau = tau / 2."""
    return dppo_tv(y, t, p) - p["tau"] * (y.theta[t] - y.behavior[t])


def prime_rl_ipo(y: Response, t: int, p: Parameters) -> float:
    """ipo_loss_fn of the same file."""
    kept = abs(p_theta(y, t) - p_behavior(y, t)) <= p["difference"]
    return kept * centred(y) * y.rho(t) - p["tau"] * (y.theta[t] - y.behavior[t])


def opsm(y: Response, t: int, p: Parameters) -> float:
    """DeepSeek-V3.2: no gradient where A < 0 and the mean of log behavior / pi_theta is above delta."""
    return 0.0 if normalised(y) < 0 and -y.log_w / len(y) > p["delta"] else grpo(y, t, p)


def reject_k3(y: Response, t: int, p: Parameters) -> float:
    """verl's seq_mean_k3."""
    k3 = [math.expm1(a - b) - (a - b) for a, b in zip(y.theta, y.behavior, strict=True)]
    return 0.0 if sum(k3) / len(y) > p["threshold"] else grpo(y, t, p)


@once_a_step
def _onward(y: Response, p: Parameters) -> list[float]:
    moved = [(normalised(other), other.theta[s] - other.behavior[s]) for other, s in everyone(y)]
    return [x * x for a, x in moved if a * x > 0]


def m2po(y: Response, t: int, p: Parameters) -> float:
    """Zheng et al. 2025, algorithm 1."""
    own = y.theta[t] - y.behavior[t]
    smaller = [square for square in _onward(y, p) if square <= own * own]
    far = normalised(y) * own > 0 and sum(smaller) / len(smaller) > p["moment"]
    return 0.0 if far else normalised(y) * y.rho(t)


def topr(y: Response, t: int, p: Parameters) -> float:
    """Le Roux et al. 2025."""
    return centred(y) * (min(math.exp(y.log_w), 1.0) if centred(y) < 0 else 1.0)


def snis(y: Response, t: int, p: Parameters) -> float:
    """S4 remark 1.3; the sum in the denominator is a share."""
    return centred(y) * math.exp(y.log_w)


def _step(y: Response, t: int, p: Parameters) -> float:
    """The derivative of min(r A, clip(r) A), over A, with r = pi_theta / pi_k."""
    r = math.exp(y.theta[t] - y.current[t])
    up, down = normalised(y) > 0 and r > 1 + p["epsilon"], normalised(y) < 0 and r < 1 - p["epsilon"]
    return 0.0 if up or down else normalised(y) * r


def _log_w_k(y: Response) -> float:
    """log of pi_k(y) / behavior(y)."""
    return y.log_w - y.log_moved


def decoupled_tis(y: Response, t: int, p: Parameters) -> float:
    """verl's and AReaL's: PPO on r, times the truncated weight of pi_k / behavior."""
    return min(y.rho_k(t), p["cap"]) * _step(y, t, p)


def decoupled_seq_tis(y: Response, t: int, p: Parameters) -> float:
    return min(math.exp(_log_w_k(y)), p["cap"]) * _step(y, t, p)


def icepop(y: Response, t: int, p: Parameters) -> float:
    """Zhao et al. 2025."""
    return (p["floor"] <= y.rho_k(t) <= p["cap"]) * y.rho_k(t) * _step(y, t, p)


def seq_mask(y: Response, t: int, p: Parameters) -> float:
    """TRL's sequence_mask."""
    w = math.exp(_log_w_k(y))
    return (p["floor"] <= w <= p["cap"]) * w * _step(y, t, p)


def geo_mask(y: Response, t: int, p: Parameters) -> float:
    """SkyRL's."""
    return (p["floor"] <= math.exp(_log_w_k(y) / len(y)) <= p["cap"]) * _step(y, t, p)


@once_a_step
def _covariances(y: Response, p: Parameters) -> dict[tuple[int, int], float]:
    """By response and place."""
    tokens = everyone(y)
    mean_a = sum(normalised(other) for other, _ in tokens) / len(tokens)
    mean = sum(other.theta[s] for other, s in tokens) / len(tokens)
    return {(id(other), s): (normalised(other) - mean_a) * (other.theta[s] - mean) for other, s in tokens}


def _highest(values: list[float], y: Response, p: Parameters) -> list[float]:
    return sorted(values)[-max(1, int(p["covariance_share"] * len(everyone(y)))) :]


@once_a_step
def _dropped(y: Response, p: Parameters) -> list[float]:
    found = _covariances(y, p)
    able = [
        found[id(other), s]
        for other, s in everyone(y)
        if p["covariance_low"] < found[id(other), s] < p["covariance_high"]
        and one_side(other.rho(s), normalised(other), p)
    ]
    return _highest(able, y, p)


@once_a_step
def _pulled(y: Response, p: Parameters) -> list[float]:
    return _highest(list(_covariances(y, p).values()), y, p)


@once_a_step
def _lowest_entropy(y: Response, p: Parameters) -> float:
    return float(np.quantile([other.value[s] for other, s in everyone(y)], 1 - p["entropy_share"]))


@once_a_step
def _returns(y: Response, p: Parameters) -> tuple[float, float]:
    """Mean and unbiased variance over all tokens."""
    returns = [vanilla_pg(other, s, p) for other, s in everyone(y)]
    return float(np.mean(returns)), float(np.var(returns, ddof=1)) if len(returns) > 1 else 0.0


@once_a_step
def _with_signal(y: Response, p: Parameters) -> int:
    return sum(len({mate.reward for mate in other.group}) > 1 for other in y.batch)


def clip_cov(y: Response, t: int, p: Parameters) -> float:
    """Cui et al. 2025, with the largest covariances for random ones."""
    return 0.0 if _covariances(y, p)[id(y), t] in _dropped(y, p) else grpo(y, t, p)


def kl_cov(y: Response, t: int, p: Parameters) -> float:
    """Cui et al. 2025: the derivative of rho A - coefficient |log rho| on the chosen tokens."""
    pull = p["covariance_pull"] * float(np.sign(y.theta[t] - y.behavior[t]))
    return normalised(y) * y.rho(t) - (pull if _covariances(y, p)[id(y), t] in _pulled(y, p) else 0.0)


def top_entropy(y: Response, t: int, p: Parameters) -> float:
    """Wang et al. 2025; here `value` is the entropy of a token's state."""
    return grpo(y, t, p) if y.value[t] >= _lowest_entropy(y, p) else 0.0


def rloo(y: Response, t: int, p: Parameters) -> float:
    """Ahmadian et al. 2024."""
    others = [other.reward for other in y.group if other is not y]
    return y.reward - sum(others) / len(others) if others else 0.0


def remax(y: Response, t: int, p: Parameters) -> float:
    """Li et al. 2023, algorithm 1; here `value` is the greedy response's reward."""
    return y.reward - y.value[t]


def reinforce_plus_plus(y: Response, t: int, p: Parameters) -> float:
    """Hu 2025: returns whitened over all tokens."""
    mean, variance = _returns(y, p)
    advantage = (vanilla_pg(y, t, p) - mean) / math.sqrt(variance + 1e-8)
    return advantage * y.rho(t) * one_side(y.rho(t), advantage, p)


def gpg(y: Response, t: int, p: Parameters) -> float:
    """Chu et al. 2025: alpha = B / (B - M), M responses of groups with equal rewards."""
    signal = _with_signal(y, p)
    return centred(y) * len(y.batch) / signal if signal else 0.0


def optimal_token_baseline(y: Response, t: int, p: Parameters) -> float:
    """verl's; here `value` is the squared length of a token's score."""
    there = [other for other in y.group if len(other) > t]
    if len(there) == 1:
        return y.reward
    energy = [sum(other.value[: t + 1]) for other in there]
    total = sum(e * other.reward for e, other in zip(energy, there, strict=True))
    return y.reward - total / (sum(energy) + 1e-8)


def opmd_token(y: Response, t: int, p: Parameters) -> float:
    return centred(y) - p["tau"] * (y.theta[t] - y.behavior[t])


def opmd_log_z(y: Response, t: int, p: Parameters) -> float:
    """S3 4.2: tau log Z is tau log of the mean of exp(r / tau)."""
    z = sum(math.exp(other.reward / p["tau"]) for other in y.group) / len(y.group)
    return y.reward - p["tau"] * math.log(z) - p["tau"] * y.log_w


def of_weights(batch: list[Response], y: Response) -> float:
    """1 / sum of the weights of all tokens."""
    return 1 / sum(len(other) * math.exp(other.log_w) for other in batch)


SHARES: dict[str, Share] = {
    "dppo_tv": of_the_longest, "dppo_kl": of_the_longest, "rloo": of_responses, "remax": of_responses,
    "snis": of_weights,
}  # fmt: skip
_TERMS: tuple[Formula, ...] = (
    *(grpo_dual_clip, dppo_tv, dppo_kl, prime_rl, prime_rl_ipo, opsm, reject_k3, m2po, topr, snis),
    *(decoupled_tis, decoupled_seq_tis, icepop, seq_mask, geo_mask, clip_cov, kl_cov, top_entropy),
    *(rloo, remax, reinforce_plus_plus, gpg, optimal_token_baseline, opmd_token, opmd_log_z),
)
FORMULAS: dict[str, Formula] = {term.__name__: term for term in _TERMS} | {"overlong_filter": grpo}
