"""completions.jsonl as ms-swift writes it, imitated: its trainers import a hub of models, and Megatron's need GPUs.

After ms-swift 4.6.0: swift/rlhf_trainers/grpo_trainer.py (log: a queue as long as a generation, dumped at each logging
step, steps as text), swift/megatron/trainers/rollout_mixin.py (_build_log_table: emptied each time, gen_step) and
swift/ray/megatron/base_trainer.py (_maybe_log_completions: a line a response). What they write themselves is read in
tests/adapters/test_ms_swift.py and tests/analysis/importers/test_own_writers.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.making.foreign.truth import Known


def _written(folder: Path, records: Sequence[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "completions.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return folder


def table(step: Sequence[Known], **beside: list[Any]) -> dict[str, Any]:
    """Two reward functions, whose sum has the advantages; the second has nothing to say about the last response."""
    last = len(step) - 1
    return {
        "prompt": [f"<|im_start|>user\n{one.prompt}<|im_end|>\n" for one in step],
        "completion": [one.response for one in step],
        "accuracy": [one.reward for one in step],
        "format": [float("nan") if place == last else 0.25 for place in range(len(step))],
        "advantages": [one.advantage for one in step],
        **beside,
    }


def trainer(folder: Path, steps: Sequence[Sequence[Known]]) -> Path:
    """Two updates a generation; an evaluation after step 4, and the line that ends a training."""
    records = []
    for number, step in enumerate(steps):
        for update in (1, 2):
            at = 2 * number + update
            records.append({"step": [str(at)] * len(step), **table(step, num_turns=[1] * len(step))})
            if at == 4:
                shown = [*step[2:], *step[:2]]  # the queue has lost its first rows to those of the evaluation
                records.append({"step": ["4"] * len(step), **table(shown, num_turns=[1] * len(step))})
    records.append(records[-1])
    return _written(folder, records)


def megatron(folder: Path, steps: Sequence[Sequence[Known]]) -> Path:
    return _written(folder, [{"gen_step": [number] * len(step), **table(step)} for number, step in enumerate(steps)])


def ray(folder: Path, steps: Sequence[Sequence[Known]]) -> Path:
    rows = [
        {"gen_step": number, "prompt": one.prompt, "completion": one.response, "reward": one.reward}
        for number, step in enumerate(steps)
        for one in step
    ]
    return _written(folder, rows)
