"""verl's own losses and advantages as an outside oracle: the same batch, the same gradient and the same loss."""

from collections import defaultdict
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, Optional

import numpy as np
import pytest
import torch

from ratioscope.trainer.algorithms.losses import policy_loss
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from tests.making.batches import LONGEST, gradient, mask_of, padded, parameters_of, random_batch, tensors
from tests.making.installed import Source
from tests.making.loops import in_one_loop

GROUPS = random_batch(0, groups=5, copies=4, spread=0.4)


class Settings(SimpleNamespace):
    """An ActorConfig, as far as the losses ask it."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


@cache
def verl(name: str) -> Any:
    """A function of core_algos, run without importing verl, which takes ten seconds."""
    masked = Source("verl", "utils/torch_functional.py")
    functions: dict[str, Any] = {"torch": torch}
    for each in ("masked_sum", "masked_mean", "masked_var", "masked_whiten"):
        functions[each] = masked.run(each, **functions)
    known: dict[str, Any] = {
        "torch": torch, "np": np, "Any": Any, "Optional": Optional, "defaultdict": defaultdict, "DictConfig": dict,
        "ActorConfig": Settings, "AlgoConfig": type("AlgoConfig", (), {}), "verl_F": SimpleNamespace(**functions),
    }  # fmt: skip
    source = Source("verl", "trainer/ppo/core_algos.py")
    known["agg_loss"] = source.run("agg_loss", **known)
    return source.run(name, **known)


class Case(NamedTuple):
    """verl's loss and what it is told; `ours` replaces parameters of the algorithm."""

    loss: str
    settings: dict[str, Any]
    ours: dict[str, float] = {}  # noqa: RUF012  # read only
    old: str = "logp_behavior"
    weight: str = ""
    mode: str = "token-mean"
    value: bool = True
    """Whether the loss is the same number; DPPO's is weight A log pi there and rho A here."""


OFF = 1e9
STEP = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": OFF}
NORM = "seq-mean-token-sum-norm"
CASES = {
    "grpo_dual_clip": Case("vanilla", {"clip_ratio_c": 2.0}, {"dual": 2.0}),
    "decoupled_tis": Case("vanilla", STEP, {"epsilon": 0.2, "cap": 1.3}, "logp_current", "token"),
    "decoupled_seq_tis": Case("vanilla", STEP, {"epsilon": 0.2, "cap": 1.3}, "logp_current", "sequence"),
    "dppo_tv": Case(
        "dppo_tv", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.15, "clip_ratio_c": OFF},
        {"difference_low": 0.1, "difference_high": 0.15}, mode=NORM, value=False,
    ),
    "dppo_kl": Case(
        "dppo_kl", {"clip_ratio_low": 0.05, "clip_ratio_high": 0.05, "clip_ratio_c": OFF}, {"threshold": 0.05},
        mode=NORM, value=False,
    ),
    # All tokens between the bounds: verl draws among them, here those with the largest covariance go.
    "clip_cov": Case(
        "clip_cov", {"policy_loss": SimpleNamespace(clip_cov_ratio=1.0, clip_cov_lb=0.1, clip_cov_ub=0.6)},
        {"covariance_share": 1.0, "covariance_low": 0.1, "covariance_high": 0.6},
    ),
    "kl_cov": Case(
        "kl_cov", {"policy_loss": SimpleNamespace(kl_cov_ratio=0.1, ppo_kl_coef=0.7)},
        {"covariance_share": 0.1, "covariance_pull": 0.7},
    ),
    "opmd_token": Case("dro", {"policy_loss": SimpleNamespace(dro_beta=0.3)}, {"tau": 0.3}),
}  # fmt: skip


