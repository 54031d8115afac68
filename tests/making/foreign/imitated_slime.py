"""Files as slime writes them with `--dump-details`, imitated: slime needs Megatron and SGLang to be installed.

After THUDM/slime 624b824a: slime/observability/rollout_data_utils.py (save_debug_rollout_data),
slime/observability/train_data_utils.py (_build_dump_payload) and slime/utils/types.py (Sample.to_dict).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.making.foreign.truth import Known


def write(folder: Path, steps: Sequence[Sequence[Known]], *, first: int = 0) -> Path:
    """The dump of a run; samples go to two data-parallel ranks in turn, as slime deals them out."""
    (folder / "rollout_data").mkdir(parents=True)
    (folder / "train_data").mkdir()
    for rollout, step in enumerate(steps, start=first):
        samples = [sample(known) for known in step]
        torch.save({"rollout_id": rollout, "samples": samples}, folder / "rollout_data" / f"{rollout}.pt")
        torch.save(_training(rollout, step), folder / "train_data" / f"{rollout}.pt")
    return folder


def sample(known: Known) -> dict[str, Any]:
    """Sample.to_dict()."""
    return {
        "group_index": known.group,
        "index": known.index,
        "rollout_id": known.index,
        "prompt": known.prompt,
        "tokens": known.prompt_ids + known.ids,
        "multimodal_inputs": None,
        "response": known.response,
        "response_length": len(known.ids),
        "label": "42",
        "reward": known.reward,
        "loss_mask": None if known.mask.all() else known.mask.tolist(),
        "weight_versions": known.versions,
        "rollout_log_probs": known.placeheld(known.sampler).tolist(),
        "rollout_top_p_token_ids": None,
        "rollout_top_p_token_offsets": None,
        "rollout_routed_experts": None,
        "remove_sample": known.removed,
        "teacher_log_probs": None,
        "status": known.status,
        "metadata": {},
        "session_id": None,
        "non_generation_time": 0.0 if known.mask.all() else 1.5,
        "spec_info": {"spec_accept_token_num": 0, "spec_draft_token_num": 0},
        "prefix_cache_info": {"cached_tokens": 0, "total_prompt_tokens": 0},
    }


def trained(known: Known) -> dict[str, Any]:
    """One sample's columns of the training data; the mask of a removed sample is zero everywhere."""
    mask = known.mask * (not known.removed)
    return {
        "tokens": torch.tensor(known.prompt_ids + known.ids),
        "response_lengths": len(known.ids),
        "total_lengths": len(known.prompt_ids) + len(known.ids),
        "loss_masks": torch.tensor(mask, dtype=torch.int),
        "truncated": int(known.status == "truncated"),
        "rewards": known.advantage,
        "log_probs": torch.tensor(known.current),
        "rollout_log_probs": torch.tensor(known.placeheld(known.sampler)),
        "ref_log_probs": torch.tensor(known.reference),
        "entropy": torch.tensor(known.entropy),
        "advantages": torch.full((len(known.ids),), known.advantage),
        "returns": torch.full((len(known.ids),), known.advantage),
    }


def _training(rollout: int, step: Sequence[Known]) -> dict[str, Any]:
    rows = [
        {"data_parallel_rank": place % 2, "sample_index": known.index, "rollout_position": place} | trained(known)
        for place, known in enumerate(step)
    ]
    shards = [
        {"rank": rank * 2, "data_parallel_rank": rank, "num_microbatches": [1, 1], "global_batch_sizes": [3, 3]}
        for rank in range(2)
    ]
    return {
        "format_version": 2,
        "rollout_id": rollout,
        "rank": 0,
        "samples": rows,
        "dp_shards": shards,
        "raw_reward": [known.reward for known in step],
    }
