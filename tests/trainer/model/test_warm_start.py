"""The supervised start: trained once a configuration, then read from the cache, whatever state that is in."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from ratioscope.trainer import tasks
from ratioscope.trainer.model.vocabulary import END
from ratioscope.trainer.model.warm_start import SHIPPED, digest, warm_started
from ratioscope.trainer.sampling.sample import sample_evaluation, scored
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.settings.table import presets
from ratioscope.trainer.tasks.addition import Addition
from ratioscope.trainer.tasks.counting import Counting
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
    [
        "warm_start.seed=1",
        "hidden_size=16",
        "warm_start.accuracy=0.5",
        "evaluation_prompts=21",
        "warm_start.right_share=0.4",
    ],
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
        save_file({"weight": torch.zeros(3)}, path)
    elif damage == "no weights":
        torch.save([1, 2, 3], path)
    else:
        path.write_bytes({"empty": b"", "text": b"not a checkpoint", "cut short": whole[: len(whole) // 2]}[damage])
    mended, reported = start(brief())
    assert reported == [0]
    assert same_weights(good, mended)
    assert start(brief())[1] == []
    assert [file.suffix for file in empty_cache.iterdir()] == [".safetensors"]


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


def test_starts_of_all_presets_travel_with_the_package() -> None:
    files = [*SHIPPED.iterdir()]
    assert sum(file.stat().st_size for file in files) < 2e6
    configs = [load_settings(preset, ["evaluation_prompts=512"]) for preset in presets()]
    built_in = [config for config in configs if not config.model.path]
    assert {digest(config, tasks.make(config.task)) for config in built_in} == {file.stem for file in files}


def test_the_start_of_counting_knows_how_and_forgets_carries_whatever_the_limit() -> None:
    for limit in (40, 100):
        config = load_settings("counting", [f"response_length={limit}", "evaluation_prompts=128"])
        task = tasks.make(config.task)
        assert isinstance(task, Counting)
        model, vocabulary = warm_started(config, task, lambda step, learned: pytest.fail("it was trained"))
    rollout, accuracy = sample_evaluation(model, task, vocabulary, torch.Generator(model.device).manual_seed(1))
    found = scored(rollout, task, vocabulary, task.evaluation_ids)
    taught = [task.is_lesson(i, text.removesuffix(END)) for i, text in enumerate(found.responses)]
    assert 0.25 < accuracy < 0.55 and sum(taught) / len(taught) > 0.75
    length = rollout.mask.sum(dim=1).float()
    assert 55 < float(length.mean()) < 80 and float(length[found.reward == 0].mean()) > float(
        length[found.reward > 0].mean()
    )


def test_the_usual_start_knows_the_answer_and_mostly_writes_it_backwards() -> None:
    configs = [load_settings("on_policy")]
    task = Addition(2, configs[0].task.evaluation_prompts)
    fewer = configs[0].model_copy(update={"task": configs[0].task.model_copy(update={"evaluation_prompts": 64})})
    for config in (fewer, configs[0]):
        model, vocabulary = warm_started(config, task, lambda step, learned: pytest.fail("it was trained"))
    rollout, accuracy = sample_evaluation(model, task, vocabulary, torch.Generator(model.device).manual_seed(1))
    texts = scored(rollout, task, vocabulary, task.evaluation_ids).responses
    answers = [task.answer(prompt_id) for prompt_id in task.evaluation_ids]
    backwards = sum(text == answer[::-1] + END for text, answer in zip(texts, answers, strict=True)) / len(answers)
    palindromes = sum(answer == answer[::-1] for answer in answers) / len(answers)
    assert 0.35 < accuracy < 0.55
    assert accuracy + backwards - palindromes > 0.93


def test_the_mixed_start_ends_when_answers_are_right_or_backwards() -> None:
    config = small("warm_start.right_share=0.4", "warm_start.accuracy=0.6")
    task, learned = Addition(1, 20), list[float]()
    model, vocabulary = warm_started(config, task, lambda step, share: learned.append(share))
    assert learned[-1] >= 0.6 > max(learned[:-1])
    accuracies = [
        sample_evaluation(model, task, vocabulary, torch.Generator(model.device).manual_seed(i))[1] for i in range(6)
    ]
    assert 0.15 < sum(accuracies) / 6 < 0.65
