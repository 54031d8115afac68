"""A small run whose every number is known, to be written down in the formats of other programs."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_VOCABULARY = 90


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

    Tokens come from policies over pairs of tokens, so that their probabilities are some. Weight version of update k:
    k + 1; the trainer's engine differs from the sampler's, and the gate's policy from the one the update began with.
    """
    random = np.random.default_rng(seed)
    logits = random.normal(0, 1.5, (_VOCABULARY, _VOCABULARY))
    reference = _policy(logits)
    steps = []
    for update in range(updates):
        sampler, current = _policy(logits), _policy(logits + random.normal(0, 0.01, logits.shape))
        logits = logits + random.normal(0, 0.1, logits.shape)
        gate = _policy(logits)
        step = []
        for place in range(groups * members):
            group, tool = place // members, place == 0
            prompt_ids = (
                step[group * members].prompt_ids
                if place % members
                else random.integers(_VOCABULARY, size=3 + group).tolist()
            )
            length = int(random.integers(4, 12))
            mask = np.ones(length, dtype=np.int64)
            if tool:
                mask = np.concatenate([np.ones(3), np.zeros(2), np.ones(length)]).astype(np.int64)
            states = [prompt_ids[-1]]
            for _ in mask:
                states.append(int(random.choice(_VOCABULARY, p=np.exp(sampler[states[-1]]))))
            at = (states[:-1], states[1:])
            reward = float(place % members)
            step.append(
                Known(
                    index=update * groups * members + place,
                    group=update * groups + group,
                    prompt=f"question {update}.{group}",
                    prompt_ids=prompt_ids,
                    response=" ".join(f"t{token}" for token in states[1:]),
                    ids=states[1:],
                    mask=mask,
                    sampler=sampler[at].astype(np.float32),
                    current=current[at].astype(np.float32),
                    gate=gate[at].astype(np.float32),
                    reference=reference[at].astype(np.float32),
                    entropy=-(np.exp(current) * current).sum(axis=1)[at[0]].astype(np.float32),
                    advantage=reward - 0.5,
                    reward=reward,
                    versions=[str(update + 1 - (tool and update > 0)), str(update + 1)] if tool else [str(update + 1)],
                    status="truncated" if place == 1 else "completed",
                    removed=place == groups * members - 1,
                )
            )
        steps.append(step)
    return steps


def _policy(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-probabilities of the next token, (token before, token)."""
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def conversation(known: Known) -> list[dict[str, object]]:
    """The messages of a response with a tool call."""
    call = {"function": {"name": "lookup", "arguments": "{}"}}
    return [
        {"role": "user", "content": known.prompt},
        {"role": "assistant", "content": "looking", "tool_calls": [call]},
        {"role": "tool", "name": "lookup", "content": "42"},
        {"role": "assistant", "content": "it is 42"},
    ]
