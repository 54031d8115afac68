"""The supervised start that every run of the built-in model with the same settings shares, trained once and cached.

The usual one has headroom: a model that knows the sum and mostly writes it the wrong way round. Reinforcement learning
then chooses among what the model can do, as it does with a pretrained one. A start takes minutes to learn; those of the
presets travel with the package, so that nobody waits for them (`python -m tests.making.start`).
"""

import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from ratioscope.storage.cache import own_folder
from ratioscope.trainer.model import policy
from ratioscope.trainer.model.vocabulary import END, Vocabulary
from ratioscope.trainer.sampling.rollout import Rollout
from ratioscope.trainer.sampling.sample import encoded, sample_evaluation, scored
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.tasks.task import Task, TaughtTask

# Raise it when the warm start would come out different for the same configuration.
WARM_START_VERSION = 3
SHIPPED = Path(__file__).parent / "starts"


def warm_started(
    config: TrainConfig, task: Task, progress: Callable[[int, float], None]
) -> tuple[PreTrainedModel, Vocabulary]:
    """The policy that every run with this model, task and warm start begins from; a pretrained one begins as it is.

    Args:
        progress: called with the supervised step and the share of answers learned whenever that was measured.
    """
    if config.model.path:
        return policy.make(config.model, task)
    assert isinstance(task, TaughtTask)  # the settings are refused with another
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.warm_start.seed)
        model, vocabulary = policy.make(config.model, task)
        folder = own_folder("warm_start")
        cached = folder and folder / f"{digest(config, task, torch.__version__.split('+')[0])}.safetensors"
        # A start that has not seen the first prompts serves runs that hold out fewer of them, too.
        unseen = {
            "task": config.task.model_copy(update={"evaluation_prompts": max(config.task.evaluation_prompts, 512)})
        }
        shipped = SHIPPED / f"{digest(config.model_copy(update=unseen), task)}.safetensors"
        if not (_load_weights(model, shipped) or _load_weights(model, cached)):
            _train_supervised(model, vocabulary, config, task, progress)
            if cached is not None:
                temporary = cached.with_suffix(f".tmp-{os.getpid()}")
                save_file(model.state_dict(), temporary)
                temporary.replace(cached)
    return model, vocabulary


def digest(config: TrainConfig, task: Task, version: str = "") -> str:
    """What names a start: all that it depends on; `version` is torch's, which trains a little differently each time."""
    built_in = ("hidden_size", "intermediate_size", "layers", "heads")
    settings = {
        "version": WARM_START_VERSION,
        "model": {name: getattr(config.model, name) for name in built_in},
        "task": config.task.model_dump(include={"name", "digits", "evaluation_prompts"}),
        "example": task.prompt(0) + task.answer(0),
        "warm_start": config.warm_start.model_dump(),
        "torch": version,
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _load_weights(model: PreTrainedModel, path: Path | None) -> bool:
    """Whether `path` held weights that fit; a file that cannot be used leaves the model as it was."""
    if path is None or not path.exists():
        return False
    try:
        weights = load_file(path, device=str(model.device))
        fits = {name: value.shape for name, value in weights.items()} == {
            name: value.shape for name, value in model.state_dict().items()
        }
    except Exception:  # noqa: BLE001 - whatever a damaged file makes the library raise
        return False
    if fits:
        model.load_state_dict(weights)
    return fits


def _train_supervised(
    model: PreTrainedModel,
    vocabulary: Vocabulary,
    config: TrainConfig,
    task: TaughtTask,
    progress: Callable[[int, float], None],
) -> None:
    """Maximum likelihood until the sampled answers to held-out prompts are lessons: right, or as the habit has it."""
    settings = config.warm_start
    generator = random.Random(settings.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    mixed, learned = settings.right_share < 1, 0.0
    for step in range(settings.max_steps):
        # Accuracy climbs steeply in the end; a rare look would overshoot the target. A mixture is approached slowly.
        if step % (2 if learned > settings.accuracy / 2 and not mixed else 20) == 0:
            learned = _learned(model, task, vocabulary, settings.seed, mixed=mixed)
            progress(step, learned)
            if learned >= settings.accuracy:
                return
            optimiser.param_groups[0]["lr"] = settings.learning_rate * min(1.0, 2 * (1 - learned))
        ids = [generator.randrange(len(task.evaluation_ids), task.size) for _ in range(settings.batch)]
        prompts, prompt_mask = encoded(task, vocabulary, ids, model.device)
        answers = torch.full((len(ids), task.lesson_length), vocabulary.pad_id)
        for row, prompt_id in enumerate(ids):
            text = task.lesson(prompt_id, generator, settings.right_share)
            answer = [*vocabulary.encode(text), vocabulary.end_id][: task.lesson_length]
            answers[row, : len(answer)] = torch.tensor(answer)
        answers = answers.to(model.device)
        mask = answers != vocabulary.pad_id
        taught = Rollout(prompts, prompt_mask, answers, mask, torch.zeros(mask.shape), torch.zeros(mask.shape))
        optimiser.zero_grad(set_to_none=True)
        (-policy.evaluate(model, taught).logp.mean()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


def _learned(model: PreTrainedModel, task: TaughtTask, vocabulary: Vocabulary, seed: int, *, mixed: bool) -> float:
    """Of sampled answers to the held-out prompts, how many are right, or as the habit has it."""
    generator = torch.Generator(model.device).manual_seed(seed)
    rollout, accuracy = sample_evaluation(model, task, vocabulary, generator, task.lesson_length)
    if not mixed:
        return accuracy
    found = scored(rollout, task, vocabulary, task.evaluation_ids)
    taught = (
        ended and task.is_lesson(prompt_id, text.removesuffix(END))
        for prompt_id, text, ended in zip(task.evaluation_ids, found.responses, found.ended.tolist(), strict=True)
    )
    return sum(taught) / len(task.evaluation_ids)