@in_one_loop("name", {name: name for name in CASES})
def test_loss_and_gradient_are_those_of_verl(name: str) -> None:
    case, parameters = CASES[name], parameters_of(name) | CASES[name].ours
    found = tensors(name, GROUPS, **case.ours)
    ours = policy_loss(ALGORITHMS[name], parameters, found.logp, found.batch, found.size).loss
    mine = torch.autograd.grad(ours, found.logp)[0]

    low, high = parameters.get("epsilon_low", 0.2), parameters.get("epsilon_high", 0.2)
    clip = {"clip_ratio": low, "clip_ratio_low": low, "clip_ratio_high": high}
    scale = {"loss_scale_factor": LONGEST} if case.mode == NORM else {}
    mask, weights = mask_of(found), None
    if case.weight:
        moved = padded(found, found.batch.logp_current - found.batch.logp_behavior)
        moved = moved.sum(dim=1, keepdim=True) if case.weight == "sequence" else moved
        weights = moved.exp().clamp(max=parameters["cap"]).expand(mask.shape)
    theirs, _ = verl(f"compute_policy_loss_{case.loss}")(
        old_log_prob=padded(found, getattr(found.batch, case.old)),
        log_prob=padded(found, found.logp),
        advantages=padded(found, found.batch.advantage),
        response_mask=mask.double(),
        loss_agg_mode=case.mode,
        config=Settings(**(clip | case.settings), global_batch_info=scale),
        rollout_is_weights=weights,
    )
    expected = torch.autograd.grad(theirs, found.logp)[0]
    assert mine.tolist() == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-9)
    plain = tensors("reinforce", GROUPS)
    assert mine.tolist() != pytest.approx([-value for value in gradient("reinforce", plain)], rel=1e-2)
    if case.value:
        assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-6)


def test_gpgs_advantages_are_those_of_verl_but_for_what_alpha_counts() -> None:
    """verl's alpha counts rewards other than 0, the source's the responses of groups with a signal."""
    groups = random_batch(2, groups=8, copies=3)
    for y in (*groups[0], *groups[1]):
        y.reward = 1.0  # without a signal, and other than 0
    found = tensors("gpg", groups)
    responses, mask = [y for group in groups for y in group], mask_of(found)
    reward = torch.tensor([[y.reward] for y in responses], dtype=torch.float64)
    index = np.repeat(np.arange(len(groups)), 3)
    theirs, _ = verl("compute_gpg_outcome_advantage")(reward, mask.double(), index)
    signal = 3 * sum(len({y.reward for y in group}) > 1 for group in groups)
    counted = sum(y.reward != 0 for y in responses)
    assert signal != counted
    expected = theirs[mask] * counted / signal
    assert expected.any() and found.batch.advantage.tolist() == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-9)


ADVANTAGES = ("rloo_outcome", "reinforce_plus_plus_outcome", "optimal_token_baseline", "remax_outcome")


@in_one_loop("function", {name: name for name in ADVANTAGES})
def test_advantages_are_those_of_verl(function: str) -> None:
    groups, name = random_batch(1), function.removesuffix("_outcome")
    for y in (y for group in groups for y in group):
        # The squared length of a score, or what one greedy response gets.
        y.value = [abs(value) for value in (y.value[:1] * len(y) if name == "remax" else y.value)]
    found = tensors(name, groups)
    mask, responses = mask_of(found), [y for group in groups for y in group]
    last = mask.sum(dim=1) - 1
    reward = torch.zeros(mask.shape, dtype=torch.float64)
    reward[torch.arange(len(responses)), last] = torch.tensor([y.reward for y in responses], dtype=torch.float64)
    energy = padded(found, torch.tensor([value for y in responses for value in y.value], dtype=torch.float64))
    everything = {
        "token_level_rewards": reward, "response_mask": mask.double(), "config": Settings(gamma=0.9),
        "index": np.repeat(np.arange(len(groups)), len(groups[0])),
        # 1 - 2 pi + sum pi^2 is the energy where pi is 1/2.
        "old_log_probs": torch.full(mask.shape, -np.log(2), dtype=torch.float64), "sum_pi_squared": energy,
        "reward_baselines": energy[:, 0],
    }  # fmt: skip
    theirs, _ = verl(f"compute_{function}_advantage")(**everything)
    assert found.batch.advantage.tolist() == pytest.approx(theirs[mask].tolist(), rel=1e-6, abs=1e-9)
