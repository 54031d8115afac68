"""The supervised start that every run of the built-in model with the same settings shares, trained once and cached."""

import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ratioscope.cache import cache_folder
from ratioscope.trainer import policy
from ratioscope.trainer.config import TrainConfig
from ratioscope.trainer.rollout import Rollout
from ratioscope.trainer.sampling import encoded, sample_evaluation
from ratioscope.trainer.tasks.task import Task
from ratioscope.trainer.vocabulary import Vocabulary

# Raise it when the warm start would come out different for the same configuration.
WARM_START_VERSION = 2


def warm_started(
    config: TrainConfig, task: Task, progress: Callable[[int, float], None]
) -> tuple[PreTrainedModel, Vocabulary]:
    """The policy that every run with this model, task and warm start begins from; a pretrained one begins as it is.

    Args:
        progress: called with the supervised step and the sampled accuracy whenever that was measured.
    """
    if config.model.path:
        return policy.make(config.model, task)
    built_in = ("hidden_size", "intermediate_size", "layers", "heads")
    settings = {
        "version": WARM_START_VERSION,
        "model": {name: getattr(config.model, name) for name in built_in},
        "task": config.task.model_dump(include={"name", "digits", "evaluation_prompts"}),
        "example": task.prompt(0) + task.answer(0),
        "warm_start": config.warm_start.model_dump(),
        "torch": torch.__version__.split("+")[0],
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_folder("warm_start") / f"{digest}.pt"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.warm_start.seed)
        model, vocabulary = policy.make(config.model, task)
        if not _load_weights(model, path):
            _train_supervised(model, vocabulary, config, task, progress)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".tmp-{os.getpid()}")
            torch.save(model.state_dict(), temporary)
            temporary.replace(path)
    return model, vocabulary


def _load_weights(model: PreTrainedModel, path: Path) -> bool:
    """Whether `path` held weights that fit; a file that cannot be used leaves the model as it was."""
    if not path.exists():
        return False
    try:
        weights = torch.load(path, weights_only=True, map_location=model.device)
        fits = {name: value.shape for name, value in weights.items()} == {
            name: value.shape for name, value in model.state_dict().items()
        }
    except Exception:  # whatever a damaged pickle or zip archive raises
        return False
    if fits:
        model.load_state_dict(weights)
    return fits


def _train_supervised(
    model: PreTrainedModel,
    vocabulary: Vocabulary,
    config: TrainConfig,
    task: Task,
    progress: Callable[[int, float], None],
) -> None:
    """Maximum likelihood on right answers until the sampled accuracy on held-out prompts reaches the target."""
    settings = config.warm_start
    generator = random.Random(settings.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    accuracy = 0.0
    for step in range(settings.max_steps):
        # Accuracy climbs steeply in the end; a rare look would overshoot the target.
        if step % (2 if accuracy > settings.accuracy / 2 else 20) == 0:
            draws = torch.Generator(model.device).manual_seed(settings.seed)
            _, accuracy = sample_evaluation(model, task, vocabulary, draws)
            progress(step, accuracy)
            if accuracy >= settings.accuracy:
                return
        ids = [generator.randrange(len(task.evaluation_ids), task.size) for _ in range(settings.batch)]
        prompts, prompt_mask = encoded(task, vocabulary, ids, model.device)
        answers = torch.full((len(ids), task.response_length), vocabulary.pad_id)
        for row, prompt_id in enumerate(ids):
            answer = [*vocabulary.encode(task.answer(prompt_id)), vocabulary.end_id]
            answers[row, : len(answer)] = torch.tensor(answer)
        answers = answers.to(model.device)
        mask = answers != vocabulary.pad_id
        right = Rollout(prompts, prompt_mask, answers, mask, torch.zeros(mask.shape), torch.zeros(mask.shape))
        optimiser.zero_grad(set_to_none=True)
        (-policy.evaluate(model, right).logp.mean()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
