"""Makes stored/trl with TRL's own trainer: python -m tests.making.foreign.trl

Made with trl 1.16.0. Two runs of a model of some thousand parameters: one of plain prompts with two reward functions,
trained on each batch for four steps, and one of conversations with one.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "stored/trl"
WORDS = ["<pad>", "<eos>", "<unk>", "user", "assistant", "one", "two", "three", "four", "five"]
TEMPLATE = "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}assistant "


def make(folder: Path = FOLDER) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    plain = ["one two", "three four"] * 8
    train(folder / "plain", plain, [length, holds_one], steps=6, steps_per_generation=2, num_iterations=2)
    talks = [[{"role": "user", "content": prompt}] for prompt in plain]
    train(folder / "chat", talks, [chat_length], steps=2, steps_per_generation=1, num_iterations=1)


def length(completions: list[str], **_: Any) -> list[float]:
    return [len(completion) / 10 for completion in completions]


def holds_one(completions: list[str], **_: Any) -> list[float]:
    return [float("one" in completion) for completion in completions]


def chat_length(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
    return length([completion[0]["content"] for completion in completions])


def train(folder: Path, prompts: list[Any], rewards: list[Any], steps: int, **settings: int) -> None:
    from datasets import Dataset
    from transformers import set_seed
    from trl import GRPOConfig, GRPOTrainer

    from tests.making import language_model

    model = language_model.policy(len(WORDS), 16, intermediate_size=16, num_hidden_layers=1)
    set_seed(0)
    with tempfile.TemporaryDirectory() as place:
        trainer = GRPOTrainer(
            model=model,
            processing_class=language_model.tokenizer(WORDS, unknown=2, chat_template=TEMPLATE),
            reward_funcs=rewards,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            args=GRPOConfig(
                output_dir=place,
                use_cpu=True,
                bf16=False,
                max_steps=steps,
                per_device_train_batch_size=4,
                num_generations=4,
                max_completion_length=6,
                logging_steps=1,
                log_completions=True,
                report_to=[],
                disable_tqdm=True,
                save_strategy="no",
                seed=0,
                **settings,
            ),
        )
        trainer.train()
        shutil.copytree(Path(place) / "completions", folder / "completions")


if __name__ == "__main__":
    make()
