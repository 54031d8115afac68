"""Logs of sick runs whose columns are all true: made of exact policies over small states."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.making.runs import Step, plain_step

Floats = NDArray[np.float64]

GROUPS, RESPONSES, LONGEST, VOCABULARY, POOL = 12, 8, 6, 8, 300


def log_softmax(logits: Floats) -> Floats:
    """As engines compute it, in float32, where a token that leads by 17 has exactly 0."""
    below = (logits - logits.max(axis=-1, keepdims=True)).astype(np.float32)
    found: Floats = (below - np.log(np.exp(below).sum(axis=-1, keepdims=True))).astype(float)
    return found


def truncated(log_probs: Floats, top_p: float, smoothing: float) -> Floats:
    """What a sampler draws from that keeps the likeliest tokens up to a mass and mixes with the policy itself."""
    p = np.exp(log_probs)
    order = np.argsort(-p, axis=-1)
    before = np.cumsum(np.take_along_axis(p, order, axis=-1), axis=-1) - np.take_along_axis(p, order, axis=-1)
    kept = np.take_along_axis(before < top_p, np.argsort(order, axis=-1), axis=-1)
    share = np.where(kept, p, 0.0) / np.where(kept, p, 0.0).sum(axis=-1, keepdims=True)
    found: Floats = np.log((1 - smoothing) * share + smoothing * p)
    return found


class World:
    """A policy over states: most of them sure to some degree, with exact zeros in float32, the others open.

    Args:
        rate: how far the logits move in an update.
        sharpness: what the logits are multiplied by; at 40 nearly every token is certain.
    """

    def __init__(self, seed: int, rate: float, sharpness: float = 1.0) -> None:
        rng = np.random.default_rng([seed, 1])
        logits = 2.0 * rng.standard_normal((POOL, VOCABULARY))
        sure = np.flatnonzero(rng.random(POOL) < 0.6)
        logits[sure, rng.integers(0, VOCABULARY, len(sure))] += rng.uniform(6, 26, len(sure))
        self.logits, self.rate = sharpness * logits, rate
        self.direction = rng.standard_normal((POOL, VOCABULARY))

    def of(self, version: NDArray[np.int64], state: NDArray[np.int64]) -> Floats:
        """(n, vocabulary) log-probabilities of versions in states."""
        return log_softmax(self.logits[state] + self.rate * version[:, None] * self.direction[state])


def steps_of(
    seed: int, *, rate: float, steps: int, lag: str = "fresh", sharpness: float = 1.0, top_p: float = 1.0,
    smoothing: float = 0.0, experts: float = 0.0, drop: float = 0.0, train: bool = False, **scalars: Any,
) -> Iterator[Step]:  # fmt: skip
    """Steps of a run.

    Args:
        lag: "fresh"; "offline": the sampler is version 0 for ever; "mixed": up to four versions, by response.
        experts: share of the responses that no sampler drew: the likeliest tokens, without a logp_behavior.
        drop: share of the tokens that are left out where the ratio is far from 1, and counted.
        train: log logp_behavior_train, the sampling version in the trainer.
    """
    world, rng = World(seed, rate, sharpness), np.random.default_rng([seed, 2])
    n = GROUPS * RESPONSES
    group, sequence = np.arange(n) // RESPONSES, np.repeat(np.arange(n), LONGEST)
    for number in range(steps):
        current = np.full(n, number)
        version = {"fresh": current, "offline": np.zeros(n, int)}.get(
            lag, np.maximum(number - rng.integers(0, 5, n), 0)
        )
        is_expert = rng.random(n) < experts
        previous, columns = np.zeros(n, int), dict[str, list[Floats]]()
        for position in range(LONGEST):
            state = (group * 7919 + number * 104729 + position * 31 + previous * 1009) % POOL
            policy, new, own = (world.of(of, state) for of in (current, current + 1, version))
            sampler = truncated(own, top_p, smoothing) if top_p < 1 else own
            # Gumbel's trick: the largest of log-probability and noise is a draw.
            token = np.argmax(np.where(is_expert[:, None], policy, sampler + rng.gumbel(size=sampler.shape)), axis=-1)
            entropy = -(np.exp(policy) * policy).sum(axis=-1)
            drawn = {"b": sampler, "c": policy, "n": new, "t": own}
            found = {key: of[np.arange(n), token] for key, of in drawn.items()} | {"h": entropy, "token": token}
            for key, values in found.items():
                columns.setdefault(key, []).append(values)
            previous = token
        of = {key: np.stack(values, axis=1).ravel().astype(np.float32) for key, values in columns.items()}
        of["b"] = np.where(is_expert[sequence], np.nan, of["b"]).astype(np.float32)
        step = plain_step(
            of["b"], of["c"], of["n"], number=number, sequence=sequence, group=group[sequence],
            token_id=of["token"].astype(np.int32), behavior_version=version[sequence].astype(np.int32),
            entropy=of["h"], advantage=rng.standard_normal(n)[sequence].astype(np.float32),
        )  # fmt: skip
        if experts:
            step = step.with_tokens(logp_behavior=[None if np.isnan(b) else float(b) for b in of["b"]])
        if train:
            step = step.with_tokens(logp_behavior_train=of["t"])
        counted = {"policy_version": number, "learning_rate": rate, "grad_norm": 1.0} | scalars
        if drop:
            far = np.abs(np.expm1(of["c"] - of["b"])) > drop
            step = step.rows(~far, np.isin(np.arange(n), sequence[~far]))
            ids, lengths = np.unique(step.tokens["seq_id"], return_counts=True)
            step.sequences["n_tokens"] = lengths.astype(np.int32)
            assert len(ids) == len(step.sequences["seq_id"])
            counted["tokens_dropped_stale"] = int(far.sum())
        yield replace(step, scalars=counted)


TRUE_LOGS: dict[str, dict[str, Any]] = {
    **{
        f"collapsed offline, seed {seed}, rate {rate}": {"seed": seed, "rate": rate, "steps": 16, "lag": "offline"}
        for seed in (0, 1)
        for rate in (0.2, 0.6, 2.0)
    },
    "collapsed with several versions": {"seed": 0, "rate": 0.8, "steps": 16, "lag": "mixed"},
    "mixture, many exact zeros": {"seed": 1, "rate": 0.1, "steps": 12, "lag": "mixed", "train": True},
    "entropy 0": {"seed": 0, "rate": 0.01, "steps": 8, "sharpness": 40.0},
    "entropy 0, old data": {"seed": 0, "rate": 8.0, "steps": 8, "sharpness": 40.0, "lag": "offline"},
    "learning rate 0": {"seed": 0, "rate": 0.0, "steps": 8, "lag": "mixed"},
    "smoothing": {"seed": 0, "rate": 0.1, "steps": 12, "top_p": 0.8, "smoothing": 0.05, "train": True},
    "experts": {"seed": 0, "rate": 0.1, "steps": 12, "experts": 0.25},
    "experts, old data": {"seed": 0, "rate": 0.4, "steps": 12, "experts": 0.25, "lag": "offline"},
    "tokens dropped inside responses": {"seed": 0, "rate": 0.3, "steps": 16, "lag": "mixed", "drop": 0.2},
}
