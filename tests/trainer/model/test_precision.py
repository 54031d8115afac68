"""bfloat16 is what a policy computes in, not what it is trained in; recomputed activations change nothing."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from ratioscope.trainer.model.precision import MasterWeights, cast
from ratioscope.trainer.sampling.rollout import TrainingBatch
from ratioscope.trainer.training.loop import Trainer
from tests.making.training import same_tables, small, train
from tests.oracles.replay import steps_of

RATE = 1e-6  # the usual one of language models
CAREFUL = ("algorithm=reinforce", f"learning_rate={RATE}", "weight_decay=0", "updates=2")


def flat(weights: list[torch.nn.Parameter]) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in weights])


def moved_by(trainer: Trainer, batch: TrainingBatch) -> Tensor:
    """What one update on a batch adds to the float32 weights."""
    before = flat(trainer.learner.weights.exact).clone()
    trainer.learner.update(0, batch)
    return flat(trainer.learner.weights.exact) - before


def test_adamw_moves_the_master_weights_as_it_moves_float32_ones() -> None:
    """With the same gradients to the bit; the model's own are those rounded."""
    start = torch.randn(1_000, generator=torch.Generator().manual_seed(0))
    slope = torch.randn(1_000, generator=torch.Generator().manual_seed(1)).bfloat16()
    master = MasterWeights([torch.nn.Parameter(start.clone())], torch.bfloat16)
    plain = torch.nn.Parameter(start.clone())
    optimisers = [torch.optim.AdamW(weights, lr=RATE) for weights in (master.exact, [plain])]
    for _ in range(20):
        (master.computing[0] * slope).sum().backward()
        (plain * slope.float()).sum().backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        master.publish()
    assert torch.equal(master.exact[0], plain)
    assert torch.equal(master.computing[0], plain.bfloat16())
    assert (master.computing[0] == start.bfloat16()).float().mean() > 0.9, "in bfloat16 alone they would have stood"


@pytest.mark.parametrize("micro_batch", [0, 2])
def test_a_bfloat16_policy_moves_as_a_float32_one_does(tmp_path: Path, micro_batch: int) -> None:
    """A first step of AdamW has the size of the learning rate wherever there is a gradient."""
    fine = Trainer(small(*CAREFUL), tmp_path / "fine")
    coarse = Trainer(small(*CAREFUL, "model.dtype=bfloat16", f"micro_batch={micro_batch}"), tmp_path / "coarse")
    for trainer in (fine, coarse):
        trainer.collector.publish(0, trainer.model)
    batch = fine.collector.collect(0)
    wanted, moved = (moved_by(trainer, batch) for trainer in (fine, coarse))
    assert (moved != 0).sum() > 0.999 * (wanted != 0).sum() > 0
    assert torch.nn.functional.cosine_similarity(moved, wanted, dim=0) > 0.97
    assert torch.equal(flat(list(coarse.model.parameters())), flat(coarse.learner.weights.exact).bfloat16())


def test_the_sampler_of_a_bfloat16_run_is_the_rounded_policy_itself(tmp_path: Path) -> None:
    run = train(small("model.dtype=bfloat16", "learning_rate=0.003", "updates=4"), tmp_path / "run")
    for tokens in steps_of(run.folder):
        assert tokens["logp_behavior"] == pytest.approx(tokens["logp_current"], abs=0.1)
        assert (tokens["logp_behavior"] - tokens["logp_current"]).abs().mean() < 0.01


def test_a_stopped_bfloat16_run_goes_on_with_its_float32_weights(tmp_path: Path) -> None:
    config = small(*CAREFUL, "model.dtype=bfloat16", "updates=4")
    train(config, tmp_path / "whole")
    stops = iter([False, True])
    assert train(config, tmp_path / "run", should_stop=lambda: next(stops)).status == "interrupted"
    train(config, tmp_path / "run", resume=True)
    assert same_tables(tmp_path / "run", tmp_path / "whole")


def test_trpo_in_bfloat16_holds_its_bound_and_moves(tmp_path: Path) -> None:
    trainer = Trainer(small("algorithm=trpo", "model.dtype=bfloat16", "updates=2"), tmp_path / "run")
    before = flat(trainer.learner.weights.exact)
    trainer.run(lambda progress: None)
    after = flat(trainer.learner.weights.exact)
    assert after.dtype == torch.float32 and (after != before).float().mean() > 0.5


def test_only_weights_are_cast(tiny_policy: LlamaForCausalLM) -> None:
    model = LlamaForCausalLM(tiny_policy.config)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    cast(model, torch.bfloat16)
    assert buffers and all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_recomputed_activations_train_as_kept_ones_do_in_less_memory(tmp_path: Path) -> None:
    plain = ("algorithm=ppo", "learning_rate=0.001", "updates=2")

    def trained(*overrides: str) -> tuple[Path, int]:
        kept: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            kept.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return train(small(*plain, *overrides), tmp_path / f"run{len(overrides)}").folder, sum(kept)

    (kept, more), (recomputed, less) = trained(), trained("gradient_checkpointing=true")
    assert less < 0.7 * more  # the one layer of this policy; its logits stay
    for one, other in zip(steps_of(kept), steps_of(recomputed), strict=True):
        for name in ("token_id", "clip_side"):
            assert torch.equal(one[name], other[name])
        for name in ("logp_current", "logp_new", "gradient_weight"):
            assert one[name] == pytest.approx(other[name], abs=1e-4)


def test_deterministic_algorithms_are_asked_for_while_the_run_trains_only(tmp_path: Path) -> None:
    trainer = Trainer(small("updates=1", "deterministic=true"), tmp_path / "run")
    found: list[bool] = []
    trainer.run(lambda progress: found.append(torch.are_deterministic_algorithms_enabled()))
    assert found == [True] and not torch.are_deterministic_algorithms_enabled()
