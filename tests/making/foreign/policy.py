"""A policy small enough to be written down: log-probabilities of an engine that samples and of one that trains."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 50


@dataclass
class Response:
    """One response of `length` sampled tokens after a prompt."""

    prompt: list[int]
    tokens: list[int]
    sampled: NDArray[np.float64]
    """log-probabilities of the sampler"""
    trained: NDArray[np.float64]
    """of the trainer, at the start of the update"""
    entropy: NDArray[np.float64]
    reward: float
    advantage: float = 0.0


@dataclass
class Policy:
    """Next-token distributions that depend on the token before; the trainer's have moved a little."""

    seed: int = 0
    moved: float = 0.3
    random: np.random.Generator = field(init=False)
    _sampler: NDArray[np.float64] = field(init=False)
    _trainer: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        logits = self.random.normal(0, 1.5, (VOCABULARY, VOCABULARY))
        self._sampler = _log_softmax(logits)
        self._trainer = _log_softmax(logits + self.random.normal(0, self.moved, logits.shape))

    def respond(self, prompt: list[int], length: int, reward: float) -> Response:
        before, tokens = prompt[-1], []
        sampled, trained, entropy = np.zeros(length), np.zeros(length), np.zeros(length)
        for place in range(length):
            token = int(self.random.choice(VOCABULARY, p=np.exp(self._sampler[before])))
            sampled[place], trained[place] = self._sampler[before, token], self._trainer[before, token]
            entropy[place] = -np.sum(np.exp(self._trainer[before]) * self._trainer[before])
            tokens.append(token)
            before = token
        return Response(prompt, tokens, sampled, trained, entropy, reward)

    def scored(self, tokens: list[int]) -> NDArray[np.float64]:
        """What the trainer's forward pass gives for every token of a text; the first has no token before it."""
        after = [self._trainer[before, token] for before, token in pairwise(tokens)]
        return np.array([-np.log(VOCABULARY), *after])

    def group(self, prompt: list[int], rewards: list[float], length: int = 8) -> list[Response]:
        """Responses to one prompt, each as long as it likes, with the reward minus the group's mean as advantage."""
        lengths = self.random.integers(length // 2, length + 1, len(rewards))
        group = [self.respond(prompt, int(n), reward) for n, reward in zip(lengths, rewards, strict=True)]
        for response in group:
            response.advantage = response.reward - float(np.mean(rewards))
        return group


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
