"""The objectives that the sources print, as functions of log pi_theta, for autograd to differentiate."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tests.making.batches import LONGEST, Groups, Response
from tests.oracles.formulas import centred, generalised, normalised

Parameters = Mapping[str, float]
# log pi_theta of each token of a response, with gradient.
Thetas = list[Tensor]
Objective = Callable[[list[Response], Thetas, Parameters], Tensor]


def clipped(ratio: Tensor, advantage: Tensor | float, p: Parameters) -> Tensor:
    """min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) (S4 eq. 96, 101)."""
    band = ratio.clamp(1 - p["epsilon_low"], 1 + p["epsilon_high"])
    return torch.minimum(ratio * advantage, band * advantage)


def column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def ratio(y: Response, theta: Tensor) -> Tensor:
    return (theta - column(y.behavior)).exp()


def token_mean(terms: list[Tensor]) -> Tensor:
    """Over all tokens of the batch (S4 eq. 102)."""
    return torch.cat(terms).mean()


def estimates(y: Response, p: Parameters) -> Tensor:
    return column([generalised(y, t, p) for t in range(len(y))])


def trpo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 eq. 69."""
    return token_mean([ratio(y, theta) * centred(y) for y, theta in zip(batch, thetas, strict=True)])


def ppo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 eq. 79."""
    return token_mean([clipped(ratio(y, theta), estimates(y, p), p) for y, theta in zip(batch, thetas, strict=True)])


def ppo_kl(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 4.7.4, without the penalty on whole distributions."""
    return token_mean([ratio(y, theta) * estimates(y, p) for y, theta in zip(batch, thetas, strict=True)])


def grpo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 eq. 96 under the token mean of eq. 102."""
    return token_mean([clipped(ratio(y, theta), normalised(y), p) for y, theta in zip(batch, thetas, strict=True)])


def rec_oneside_is(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S3 4.1."""
    return token_mean([clipped(ratio(y, theta), centred(y), p) for y, theta in zip(batch, thetas, strict=True)])


def dr_grpo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 eq. 99, 100."""
    terms = [clipped(ratio(y, theta), centred(y), p).sum() for y, theta in zip(batch, thetas, strict=True)]
    return torch.stack(terms).mean() / LONGEST


def gspo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 eq. 107, 109."""
    terms = [
        clipped((theta - column(y.behavior)).mean().exp(), normalised(y), p)
        for y, theta in zip(batch, thetas, strict=True)
    ]
    return torch.stack(terms).mean()


def sapo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 eq. 117-119."""
    terms = []
    for y, theta in zip(batch, thetas, strict=True):
        tau = p["tau_positive"] if normalised(y) > 0 else p["tau_negative"]
        shaped = 4 / tau * torch.sigmoid(tau * (ratio(y, theta) - 1))
        terms.append((shaped * normalised(y)).mean())
    return torch.stack(terms).mean()


def gmpo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """Zhao et al. 2025 eq. 4: (prod_t |min(rho A, clip(rho, e^-eps, e^eps) A)|)^(1/T) sgn A."""
    low, high = (column([bound]).exp() for bound in (-p["epsilon_log"], p["epsilon_log"]))
    terms = []
    for y, theta in zip(batch, thetas, strict=True):
        advantage, rho = normalised(y), ratio(y, theta)
        if advantage == 0:
            terms.append(0 * theta.sum())  # the root of a product of zeros has no derivative
            continue
        product = torch.minimum(rho * advantage, rho.clamp(low, high) * advantage).abs().prod()
        terms.append(product ** (1 / len(y)) * (1 if advantage > 0 else -1))
    return torch.stack(terms).mean()


def opmd(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """Minus S3 4.2's final loss, both terms divided by the tokens of the batch instead of K."""
    terms = [
        centred(y) * theta.sum() - p["tau"] / 2 * (theta.sum() - sum(y.behavior)) ** 2
        for y, theta in zip(batch, thetas, strict=True)
    ]
    return torch.stack(terms).sum() / sum(map(len, batch))


