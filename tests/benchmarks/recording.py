"""The recorder of TRL's GRPOTrainer: its share of a step, by its own clock and against the same training without it."""

import tempfile
import warnings
from pathlib import Path
from statistics import median

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from ratioscope.adapters.trl import GRPORecorder, record
from ratioscope.trainer.settings.load import load_settings
from tests.benchmarks import trl_grpo

UPDATES, ROUNDS, LONG_UPDATES = 20, 4, 6
TARGET = 0.03


def run() -> None:
    """Print both shares of small steps, and the recorder's own of one with a language model's sizes."""
    sizes = ["prompts=32", "evaluation_prompts=64", f"updates={UPDATES}"]
    config = load_settings("on_policy", [*sizes, "algorithm=grpo", "logging.exact=false"])
    found: list[GRPORecorder] = []

    def watch(trainer: GRPOTrainer, folder: Path) -> None:
        found.append(record(trainer, folder / "run", quiet=True))

    rounds = [(trl_grpo.seconds(config, UPDATES, watch), trl_grpo.seconds(config, UPDATES)) for _ in range(ROUNDS)]
    more = median(recorded / plain for recorded, plain in rounds) - 1
    _say(f"{ROUNDS} x {UPDATES} updates of 32 x 8 short responses", found)
    print(f"  with against without, wall clock, median of pairs: {more:+.1%}", flush=True)
    _say(f"{LONG_UPDATES} updates of 8 responses of 128 tokens, vocabulary of 49,152", [_long(0)])
    _say("the same, scored again after every update (logp_new)", [_long(1)])


def _say(what: str, recorders: list[GRPORecorder]) -> None:
    share = median(recorder.cost.recording_share for recorder in recorders)
    scoring = median(recorder.cost.scoring_share for recorder in recorders)
    each = median(recorder.cost.recording_seconds / recorder.cost.steps for recorder in recorders)
    print(f"  {what}: recording {share:.2%} of a step ({1000 * each:.1f} ms), target {TARGET:.0%}; "
          f"scoring {scoring:.1%}", flush=True)  # fmt: skip


def _long(new: int) -> GRPORecorder:
    """A model with 30 M parameters that has learned nothing: its steps take as long as those of one that has."""
    warnings.simplefilter("ignore", FutureWarning)
    logging.set_verbosity_error()
    torch.manual_seed(0)
    words = {str(token): token for token in range(49_152)}
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8}
    model = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=len(words), num_key_value_heads=2, pad_token_id=0, eos_token_id=1, **sizes)
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **more: [float(len(text) % 7) for text in completions],
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=8,
                num_generations=8,
                max_completion_length=128,
                max_steps=LONG_UPDATES,
                use_cpu=True,
                bf16=False,
                activation_checkpointing=False,
                report_to="none",
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"prompt": [f"{i} {i + 1} {i + 2}" for i in range(64)]}),
            processing_class=PreTrainedTokenizerFast(
                tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="0")),
                pad_token="0", eos_token="1", unk_token="0",
            ),
        )  # fmt: skip
        recorder = record(trainer, Path(folder) / "run", new=new, quiet=True)
        trainer.train()
    return recorder
