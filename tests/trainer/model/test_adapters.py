"""Adapters: nothing at first, the only thing that moves, all that is kept; and the policy is what they say by hand."""

import copy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM

from ratioscope.errors import RatioscopeError
from ratioscope.trainer.model.adapters import attach, check_installed, copied, trained, version_of
from ratioscope.trainer.model.policy import evaluate
from ratioscope.trainer.sampling.engine import Engine, rounded_to_int8
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.training import checkpoint
from ratioscope.trainer.training.loop import Trainer
from tests.making import pretrained
from tests.making.training import same_tables, table, train

pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")

RANK, ALPHA = 3, 12.0
LAYERS = 2
LINEAR = 7
"""Layers beside which there is an adapter, in each layer of a Llama."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("saved") / "model"
    pretrained.save(place)
    return place


@pytest.fixture
def base(folder: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(folder).eval()


def settings(folder: Path, *overrides: str) -> TrainConfig:
    """AsymRE has a gradient for wrong answers, too: the model knows nothing."""
    small = ("prompts=4", "samples_per_prompt=2", "evaluation_prompts=4", "digits=1", "updates=6", "device=cpu")
    lora = (f"model.path={folder}", f"model.lora_rank={RANK}", f"model.lora_alpha={ALPHA}")
    rate = ("algorithm=asymre", "learning_rate=0.05", "sync_interval=2", "evaluate_every=9", "checkpoint_every=4")
    return load_settings("on_policy", [*small, *lora, *rate, *overrides])


def by_hand(base: LlamaForCausalLM, weights: dict[str, torch.Tensor]) -> LlamaForCausalLM:
    """A plain model with W + alpha/rank B A for every W."""
    merged = copy.deepcopy(base)
    with torch.no_grad():
        for name, parameter in merged.named_parameters():
            a, b = (weights.get(name.replace(".weight", f".lora_{side}.default.weight")) for side in "AB")
            if a is not None and b is not None:
                parameter += ALPHA / RANK * (b @ a)
    return merged


def test_new_adapters_change_nothing_and_are_all_that_can_move(folder: Path, base: LlamaForCausalLM) -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    model, again = (attach(copy.deepcopy(base), RANK, ALPHA) for _ in range(2))
    assert torch.equal(torch.rand(2), expected)
    tokens = torch.arange(40).view(2, 20)
    assert torch.equal(model(tokens).logits, base(tokens).logits)
    moving = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert moving == trained(model).keys() == version_of(model).keys()
    assert len(moving) == 2 * LAYERS * LINEAR
    assert all(RANK in parameter.shape for parameter in trained(model).values())
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
    assert trained(base).keys() == dict(base.named_parameters()).keys()


def test_a_copy_shares_what_training_leaves_as_it_is(base: LlamaForCausalLM) -> None:
    plain = copied(base)
    assert not {id(weight) for weight in plain.parameters()} & {id(weight) for weight in base.parameters()}
    model = attach(base, RANK, ALPHA)
    own = trained(copied(model))
    shared = [name for name, weight in copied(model).named_parameters() if weight is model.get_parameter(name)]
    assert own.keys().isdisjoint(shared) and len(own) + len(shared) == len([*model.parameters()])


def test_a_run_is_that_of_the_merged_weights_and_keeps_adapters_only(
    folder: Path, base: LlamaForCausalLM, tmp_path: Path
) -> None:
    trainer = Trainer(settings(folder, "reference_kl=0.1"), tmp_path / "run")
    versions: list[dict[str, torch.Tensor]] = []
    with trainer.recorder:
        for step in range(4):
            versions.append(copy.deepcopy(version_of(trainer.model)))
            trainer.collector.publish(step, trainer.model)
            batch = trainer.collector.collect(step)
            outcome = trainer.learner.update(step, batch)
            rollout, select = batch.rollout, outcome.prepared.select
            for column, weights in (
                ("logp_behavior", versions[step // 2 * 2]),
                ("logp_current", versions[step]),
                ("logp_new", version_of(trainer.model)),
                ("logp_reference", {}),
            ):
                with torch.no_grad():
                    expected = evaluate(by_hand(base, weights), rollout, select).logp
                assert outcome.columns[column] == pytest.approx(expected, abs=2e-5), column
            for kept in trainer.collector.weights.values():
                assert kept.keys() == versions[0].keys()
        assert all(not torch.equal(versions[0][name], moved) for name, moved in version_of(trainer.model).items())
        for name, parameter in trainer.model.named_parameters():
            plain = name.replace(".base_layer", "")
            assert ".lora_" in name or torch.equal(parameter, base.get_parameter(plain))


def test_a_checkpoint_holds_adapters_only_and_a_run_goes_on_from_it_to_the_bit(folder: Path, tmp_path: Path) -> None:
    whole, parts, config = tmp_path / "whole", tmp_path / "parts", settings(folder)
    train(config, whole)
    seen = []
    train(config, parts, should_stop=lambda: seen.append(0) or len(seen) == 3)  # type: ignore[func-returns-value]
    state = checkpoint.load_checkpoint(parts)
    assert state is not None and state["next_update"] == 3
    assert all(".lora_" in name for name in state["model"])
    assert all(".lora_" in name for weights in state["snapshots"].values() for name in weights)
    assert train(config, parts, resume=True).status == "finished"
    assert same_tables(whole, parts)
    assert table(whole, "steps")["grad_norm"].to_numpy().min() > 0


def test_in_bfloat16_the_model_is_coarse_and_the_adapters_behind_it_are_not(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(settings(folder, "model.dtype=bfloat16"), tmp_path / "run")
    trainer.run(lambda progress: None)
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.bfloat16}
    exact = trainer.learner.weights.exact
    assert {weight.dtype for weight in exact} == {torch.float32} and len(exact) == 2 * LAYERS * LINEAR
    assert any(not torch.equal(weight, weight.bfloat16().float()) for weight in exact)


def test_a_sampler_in_int8_rounds_the_model_and_the_adapters(base: LlamaForCausalLM) -> None:
    model = attach(base, RANK, ALPHA)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    loaded = Engine(model, "int8").load({name: weight + 1 for name, weight in version_of(model).items()}, 1)
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, rounded_to_int8(before[name] + (".lora_" in name))), name
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_other_architectures_have_adapters_too() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=1)).eval()
    tokens = torch.arange(10).view(1, 10)
    before = model(tokens).logits
    assert torch.equal(attach(model, 2, 4.0)(tokens).logits, before)
    assert all("h.0." in name for name in trained(model)) and len(trained(model)) == 8


def test_without_the_package_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(RatioscopeError, match=r"^model.lora_rank=8 needs the package peft: pip install peft\.$"):
        check_installed(8)