def surrogate_pairs(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """Minus S3 eq. 6, the mean over prompts."""
    moved = {
        id(y): y.reward - p["tau"] * (theta.sum() - sum(y.current)) for y, theta in zip(batch, thetas, strict=True)
    }
    groups = {id(y.group): y.group for y in batch}.values()
    losses = [
        (moved[id(one)] - moved[id(other)]) ** 2 / (1 + p["tau"]) ** 2 / len(group) ** 2
        for group in groups
        for place, one in enumerate(group)
        for other in group[:place]
    ]
    nothing = 0 * torch.cat(thetas).sum()  # a group of one has no pairs
    return -sum(losses, nothing) / len(groups)


def adaptive_clip(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S0 5.4, Method One."""
    terms = []
    for y, theta in zip(batch, thetas, strict=True):
        rho, rho_k = ratio(y, theta), ratio(y, column(y.current))
        band = rho.clamp(rho_k - p["epsilon"], rho_k + p["epsilon"])
        terms.append(torch.minimum(rho * centred(y), band * centred(y)))
    return token_mean(terms)


def incremental_clip(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S0 5.4, Method Two."""
    terms = []
    for y, theta in zip(batch, thetas, strict=True):
        r, weighted = (theta - column(y.current)).exp(), ratio(y, column(y.current)) * centred(y)
        terms.append(torch.minimum(r * weighted, r.clamp(1 - p["epsilon"], 1 + p["epsilon"]) * weighted))
    return token_mean(terms)


def decoupled_ppo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """Fu et al. 2025: rho_k min(r A, clip(r, 1 - eps, 1 + eps) A)."""
    terms = []
    for y, theta in zip(batch, thetas, strict=True):
        r, rho_k = (theta - column(y.current)).exp(), ratio(y, column(y.current))
        band = r.clamp(1 - p["epsilon"], 1 + p["epsilon"])
        terms.append(rho_k * torch.minimum(r * centred(y), band * centred(y)))
    return token_mean(terms)


def seq_is(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """S4 eq. 106, divided by the tokens of the batch."""
    terms = [(theta - column(y.behavior)).sum().exp() * centred(y) for y, theta in zip(batch, thetas, strict=True)]
    return torch.stack(terms).sum() / sum(map(len, batch))


def _prime_rl(batch: list[Response], thetas: Thetas, p: Parameters, kept: Callable[[Tensor, float], Tensor]) -> Tensor:
    """keep A rho - kl_tau (log rho)^2 of each token, masked ones included in the second term; kl_tau = tau / 2."""
    terms = []
    for y, theta in zip(batch, thetas, strict=True):
        moved = (theta.exp() - column(y.behavior).exp()).detach()
        gain = kept(moved, centred(y)) * centred(y) * ratio(y, theta)
        terms.append(gain - p["tau"] / 2 * (theta - column(y.behavior)) ** 2)
    return token_mean(terms)


def prime_rl(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """default_loss_fn of PrimeIntellect-ai/prime-rl 559b44772, src/prime_rl/trainer/rl/loss.py, adv_tau = 1."""
    return _prime_rl(
        batch, thetas, p,
        lambda moved, a: moved <= p["difference_high"] if a > 0 else moved >= -p["difference_low"],
    )  # fmt: skip


def prime_rl_ipo(batch: list[Response], thetas: Thetas, p: Parameters) -> Tensor:
    """ipo_loss_fn of the same file, adv_tau = 1."""
    return _prime_rl(batch, thetas, p, lambda moved, a: moved.abs() <= p["difference"])


_OBJECTIVES: tuple[Objective, ...] = (
    *(trpo, ppo, ppo_kl, grpo, rec_oneside_is, dr_grpo, gspo, sapo, gmpo, opmd, surrogate_pairs),
    *(adaptive_clip, incremental_clip, seq_is, prime_rl, prime_rl_ipo),
)
OBJECTIVES: dict[str, Objective] = {objective.__name__: objective for objective in _OBJECTIVES} | {"dapo": grpo}


def objective_value(objective: Objective, groups: Groups, p: Parameters) -> float:
    """Of all tokens."""
    batch = [y for group in groups for y in group]
    return float(objective(batch, [column(y.theta) for y in batch], p))


def objective_gradient(objective: Objective, groups: Groups, p: Parameters) -> list[float]:
    """With respect to the log-probs of all tokens."""
    batch = [y for group in groups for y in group]
    thetas = [column(y.theta).requires_grad_(True) for y in batch]
    pieces = torch.autograd.grad(objective(batch, thetas, p), thetas)
    return torch.cat(pieces).tolist()
