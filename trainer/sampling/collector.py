"""Collecting the batch of an update: prompts, the versions that answer them, samples, rewards."""

import random
from dataclasses import replace
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from ratioscope.trainer.model.vocabulary import Vocabulary
from ratioscope.trainer.sampling.engine import Engine, Weights
from ratioscope.trainer.sampling.experts import Experts
from ratioscope.trainer.sampling.rollout import Rollout, TrainingBatch, join
from ratioscope.trainer.sampling.sample import Decoding, Switch, Version, encoded, sample, scored, with_greedy_reward
from ratioscope.trainer.sampling.schedule import live_versions
from ratioscope.trainer.sampling.snapshots import Snapshots
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.tasks.task import Task


class Collector(Protocol):
    """Where an update's batch comes from."""

    def publish(self, version: int, model: PreTrainedModel) -> None:
        """A new version of the policy is there."""

    def collect(self, update: int) -> TrainingBatch:
        """The batch of an update."""

    def hold_out(self, update: int, batch: TrainingBatch) -> TrainingBatch | None:
        """Responses to a few prompts that its batch does not have, by the same sampler; None where there are none."""

    @property
    def weights(self) -> dict[int, Weights]:
        """Of the versions that the last batch came from, at least."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs to go on."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""

    def close(self) -> None:
        """Let go of whatever runs."""


class ScheduledCollector:
    """Samples when the batch is needed, with the old versions that the schedule names.

    Drawing a batch at its update or ahead of time is the same thing in distribution, and needs no buffer of batches.
    """

    def __init__(self, config: TrainConfig, task: Task, model: PreTrainedModel, vocabulary: Vocabulary) -> None:
        self.config, self.task, self.vocabulary = config, task, vocabulary
        self.snapshots = Snapshots(config.schedule)
        self.engine = Engine(model, config.sampler.dtype)
        self.newest_engine = Engine(model, config.sampler.dtype) if config.schedule.switch_probability else None
        self.experts = Experts(config.schedule, task, vocabulary)
        self.decoding = decoding_of(config)
        self.prompts = random.Random(config.seed)
        self.generator = torch.Generator(model.device).manual_seed(config.seed)

    def publish(self, version: int, model: PreTrainedModel) -> None:
        self.snapshots.keep(version, model)

    def collect(self, update: int) -> TrainingBatch:
        if self.config.declared.selection == "mixed_groups":
            return self._mixed_groups(update, int(self.config.parameters["max_rounds"]))
        return self._next(update)

    def hold_out(self, update: int, batch: TrainingBatch) -> TrainingBatch | None:
        # A stream of its own for each update: the batches do not depend on it, and a resumed run repeats it.
        choice = random.Random(f"held out {self.config.seed} {update}")
        prompts = other_prompts(self.task, choice, self.config.logging.held_out_groups, batch)
        generator = torch.Generator(self.generator.device).manual_seed(choice.getrandbits(62))
        return self.batch(update, prompts, choice, generator) if prompts else None

    @property
    def weights(self) -> dict[int, Weights]:
        return self.snapshots.weights

    def state(self) -> dict[str, Any]:
        version, numbers, gauss = self.prompts.getstate()
        return {
            "snapshots": self.snapshots.weights,
            "generator": self.generator.get_state(),
            "prompts": [version, list(numbers), gauss],  # types that a checkpoint may hold
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.snapshots.weights = state["snapshots"]
        self.generator.set_state(state["generator"])
        version, numbers, gauss = state["prompts"]
        self.prompts.setstate((version, tuple(numbers), gauss))

    def close(self) -> None:
        """Nothing runs between two batches."""

    def batch(self, update: int, drawn: list[int], choice: random.Random, generator: torch.Generator) -> TrainingBatch:
        """Responses to given prompts, by the versions that the schedule names for an update."""
        versions = live_versions(self.config.schedule, update)
        if not self.config.schedule.mixture:
            rollouts = [self._sample(drawn, versions[0], versions[0], generator)]
            return assemble(rollouts, drawn, self.task, self.vocabulary)
        copies = self.config.sampler.samples_per_prompt if self.config.schedule.mixture_unit == "response" else 1
        units = [prompt for prompt in drawn for _ in range(copies)]
        chosen = choice.choices(versions, self.config.schedule.mixture, k=len(units))
        places = sorted(range(len(units)), key=lambda place: chosen[place])  # stable: in the order of the draws
        rollouts = []
        for old in sorted(set(chosen)):
            part = [units[place] for place in places if chosen[place] == old]
            rollouts.append(self._sample(part, old, versions[0], generator, copies))
        if copies > 1:  # neighbours again
            whole = join(rollouts, self.vocabulary.pad_id).rows(torch.tensor(places).argsort())
            return assemble([whole._replace(copies=copies)], drawn, self.task, self.vocabulary)
        return assemble(rollouts, [units[place] for place in places], self.task, self.vocabulary)

    def _next(self, update: int) -> TrainingBatch:
        drawn = self.task.draw(self.prompts, self.config.sampler.prompts)
        batch = self.batch(update, drawn, self.prompts, self.generator)
        if not self.config.schedule.expert_share:
            return batch
        asked = batch.prompt_ids[:: batch.rollout.copies]
        return assemble([self.experts.mixed(batch.rollout, asked)], asked, self.task, self.vocabulary)

    def _sample(
        self, prompt_ids: list[int], version: int, newest: int, generator: torch.Generator, apart: int = 1
    ) -> Rollout:
        """Responses to prompts; `apart`: how many of a prompt's were asked for one by one."""
        settings, schedule = self.config.sampler, self.config.schedule
        model = self.engine.load(self.snapshots.weights[version], version)
        switch = None
        if self.newest_engine is not None and newest != version:
            fresh = Version(self.newest_engine.load(self.snapshots.weights[newest], newest), newest)
            switch = Switch(fresh, schedule.switch_probability, schedule.segment_length)
        prompts, prompt_mask = encoded(self.task, self.vocabulary, prompt_ids, model.device)
        policy = Version(model, version)
        rollout = sample(
            policy,
            prompts,
            prompt_mask,
            self.vocabulary,
            copies=settings.samples_per_prompt // apart,
            length=self.task.response_length,
            decoding=self.decoding,
            generator=generator,
            switch=switch,
            keep_distribution=self.config.logging.exact,
        )
        if not self.config.declared.samples_greedily:
            return rollout
        return with_greedy_reward(rollout, policy, self.task, self.vocabulary, prompt_ids)

    def _mixed_groups(self, update: int, rounds: int) -> TrainingBatch:
        """DAPO's dynamic sampling: only groups whose rewards differ, as far as `rounds` rounds find enough."""
        copies, wanted = self.config.sampler.samples_per_prompt, self.config.sampler.prompts
        mixed: list[TrainingBatch] = []
        silent: list[TrainingBatch] = []
        for _ in range(rounds):
            for group in split(self._next(update), copies):
                (mixed if group.reward.min() < group.reward.max() else silent).append(group)
            if len(mixed) >= wanted:
                break
        taken = [*mixed, *silent][:wanted]
        left_out = [*mixed, *silent][wanted:]
        prompts = [prompt for group in taken for prompt in group.prompt_ids[::copies]]
        batch = assemble([group.rollout for group in taken], prompts, self.task, self.vocabulary)
        return replace(batch, left_out=sum(int(group.rollout.mask.sum()) for group in left_out))


