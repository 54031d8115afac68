"""Healthy runs of many shapes, from softmax policies that learn slowly, so that all that must hold of a log does.

for shape in shapes(50):
    write_run(folder, healthy_steps(shape), **manifest_of(shape))

Responses are drawn from the logged sampler itself; entropies are exact, advantages are those of the rewards, versions
those that sampled, clip sides those of the gate. Nothing else is true of them: they do not all learn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.trainer.algorithms.rows import ALGORITHMS
from tests.making.faults import _log_softmax as log_softmax
from tests.making.runs import Step

Array = NDArray[np.float64]

SCHEDULES = ("on policy", "sync", "offset", "mixture", "partial")
"""Of the weights: every update, every few, a few late, several versions a batch, several versions a response."""
_VOCABULARY, _STATES = 12, 40
_EPSILON = 0.2


@dataclass(frozen=True)
class Shape:
    """What a run is like."""

    seed: int
    algorithm: str
    schedule: str
    groups: int
    responses: tuple[int, ...]
    """How many each group has."""
    longest: int
    steps: int
    drift: float
    """Standard deviation of an update, in logits."""
    engine: float
    """That of the sampler's engine against the trainer's."""
    recomputed: bool
    """Whether the trainer recomputes the sampling version."""
    graded: bool
    """Rewards between 0 and 1, not only these two."""
    described: bool
    """Whether the manifest says what was run."""


def shapes(count: int) -> list[Shape]:
    """So many runs, the same ones each time: sizes from 2 to 64 groups and 4 to 2,000 tokens, every schedule."""
    rng = np.random.default_rng(11)
    found = []
    for seed in range(count):
        groups = int(2 ** rng.uniform(1, 6))
        equal = rng.random() < 0.6
        of_each = int(rng.choice((4, 8)))
        sizes = [of_each] * groups if equal else [int(n) for n in 2 + np.minimum(rng.pareto(1.5, groups) * 2, 14)]
        # So many tokens a step that a run takes a fraction of a second.
        most = max(4, min(2000, 6000 // sum(sizes)))
        longest = int(np.exp(rng.uniform(np.log(4), np.log(most)))) if seed % 10 else most
        found.append(
            Shape(
                seed=seed,
                algorithm=str(rng.choice(("grpo", "reinforce", "rec_oneside_is", "rec_oneside_nois", "asymre"))),
                schedule=SCHEDULES[seed % len(SCHEDULES)],
                groups=groups,
                responses=tuple(sizes),
                longest=max(4, longest),
                steps=40 if seed % 5 == 2 and sum(sizes) * longest < 3000 else int(rng.integers(6, 14)),
                drift=float(rng.choice((0.002, 0.01, 0.03))),
                engine=float(rng.choice((0.0, 0.0, 0.003, 0.01))),
                recomputed=bool(rng.random() < 0.4),
                graded=bool(rng.random() < 0.3),
                described=bool(rng.random() < 0.7),
            )
        )
    # Two groups of two long responses: the longest there are.
    found[-1] = replace(found[-1], groups=2, responses=(2, 2), longest=2000, steps=6)
    return found


def manifest_of(shape: Shape) -> dict[str, Any]:
    """What `write_run` takes besides the steps."""
    if not shape.described:
        return {}
    algorithm = ALGORITHMS[shape.algorithm]
    parameters = {**algorithm.parameters, "epochs": 1, "minibatches": 1}
    return {"algorithm": {"name": algorithm.name, "parts": algorithm.parts(), "parameters": parameters}}


def healthy_steps(shape: Shape) -> Iterator[Step]:
    """The run's steps; with other numbers of it in the same shape, the same ones."""
    rng = np.random.default_rng(1000 + shape.seed)
    algorithm = ALGORITHMS[shape.algorithm]
    # Versions of the policy: (n_states, n_tokens of the vocabulary), most recent last.
    logits = [rng.uniform(0.7, 2) * rng.standard_normal((_STATES, _VOCABULARY))]
    for number in range(shape.steps):
        old, versions = logits[-1], _versions(shape, number, rng)
        new = old + shape.drift * rng.standard_normal(old.shape)
        of_response = np.repeat(np.arange(shape.groups), shape.responses)
        lengths = rng.integers(max(1, shape.longest // 4), shape.longest + 1, len(of_response))
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        group = of_response[sequence]
        version = versions(of_response, sequence, position, lengths)
        state = rng.integers(0, 2**31, (shape.groups, shape.longest))[group, position] % _STATES
        # (n_versions, n_states, n_tokens): what the trainer computes, and what the sampler does.
        exact = log_softmax(np.stack(logits[-_OLDEST:]))
        engine = shape.engine * rng.standard_normal(exact.shape)
        sampler = log_softmax(exact + engine)
        which = version - (number + 1 - len(exact))
        drawn = sampler[which, state]
        token = (drawn + rng.gumbel(size=drawn.shape)).argmax(axis=1)
        current, after = log_softmax(old), log_softmax(new)
        behavior = np.take_along_axis(drawn, token[:, None], 1)[:, 0].astype(np.float32)
        entropy = -(np.exp(current) * current).sum(axis=1)
        reward = _rewards(shape, rng, of_response)
        advantage = _advantages(algorithm.advantage, reward, of_response)[sequence]
        log_ratio = current[state, token].astype(np.float32).astype(float) - behavior
        clips = algorithm.gate == "one_side"
        side = np.zeros(len(sequence), dtype=np.int8)
        side[clips & (advantage > 0) & (log_ratio > np.log(1 + _EPSILON))] = 1
        side[clips & (advantage < 0) & (log_ratio < np.log(1 - _EPSILON))] = -1
        tokens: dict[str, Any] = {
            "seq_id": sequence,
            "group_id": group,
            "position": position.astype(np.int32),
            "token_id": token.astype(np.int32),
            "behavior_version": version.astype(np.int32),
            "logp_behavior": behavior,
            "logp_current": current[state, token].astype(np.float32),
            "logp_new": after[state, token].astype(np.float32),
            "advantage": advantage.astype(np.float32),
            "entropy": entropy[state].astype(np.float32),
            "clip_side": side,
            "clipped": side != 0,
            "gate": (side == 0).astype(np.float32),
        }
        if shape.recomputed:
            tokens["logp_behavior_train"] = exact[which, state, token].astype(np.float32)
        sequences = {
            "seq_id": np.arange(len(lengths)),
            "group_id": of_response,
            "n_tokens": lengths.astype(np.int32),
            "reward": reward.astype(np.float32),
            "finish_reason": ["stop"] * len(lengths),
        }
        scalars = {
            "policy_version": number,
            "loss": 0.1 * rng.standard_normal(),
            "grad_norm": np.exp(rng.normal(0, 0.2)),
        }
        yield Step(number, tokens, sequences, scalars)
        logits = [*logits, new][-_OLDEST:]


_OLDEST = 6
"""Versions that are kept: none is older by so many updates."""


def _versions(shape: Shape, number: int, rng: np.random.Generator) -> Any:
    """Which version sampled each token: a function of the responses' groups, and the tokens' places."""

    def of(groups: NDArray[Any], sequence: NDArray[Any], position: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
        match shape.schedule:
            case "sync":
                version = np.full(len(sequence), number - number % 4)
            case "offset":
                version = np.full(len(sequence), number - 2)
            case "mixture":
                version = number - rng.integers(0, 5, groups.max() + 1)[groups][sequence]
            case "partial":
                # The weights change while the response is being written.
                version = number - 1 + (position >= (lengths * rng.random(len(lengths)))[sequence])
            case _:
                version = np.full(len(sequence), number)
        return np.maximum(version, 0)

    return of


def _rewards(shape: Shape, rng: np.random.Generator, of_response: NDArray[Any]) -> Array:
    """By response; how likely a right answer is depends on the prompt."""
    ease = rng.uniform(0.25, 0.75, shape.groups)[of_response]
    if shape.graded:
        return np.clip(ease + 0.2 * rng.standard_normal(len(ease)), 0, 1)
    return (rng.random(len(ease)) < ease).astype(float)


def _advantages(part: str, reward: Array, of_response: NDArray[Any]) -> Array:
    """By response: the reward over its group's mean, in the group's standard deviations where it is normalised."""
    size = np.bincount(of_response)
    centred = reward - (np.bincount(of_response, reward) / size)[of_response]
    if part != "group_normalised":
        return centred
    deviation = np.sqrt(np.bincount(of_response, centred**2) / np.maximum(size - 1, 1))
    return centred / (deviation[of_response] + 1e-6)
