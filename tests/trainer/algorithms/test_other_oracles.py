"""Losses of OpenRLHF, SkyRL and AReaL as outside oracles: the same batch, the same gradient."""

from types import SimpleNamespace
from typing import Any, Optional

import pytest
import torch

from ratioscope.trainer.algorithms.losses import policy_loss
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from tests.making.batches import Tensors, mask_of, padded, parameters_of, random_batch, tensors
from tests.making.installed import Source

GROUPS = random_batch(6, groups=6, copies=4, spread=0.4)


def ours(name: str, found: Tensors, **parameters: float) -> tuple[float, list[float]]:
    """Loss and gradient; some tokens of the batch have none."""
    loss = policy_loss(ALGORITHMS[name], parameters_of(name) | parameters, found.logp, found.batch, found.size).loss
    gradient = torch.autograd.grad(loss, found.logp)[0]
    without = (gradient == 0) & (found.batch.advantage != 0)
    assert 0.05 < float(without.double().mean()) < 0.95
    return float(loss.detach()), gradient.tolist()


def test_icepop_is_that_of_openrlhf() -> None:
    bounds = {"epsilon": 0.2, "floor": 0.7, "cap": 1.4}
    found = tensors("icepop", GROUPS, **bounds)
    source = Source("openrlhf", "models/loss.py")
    known = {"torch": torch, "nn": torch.nn, "Optional": Optional}
    known["masked_mean"] = Source("openrlhf", "models/utils.py").run("masked_mean", **known)
    known["aggregate_loss"] = source.run("aggregate_loss", **known)
    loss_of = source.run("PolicyLoss", **known)(
        is_correction_level="token", is_correction_mode="mask", is_correction_threshold=[0.7, 1.4]
    )
    theirs, *_ = loss_of(
        padded(found, found.logp),
        padded(found, found.batch.logp_current),
        padded(found, found.batch.advantage),
        mask_of(found),
        padded(found, found.batch.logp_behavior),
    )
    loss, gradient = ours("icepop", found, **bounds)
    expected = torch.autograd.grad(theirs, found.logp)[0].tolist()
    assert gradient == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert loss == pytest.approx(float(theirs.detach()), rel=1e-6)


def test_geometric_masks_are_those_of_skyrl() -> None:
    bounds = {"epsilon": 0.2, "floor": 0.9, "cap": 1.15}
    found = tensors("geo_mask", GROUPS, **bounds)
    helpers = Source("skyrl", "backends/skyrl_train/utils/torch_utils.py")
    known: dict[str, Any] = {name: helpers.run(name, torch=torch) for name in ("masked_mean", "safe_exp_delta")}
    corrections = Source("skyrl", "backends/skyrl_train/utils/off_policy_correction_utils.py")
    known |= {"DictConfig": dict, "AlgorithmConfig": object, "torch": torch, "Optional": Optional, "Tuple": tuple}
    for step in ("off_policy_correction_enabled", "compute_sequence_mask", "compute_off_policy_correction"):
        known[step] = corrections.run(step, **known)
    known["apply_off_policy_correction"] = corrections.run("apply_off_policy_correction", **known)
    losses = Source("skyrl", "backends/skyrl_train/utils/ppo_utils.py")
    known["reduce_loss"] = losses.run("reduce_loss", **known)
    off = dict.fromkeys(Source("skyrl", "train/config/config.py").fields("OffPolicyCorrectionConfig"))
    chosen = {"sequence_mask_metric": "geometric", "geo_mask_low": 0.9, "geo_mask_high": 1.15}
    settings = SimpleNamespace(
        policy_loss_type="regular",
        eps_clip_low=0.2,
        eps_clip_high=0.2,
        off_policy_correction=SimpleNamespace(**off | chosen),
    )
    theirs, _ = losses.run("ppo_policy_loss", **known)(
        padded(found, found.logp),
        padded(found, found.batch.logp_current),
        padded(found, found.batch.advantage) / found.size.tokens,
        settings,
        mask_of(found).double(),
        padded(found, found.batch.logp_behavior),
    )
    loss, gradient = ours("geo_mask", found, **bounds)
    expected = torch.autograd.grad(theirs, found.logp)[0].tolist()
    assert gradient == pytest.approx(expected, rel=1e-5, abs=1e-8)  # its ratios are of single precision
    assert loss == pytest.approx(float(theirs.detach()), rel=1e-5)


def test_m2po_drops_the_tokens_that_areal_drops_of_those_that_go_on() -> None:
    """Zheng et al. and Trinity-RFT look at the tokens that move on in the advantage's direction, AReaL at all of them,
    with pi_k: given those tokens and pi_theta, its mask is ours."""
    source = Source("areal", "trainer/ppo/actor.py")
    keep = source.run(
        "_apply_m2po_masking", torch=torch, _get_m2po_loss_mask=source.run("_get_m2po_loss_mask", torch=torch)
    )
    found = tensors("m2po", GROUPS)
    logp, behavior, advantage = found.logp.detach(), found.batch.logp_behavior, found.batch.advantage
    onward = (logp - behavior) * advantage > 0
    kept = keep(
        padded(found, behavior), padded(found, logp), mask_of(found).masked_scatter(mask_of(found), onward), 0.1
    )
    dropped = onward & ~kept[mask_of(found)]
    plain = torch.where(dropped, 0.0, advantage * (logp - behavior).exp()) / found.size.tokens
    assert ours("m2po", found, moment=0.1)[1] == pytest.approx((-plain).tolist(), rel=1e-6, abs=1e-9)
