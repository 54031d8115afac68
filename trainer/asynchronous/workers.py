"""A3C's system (S4 3.4.3): workers sample, differentiate, and move shared weights, each at its own pace.

A worker copies the shared weights, samples with its copy, takes the gradient there, and applies it to what the shared
weights have become meanwhile. One application at a time makes one version; nothing else waits. Of update k,
`behavior_version` and `logp_gate` belong to the version that sampled and was differentiated, `policy_version` and
`logp_current` to the one that the gradient was applied to: its staleness is measured, not set.
"""

import copy
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

from ratioscope.trainer import tasks
from ratioscope.trainer.asynchronous.processes import LOOK, Crew, LearnerLink
from ratioscope.trainer.model import adapters, policy
from ratioscope.trainer.sampling.collector import ScheduledCollector
from ratioscope.trainer.settings.config import Schedule, TrainConfig
from ratioscope.trainer.training import record
from ratioscope.trainer.training.recompute import Recomputed
from ratioscope.trainer.training.update import Learner, adamw


class WorkersShared(NamedTuple):
    """What all workers change."""

    weights: list[Parameter]
    """Of the policy and the critic, in shared memory."""
    moments: list[dict[str, Tensor]]
    """AdamW's, of each of them."""
    version: Any
    lock: Any


class Applied(NamedTuple):
    """One update, as the worker that made it tells it."""

    update: int
    tokens: dict[str, Any]
    sequences: dict[str, Any]
    scalars: dict[str, Any]
    reward: float
    weights: list[np.ndarray] | None
    """The policy's afterwards, where an evaluation is due."""


