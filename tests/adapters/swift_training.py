"""ms-swift's own GRPOTrainer, tiny and on the CPU, recorded: a program, because importing it takes TRL's trainer apart.

python -m tests.adapters.swift_training FOLDER KIND ...     # plain; turns, with log-probs of the sampler

Its releases ask for a TRL below 1, whose PPO it names in a module that GRPO does not come to.
"""

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

from tests.adapters.trl_training import WORDS, policy, score
from tests.making import language_model

SAID = (5, 6)
"""Tokens of the user between the turns."""


def started(folder: Path, kind: str) -> list[dict[str, float]]:
    """Train as `swift rlhf` does, recorded into `run`; return what the trainer logged."""
    os.environ |= {"USE_HF": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    import transformers
    from transformers import TrainerControl, TrainerState, TrainingArguments

    try:
        import trl.experimental.ppo  # noqa: F401
    except ImportError:
        gone = types.ModuleType("trl.experimental.ppo")
        gone.PPOConfig = type("PPOConfig", (transformers.TrainingArguments,), {})  # type: ignore[attr-defined]
        sys.modules[gone.__name__] = gone
    from swift.arguments import RLHFArguments
    from swift.callbacks import TrainerCallback, callbacks_map
    from swift.pipelines import rlhf_main
    from swift.rewards import ORM, orms

    from ratioscope.adapters.ms_swift import SwiftRecorder, record

    made: list[SwiftRecorder] = []

    class Right(ORM):  # type: ignore[misc]
        def __call__(self, completions: list[str], **more: Any) -> list[float]:
            return [score(text) for text in completions]

    class Recorded(TrainerCallback):  # type: ignore[misc]
        def on_init_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
        ) -> None:
            made.append(record(self.trainer, folder / "run", new=True, quiet=True))
            if kind == "turns":
                _in_turns(self.trainer)

    orms["right"] = Right
    callbacks_map["ratioscope"] = Recorded
    policy().save_pretrained(folder / "model")
    tokenizer = language_model.tokenizer(WORDS)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer.save_pretrained(folder / "model")
    questions = [{"messages": [{"role": "user", "content": f"{i} plus {j} is"}]} for i in range(5) for j in range(5)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    two = {
        "loss_scale": "default",
        "rollout_importance_sampling_mode": "token_mask",
        "rollout_importance_sampling_threshold": 1.0,
    }
    arguments = RLHFArguments(
        rlhf_type="grpo", model=str(folder / "model"), model_type="qwen2", template="qwen2_5", torch_dtype="float32",
        dataset=[str(folder / "questions.jsonl")], split_dataset_ratio=0, load_from_cache_file=False, tuner_type="full",
        reward_funcs=["right"], use_vllm=False, temperature=1.0, top_p=1.0, top_k=-1, num_generations=4,
        per_device_train_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=4, num_iterations=2,
        max_completion_length=8, max_length=64, max_steps=4, learning_rate=5e-3, attn_impl="eager", bf16=False,
        fp16=False, eval_strategy="no", save_strategy="no", logging_steps=1, report_to=[], check_model=False,
        output_dir=str(folder / "output"), callbacks=["ratioscope"], log_entropy=True, log_completions=True,
        dataset_num_proc=1, dataloader_num_workers=0, **(two if kind == "turns" else {}),
    )  # fmt: skip
    logged: list[dict[str, float]] = rlhf_main(arguments)["log_history"]
    assert made[0].failure == "", made[0].failure
    return logged


def _in_turns(trainer: Any) -> None:
    """Cut each answer in two, with a user between, as a scheduler of turns does, with its log-probabilities."""
    original = trainer._generate_completions

    def generated(samples: list[Any]) -> list[Any]:
        found = original(samples)
        for sample in found:
            ids = sample.response_token_ids
            turns = [ids[:2], ids[2:]] if len(ids) > 3 else [ids]
            asked = {"role": "user", "content": " ".join(WORDS[token] for token in SAID)}
            answers = [{"role": "assistant", "content": trainer.processing_class.decode(turn)} for turn in turns]
            sample.messages = [*sample.messages[:-1], *([answers[0], asked] if len(turns) > 1 else []), answers[-1]]
            sample.response_token_ids = turns
            sample.rollout_logprobs = [[-2.0 - place / 8 for place in range(len(turn))] for turn in turns]
        trainer.disable_rollout_importance_sampling = False  # as with a vLLM that says what it drew with
        return list(found)

    trainer._generate_completions = generated


if __name__ == "__main__":
    for kind in sys.argv[2:]:
        place = Path(sys.argv[1]) / kind
        place.mkdir()
        (place / "logged.json").write_text(json.dumps(started(place, kind)))
