"""Runs whose sampler is another engine than the trainer's: rounding, other weights, a temperature, a truncation.

write_run(folder, list(engine_steps("temperature", 1.2)))
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tests.making.faults import _log_softmax as log_softmax
from tests.making.runs import Step, plain_step

Array = NDArray[np.float64]
_RESPONSES, _LENGTH, _VOCABULARY = 4, 16, 16


def engine_steps(
    kind: str, size: float, *, steps: int = 3, groups: int = 16, recomputed: bool = True
) -> Iterator[Step]:
    """Steps on data of the policy's own version, drawn by the sampler, with small updates.

    Args:
        kind: "noise" of this standard deviation in every logit, "temperature" or "top_p".
    """
    rng = np.random.default_rng(7)
    for number in range(steps):
        logits = rng.uniform(0.5, 6, (groups, _LENGTH, 1)) * rng.standard_normal((groups, _LENGTH, _VOCABULARY))
        trainer = log_softmax(logits)
        sampler = trainer
        if kind == "noise":
            sampler = log_softmax(logits + size * rng.standard_normal(logits.shape))
        elif kind == "temperature":
            sampler = log_softmax(logits / size)
        elif kind == "top_p":
            sampler = _truncated(trainer, size)
        sequence = np.repeat(np.arange(groups * _RESPONSES), _LENGTH)
        noise = rng.gumbel(size=(groups, _RESPONSES, _LENGTH, _VOCABULARY))
        token = (sampler[:, None] + noise).argmax(axis=-1)  # the largest of log-probability and noise is a draw
        b, c, n = (
            np.take_along_axis(np.broadcast_to(of[:, None], noise.shape), token[..., None], axis=-1).ravel()
            for of in (sampler, trainer, log_softmax(logits + 0.02 * rng.standard_normal(logits.shape)))
        )
        reward = rng.integers(0, 2, groups * _RESPONSES).astype(np.float32)
        mean = np.repeat(reward.reshape(groups, -1).mean(axis=1), _RESPONSES)
        step = plain_step(
            b, c, n, number=number, sequence=sequence, group=sequence // _RESPONSES,
            token_id=token.ravel().astype(np.int32), advantage=(reward - mean)[sequence].astype(np.float32),
            **({"logp_behavior_train": c.astype(np.float32)} if recomputed else {}),
        )  # fmt: skip
        step.sequences["reward"] = reward
        yield replace(step, sequences=step.sequences)


def _truncated(log_probs: Array, top_p: float) -> Array:
    """Nucleus sampling: the most probable tokens up to this mass, renormalised."""
    order = np.argsort(-log_probs, axis=-1)
    p = np.exp(np.take_along_axis(log_probs, order, axis=-1))
    kept = np.zeros(log_probs.shape, dtype=bool)
    np.put_along_axis(kept, order, np.cumsum(p, axis=-1) - p < top_p, axis=-1)
    left = np.where(kept, log_probs, -np.inf)
    return np.asarray(left - np.log(np.exp(left).sum(axis=-1, keepdims=True)))
