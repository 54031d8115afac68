"""Imitated: NeMo-RL's train_data_step{N}.jsonl.

Follows NeMo-RL 7ea279ab, `nemo_rl/algorithms/grpo.py` lines 3633-3654 (what is logged) and `nemo_rl/utils/logger.py`
lines 1071-1098 (`make_microbatch_iterator(1)`, so that every value is a list of length 1, and `idx`).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.making.foreign.policy import Policy, Response

PAD_TO = 8
GROUP = 4


def batch(policy: Policy, step: int) -> list[Response]:
    """Two groups of four responses."""
    return [
        response
        for number in range(2)
        for response in policy.group([10 + 2 * step + number, 11, 12], [1.0, 0.0, 0.0, 1.0], 9)
    ]


def write(
    folder: Path,
    responses: list[Response],
    step: int,
    *,
    skip_recomputation: bool = False,
    unfiltered: list[float] | None = None,
    masked: tuple[int, ...] = (),
) -> Path:
    """One step.

    Args:
        skip_recomputation: force_on_policy_ratio, whose prev_logprobs are `torch.zeros_like` (grpo.py line 3247).
        unfiltered: rewards before dynamic sampling, which are logged as `rewards` then.
        masked: responses with sample_loss_mask 0.
    """
    width = max(len(one.prompt) + len(one.tokens) for one in responses)
    width += -width % PAD_TO
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"train_data_step{step}.jsonl"
    with file.open("w") as opened:
        for place, one in enumerate(responses):
            before, size = len(one.prompt), len(one.prompt) + len(one.tokens)

            def padded(values: Any, before: int = before) -> list[float]:
                row = np.zeros(width)
                row[before : before + len(values)] = values
                return row.tolist()

            sample: dict[str, Any] = {
                "content": [f"words {one.prompt}", f"answer {one.tokens}"],
                "rewards": one.reward,
                "input_lengths": size,
                "token_ids": (one.prompt + one.tokens + [0] * (width - size)),
                "token_loss_mask": padded(np.ones(len(one.tokens))),
                "sample_loss_mask": 0.0 if place in masked else 1.0,
                "advantages": [one.advantage] * width,  # one of a response, expanded over the row
                "generation_logprobs": padded(one.sampled),
                "prev_logprobs": padded(np.zeros(len(one.tokens)) if skip_recomputation else one.trained),
            }
            if unfiltered is not None:
                sample |= {"rewards": unfiltered[place], "filtered_rewards": one.reward}
            opened.write(json.dumps({**{key: [value] for key, value in sample.items()}, "idx": place}) + "\n")
    return file