def other_prompts(task: Task, choice: random.Random, n: int, batch: TrainingBatch) -> list[int]:
    """n prompts none of which the batch asks; fewer where a task repeats its questions."""
    asked = {task.prompt(prompt_id) for prompt_id in batch.prompt_ids}
    drawn = task.draw(choice, n + len(set(batch.prompt_ids))) if n else []
    return [prompt_id for prompt_id in drawn if task.prompt(prompt_id) not in asked][:n]


def decoding_of(config: TrainConfig) -> Decoding:
    """How the sampling engine turns logits into a distribution."""
    sampler = config.sampler
    return Decoding(sampler.temperature, sampler.top_k, sampler.top_p, sampler.smoothing)


def assemble(rollouts: list[Rollout], prompts: list[int], task: Task, vocabulary: Vocabulary) -> TrainingBatch:
    """A batch of rollouts, one prompt a group."""
    rollout = join(rollouts, vocabulary.pad_id)
    prompt_ids = [prompt for prompt in prompts for _ in range(rollout.copies)]
    return TrainingBatch(rollout, prompt_ids, *scored(rollout, task, vocabulary, prompt_ids))


def split(batch: TrainingBatch, copies: int) -> list[TrainingBatch]:
    """The groups of a batch, each a batch of its own."""
    places = [slice(start, start + copies) for start in range(0, len(batch.prompt_ids), copies)]
    return [
        TrainingBatch(
            batch.rollout.rows(place),
            batch.prompt_ids[place],
            batch.responses[place],
            batch.ended[place],
            batch.reward[place],
        )
        for place in places
    ]
