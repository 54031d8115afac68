"""Imitated: open-instruct's rollouts.

Follows open-instruct e6c3044a, `open_instruct/rl_utils.py` lines 29-128 (RolloutRecord,
`{run}_rollouts_{shard:06d}.jsonl`, `{run}_metadata.jsonl`) and `open_instruct/vllm_utils.py` lines 194-214 (what a tool
returns has log-probability 0.0).
"""

import json
from pathlib import Path
from typing import Any

from tests.making.foreign.policy import Response

TOOL = [60, 61, 62]


def record(step: int, place: int, one: Response, *, group: int = 4, tool: bool = False) -> dict[str, Any]:
    """One response; with a tool, its answer stands between the third sampled token and the rest."""
    tokens, logprobs = list(one.tokens), [float(value) for value in one.sampled]
    if tool:
        tokens, logprobs = tokens[:3] + TOOL + tokens[3:], logprobs[:3] + [0.0] * len(TOOL) + logprobs[3:]
    return {
        "step": step,
        "sample_idx": place,
        "prompt_idx": place // group,
        "prompt_tokens": one.prompt,
        "response_tokens": tokens,
        "reward": one.reward,
        "advantage": one.advantage,
        "finish_reason": "stop",
        "dataset": "words",
        "ground_truth": None,
        "request_info": {
            "num_calls": int(tool),
            "timeouts": 0,
            "tool_errors": "",
            "tool_outputs": "w1" if tool else "",
            "tool_runtimes": 0.5 if tool else 0.0,
            "tool_calleds": tool,
            "tool_call_stats": [],
            "rollout_state": {},
        },
        "logprobs": logprobs,
    }


def write(folder: Path, shards: list[list[dict[str, Any]]], run: str = "tiny") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {
        "run_name": run,
        "git_commit": "e6c3044",
        "model_name": "tiny/model",
        "timestamp": "2026-01-01T00:00:00+00:00",
    }
    (folder / f"{run}_metadata.jsonl").write_text(json.dumps(metadata) + "\n")
    for number, records in enumerate(shards):
        with (folder / f"{run}_rollouts_{number:06d}.jsonl").open("w") as file:
            file.writelines(json.dumps(one) + "\n" for one in records)
