"""A real GRPOTrainer, tiny, and what a recording of it holds; as a program, one of several processes.

python -m tests.adapters.trl_training FOLDER      # with the variables that torchrun sets
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq
import torch
from transformers import Qwen2ForCausalLM, TrainerCallback

from ratioscope.adapters.trl import GRPORecorder, record
from ratioscope.run_format.manifest import Manifest
from tests.making import language_model

# Not imported before a test needs it: that takes a second, and every process collects this file.
if TYPE_CHECKING:
    from trl import GRPOTrainer


WORDS = ["<pad>", "<eos>", *map(str, range(20)), "plus", "is"]
LONGEST, GROUP, ROWS = 8, 4, 8
REUSE = {"steps_per_generation": 2, "num_iterations": 2}


def score(text: str) -> float:
    return float(sum(len(word) for word in text.split()) % 5)


def right(completions: list[str], **more: Any) -> list[float]:
    return [score(text) for text in completions]


def short(completions: list[str], **more: Any) -> list[float | None]:
    """Has nothing to say of long ones."""
    return [-0.1 * len(text.split()) if len(text.split()) < LONGEST - 1 else None for text in completions]


def policy(seed: int = 0) -> Qwen2ForCausalLM:
    return language_model.policy(len(WORDS), 32, seed=seed, max_position_embeddings=64, initializer_range=0.2)


def trainer(
    folder: Path, *, model: Any = None, rollout_func: Any = None, kind: str = "GRPO", **settings: Any
) -> "GRPOTrainer":
    """Of a kind of TRL's: GRPO or RLOO."""
    import trl
    from datasets import Dataset
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    common = {
        "per_device_train_batch_size": ROWS,
        "num_generations": GROUP,
        "max_completion_length": LONGEST,
        "max_steps": 6,
        "learning_rate": 5e-3,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": False,
        "activation_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "seed": 0,
    }
    more = {} if rollout_func is None else {"rollout_func": rollout_func}
    made: GRPOTrainer = getattr(trl, f"{kind}Trainer")(
        model=model or policy(),
        reward_funcs=[right, short],
        args=getattr(trl, f"{kind}Config")(output_dir=str(folder), **(common | settings)),
        train_dataset=Dataset.from_list([{"prompt": f"{i} plus {j} is"} for i in range(5) for j in range(5)]),
        processing_class=language_model.tokenizer(WORDS),
        **more,
    )
    return made


class Recorded(NamedTuple):
    """A recorded training."""

    trainer: "GRPOTrainer"
    recorder: GRPORecorder
    folder: Path
    tokens: pd.DataFrame
    sequences: pd.DataFrame
    steps: pd.DataFrame
    manifest: Manifest
    losses: list[float]
    """As TRL's log has them."""


class _Losses(TrainerCallback):
    def __init__(self) -> None:
        self.found: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **more: Any) -> None:
        self.found += [logs["loss"]] if logs and "loss" in logs else []


def recorded(folder: Path, made: "GRPOTrainer", **how: Any) -> Recorded:
    losses = _Losses()
    made.add_callback(losses)
    recorder = record(made, folder / "run", quiet=True, **how)
    made.train()
    assert recorder.failure == ""
    return read(folder / "run", made, recorder, losses.found)


def read(folder: Path, made: Any, recorder: GRPORecorder, losses: list[float]) -> Recorded:
    tokens, sequences, steps = (pq.read_table(folder / name).to_pandas() for name in ("tokens", "sequences", "steps"))
    return Recorded(made, recorder, folder, tokens, sequences, steps.set_index("step"), Manifest.read(folder), losses)


LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo", "epsilon_high": 0.28},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "delta": 1.4},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.05},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.5},
    "sapo": {"loss_type": "sapo", "sapo_temperature_pos": 1.5},
    "vespo": {"loss_type": "vespo"},
}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    made = trainer(place / "output", max_steps=4, per_device_train_batch_size=ROWS // 2, **REUSE)
    recording = record(made, place / "run", new=True)
    made.train()
    sys.exit(recording.failure or None)
