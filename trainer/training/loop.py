"""The training loop: collect a batch, update the policy, log every token; stop and go on at any update."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ratioscope.errors import RatioscopeError
from ratioscope.recorder import RunRecorder
from ratioscope.rules.ratios import log_ratio, total_variation
from ratioscope.run_format.manifest import MANIFEST_NAME, WARM_START, Manifest
from ratioscope.trainer import tasks
from ratioscope.trainer.algorithms import own
from ratioscope.trainer.asynchronous.actors import ActorCollector
from ratioscope.trainer.asynchronous.workers import Workers
from ratioscope.trainer.measured import held_out
from ratioscope.trainer.measured.held_out import HeldOut, LoggedTables
from ratioscope.trainer.measured.noise_floor import noise_floor
from ratioscope.trainer.measured.probes import probe
from ratioscope.trainer.model import adapters
from ratioscope.trainer.model.policy import dtype_of, evaluate
from ratioscope.trainer.model.precision import cast, deterministic
from ratioscope.trainer.model.warm_start import warm_started
from ratioscope.trainer.sampling.collector import Collector, ScheduledCollector
from ratioscope.trainer.sampling.rollout import TrainingBatch
from ratioscope.trainer.sampling.sample import sample_evaluation
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.load import build
from ratioscope.trainer.training import checkpoint, record
from ratioscope.trainer.training.recompute import Recomputed, Recomputer
from ratioscope.trainer.training.update import Learner


@dataclass(frozen=True)
class UpdateProgress:
    """What a progress display may show after an update."""

    update: int
    updates: int
    reward: float
    staleness: float
    """S_k, half the mean of |rho_k - 1|."""
    drift: float
    """U_k, half the mean of |rho_{k+1} - rho_k|."""
    eval_accuracy: float | None


class Trainer:
    """One run from its configuration to its folder.

    Args:
        config: what to train.
        folder: the run's folder; with `resume`, an interrupted run's.
        resume: go on from the folder's checkpoint, or, without one, compute from the start and record what is not on
            disk yet: equal seeds make equal steps, which is checked. Actors and workers cannot repeat theirs: what they
            did after the checkpoint is set aside. `config` must be the run's own, but for `updates`.
        flush_seconds: a live reader sees a step at most about this much later; fewer, larger files when it is long.
        warm_up: called while the supervised warm start runs, with its step and the share learned.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        *,
        resume: bool = False,
        flush_seconds: float = 3.0,
        warm_up: Callable[[int, float], None] = lambda step, learned: None,
    ) -> None:
        self.config, self.folder = config, folder
        self.task = tasks.make(config.task)
        state = checkpoint.load_checkpoint(folder) if resume else None
        # The recorder comes before the warm start, so that the run is listed, and alive, while that takes its time.
        self.recorder = RunRecorder(
            folder,
            resume=resume,
            vocabulary=lambda token_id: self.vocabulary.text_of(token_id),
            flush_seconds=flush_seconds,
            **({} if resume else record.manifest_fields(config)),
        )

        def note(step: int, learned: float) -> None:
            # With the next sign of life it is on disk, for those who wait for the first step.
            self.recorder.manifest.extra[WARM_START] = {
                "step": step, "learned": learned, "goal": config.warm_start.accuracy,
            }  # fmt: skip
            warm_up(step, learned)

        try:
            behind = state["next_update"] if state else 0
            if resume and not config.schedule.repeatable and behind <= self.recorder.last_step:
                self.recorder.set_aside(behind)
            self._on_disk = self.recorder.last_step
            self.initial, self.vocabulary = warm_started(config, self.task, note)
            self.recorder.manifest.extra.pop(WARM_START, None)
            self.initial.requires_grad_(False)
            self.model = adapters.copied(self.initial)
            for weight in adapters.trained(self.model).values():
                weight.requires_grad_(True)
            self.learner = Learner(config, self.model, self.task.response_length, self.initial)
            cast(self.initial, dtype_of(config.model))
            kind = ActorCollector if config.schedule.actors else ScheduledCollector
            self.collector: Collector = kind(config, self.task, self.initial, self.vocabulary)
            spreads = config.logging.exact and config.schedule.mixes_versions
            self.recomputer = Recomputer(self.model) if config.engine_differs or spreads else None
            self.workers = Workers(config, self.learner, self.initial) if config.schedule.workers else None
            self.next_update = 0
            if state is not None:
                self._restore(state)
        except BaseException as error:
            if hasattr(self, "collector"):
                self.collector.close()
            stopped = isinstance(error, KeyboardInterrupt | SystemExit)
            reason = "stopped during the warm start" if stopped else f"{type(error).__name__}: {error}"[:500]
            self.recorder.close("interrupted" if stopped else "failed", reason)
            raise
        self.recorder.manifest.model |= {
            "architecture": self.model.config.model_type,
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
        }
        if resume:  # with more updates, perhaps
            self.recorder.manifest.planned_updates = config.updates
            self.recorder.manifest.extra["config"] = config.model_dump()

    # The loop -------------------------------------------------------------------------------------------------------

    def run(
        self,
        report: Callable[[UpdateProgress], None],
        should_stop: Callable[[], bool] = lambda: False,
        why: Callable[[], str] = lambda: "stopped by the user",
    ) -> str:
        """Train to the end, or until `should_stop()` says so after an update; returns the run's final status."""
        workers = closing(self.workers) if self.workers else nullcontext()
        with self.recorder, closing(self.collector), workers, deterministic(self.config.deterministic):
            if self.workers:
                self.workers.start(self.next_update)
            while self.next_update < self.config.updates:
                with _memory_permitting(self.folder, self.next_update):
                    progress = self._update(self.next_update)
                report(progress)
                self.next_update += 1
                if should_stop():
                    self._save_checkpoint(report)
                    self.recorder.close("interrupted", why())
                    return "interrupted"
                if self.next_update % self.config.checkpoint_every == 0:
                    self._save_checkpoint(report)
        checkpoint.remove(self.folder)
        return "finished"

    def _update(self, step: int) -> UpdateProgress:
        if self.workers:
            applied = self.workers.next(step)
            evaluated = self._evaluate(self.workers.evaluated(applied.weights)) if applied.weights else {}
            self.recorder.record_step(
                step, tokens=applied.tokens, sequences=applied.sequences, scalars=applied.scalars | evaluated
            )
            return self._progress(step, applied.reward, applied.tokens, evaluated)
        started = time.perf_counter()
        self.collector.publish(step, self.model)
        batch = self.collector.collect(step)
        sampled = time.perf_counter()

        probes = self._probe(step)
        floor = self._noise_floor(step, batch)
        held = self._hold_out(step, batch)
        measured = time.perf_counter()
        recomputed = self._recompute(batch)
        outcome = self.learner.update(step, batch)
        evaluated = self._evaluate(self.model) if self._evaluation_is_due(step) else {}
        tokens = record.tokens(batch.rollout, outcome, recomputed)
        sequences = record.sequences(batch, outcome, self.task, self.learner.algorithm)
        trained = time.perf_counter()
        logged = self._with_held_out(step, (tokens, sequences), held)
        judged = time.perf_counter()

        scalars = (
            outcome.scalars
            | outcome.prepared.dropped_tokens()
            | evaluated
            | floor
            | {
                "tokens_dropped_no_signal": batch.left_out,
                "policy_version": step,
                "seconds_sampling": sampled - started,
                "seconds_training": trained - measured,
                "seconds_probing": measured - sampled + judged - trained if probes or floor or held else None,
                "seconds_logging": self._seconds_logging,
            }
        )
        if step <= self._on_disk:
            checkpoint.check_repeated(self.folder, step, logged[0])
        self.recorder.record_step(step, tokens=logged[0], sequences=logged[1], scalars=scalars, probes=probes)
        self._seconds_logging = time.perf_counter() - judged
        time.sleep(max(0.0, self.config.pace - (time.perf_counter() - started)))

        return self._progress(step, float(batch.reward.mean()), outcome.columns, evaluated)

    def _progress(
        self, step: int, reward: float, tokens: dict[str, Any], evaluated: dict[str, float]
    ) -> UpdateProgress:
        behavior, current, new = (torch.as_tensor(tokens[f"logp_{name}"]) for name in ("behavior", "current", "new"))
        known = ~behavior.isnan()
        current, new = log_ratio(current, behavior)[known], log_ratio(new, behavior)[known]
        return UpdateProgress(
            update=step,
            updates=self.config.updates,
            reward=reward,
            staleness=float(total_variation(current)),
            drift=float(total_variation(new, current)),
            eval_accuracy=evaluated.get("eval_accuracy"),
        )

    _seconds_logging = 0.0  # the previous update's: a step cannot contain the time of its own recording

    # What is measured beside the update ------------------------------------------------------------------------------

    def _recompute(self, batch: TrainingBatch) -> Recomputed:
        """Old versions once more, in the training engine; before the update, while their weights are there."""
        if self.recomputer is None:
            return Recomputed()
        return self.recomputer.recomputed(
            batch.rollout,
            self.collector.weights,
            logp=self.config.engine_differs,
            spread=self.config.logging.exact and self.config.schedule.mixes_versions,
        )

    def _probe(self, step: int) -> dict[str, Any] | None:
        every = self.config.logging.probe_every
        if not every or step % every or not isinstance(self.collector, ScheduledCollector):
            return None
        return probe(self.learner, self.collector, step)

    def _hold_out(self, step: int, batch: TrainingBatch) -> HeldOut | None:
        """A few groups that the update will not see, while its policy is still the old one."""
        found = self.collector.hold_out(step, batch) if self.config.logging.held_out_groups else None
        if found is None:
            return None
        return HeldOut(found, held_out.prepared(self.learner, step, found), self._recompute(found))

    def _with_held_out(self, step: int, logged: LoggedTables, held: HeldOut | None) -> LoggedTables:
        """The rows of the two tables, with those of what was held out, now that the policy is the new one."""
        if held is None:
            return logged
        outcome = held_out.outcome(self.learner, held.prepared)
        tokens = record.tokens(held.batch.rollout, outcome, held.recomputed)
        return held_out.beside(
            step, logged, (tokens, record.sequences(held.batch, outcome, self.task, self.learner.algorithm))
        )

    def _noise_floor(self, step: int, batch: TrainingBatch) -> dict[str, float]:
        every = self.config.logging.noise_floor_every
        return noise_floor(self.model, batch.rollout) if every and step % every == 0 else {}

    def _evaluation_is_due(self, step: int) -> bool:
        return step % self.config.evaluate_every == 0 or step == self.config.updates - 1

    def _evaluate(self, model: PreTrainedModel) -> dict[str, float]:
        """Accuracy on held-out prompts after the update, and the KL to the initial policy on the same samples."""
        # The same draws at every evaluation: differences between steps are the policy's, not the dice's.
        generator = torch.Generator(model.device).manual_seed(self.config.seed)
        rollout, accuracy = sample_evaluation(model, self.task, self.vocabulary, generator)
        with torch.no_grad():
            initial = evaluate(self.initial, rollout).logp
        ratio = log_ratio(initial, rollout.logp[rollout.mask])
        return {"eval_accuracy": accuracy, "kl_to_initial": float((torch.expm1(ratio) - ratio).mean())}

    # Stopping and going on ------------------------------------------------------------------------------------------

    def _save_checkpoint(self, report: Callable[[UpdateProgress], None]) -> None:
        with self.workers.still() if self.workers else nullcontext(self.next_update) as version:
            while self.next_update < version:  # applied, and on its way here
                report(self._update(self.next_update))
                self.next_update += 1
            self.recorder.flush()  # a step that the checkpoint has behind it is never trained again
            state = {"next_update": self.next_update, **self.learner.state(), **self.collector.state()}
            checkpoint.save(self.folder, state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.next_update = state["next_update"]
        self.learner.restore(state)
        self.collector.restore(state)


@contextmanager
def _memory_permitting(folder: Path, step: int) -> Iterator[None]:
    """Say in one sentence that memory did not suffice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # On the CPU torch has no name of its own for it.
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "can't allocate memory" not in str(error):
            raise
        raise RatioscopeError(
            f"{folder}: update {step} needs more memory than there is. Resume the run where there is more, or start "
            "one with optimiser.micro_batch=1, optimiser.gradient_checkpointing=true or fewer sampler.prompts."
        ) from error


def configuration_to_resume(folder: Path, overrides: list[str]) -> TrainConfig:
    """The configuration of an interrupted run, for resuming it; only `updates` and `pace` may change.

    Raises:
        RatioscopeError: not a run of this trainer, something else is overridden, or nothing is left to do.
    """
    manifest = Manifest.read(folder)
    config = manifest.extra.get("config")
    if manifest.producer.get("name") != record.PRODUCER or not isinstance(config, dict):
        raise RatioscopeError(f"{folder / MANIFEST_NAME}: not a run of the built-in trainer, it cannot be resumed.")
    for override in overrides:
        if override.partition("=")[0] not in ("updates", "pace"):
            raise RatioscopeError(f"A resumed run keeps its settings; {override!r} cannot change (only updates, pace).")
    _check_own_code(folder, manifest)
    # Runs from before a start could be taught wrong answers, too, were taught right ones only.
    config["warm_start"] = {"right_share": 1.0} | dict(config.get("warm_start") or {})
    resumed = build(config, overrides)
    if manifest.status == "finished" and not resumed.schedule.repeatable:
        raise RatioscopeError(f"{folder}: has finished; its updates cannot be repeated to add more. Start a new run.")
    if manifest.status == "finished" and resumed.updates <= (manifest.planned_updates or 0):
        raise RatioscopeError(f"{folder}: has finished its {manifest.planned_updates} updates; set updates=N for more.")
    return resumed


def _check_own_code(folder: Path, manifest: Manifest) -> None:
    """Users' files must be what the run was started with, before any of them runs."""
    recorded = dict(manifest.extra.get("own_code") or {})
    settings = dict(manifest.extra["config"].get("algorithm") or {})
    named = [str(value).rpartition(":")[0] for value in settings.values() if own.is_own(str(value))]
    changed = next((path for path in (*named, *recorded) if own.digest(path) != recorded.get(path)), None)
    if changed:
        raise RatioscopeError(f"{folder}: {changed} has changed since this run began; restore it, or start a new run.")
