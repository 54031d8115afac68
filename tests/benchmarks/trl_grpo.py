"""TRL's GRPOTrainer on the built-in model, task, batch and loss: what the trainer is timed against."""

import copy
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from ratioscope.trainer import tasks
from ratioscope.trainer.model.vocabulary import END, PAD
from ratioscope.trainer.model.warm_start import warm_started
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.tasks.task import TaughtTask


class _Clock(TrainerCallback):
    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *arguments: Any, **more: Any) -> None:
        self.times.append(time.perf_counter())


Prepare = Callable[[GRPOTrainer, Path], Any]
"""What is done with a trainer before it trains, with a folder of its own."""


def seconds(config: TrainConfig, updates: int, prepare: Prepare = lambda trainer, folder: None) -> float:
    """Time of `updates` updates, without TRL's own preparations; TRL logs nothing."""
    warnings.simplefilter("ignore", FutureWarning)
    logging.set_verbosity_error()
    task = tasks.make(config.task)
    assert isinstance(task, TaughtTask)
    model, _ = warm_started(config, task, lambda step, accuracy: None)
    characters = {character: place for place, character in enumerate(PAD + END + task.characters)}
    tokenizer = Tokenizer(models.WordLevel(characters, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    ids = range(len(task.evaluation_ids), task.size)
    copies, clock = config.sampler.samples_per_prompt, _Clock()

    def reward(completions: list[str], prompt_id: list[int], **more: Any) -> list[float]:
        return [float(text == task.answer(i)) for text, i in zip(completions, prompt_id, strict=True)]

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=config.sampler.prompts * copies,
            num_generations=copies,
            max_completion_length=task.response_length,
            max_steps=updates + 1,
            learning_rate=config.optimiser.learning_rate,
            loss_type="dapo",  # the token mean, as our grpo
            beta=0.0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=copy.deepcopy(model).requires_grad_(True),
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_list([{"prompt": task.prompt(i), "prompt_id": i} for i in ids]),
            processing_class=PreTrainedTokenizerFast(
                tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=PAD
            ),
            callbacks=[clock],
        )
        prepare(trainer, Path(folder))
        trainer.train()
    return clock.times[-1] - clock.times[0]