class Workers:
    """The processes, seen from the run that records their updates in order.

    Args:
        learner: its weights and its optimiser's moments become those that are shared.
        model: what a copy for evaluations is made of.
    """

    def __init__(self, config: TrainConfig, learner: Learner, model: PreTrainedModel) -> None:
        self.config, self.learner = config, learner
        self._model = copy.deepcopy(model)
        self._early: dict[int, Applied] = {}
        self._crew: Crew | None = None

    def start(self, update: int) -> None:
        """Begin with the weights as they are now, as version `update`."""
        context, optimiser, weights = multiprocessing.get_context("spawn"), self.learner.optimiser, self.learner.trained
        if not optimiser.state:  # at a rate of 0 a step makes the moments, and nothing else
            for weight in weights:
                weight.grad = torch.zeros_like(weight)
            for group in optimiser.param_groups:
                group["lr"] = 0.0
            optimiser.step()
            optimiser.zero_grad()
            for moments in optimiser.state.values():
                moments["step"].zero_()
        moments = [optimiser.state[weight] for weight in weights]
        for tensor in [*weights, *(tensor for own in moments for tensor in own.values())]:
            tensor.share_memory_()
        self._shared = WorkersShared(weights, moments, context.Value("q", update), context.Lock())
        self._crew = Crew("Worker", self.config.schedule.workers, _work, self.config, self._shared)

    def next(self, update: int) -> Applied:
        """What an update was; raises as `Crew.receive`."""
        assert self._crew is not None  # started
        while update not in self._early:
            _, applied = self._crew.receive()
            self._early[applied.update] = applied
        return self._early.pop(update)

    @contextmanager
    def still(self) -> Iterator[int]:
        """While nobody changes the shared weights; gives their version."""
        assert self._crew is not None  # started
        with self._crew.holding(self._shared.lock):
            yield self._shared.version.value

    @torch.no_grad()
    def evaluated(self, weights: list[np.ndarray]) -> PreTrainedModel:
        """A policy with the weights that a worker sent."""
        for parameter, weight in zip(adapters.trained(self._model).values(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
        return self._model

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()


class _Enough(Exception):
    """Nothing is left to do."""


class _Applying:
    """In the place of a worker's optimiser: its gradients move the shared weights, of which it then has a copy."""

    def __init__(self, link: LearnerLink, learner: Learner, shared: WorkersShared) -> None:
        self._link, self._mine, self._shared = link, learner.trained, shared
        self._updates = learner.config.updates
        self._adamw = adamw(shared.weights, learner.config.optimiser)
        for weight, moments in zip(shared.weights, shared.moments, strict=True):
            self._adamw.state[weight] = moments
        self.param_groups = self._adamw.param_groups
        self.version: int | None = None
        """That the last gradient was applied to."""
        self.before: list[Tensor] = []

    def take(self) -> int:
        """Copy the shared weights; gives their version."""
        with self._locked() as version:
            self.copy(self._shared.weights)
        self.version = None
        return version

    def zero_grad(self, *, set_to_none: bool) -> None:
        for mine in self._mine:
            mine.grad = None

    def step(self) -> None:
        with self._locked() as version:
            if version >= self._updates:
                raise _Enough
            self.version, self.before = version, [weight.detach().clone() for weight in self._shared.weights]
            for weight, mine in zip(self._shared.weights, self._mine, strict=True):
                weight.grad = mine.grad
            self._adamw.step()
            self.copy(self._shared.weights)
            self._shared.version.value = version + 1

    @torch.no_grad()
    def copy(self, weights: list[Any]) -> None:
        """Into the worker's own."""
        for mine, weight in zip(self._mine, weights, strict=True):
            mine.copy_(weight)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        while not self._shared.lock.acquire(timeout=LOOK):
            if not self._link.is_wanted():
                raise _Enough
        try:
            yield self._shared.version.value
        finally:
            self._shared.lock.release()


def _work(link: LearnerLink, config: TrainConfig, shared: WorkersShared) -> None:
    task, seed = tasks.make(config.task), (config.seed * 1_000_003 + link.number + 1) % 2**63
    own = config.model_copy(update={"seed": seed, "schedule": Schedule()})
    model, vocabulary = policy.make(config.model, task)
    learner = Learner(own, model, task.response_length, model)
    applying = _Applying(link, learner, shared)
    learner.optimiser = applying  # type: ignore[assignment]
    collector = ScheduledCollector(own, task, model, vocabulary)
    while link.is_wanted():
        try:
            version = applying.take()
            learner.weights.publish()
            started = time.perf_counter()
            collector.publish(version, model)
            batch = collector.collect(version)
            sampled = time.perf_counter()
            outcome = learner.update(version, batch)
        except _Enough:
            return
        update = applying.version
        if update is None:  # no token was eligible
            continue
        due = update % config.evaluate_every == 0 or update == config.updates - 1
        weights = [weight.detach().numpy().copy() for weight in learner.weights.exact] if due else None
        outcome.columns["logp_gate"] = outcome.columns["logp_current"]
        if update != version:
            applying.copy(applying.before)
            learner.weights.publish()
            with torch.no_grad():
                seen = learner.preparation.look(batch.rollout, outcome.prepared.select)
            outcome.columns |= {"logp_current": seen.logp, "entropy": seen.entropy}
            outcome.prepared = replace(outcome.prepared, current=seen.distribution)
        scalars = outcome.scalars | {
            "policy_version": update,
            "extra_version_sampled": version,
            "extra_gradient_staleness": update - version,
            "extra_worker": link.number,
            "tokens_dropped_no_signal": batch.left_out,
            "seconds_sampling": sampled - started,
            "seconds_training": time.perf_counter() - sampled,
        }
        tokens = _plain(record.tokens(batch.rollout, outcome, Recomputed()))
        sequences = _plain(record.sequences(batch, outcome, task, learner.algorithm))
        link.send(Applied(update, tokens, sequences, scalars, float(batch.reward.mean()), weights))
        time.sleep(max(0.0, config.pace - (time.perf_counter() - started)))


def _plain(columns: dict[str, Any]) -> dict[str, Any]:
    """Plain arrays: they travel through a pipe without any shared handles."""
    return {name: value.detach().numpy() if isinstance(value, Tensor) else value for name, value in columns.items()}
