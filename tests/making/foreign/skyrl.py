"""Makes stored/skyrl with SkyRL's own code: python -m tests.making.foreign.skyrl

Made with skyrl 0.3.0 (its package alone, and what its modules import: jaxtyping, wadler-lindig, loguru, omegaconf,
antlr4-python3-runtime 4.9.3, ray, pydantic, msgpack).
"""

import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.making.foreign.truth import Known, run

FOLDER = Path(__file__).parent / "stored/skyrl"
PADDING = 2
"""Rows that SkyRL adds, so that every rank gets equally many."""


def make(folder: Path = FOLDER) -> None:
    """Batches as `RayPPOTrainer.convert_to_training_input` makes them, with what later steps add and take away."""
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # pydantic asks for it before Python 3.12
    import torch
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch, pad_training_input_batch
    from skyrl.train.dataset.preprocess import compute_prompt_boundaries, convert_prompts_responses_to_batch_tensors

    (folder / "dumped_data").mkdir(parents=True, exist_ok=True)
    for number, known in enumerate(run(updates=2), start=1):
        sequences, attention, response_mask, _, loss_mask, sampler, _ = convert_prompts_responses_to_batch_tensors(
            SimpleNamespace(pad_token_id=0),
            [one.prompt_ids for one in known],
            [one.ids for one in known],
            [[one.reward] * len(one.ids) for one in known],
            [(one.mask * (not one.removed)).tolist() for one in known],
            [one.placeheld(one.sampler).tolist() for one in known],
        )
        batch = TrainingInputBatch(
            {
                "sequences": sequences,
                "attention_mask": attention,
                "response_mask": response_mask,
                "loss_mask": loss_mask,
                "rollout_logprobs": sampler,
                "rollout_expert_indices": None,
            }
        )
        uids = [f"group{one.group}" for one in known]
        batch.metadata = {"policy_prompt_boundaries": compute_prompt_boundaries(uids)}
        batch.metadata["response_length"] = response_mask.shape[1]
        batch = pad_training_input_batch(batch, PADDING)
        width = response_mask.shape[1]
        batch["action_log_probs"] = torch.tensor(_right(known, width, "current"))
        batch["base_action_log_probs"] = torch.tensor(_right(known, width, "reference")).to(torch.bfloat16)
        advantages = [np.full(len(one.ids), one.advantage, np.float32) for one in known]
        batch["advantages"] = torch.tensor(_aligned(advantages, width)) * batch["response_mask"]
        batch["values"] = None
        batch.save(str(folder / "dumped_data" / f"global_step_{number}_training_input.pkl"))


def _right(known: list[Known], width: int, attribute: str) -> Any:
    return _aligned([getattr(one, attribute) for one in known], width)


def _aligned(rows: list[Any], width: int) -> Any:
    """Rows aligned to the right, and the copies of the first that fill up the batch."""
    aligned = [np.concatenate([np.zeros(width - len(row), np.float32), row]) for row in rows]
    return np.stack(aligned + aligned[:1] * PADDING)


if __name__ == "__main__":
    make()
