"""A small run whose every number is known, to be written down in the formats of other programs."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Known:
    """One response; arrays over its tokens. Where `mask` is 0 a tool spoke, and programs put placeholders there."""

    index: int
    group: int
    prompt: str
    prompt_ids: list[int]
    response: str
    ids: list[int]
    mask: NDArray[np.int64]
    sampler: NDArray[np.float32]
    current: NDArray[np.float32]
    gate: NDArray[np.float32]
    reference: NDArray[np.float32]
    entropy: NDArray[np.float32]
    advantage: float
    reward: float
    versions: list[str]
    status: str
    removed: bool = False
    messages: list[dict[str, object]] = field(default_factory=list)

    def sampled(self, values: NDArray[np.float32] | list[int]) -> NDArray[np.float32]:
        """`values` at the tokens that the model sampled."""
        return np.asarray(values)[self.mask == 1]

    def placeheld(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """`values` with the 0.0 that samplers write where a tool spoke."""
        return np.where(self.mask == 1, values, np.float32(0))


def run(updates: int = 3, groups: int = 3, members: int = 2, seed: int = 1) -> list[list[Known]]:
    """One list of responses an update; the first response of each update has a tool call, the last was taken out.

    Policies drift by about 0.05 nats between sampler, current and gate. Weight version of update k: k + 1.
    """
    random = np.random.default_rng(seed)
    steps = []
    for update in range(updates):
        step = []
        for place in range(groups * members):
            length = int(random.integers(4, 12))
            tool = place == 0
            mask = np.ones(length, dtype=np.int64)
            if tool:
                mask = np.concatenate([np.ones(3), np.zeros(2), np.ones(length)]).astype(np.int64)
            size = len(mask)
            sampler = -random.gamma(1.0, 0.8, size).astype(np.float32) - np.float32(0.01)
            current = (sampler + random.normal(0, 0.05, size)).astype(np.float32)
            group = place // members
            reward = float(place % members)
            step.append(
                Known(
                    index=update * groups * members + place,
                    group=update * groups + group,
                    prompt=f"question {update}.{group}",
                    prompt_ids=random.integers(5, 90, 3 + group).tolist(),
                    response=" ".join(f"t{token}" for token in range(size)),
                    ids=random.integers(5, 90, size).tolist(),
                    mask=mask,
                    sampler=sampler,
                    current=current,
                    gate=(current + random.normal(0, 0.05, size)).astype(np.float32),
                    reference=(sampler - 0.1).astype(np.float32),
                    entropy=random.uniform(0.1, 2, size).astype(np.float32),
                    advantage=reward - 0.5,
                    reward=reward,
                    versions=[str(update + 1 - (tool and update > 0)), str(update + 1)] if tool else [str(update + 1)],
                    status="truncated" if place == 1 else "completed",
                    removed=place == groups * members - 1,
                )
            )
        for member in step:  # those of a group share their prompt
            member.prompt_ids = step[(member.group - step[0].group) * members].prompt_ids
        steps.append(step)
    return steps


def conversation(known: Known) -> list[dict[str, object]]:
    """The messages of a response with a tool call."""
    call = {"function": {"name": "lookup", "arguments": "{}"}}
    return [
        {"role": "user", "content": known.prompt},
        {"role": "assistant", "content": "looking", "tool_calls": [call]},
        {"role": "tool", "name": "lookup", "content": "42"},
        {"role": "assistant", "content": "it is 42"},
    ]
