"""The training loop: sample with an old policy, take gradient passes, log every token.

One update k, in the terms of the seeds:
  1. the batch is sampled by policy version i = behavior_version(k)      -> logp_behavior
  2. its log-probs under pi_k fall out of the first gradient pass         -> logp_current, entropy
  3. passes over the batch; the last one's gate and gradient are logged   -> logp_gate, gate, gradient_weight
  4. one more forward pass under pi_{k+1}                                 -> logp_new
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratioscope.errors import RatioscopeError
from ratioscope.manifest import MANIFEST_NAME, Manifest, library_versions
from ratioscope.ratios import log_ratio, total_variation
from ratioscope.recorder import RunRecorder
from trainer import checkpoint, policy
from trainer.advantages import ADVANTAGES
from trainer.algorithms import ALGORITHMS
from trainer.config import TrainConfig, build
from trainer.losses import TokenBatch, policy_loss
from trainer.sampling import Rollout, pad_left, sample, sample_evaluation, texts
from trainer.schedule import behavior_version
from trainer.snapshots import Snapshots
from trainer.tasks.addition import Addition, CharacterVocabulary

PRODUCER = "ratioscope trainer"


@dataclass(frozen=True)
class Progress:
    """What a progress display may show after an update."""

    update: int
    updates: int
    reward: float
    staleness: float
    """S_k, half the mean of |rho_k - 1|."""
    drift: float
    """U_k, half the mean of |rho_{k+1} - rho_k|."""
    eval_accuracy: float | None


@dataclass(frozen=True)
class Batch:
    """One sampled batch: prompt ids in groups, responses and rewards."""

    version: int
    prompt_ids: list[int]
    rollout: Rollout
    responses: list[str]
    reward: Tensor
    """(n_sequences,), float32; the K samples of a prompt are neighbours."""


class Trainer:
    """One run from its configuration to its folder.

    Args:
        config: what to train.
        folder: the run's folder; with `resume`, an interrupted run's.
        resume: go on from the folder's checkpoint, or, without one, compute from the start and record what is not on
            disk yet: equal seeds make equal steps. `config` must be the run's own, but for `updates`.
        flush_seconds: a live reader sees a step at most about this much later; fewer, larger files when it is long.
        warm_up: called while the supervised warm start runs, with its step and accuracy.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        *,
        resume: bool = False,
        flush_seconds: float = 3.0,
        warm_up: Callable[[int, float], None] = lambda step, accuracy: None,
    ) -> None:
        self.config, self.folder = config, folder
        self.algorithm = ALGORITHMS[config.algorithm.name]
        self.passes = config.algorithm.passes or self.algorithm.passes
        self.task = Addition(config.task.digits, config.task.evaluation_prompts)
        state = checkpoint.load(folder) if resume else None

        self.model = policy.build(config.model, self.task.prompt_length, self.task.response_length)
        self.sampler = policy.build(config.model, self.task.prompt_length, self.task.response_length)
        # The recorder comes before the warm start, so that the run is listed, and alive, while that takes its time.
        self.recorder = RunRecorder(
            folder,
            resume=resume,
            vocabulary=CharacterVocabulary.text_of,
            flush_seconds=flush_seconds,
            **({} if resume else self._manifest_fields()),
        )
        try:
            self.initial = policy.warm_started(config, self.task, warm_up)
        except BaseException:
            self.recorder.close("interrupted", "stopped during the warm start")
            raise
        self.model.load_state_dict(self.initial.state_dict())
        self._sampler_version: int | None = None
        optimiser = config.optimiser
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(),
            lr=optimiser.learning_rate,
            betas=(optimiser.beta1, optimiser.beta2),
            weight_decay=optimiser.weight_decay,
            fused=True,
        )
        self.generator = torch.Generator().manual_seed(config.seed)
        self.prompts = random.Random(config.seed)
        self.snapshots = Snapshots(config.schedule)
        self.next_update = 0
        if state is not None:
            self._restore(state)
        if resume:  # with more updates, perhaps
            self.recorder.manifest.planned_updates = config.updates
            self.recorder.manifest.extra["config"] = config.model_dump()

    # The loop -------------------------------------------------------------------------------------------------------

    def run(self, report: Callable[[Progress], None], should_stop: Callable[[], bool] = lambda: False) -> str:
        """Train to the end, or until `should_stop()` says so after an update; returns the run's final status."""
        with self.recorder:
            while self.next_update < self.config.updates:
                report(self._update(self.next_update))
                self.next_update += 1
                if should_stop():
                    self._save_checkpoint()
                    self.recorder.close("interrupted", "stopped by the user")
                    return "interrupted"
                if self.next_update % self.config.checkpoint_every == 0:
                    self._save_checkpoint()
        checkpoint.remove(self.folder)
        return "finished"

    def _update(self, step: int) -> Progress:
        started = time.perf_counter()
        self.snapshots.keep(step, self.model)
        batch = self._sample(step)
        sampled = time.perf_counter()

        tokens, scalars = self._optimise(batch)
        evaluated = self._evaluate() if self._evaluation_is_due(step) else {}
        trained = time.perf_counter()

        scalars |= evaluated | {
            "policy_version": step,
            "seconds_sampling": sampled - started,
            "seconds_training": trained - sampled,
            "seconds_logging": self._seconds_logging,
        }
        self.recorder.record_step(step, tokens=tokens, sequences=self._sequences(batch), scalars=scalars)
        self._seconds_logging = time.perf_counter() - trained
        time.sleep(max(0.0, self.config.pace - (time.perf_counter() - started)))

        current = log_ratio(tokens["logp_current"], tokens["logp_behavior"])
        new = log_ratio(tokens["logp_new"], tokens["logp_behavior"])
        return Progress(
            update=step,
            updates=self.config.updates,
            reward=float(batch.reward.mean()),
            staleness=float(total_variation(current)),
            drift=float(total_variation(new, current)),
            eval_accuracy=evaluated.get("eval_accuracy"),
        )

    _seconds_logging = 0.0  # the previous update's: a step cannot contain the time of its own recording

    # Its stages -----------------------------------------------------------------------------------------------------

    def _sample(self, step: int) -> Batch:
        version = behavior_version(self.config.schedule, step)
        if version != self._sampler_version:
            self.sampler.load_state_dict(self.snapshots.weights[version])
            self._sampler_version = version
        settings = self.config.sampler
        drawn = self.task.draw(self.prompts, settings.prompts)
        prompts, prompt_mask = pad_left(
            [self.task.vocabulary.encode(self.task.prompt(i)) for i in drawn], self.task.prompt_length
        )
        rollout = sample(
            self.sampler,
            prompts,
            prompt_mask,
            copies=settings.samples_per_prompt,
            length=self.task.response_length,
            temperature=settings.temperature,
            generator=self.generator,
        )
        prompt_ids = [prompt_id for prompt_id in drawn for _ in range(settings.samples_per_prompt)]
        responses = texts(rollout)
        reward = torch.tensor([self.task.reward(i, text) for i, text in zip(prompt_ids, responses, strict=True)])
        return Batch(version, prompt_ids, rollout, responses, reward)

    def _optimise(self, batch: Batch) -> tuple[dict[str, Any], dict[str, float]]:
        """The gradient passes of one update; returns the token columns and the step's scalars."""
        rollout = batch.rollout
        sequence, position = rollout.mask.nonzero(as_tuple=True)
        grouped = batch.reward.view(-1, self.config.sampler.samples_per_prompt)
        advantage = ADVANTAGES[self.algorithm.advantage](grouped).flatten()[sequence]
        inputs = (rollout.prompts, rollout.prompt_mask, rollout.responses, rollout.mask)

        logp_behavior = rollout.logp[rollout.mask]
        logp_current = entropy = torch.empty(0)
        for number in range(self.passes):
            logp, state_entropy = policy.token_log_probs(self.model, *inputs, entropy=number == 0)
            if number == 0:
                logp_current, entropy = logp.detach(), state_entropy
            tokens = TokenBatch(logp_behavior, logp_current, advantage, sequence)
            loss, gate = policy_loss(self.algorithm, self.config.algorithm.parameters, logp, tokens)
            logp.retain_grad()
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimiser.max_grad_norm)
            if not torch.isfinite(norm):
                raise RatioscopeError(f"{self.folder}: the gradient is not finite; lower the learning rate.")
            self.optimiser.step()
        with torch.no_grad():
            logp_new = policy.token_log_probs(self.model, *inputs).logp
        assert logp.grad is not None  # retained above
        columns = {
            "seq_id": sequence,
            "group_id": sequence // self.config.sampler.samples_per_prompt,
            "position": position,
            "token_id": rollout.responses[rollout.mask],
            "behavior_version": torch.full_like(sequence, batch.version),
            "logp_behavior": logp_behavior,
            "logp_current": logp_current,
            "logp_new": logp_new,
            "logp_gate": logp.detach() if self.passes > 1 else None,
            "advantage": advantage,
            "clipped": gate.clipped,
            "clip_side": gate.side,
            "gate": gate.value,
            "gradient_weight": -logp.grad,
            "entropy": entropy,
        }
        scalars = {
            "loss": float(loss.detach()),
            "grad_norm": float(norm),
            "learning_rate": self.config.optimiser.learning_rate,
        }
        return columns, scalars

    def _sequences(self, batch: Batch) -> dict[str, Any]:
        n, k = len(batch.prompt_ids), self.config.sampler.samples_per_prompt
        version = torch.full((n,), batch.version)
        ended = [text.endswith("\n") for text in batch.responses]
        return {
            "seq_id": torch.arange(n),
            "group_id": torch.arange(n) // k,
            "prompt_id": batch.prompt_ids,
            "prompt": [self.task.prompt(i) for i in batch.prompt_ids],
            "response": batch.responses,
            "n_tokens": batch.rollout.mask.sum(dim=1),
            "reward": batch.reward,
            "behavior_version_min": version,
            "behavior_version_max": version,
            "finish_reason": ["stop" if end else "length" for end in ended],
        }

    def _evaluation_is_due(self, step: int) -> bool:
        return step % self.config.evaluate_every == 0 or step == self.config.updates - 1

    def _evaluate(self) -> dict[str, float]:
        """Accuracy on held-out prompts after the update, and the KL to the initial policy on the same samples."""
        # The same draws at every evaluation: differences between steps are the policy's, not the dice's.
        rollout, accuracy = sample_evaluation(self.model, self.task, torch.Generator().manual_seed(self.config.seed))
        with torch.no_grad():
            inputs = (rollout.prompts, rollout.prompt_mask, rollout.responses, rollout.mask)
            initial = policy.token_log_probs(self.initial, *inputs).logp
        ratio = log_ratio(initial, rollout.logp[rollout.mask])
        return {"eval_accuracy": accuracy, "kl_to_initial": float((torch.expm1(ratio) - ratio).mean())}

    # Stopping and going on ------------------------------------------------------------------------------------------

    def _manifest_fields(self) -> dict[str, Any]:
        config = self.config
        parameters = {**self.algorithm.parameters, **config.algorithm.parameters, "passes": self.passes}
        return {
            "name": config.run_name(),
            "producer": {"name": PRODUCER} | library_versions("ratioscope"),
            "algorithm": {"name": self.algorithm.name, "parts": self.algorithm.parts(), "parameters": parameters},
            "schedule": config.schedule.model_dump(),
            "sampler": config.sampler.model_dump(),
            "model": config.model.model_dump()
            | {"architecture": "llama", "parameters": sum(weight.numel() for weight in self.model.parameters())},
            "task": config.task.model_dump(),
            "optimiser": config.optimiser.model_dump(),
            "planned_updates": config.updates,
            "seed": config.seed,
            "libraries": library_versions("torch", "transformers", "pyarrow"),
            "tags": config.tags,
            "notes": config.notes,
            "extra": {"config": config.model_dump()},
        }

    def _save_checkpoint(self) -> None:
        self.recorder.flush()  # a step that the checkpoint has behind it is never trained again
        checkpoint.save(
            self.folder,
            {
                "next_update": self.next_update,
                "model": self.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "snapshots": self.snapshots.weights,
                "generator": self.generator.get_state(),
                "prompts": checkpoint.random_state(self.prompts),
            },
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self.next_update = state["next_update"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.snapshots.weights = state["snapshots"]
        self.generator.set_state(state["generator"])
        checkpoint.restore_random_state(self.prompts, state["prompts"])


def configuration_of(folder: Path, overrides: list[str]) -> TrainConfig:
    """The configuration of an interrupted run, for resuming it; only `updates` and `pace` may change.

    Raises:
        RatioscopeError: not a run of this trainer, something else is overridden, or nothing is left to do.
    """
    manifest = Manifest.read(folder)
    config = manifest.extra.get("config")
    if manifest.producer.get("name") != PRODUCER or not isinstance(config, dict):
        raise RatioscopeError(f"{folder / MANIFEST_NAME}: not a run of the built-in trainer, it cannot be resumed.")
    for override in overrides:
        if override.partition("=")[0] not in ("updates", "pace"):
            raise RatioscopeError(f"A resumed run keeps its settings; {override!r} cannot change (only updates, pace).")
    resumed = build(config, overrides)
    if manifest.status == "finished" and resumed.updates <= (manifest.planned_updates or 0):
        raise RatioscopeError(f"{folder}: has finished its {manifest.planned_updates} updates; more with updates=N.")
    return resumed
