"""What is printed as the loss: the objective as its source writes it. Its gradient is the loss's, term by term.

- Weights proportional to pi_theta print rho A; with a clip that is min(rho A, clip(rho) A): what the gate has stopped
  stands on its bound. What a mask or a filter drops is 0. SAPO's gate prints (4/tau) sigmoid(tau (rho - 1)) A.
- GMPO prints its geometric mean times A.
- All other weights, and none, are constants in their sources, too: weight gate A log pi_theta.
- OPMD adds -(tau/2) (log rho)^2, the pairwise loss is (a_i - mean a)^2 / (1 + tau)^2 of each response, and the KL to
  the reference adds beta rho times its estimate to the loss. Terms of whole distributions come in
  `trainer.training.update`.

`algorithm.printed` says it in one line.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ratioscope.rules.gates import GATES, Gate, GateKind
from ratioscope.rules.ratios import LogRatios, sum_over_sequence
from ratioscope.trainer.algorithms.algorithm import PROPORTIONAL, Algorithm
from ratioscope.trainer.algorithms.parameters import taken_by

KL_ESTIMATES: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d: d,
    "k2": lambda d: d**2 / 2,
    "k3": lambda d: torch.expm1(-d) + d,
}
"""Estimates of KL(pi || reference) from d = log(pi / reference); their derivatives are `regularisers.KL_ESTIMATORS`."""


def of_policy(
    algorithm: Algorithm,
    settings: Mapping[str, float],
    logp: Tensor,
    ratios: LogRatios,
    advantage: Tensor,
    sequence: Tensor,
    gate: Gate,
    weight: Tensor,
) -> Tensor:
    """(n_tokens,) what the policy's part of the objective is at each token, before sample weight and aggregation.

    Args:
        algorithm: names of the parts.
        settings: all parameters.
        logp: log pi_theta, without gradient.
        ratios: log-ratios at the algorithm's level.
        advantage: of each token.
        sequence: index of each token's sequence.
        gate: what the algorithm's gate decided, without its filter.
        weight: the importance weight.
    """
    gated = torch.where(gate.value > 0, weight * gate.value, 0.0)  # a shut gate stops what overflows, too
    if algorithm.weight == "geometric_of_clipped":
        return weight * advantage
    if algorithm.weight not in PROPORTIONAL:
        return gated * advantage * logp
    row, up = GATES.get(algorithm.gate), advantage > 0
    per_ratio = (weight.log() - ratios.behavior).nan_to_num(nan=0.0).exp()  # 1, where the weight is the ratio
    value = gated
    if row and row.kind is GateKind.SOFT:
        tau = torch.where(up, settings["tau_positive"], settings["tau_negative"]).double()
        value = per_ratio * 4 / tau * torch.sigmoid(tau * torch.expm1(ratios.behavior))
    elif row and row.reach and (row.kind is GateKind.CLIP or algorithm.gate == "dual_clip"):
        bound = row.reach(ratios.current.exp(), up, **taken_by(row.function, settings))
        if algorithm.gate == "dual_clip":
            bound = torch.where(~up & (gate.side > 0), settings["dual"], bound)
        value = torch.where(gate.clipped, per_ratio * bound, weight)
    if algorithm.level == "sequence":  # its tokens share one ratio and one derivative
        value = value / torch.bincount(sequence)[sequence]
    return value * advantage


def with_regulariser(
    algorithm: Algorithm,
    settings: Mapping[str, float],
    policy: Tensor,
    added: Tensor,
    log_rho: Tensor,
    logp: Tensor,
    advantage: Tensor,
    sequence: Tensor,
) -> Tensor:
    """The policy's part with what the regulariser adds, whose coefficients of grad log pi are `added`; per token."""
    name, length = algorithm.regulariser, torch.bincount(sequence)[sequence]
    if name == "squared_log_ratio":
        return policy + added * sum_over_sequence(log_rho, sequence) / (2 * length)
    if name == "squared_token_log_ratio":
        return policy + added * log_rho / 2
    if name == "covariance_kl":
        return policy + added * log_rho
    if name == "pair_consistency":  # policy and regulariser are one square
        tau = settings["tau"]
        return -(((advantage + added * (1 + tau) ** 2 / (2 * tau)) / (1 + tau)) ** 2) / length
    return policy + added * logp
