"""miles's policy_loss_debug: the log-probabilities that its loss saw, in files that do not name their samples.

`policy_loss_debug/rank_{r}_call_{n}.pt` holds one micro-batch of rank r; n counts the calls of the loss since the
process began. A call belongs to a rollout because the rank's training dump holds the same responses: same lengths and,
bit by bit, the same log-probabilities.

Read against radixark/miles 31f1ca96: miles/backends/training_utils/debug_dump.py.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import pickles
from ratioscope.analysis.importers.responses import other_shape
from ratioscope.analysis.importers.source import SURPRISES, Reading

FIELD = "gate_log_probs"

# How many calls beyond the next one are looked at for a rollout: those of a rollout whose dump is gone lie between.
_FAR = 256


def calls(folder: Path) -> dict[int, dict[int, Path]]:
    """Files by rank and call, calls in ascending order."""
    found: dict[int, dict[int, Path]] = {}
    for file in (folder / "policy_loss_debug").glob("rank_*_call_*.pt"):
        rank, _, call = file.stem.removeprefix("rank_").partition("_call_")
        if rank.isdecimal() and call.isdecimal():
            found.setdefault(int(rank), {})[int(call)] = file
    return {rank: dict(sorted(files.items())) for rank, files in found.items()}


class Losses:
    """The calls of the loss, and which were joined already."""

    def __init__(self, folder: Path) -> None:
        self._left = calls(folder)

    def join(self, shards: Sequence[Mapping[str, Any]], reading: Reading) -> None:
        """Add `FIELD` to the columns of each rank: one array a sample, None where no call has it."""
        for shard in shards:
            with suppress(*SURPRISES):  # a dump of another shape is said where it is read itself
                rank = int(shard.get("rank", -1))
                if self._left.get(rank):
                    self._join(rank, shard["rollout_data"], reading)

    def _join(self, rank: int, columns: dict[str, Any], reading: Reading) -> None:
        wanted: dict[Any, list[int]] = {}
        for row in range(len(columns["response_lengths"])):
            wanted.setdefault(_key(columns, row), []).append(row)
        found: list[Any] = [None] * len(columns["response_lengths"])
        for call in list(self._left[rank])[:_FAR]:
            payload = pickles.torch_file(self._left[rank][call], reading)
            try:
                mine = 0
                for sample in (payload or {}).get("samples") or ():
                    rows = wanted.get(_key(_as_columns(sample, columns), 0))
                    if rows:
                        found[rows.pop(0)] = sample["train_log_probs"]
                        mine += 1
            except SURPRISES as error:
                reading.bad(self._left[rank][call], f"no loss of miles: {other_shape(error)}")
            if mine:
                del self._left[rank][call]
            if not any(wanted.values()):
                break
        if any(part is not None for part in found):
            columns[FIELD] = found


def _as_columns(sample: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of the loss in the training dump's terms, as far as that one has them."""
    names = {"rollout_log_probs": "rollout_log_probs", "log_probs": "old_log_probs"}
    same = {ours: [sample[theirs]] for ours, theirs in names.items() if theirs in sample and columns.get(ours)}
    return {"total_lengths": [sample["total_length"]], "response_lengths": [sample["response_length"]]} | same


def _key(columns: Mapping[str, Any], row: int) -> Any:
    """Lengths, and the bits of the log-probabilities; the sampler's where they are there, as they never change."""
    name = "rollout_log_probs" if columns.get("rollout_log_probs") is not None else "log_probs"
    values = columns.get(name)
    with np.errstate(over="ignore"):
        bits = b"" if values is None else pickles.array(values[row]).astype(np.float32).tobytes()
    return int(columns["total_lengths"][row]), int(columns["response_lengths"][row]), bits
