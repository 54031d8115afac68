"""Files as miles writes them with `--dump-details`, imitated: miles needs Megatron and SGLang to be installed.

After radixark/miles 31f1ca96: miles/utils/train_dump_utils.py, miles/ray/rollout/debug_data.py,
miles/backends/training_utils/debug_dump.py and cp_utils.py (slice_log_prob_with_cp).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import torch

from tests.making.foreign import imitated_slime
from tests.making.foreign.truth import Known, conversation

_SLICED = ("log_probs", "rollout_log_probs", "ref_log_probs", "entropy", "advantages", "returns", "gate")


def write(folder: Path, steps: Sequence[Sequence[Known]], *, slices: int = 2, copies: int = 2) -> Path:
    """The dump of a run trained by two data-parallel ranks, each with `slices` of context and `copies` of tensors."""
    for name in ("rollout_data", "train_data", "policy_loss_debug", "trajectory", "dashboard_columns"):
        (folder / name).mkdir(parents=True)
    calls: dict[int, int] = {}
    for rollout, step in enumerate(steps):
        samples = [imitated_slime.sample(known) for known in step]
        payload = {"rollout_id": rollout, "metadata": {}, "samples": samples}
        torch.save(payload, folder / "rollout_data" / f"{rollout}.pt")
        _columns(folder / "dashboard_columns" / f"rollout_{rollout}.parquet", samples)
        (folder / "trajectory" / f"{rollout}.jsonl").write_text(
            "".join(json.dumps(_talk(known)) + "\n" for known in step if not known.mask.all())
        )
        rank = 0
        for share in range(2):
            mine = step[share::2]
            for cut in range(slices):
                for _ in range(copies):
                    data, losses = _shard(step, mine, cut, slices)
                    torch.save(
                        {
                            "rollout_id": rollout,
                            "rank": rank,
                            "rollout_data": data,
                            "cp_rank": cut,
                            "cp_size": slices,
                            "qkv_format": "thd",
                        },
                        folder / "train_data" / f"{rollout}_{rank}.pt",
                    )
                    for sample in reversed(losses):  # the loss sees micro-batches in an order of its own
                        call = calls.get(rank, 0)
                        calls[rank] = call + 1
                        torch.save(
                            {"rank": rank, "call": call, "samples": [sample | {"index": 0}]},
                            folder / "policy_loss_debug" / f"rank_{rank}_call_{call}.pt",
                        )
                    rank += 1
    return folder


def _shard(step: Sequence[Known], mine: Sequence[Known], cut: int, slices: int) -> tuple[dict[str, Any], list[Any]]:
    rows = [imitated_slime.trained(known) | {"gate": torch.tensor(known.gate)} for known in mine]
    for row in rows:
        for name in _SLICED:
            row[name] = sliced(row[name], row["total_lengths"], row["response_lengths"], cut, slices)
    losses = [
        {
            "total_length": row["total_lengths"],
            "response_length": row["response_lengths"],
            "train_log_probs": row.pop("gate"),
            "old_log_probs": row["log_probs"],
            "advantages": row["advantages"],
            "rollout_log_probs": row["rollout_log_probs"],
        }
        for row in rows
    ]
    data: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    data["sample_indices"] = [known.index for known in mine]
    data["weight_versions"] = [known.versions for known in mine]
    data["raw_reward"] = [known.reward for known in step]
    return data, losses


def sliced(values: torch.Tensor, total: int, length: int, cut: int, slices: int) -> torch.Tensor:
    """The part of a response's values that one rank of context parallelism holds: two pieces, zigzag."""
    if slices == 1:
        return values
    prompt, size = total - length, (total + 2 * slices - 1) // (2 * slices)
    parts = []
    for piece in (cut, 2 * slices - cut - 1):
        # The logits that predict token t lie at t - 1.
        start, end = max(piece * size, prompt - 1), min((piece + 1) * size, total - 1)
        parts.append(values[start - prompt + 1 : max(start, end) - prompt + 1])
    return torch.cat(parts)


def _columns(path: Path, samples: Sequence[dict[str, Any]]) -> None:
    lists = {"tokens": pl.List(pl.Int32), "loss_mask": pl.List(pl.Int8), "rollout_log_probs": pl.List(pl.Float32)}
    rows = [
        {"sample_index": sample["index"], "total_length": len(sample["tokens"])}
        | {name: sample[name] for name in ("response_length", *lists)}
        for sample in samples
    ]
    numbers = dict.fromkeys(("sample_index", "response_length", "total_length"), pl.Int32)
    pl.DataFrame(rows, schema=numbers | lists).write_parquet(path, row_group_size=8)


def _talk(known: Known) -> dict[str, Any]:
    return {
        "sample_index": known.index,
        "group_index": known.group,
        "status": known.status,
        "reward": known.reward,
        "prompt": known.prompt,
        "messages": conversation(known),
    }
