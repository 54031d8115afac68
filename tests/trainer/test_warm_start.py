"""The supervised start: trained once a configuration, then read from the cache, whatever state that is in."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from ratioscope.trainer.config import TrainConfig
from ratioscope.trainer.tasks.addition import Addition
from ratioscope.trainer.warm_start import warm_started
from tests.making.training import small


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path))
    return tmp_path / "warm_start"


def start(config: TrainConfig) -> tuple[LlamaForCausalLM, list[int]]:
    """The policy, and the supervised steps at which training reported."""
    reported: list[int] = []
    task = Addition(config.task.digits, config.task.evaluation_prompts)
    model, _ = warm_started(config, task, lambda step, accuracy: reported.append(step))
    return model, reported


def same_weights(one: LlamaForCausalLM, other: LlamaForCausalLM) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())


def brief(*overrides: str) -> TrainConfig:
    return small("warm_start.max_steps=12", *overrides)


def test_the_second_call_reads_what_the_first_one_trained(empty_cache: Path) -> None:
    first, reported = start(brief())
    assert reported == [0]
    second, reported_again = start(brief())
    assert reported_again == []
    assert same_weights(first, second)
    assert len(list(empty_cache.iterdir())) == 1


@pytest.mark.parametrize(
    "override",
    ["warm_start.seed=1", "hidden_size=16", "warm_start.accuracy=0.5", "evaluation_prompts=21", "warm_start.batch=64"],
)
def test_another_start_gets_a_file_of_its_own(empty_cache: Path, override: str) -> None:
    start(brief())
    _, reported = start(brief(override))
    assert reported
    assert len(list(empty_cache.iterdir())) == 2


@pytest.mark.parametrize(
    "override", ["algorithm=reinforce", "seed=7", "sync_interval=5", "learning_rate=0.1", "updates=3", "prompts=2"]
)
def test_what_comes_after_the_start_does_not_change_it(override: str) -> None:
    start(brief())
    _, reported = start(brief(override))
    assert reported == []


@pytest.mark.parametrize("damage", ["empty", "text", "cut short", "another model", "no weights"])
def test_a_damaged_file_is_trained_again_and_replaced(empty_cache: Path, damage: str) -> None:
    good, _ = start(brief())
    (path,) = empty_cache.iterdir()
    whole = path.read_bytes()
    if damage == "another model":
        torch.save({"weight": torch.zeros(3)}, path)
    elif damage == "no weights":
        torch.save([1, 2, 3], path)
    else:
        path.write_bytes({"empty": b"", "text": b"not a checkpoint", "cut short": whole[: len(whole) // 2]}[damage])
    mended, reported = start(brief())
    assert reported == [0]
    assert same_weights(good, mended)
    assert start(brief())[1] == []
    assert [file.suffix for file in empty_cache.iterdir()] == [".pt"]


def test_training_stops_when_the_accuracy_is_reached() -> None:
    _, reported = start(small("warm_start.accuracy=0.0"))
    assert reported == [0]
    accuracies: list[float] = []
    warm_started(small("warm_start.seed=3"), Addition(1, 20), lambda step, accuracy: accuracies.append(accuracy))
    assert accuracies[-1] >= 0.35
    assert all(accuracy < 0.35 for accuracy in accuracies[:-1])


def test_the_random_numbers_of_the_caller_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    start(brief())
    assert torch.equal(torch.rand(3), expected)
