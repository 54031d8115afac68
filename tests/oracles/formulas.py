"""The gradient of every algorithm as its source writes it, in plain Python.

A formula gives one token's coefficient of grad log pi; a share is what the source divides it by.
"""

import math
from collections.abc import Callable, Mapping

from tests.making.batches import LONGEST, Response

Parameters = Mapping[str, float]
Formula = Callable[[Response, int, Parameters], float]
Share = Callable[[list[Response], Response], float]


# Advantages ---------------------------------------------------------------------------------------------------------


def centred(y: Response) -> float:
    """r_i - r̄ over the responses that are kept (S3 eq. 1, 10)."""
    rewards = [other.reward for other in y.group if other.kept]
    return y.reward - sum(rewards) / len(rewards)


def normalised(y: Response) -> float:
    """S4 eq. 90, 91."""
    rewards = [other.reward for other in y.group]
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards) + 1e-8)
    return (y.reward - mean) / deviation


def generalised(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 80: the reward comes with the last token, and the value after it is 0."""
    value = [*y.value, 0.0]
    residual = [
        (y.reward if place == len(y) - 1 else 0.0) + p["gamma"] * value[place + 1] - value[place]
        for place in range(len(y))
    ]
    return sum((p["gamma"] * p["gae_lambda"]) ** (place - t) * residual[place] for place in range(t, len(y)))


# Masks --------------------------------------------------------------------------------------------------------------


def one_side(ratio: float, advantage: float, p: Parameters) -> float:
    """S3 eq. 8."""
    kept_up = advantage > 0 and ratio <= 1 + p["epsilon_high"]
    kept_down = advantage < 0 and ratio >= 1 - p["epsilon_low"]
    return float(kept_up or kept_down)


def two_side(ratio: float, advantage: float, p: Parameters) -> float:
    """S3 eq. 18."""
    return float(1 - p["epsilon_low"] <= ratio <= 1 + p["epsilon_high"])


def ring(ratio: float, advantage: float, p: Parameters) -> float:
    """S3 eq. 19, its three bands joined by "or"."""
    pulled_up = advantage > 0 and ratio <= 1 - p["outer_low"]
    pulled_down = advantage < 0 and ratio >= 1 + p["outer_high"]
    return float(two_side(ratio, advantage, p) == 1 or pulled_up or pulled_down)


# Coefficients -------------------------------------------------------------------------------------------------------


def vanilla_pg(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 38, 39: the discounted sum of rewards from token t on."""
    rewards = [0.0] * (len(y) - 1) + [y.reward]
    return sum(p["gamma"] ** (place - t) * rewards[place] for place in range(t, len(y)))


def reinforce(y: Response, t: int, p: Parameters) -> float:
    """S3 eq. 1."""
    return centred(y)


def a2c(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 46, 47: the return minus the value."""
    return vanilla_pg(y, t, p) - y.value[t]


def trpo(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 69, 71."""
    return centred(y) * y.rho(t)


def ppo(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 78, 79, the policy's part."""
    advantage = generalised(y, t, p)
    return advantage * y.rho(t) * one_side(y.rho(t), advantage, p)


def ppo_kl(y: Response, t: int, p: Parameters) -> float:
    """S4 4.7.4, the policy's part."""
    return generalised(y, t, p) * y.rho(t)


def grpo(y: Response, t: int, p: Parameters) -> float:
    """S3 4.1, S4 eq. 96."""
    return normalised(y) * y.rho(t) * one_side(y.rho(t), normalised(y), p)


def gspo(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 111 under the clipping of eq. 109."""
    s = math.exp(y.log_w / len(y))
    return s * normalised(y) * one_side(s, normalised(y), p)


def sapo(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 118, 120, 122."""
    tau = p["tau_positive"] if normalised(y) > 0 else p["tau_negative"]
    sigma = 1 / (1 + math.exp(-tau * (y.rho(t) - 1)))
    return 4 * sigma * (1 - sigma) * y.rho(t) * normalised(y)


def cispo(y: Response, t: int, p: Parameters) -> float:
    """MiniMax-M1 eq. 4, 5."""
    return min(y.rho(t), 1 + p["epsilon_high"]) * normalised(y)


def gmpo(y: Response, t: int, p: Parameters) -> float:
    """Zhao et al. 2025 eq. 4: the geometric mean of min(rho A, clip(rho) A), a clipped token being a constant of it."""
    up, bound = normalised(y) > 0, p["epsilon_log"]
    steps = [theta - behavior for theta, behavior in zip(y.theta, y.behavior, strict=True)]
    mean = sum(min(step, bound) if up else max(step, -bound) for step in steps) / len(y)
    clipped = steps[t] > bound if up else steps[t] < -bound
    return 0.0 if clipped else normalised(y) * math.exp(mean)


def vespo(y: Response, t: int, p: Parameters) -> float:
    """Shen et al. 2026: phi(W) A with phi(W) = e^lambda W^k e^(-lambda W), W the product of the response's ratios."""
    sign, w = "positive" if normalised(y) >= 0 else "negative", math.exp(y.log_w)
    k, decay = p[f"power_{sign}"], p[f"decay_{sign}"]
    return math.exp(decay) * w**k * math.exp(-decay * w) * normalised(y)


def rec_oneside_is(y: Response, t: int, p: Parameters) -> float:
    """S3 4.1."""
    return centred(y) * y.rho(t) * one_side(y.rho(t), centred(y), p)


def rec_oneside_nois(y: Response, t: int, p: Parameters) -> float:
    """S3 4.1."""
    return centred(y) * one_side(y.rho(t), centred(y), p)


def rec_twoside_is(y: Response, t: int, p: Parameters) -> float:
    """S3 B.3, eq. 18."""
    return centred(y) * y.rho(t) * two_side(y.rho(t), centred(y), p)


def rec_twoside_nois(y: Response, t: int, p: Parameters) -> float:
    """S3 B.3, eq. 18."""
    return centred(y) * two_side(y.rho(t), centred(y), p)


def rec_ring_is(y: Response, t: int, p: Parameters) -> float:
    """S3 B.3, eq. 19."""
    return centred(y) * y.rho(t) * ring(y.rho(t), centred(y), p)


def rec_ring_nois(y: Response, t: int, p: Parameters) -> float:
    """S3 B.3, eq. 19."""
    return centred(y) * ring(y.rho(t), centred(y), p)


def opmd(y: Response, t: int, p: Parameters) -> float:
    """S3 4.2: minus the gradient of the final loss, log pi_old(y) being behavior's."""
    return centred(y) - p["tau"] * y.log_w


def asymre(y: Response, t: int, p: Parameters) -> float:
    """S3 4.2."""
    mean = sum(other.reward for other in y.group) / len(y.group)
    return y.reward - (mean - p["baseline_shift"])


def pairwise_reinforce(y: Response, t: int, p: Parameters) -> float:
    """The pairs of S3 4.3 before they are gathered into eq. 9: sum_j w_i w_j (r_i - r_j)."""
    rewards = [other.reward for other in y.group]
    outcomes = len(set(rewards))

    def w(reward: float) -> float:
        return 1 / math.sqrt(rewards.count(reward) * outcomes)

    return sum(w(y.reward) * w(reward) * (y.reward - reward) for reward in rewards)


def red_weight(y: Response, t: int, p: Parameters) -> float:
    """S3 4.3."""
    return math.exp(centred(y) / p["tau"]) * centred(y)


def surrogate_pairs(y: Response, t: int, p: Parameters) -> float:
    """S3 eq. 6, differentiated at any theta: 2 tau / (1 + tau)^2 (a_i - ā)."""

    def a(response: Response) -> float:
        return response.reward - p["tau"] * response.log_moved

    mean = sum(a(other) for other in y.group) / len(y.group)
    return 2 * p["tau"] / (1 + p["tau"]) ** 2 * (a(y) - mean)


def adaptive_clip(y: Response, t: int, p: Parameters) -> float:
    """S0 5.4: the derivative of min(rho A, clip(rho, rho_k - eps, rho_k + eps) A)."""
    up = centred(y) > 0 and y.rho(t) > y.rho_k(t) + p["epsilon"]
    down = centred(y) < 0 and y.rho(t) < y.rho_k(t) - p["epsilon"]
    return 0.0 if up or down else y.rho(t) * centred(y)


def incremental_clip(y: Response, t: int, p: Parameters) -> float:
    """S0 5.4: the derivative of min(r B, clip(r, 1 - eps, 1 + eps) B) with r = rho / rho_k and B = rho_k A."""
    r, weighted = y.rho(t) / y.rho_k(t), y.rho_k(t) * centred(y)
    up, down = weighted > 0 and r > 1 + p["epsilon"], weighted < 0 and r < 1 - p["epsilon"]
    return 0.0 if up or down else r * weighted


def token_tis(y: Response, t: int, p: Parameters) -> float:
    """S1 7."""
    return centred(y) * min(y.rho(t), p["cap"])


def seq_is(y: Response, t: int, p: Parameters) -> float:
    """S4 eq. 106."""
    return centred(y) * math.exp(y.log_w)


def seq_tis(y: Response, t: int, p: Parameters) -> float:
    """S1 7."""
    return centred(y) * min(math.exp(y.log_w), p["cap"])


def seq_mis(y: Response, t: int, p: Parameters) -> float:
    """S1 7, masked."""
    w = math.exp(y.log_w)
    return centred(y) * w if w <= p["cap"] else 0.0


# Shares -------------------------------------------------------------------------------------------------------------


def of_tokens(batch: list[Response], y: Response) -> float:
    """1 / sum_i |y_i| (S4 eq. 102)."""
    return 1 / sum(len(other) for other in batch)


def of_responses(batch: list[Response], y: Response) -> float:
    """1 / N (S3 eq. 7, S4 eq. 39)."""
    return 1 / len(batch)


def of_responses_and_their_tokens(batch: list[Response], y: Response) -> float:
    """1 / N 1 / |y_i| (S4 eq. 97, 111, 119)."""
    return 1 / len(batch) / len(y)


def of_the_longest(batch: list[Response], y: Response) -> float:
    """1 / N 1 / T_max (S4 eq. 100)."""
    return 1 / len(batch) / LONGEST


# Where the share is not that of tokens, the source says so in its equation.
_OTHER_SHARES: dict[str, Share] = {
    "vanilla_pg": of_responses,
    "dr_grpo": of_the_longest,
    "gspo": of_responses_and_their_tokens,
    "sapo": of_responses_and_their_tokens,
    "gmpo": of_responses_and_their_tokens,
    "surrogate_pairs": of_responses,
}
_SAME_TERM: dict[str, Formula] = {"a3c": a2c, "dr_grpo": rec_oneside_is, "dapo": grpo, "red_drop": reinforce}
_TERMS: tuple[Formula, ...] = (
    *(vanilla_pg, reinforce, a2c, trpo, ppo, ppo_kl, grpo, gspo, sapo, cispo, gmpo, vespo),
    *(rec_oneside_is, rec_oneside_nois, rec_twoside_is, rec_twoside_nois, rec_ring_is, rec_ring_nois),
    *(opmd, asymre, pairwise_reinforce, red_weight, surrogate_pairs, adaptive_clip, incremental_clip),
    *(token_tis, seq_is, seq_tis, seq_mis),
)
FORMULAS: dict[str, Formula] = {term.__name__: term for term in _TERMS} | _SAME_TERM
SHARES: dict[str, Share] = _OTHER_SHARES
