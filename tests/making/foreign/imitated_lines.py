"""JSON lines as ROLL, RLLoggingBoard's users, AReaL and verl write them, imitated: they need GPUs to be driven.

After alibaba/ROLL 8eb27cc2: roll/pipeline/rlvr/rlvr_pipeline.py (save_metrics) and utils.py;
HarderThenHarder/RLLoggingBoard cf56d5d9: README; AReaL cbff54d6: areal/infra/workflow_executor.py (_dump_trajectory,
_compute_output_versions, _split_trajectory_for_dump), and that of 1.0.4; verl 0.9.1:
verl/trainer/ppo/v1/trainer_base.py (_write_generations). What AReaL 1.0.4 and verl write themselves is read in
tests/analysis/importers/test_own_writers.py and tests/adapters/test_verl.py.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.making.foreign.truth import Known


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def roll(folder: Path, steps: Sequence[Sequence[Known]], *, reference: bool = True) -> Path:
    """Two domains a step, a file each; lists go on to the end of the longest response, over its padding."""
    for number, step in enumerate(steps):
        width = max(len(one.ids) for one in step)
        for domain in range(2):
            rows = []
            for one in (step[:2], step[2:])[domain]:
                padding = width - len(one.ids)
                current = _padded(one.current, padding)
                rows.append(
                    {
                        "log_probs2": current,
                        "logprobs": current,
                        "new_response_mask": one.mask.tolist() + [0] * padding,
                        "prompt": one.prompt,
                        "response": one.response + "<pad>" * padding,
                        "old_log_probs2_entropy": _padded(one.entropy, padding),
                        "ref_logprobs": _padded(one.reference, padding) if reference else current,
                        "values": [0.0] * (width + 5),
                        "token_rewards": [0.0] * (width + 5),
                        "reward": one.advantage,  # after reward_postprocess
                        "step": number,
                        "response_tokens": one.response.split() + ["<pad>"] * padding,
                    }
                )
            _write(folder / f"data_20260101_00{number:02d}00_{domain}00.jsonl", rows)
    return folder


def roll_rollouts(folder: Path, steps: Sequence[Sequence[Known]]) -> Path:
    """One line a file, with a list a column, as ROLL's rollout_dump_dir has them."""
    for number, step in enumerate(steps):
        columns = {
            "global_step": [number] * len(step),
            "id": [f"task {one.group}" for one in step],
            "prompt": [one.prompt for one in step],
            "domain": ["math" if place < 2 else "code" for place in range(len(step))],
            "responses": [one.response for one in step],
            "scores": [one.reward for one in step],
            "sampling_params": ["{}"] * len(step),
        }
        _write(folder / f"rollout_dump_data.step_{number}.jsonl", [columns])
    return folder


def _padded(values: Any, padding: int) -> list[float]:
    return [*np.asarray(values, dtype=float).tolist(), *[0.0] * padding]


def logging_board(folder: Path, steps: Sequence[Sequence[Known]]) -> Path:
    """One file a rank, each with all steps."""
    for rank in range(2):
        rows = [
            {
                "prompt": one.prompt,
                "response": one.response,
                "response_tokens": [*one.response.split(), "<PAD>"],
                "logprobs": one.current.astype(float).tolist(),
                "ref_logprobs": one.reference.astype(float).tolist(),
                "reward": one.reward,
                "step": number,
            }
            for number, step in enumerate(steps)
            for one in step[rank::2]
            if one.mask.all()
        ]
        _write(folder / f"rank{rank}.jsonl", rows)
    return folder


def areal(folder: Path, steps: Sequence[Sequence[Known]], *, wheel: bool = False) -> Path:
    """One file a task of two responses, in the folder of its newest version; wheel: as 1.0.4 writes it."""
    for step in steps:
        for task in sorted({one.group for one in step}):
            mine = [one for one in step if one.group == task]
            newest = max(int(version) for one in mine for version in one.versions)
            _write(
                folder / str(newest) / f"{task}.jsonl", [_areal(one, place, wheel) for place, one in enumerate(mine)]
            )
    return folder


def _areal(one: Known, place: int, wheel: bool) -> dict[str, Any]:
    spans = [[int(version), 0] for version in one.versions]
    turn = 0
    for before, now in zip([1, *one.mask[:-1]], one.mask, strict=True):
        turn += int(now and not before and turn + 1 < len(spans))
        spans[turn][1] += int(now)
    row = {
        "task_id": one.group,
        "sample_idx": place,
        "seqlen": len(one.prompt_ids) + len(one.ids),
        "prompt_len": len(one.prompt_ids),
        "head_version": min(version for version, _ in spans),
        "tail_version": max(version for version, _ in spans),
        "version_rle": spans,
        "reward": one.reward,
        "prompt": one.prompt,
        "completion": one.response,
    }
    if wheel:
        del row["version_rle"]
        row["head_version"] = -1  # of the prompt's tokens
        row["prompt_len"] = row["seqlen"] - int(one.mask.sum())
    elif len(spans) > 1:
        lengths = [len(one.prompt_ids), 3, 2, len(one.ids) - 5]
        row["segments"] = [
            {"role": role, "len": length, "text": f"{role} of {length}"}
            for role, length in zip(("prompt", "gen", "context", "gen"), lengths, strict=True)
        ]
    return row


def verl(folder: Path, steps: Sequence[Sequence[Known]], *, with_uid: bool = True) -> Path:
    for number, step in enumerate(steps, start=1):
        rows = []
        for one in step:
            row = {"input": one.prompt, "output": one.response, "gts": "42", "score": one.reward, "step": number}
            extras = {"uid": f"a1_{one.group}_{one.index % 2}_0"} if with_uid else {"acc": one.reward > 0, "pred": "4"}
            rows.append(row | extras)
        _write(folder / f"{number}.jsonl", rows)
    return folder
