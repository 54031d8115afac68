"""Real asynchrony: processes sample with whatever weights they have while the learner trains.

Staleness is measured here, not set: a response carries the version that its actor held when it began. The weights lie
in shared memory; an actor takes the newest ones between two chunks of prompts.
"""

import multiprocessing
import random
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ratioscope.trainer import tasks
from ratioscope.trainer.asynchronous.processes import Crew, LearnerLink
from ratioscope.trainer.model import adapters, policy
from ratioscope.trainer.model.precision import cast
from ratioscope.trainer.model.vocabulary import Vocabulary
from ratioscope.trainer.sampling.collector import assemble, decoding_of
from ratioscope.trainer.sampling.engine import Engine, Weights
from ratioscope.trainer.sampling.rollout import Rollout, TrainingBatch
from ratioscope.trainer.sampling.sample import Version, encoded, sample, with_greedy_reward
from ratioscope.trainer.sampling.snapshots import kept_weights
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.tasks.task import Task


class Chunk(NamedTuple):
    """Responses to a few prompts, as an actor sends them."""

    version: int
    prompt_ids: list[int]
    arrays: dict[str, Any]


@dataclass(frozen=True)
class ActorsShared:
    """What learner and actors have in common."""

    weights: Weights
    version: Any
    """The version that the weights are; -1 before the first."""
    lock: Any


class ActorCollector:
    """Batches from N actor processes, in the order in which their chunks arrive.

    Raises:
        RatioscopeError: in `collect`, where an actor has failed.
    """

    def __init__(self, config: TrainConfig, task: Task, model: PreTrainedModel, vocabulary: Vocabulary) -> None:
        self.config, self.task, self.vocabulary = config, task, vocabulary
        self.device = model.device
        self._kept: dict[int, Weights] = {}
        self._last_from = [0] * config.schedule.actors
        self._waiting: deque[tuple[int, Rollout]] = deque()
        context = multiprocessing.get_context("spawn")
        self._shared = ActorsShared(
            weights={name: value.share_memory_() for name, value in kept_weights(model).items()},  # type: ignore[no-untyped-call]
            version=context.Value("q", -1),
            lock=context.Lock(),
        )
        self._crew = Crew("Actor", config.schedule.actors, _sample_forever, config, self._shared)

    def publish(self, version: int, model: PreTrainedModel) -> None:
        with self._crew.holding(self._shared.lock):
            for name, value in adapters.version_of(model).items():
                self._shared.weights[name].copy_(value)
            self._shared.version.value = version
        if self.config.engine_differs or self.config.logging.exact:
            # An actor's versions only grow: nothing older than its last chunk, or than what waits, can still come.
            oldest = min([*self._last_from, *(int(rollout.version.min()) for _, rollout in self._waiting)])
            self._kept = {number: weights for number, weights in self._kept.items() if number >= oldest}
            self._kept[version] = kept_weights(model)

    @property
    def weights(self) -> dict[int, Weights]:
        return self._kept

    def collect(self, update: int) -> TrainingBatch:
        return self._assembled([self._next() for _ in range(self.config.sampler.prompts)])

    def hold_out(self, update: int, batch: TrainingBatch) -> TrainingBatch | None:
        asked = {self.task.prompt(prompt_id) for prompt_id in batch.prompt_ids}
        taken: list[tuple[int, Rollout]] = []
        back: list[tuple[int, Rollout]] = []
        while len(taken) < self.config.logging.held_out_groups:
            group = self._next()
            (back if self.task.prompt(group[0]) in asked else taken).append(group)
        self._waiting.extendleft(reversed(back))
        return self._assembled(taken) if taken else None

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Actors begin anew: what they had sampled is gone with them."""

    def close(self) -> None:
        self._crew.close()

    def _next(self) -> tuple[int, Rollout]:
        """The prompt and the responses of the group that has waited longest."""
        while not self._waiting:
            actor, chunk = self._crew.receive()
            rollout = _unpacked(chunk.arrays, self.config.sampler.samples_per_prompt, self.device)
            self._last_from[actor] = chunk.version
            for place, prompt in enumerate(chunk.prompt_ids):
                rows = slice(place * rollout.copies, (place + 1) * rollout.copies)
                self._waiting.append((prompt, rollout.rows(rows)))
        return self._waiting.popleft()

    def _assembled(self, groups: list[tuple[int, Rollout]]) -> TrainingBatch:
        prompts = [prompt for prompt, _ in groups]
        return assemble([rollout for _, rollout in groups], prompts, self.task, self.vocabulary)


def _sample_forever(link: LearnerLink, config: TrainConfig, shared: ActorsShared) -> None:
    task = tasks.make(config.task)
    model, vocabulary = policy.make(config.model, task)
    engine = Engine(cast(model, policy.dtype_of(config.model)), config.sampler.dtype)
    seed = (config.seed * 1_000_003 + link.number + 1) % 2**63
    draw, generator = random.Random(seed), torch.Generator(model.device).manual_seed(seed)
    size = max(1, config.sampler.prompts // config.schedule.actors)
    while shared.version.value < 0 and link.is_wanted():
        link.stop.wait(0.02)
    while link.is_wanted():
        if shared.version.value != engine.version:
            with shared.lock:
                engine.load(shared.weights, shared.version.value)
        assert engine.version is not None  # loaded above
        prompt_ids = task.draw(draw, size)
        prompts, prompt_mask = encoded(task, vocabulary, prompt_ids, model.device)
        sampler = Version(engine.model, engine.version)
        rollout = sample(
            sampler,
            prompts,
            prompt_mask,
            vocabulary,
            copies=config.sampler.samples_per_prompt,
            length=task.response_length,
            decoding=decoding_of(config),
            generator=generator,
            keep_distribution=config.logging.exact,
        )
        if config.declared.samples_greedily:
            rollout = with_greedy_reward(rollout, sampler, task, vocabulary, prompt_ids)
        link.send(Chunk(engine.version, prompt_ids, _packed(rollout)))


def _packed(rollout: Rollout) -> dict[str, np.ndarray]:
    """Plain arrays: they travel through a pipe without any shared handles."""
    columns = rollout._asdict()
    return {name: value.cpu().numpy() for name, value in columns.items() if isinstance(value, Tensor)}


def _unpacked(arrays: dict[str, np.ndarray], copies: int, device: torch.device) -> Rollout:
    tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
    return Rollout(copies=copies, **tensors)
