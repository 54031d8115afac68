"""Regularisers that act through the sampled tokens: what they add to the coefficient of grad log pi.

Those that need whole distributions (entropy bonus, KL to the policy before the update) are terms of the loss in
`trainer.training.update`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ratioscope.rules.filters import covariances, largest
from ratioscope.rules.ratios import LogRatios, sequence_log_ratio


class Places(NamedTuple):
    """What else is known of the tokens, each (n_tokens,)."""

    sequence: Tensor
    """Where they belong, counting from 0."""
    group: Tensor
    advantage: Tensor
    logp: Tensor
    """log pi_theta."""


def none(ratios: LogRatios, places: Places) -> Tensor:
    """Nothing."""
    return torch.zeros_like(ratios.behavior)


def squared_log_ratio(ratios: LogRatios, places: Places, *, tau: float) -> Tensor:
    """OPMD: the gradient of -(tau/2) (log pi_theta(y) - log pi_old(y))^2 with pi_old the behavior policy (S3 4.2)."""
    return -tau * _whole(ratios.behavior, places.sequence)


def squared_token_log_ratio(ratios: LogRatios, places: Places, *, tau: float) -> Tensor:
    """The same of each token: -(tau/2) (log rho_theta)^2 (DRO and OPMD as their code has it, prime-rl's kl_tau)."""
    return -tau * ratios.behavior


def covariance_kl(ratios: LogRatios, places: Places, *, covariance_share: float, covariance_pull: float) -> Tensor:
    """KL-Cov: -covariance_pull |log rho_theta| of the tokens whose A and log pi_theta go most together."""
    chosen = largest(covariances(places.advantage, places.logp), covariance_share, len(places.logp))
    return torch.where(chosen, -covariance_pull * ratios.behavior.sign(), 0.0)


def pair_consistency(ratios: LogRatios, places: Places, *, tau: float) -> Tensor:
    """What S3 eq. 6 adds to REINFORCE once the policy has moved away from pi_k: each group is pulled together again."""
    moved = _whole(ratios.incremental, places.sequence)
    n_sequences = int(places.sequence.max()) + 1 if len(moved) else 0
    first = torch.full((n_sequences,), len(moved), dtype=torch.long, device=moved.device)
    first = first.scatter_reduce(0, places.sequence, torch.arange(len(moved), device=moved.device), "amin")
    first = first[first < len(moved)]  # one token of each sequence that has any
    group = places.group[first]
    n_groups = int(group.max()) + 1 if len(group) else 0
    total = torch.zeros(n_groups, dtype=moved.dtype, device=moved.device).index_add(0, group, moved[first])
    mean = total / torch.bincount(group, minlength=n_groups).clamp(min=1)
    return -tau * (2 * tau / (1 + tau) ** 2) * (moved - mean[places.group])


def _whole(log_ratio: Tensor, sequence: Tensor) -> Tensor:
    """The log-ratio of each token's whole sequence."""
    n = int(sequence.max()) + 1 if len(sequence) else 0
    return sequence_log_ratio(log_ratio, sequence, n)[sequence]


def adaptive_kl(ratios: LogRatios, places: Places) -> Tensor:
    """PPO's KL to the policy before the update, steered to a target (S4 4.7.4): a term of the loss, nothing here."""
    return none(ratios, places)


REGULARISERS: dict[str, Callable[..., Tensor]] = {
    "none": none,
    "squared_log_ratio": squared_log_ratio,
    "squared_token_log_ratio": squared_token_log_ratio,
    "covariance_kl": covariance_kl,
    "pair_consistency": pair_consistency,
    "adaptive_kl": adaptive_kl,
}


def k1(log_policy_over_reference: Tensor) -> Tensor:
    """The gradient of log(pi/ref): it vanishes in expectation, and is here to be seen doing so."""
    return torch.ones_like(log_policy_over_reference)


def k2(log_policy_over_reference: Tensor) -> Tensor:
    """The gradient of KL(pi || ref), as S4 eq. 97 wants it."""
    return log_policy_over_reference


def k3(log_policy_over_reference: Tensor) -> Tensor:
    """The gradient of KL(ref || pi)."""
    return -torch.expm1(-log_policy_over_reference)


# Each gives minus a token's coefficient on samples of pi; off-policy it takes the ratio pi / behavior as weight.
KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {estimator.__name__: estimator for estimator in (k1, k2, k3)}
