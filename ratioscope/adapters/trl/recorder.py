"""The recorder of a GRPOTrainer or an RLOOTrainer: what is wrapped, and what is written when."""

import copy
import functools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import TrainerCallback

from ratioscope.adapters.cost import Cost
from ratioscope.adapters.trl import manifest
from ratioscope.adapters.trl.columns import KEY, LossRule, Pass, ScoredResponse, StepColumns, columns_of
from ratioscope.adapters.trl.known import FORWARD, own_loss
from ratioscope.adapters.trl.responses import GatheredRewards, groups_in, responses_of, text_of_token
from ratioscope.errors import RatioscopeError
from ratioscope.recorder import RunRecorder
from ratioscope.run_format.manifest import MANIFEST_NAME
from ratioscope.storage.places import place

Method = Callable[..., Any]
R = TypeVar("R", bound="GRPORecorder")

_LOG = logging.getLogger("ratioscope")
_OF_TOKENS = ("old_per_token_logps", "ref_per_token_logps")
# What TRL logs and this recorder has from where it arises.
_OWN = ("loss", "learning_rate")


def attached(kind: type[R], trainer: Any, folder: str | Path, *, resume: bool, fields: dict[str, Any], **how: Any) -> R:
    """Make a recorder of a kind for a trainer that it can record; the arguments are those of `record`.

    Raises:
        RatioscopeError: the folder holds a run and `resume` is false.
    """
    folder = place(folder)
    if (folder / MANIFEST_NAME).exists() and not resume:
        raise RatioscopeError(f"{folder}: already holds a run; choose another name, or give resume=True.")
    recorder = kind(trainer, folder, resume=resume, fields=fields | {"name": fields["name"] or folder.name}, **how)
    trainer.add_callback(recorder)
    return recorder


class GRPORecorder(TrainerCallback):  # type: ignore[misc]
    """Watches one trainer; made by `record`."""

    def __init__(
        self,
        trainer: Any,
        folder: Path,
        *,
        new: int,
        resume: bool,
        task: Mapping[str, Any] | None,
        fields: dict[str, Any],
        quiet: bool,
    ) -> None:
        self.folder, self.cost = folder, Cost()
        self.failure = ""
        """Why the recording stopped before the training did; empty: it did not."""
        self._trainer, self._resume, self._quiet = trainer, resume, quiet
        self._new = 0 if manifest.shards(trainer) else new
        self._task, self._fields = task, fields
        self._run: RunRecorder | None = None
        self._responses: dict[int, ScoredResponse] = {}
        self._next_key = self._next_group = 0
        self._scored: GatheredRewards | None = None
        self._own: list[list[int]] | None = None
        self._before_loss: list[torch.Tensor] | None = None
        """Log-probabilities of the generation that is under way: of the old policy, then of the reference."""
        self._passes: list[Pass] = []
        self._pass: Pass | None = None
        self._waiting: tuple[int, StepColumns] | None = None
        self._seconds = _Seconds()
        self._learning_rate: float | None = None
        watched = self.watched()
        for name in watched.keys() & set(dir(trainer)):
            if getattr(trainer, name) is None:
                continue  # no rollout_func
            setattr(trainer, name, _around(getattr(trainer, name), watched[name]))

    # What is TRL's, and another's in another recorder ----------------------------------------------------------------

    def watched(self) -> dict[str, Method]:
        """Return what is done around each method of the trainer, by its name."""
        return {
            "train": self._train,
            "_generate": self._generate,
            "rollout_func": self._rollout,
            "_calculate_rewards": self._rewards,
            "_generate_and_score_completions": self._generation,
            "_compute_loss": self._loss,
            **dict.fromkeys(FORWARD, self._forward),
            "get_off_policy_mask": partial(self.mask, "kept"),
            "get_high_entropy_mask": partial(self.mask, "high_entropy"),
        }

    def with_keys(self, generation: Any, passes: list[torch.Tensor]) -> Any:
        """Return a generation with the keys of its responses.

        TRL shuffles and splits whatever has a row for each response: so the key goes along, and what an RLOOTrainer has
        added up over tokens before it hands it to its loss.

        Args:
            passes: log-probabilities that were computed for it, (B, C).
        """
        of_tokens = dict(zip(_OF_TOKENS, passes, strict=False)) if "old_logps" in generation else {}
        return of_tokens | generation | {KEY: self._keys(generation["completion_ids"])}

    def inputs(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return TRL's columns of a call of the loss; None: it is not of a generation that was seen."""
        return inputs if KEY in inputs else None

    def number_from(self, first_step: int) -> None:
        """Begin above the numbers of what was recorded before: there was at most one generation a micro-batch."""
        trainer, processes = self._trainer, self._trainer.accelerator.num_processes
        generations = first_step * int(trainer.args.gradient_accumulation_steps)
        rows = int(trainer.args.per_device_train_batch_size) * int(trainer.args.steps_per_generation)
        self._next_key = generations * rows * processes
        self._next_group = generations * -(-rows * processes // int(trainer.num_generations))

    def forget(self) -> None:
        """Drop the responses that no later step can train on: of what is buffered, only the newest generation's can."""
        newest = max((response.version for response in self._responses.values()), default=0)
        self._responses = {key: one for key, one in self._responses.items() if one.version == newest}

    def rule(self) -> LossRule:
        """Return what of the loss decides about a token."""
        trainer, args = self._trainer, self._trainer.args
        temperatures = None
        if manifest.loss_of(trainer) == "sapo":
            temperatures = float(args.sapo_temperature_pos), float(args.sapo_temperature_neg)
        return LossRule(
            loss="" if own_loss(trainer) else manifest.loss_of(trainer),
            level=manifest.level_of(trainer),
            epsilon_low=float(trainer.epsilon_low),
            epsilon_high=float(trainer.epsilon_high),
            delta=getattr(args, "delta", None),
            temperatures=temperatures,
            masks_engine=str(getattr(trainer, "vllm_importance_sampling_mode", "")).endswith("mask"),
        )

    def manifest_fields(self) -> dict[str, Any]:
        """Return fields of the manifest."""
        return manifest.fields(self._trainer, scores=self._new > 0, task=self._task, folder=self.folder)

    # What the trainer's methods do in addition ----------------------------------------------------------------------

    def _train(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            why = "stopped by the user" if stopped else f"{type(error).__name__}: {error}"[:500]
            self._end("interrupted" if stopped else "failed", why)
            raise

    def _generate(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        result = original(*args, **kwargs)
        self._seconds.sampling += time.perf_counter() - began
        return result

    def _rollout(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if self._run is not None and not getattr(self._trainer, "tools", None):  # else TRL takes the tools' mask
            with self._safely():
                own = result.get("env_mask")
                self._own = None if own is None else [[int(one) for one in mask] for mask in own]
        return result

    def _rewards(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if self._run is not None:
            with self._safely():
                _, prompts, completions, ids = args[:4]
                self._scored = GatheredRewards(list(prompts), list(completions), list(ids), result, self._own)
        return result

    def _generation(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        began, self._scored, self._own = time.perf_counter(), None, None
        self._before_loss = []
        try:
            result = original(*args, **kwargs)
        finally:
            passes, self._before_loss = self._before_loss, None
        self._seconds.generation += time.perf_counter() - began
        if self._run is not None and self._trainer.model.training:
            with self._safely():
                return self.with_keys(result, passes)
        return result

    def _loss(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        inputs = None
        if self._run is not None and self._trainer.model.training:
            with self._safely():
                inputs = self.inputs(*args, **kwargs)
        if inputs is None:
            return original(*args, **kwargs)
        this = self._pass = Pass(inputs)
        try:
            loss = original(*args, **kwargs)
        finally:
            self._pass = None
        with self._safely():
            this.loss = loss.detach()
            self._passes.append(this)
        return loss

    def _forward(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        result, this = original(*args, **kwargs), self._pass
        if this is None and self._before_loss is not None:
            self._before_loss.append(result if isinstance(result, torch.Tensor) else result[0])
        if this is not None and this.logp is None:
            with self._safely():
                logp, *more = (result,) if isinstance(result, torch.Tensor) else result
                this.logp = logp.detach()
                this.entropy = None if not more or more[0] is None else more[0].detach()
                if self._scores(self._trainer.state.global_step):
                    # Not through a wrapper that waits for the other processes.
                    model = self._trainer.accelerator.unwrap_model(args[0])
                    this.again = partial(original, model, *args[1:], **kwargs)
                if logp.requires_grad and not self._trainer.is_deepspeed_enabled:
                    this.scale = self.loss_scale()
                    logp.register_hook(partial(keep_gradient, this))
        return result

    def loss_scale(self) -> float:
        """Return what a process's loss is of the update's: the optimizer steps with the mean of their gradients."""
        return _loss_scale(self._trainer.accelerator) * int(self._trainer.accelerator.num_processes)

    def mask(self, field: str, original: Method, *args: Any, **kwargs: Any) -> Any:
        """Keep a mask that the trainer makes in its loss."""
        result = original(*args, **kwargs)
        if self._pass is not None:
            with self._safely():
                setattr(self._pass, field, result.detach())
        return result

    def _keys(self, ids: torch.Tensor) -> torch.Tensor:
        """A key for each response of a generation, (B,), on the device of its tokens."""
        if self._scored is None:
            raise RatioscopeError("the trainer does not call _calculate_rewards, so texts and rewards are not known")
        found = responses_of(self._trainer, self._scored, first_group=self._next_group)
        return torch.tensor([*self.keys(found)], dtype=torch.int64, device=ids.device)

    def keys(self, found: list[ScoredResponse]) -> range:
        """Keep the responses of a generation, those of this process, and return their keys."""
        place = self._trainer.accelerator
        first = self._next_key + len(found) * place.process_index
        keys = range(first, first + len(found))
        self._responses |= dict(zip(keys, found, strict=True))
        self._next_key += len(found) * place.num_processes
        self._next_group += groups_in(self._trainer, len(found))
        return keys

    # What the training says -----------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the run."""
        with self._safely():
            self._open(int(state.global_step))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hand the step before over to the writer: by now TRL has logged it."""
        self.cost.step_began()
        with self._safely():
            self._flush()
            self._passes.clear()
            self._seconds = _Seconds(logging=self._seconds.logging)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The learning rate that the update has; afterwards the schedule has moved on."""
        with self._safely():
            self._learning_rate = float(self._trainer.optimizer.param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the columns of the step together."""
        step = int(state.global_step) - 1
        before = self.cost.recording_seconds
        if self._run is not None:
            with self._safely():
                if self._scores(step):
                    with self.cost.scoring():
                        for one in self._passes:
                            one.new = _scored_again(one)
                self._waiting = (step, self._step(step))
        seconds = self.cost.step_ended()
        if self._waiting is not None:
            times = self._seconds
            recorded = self.cost.recording_seconds - before + times.logging
            self._waiting[1].scalars |= {
                "wall_time": datetime.now(UTC),
                "seconds_sampling": times.sampling,
                "seconds_training": max(seconds - times.generation - recorded, 0.0),
                "seconds_logging": recorded,
                "extra_seconds_scoring": max(times.generation - times.sampling, 0.0),
            }

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """TRL's own numbers, as extra_ columns of the step that they come with."""
        with self._safely():
            if (
                self._waiting is None
                or not self._trainer.accelerator.is_main_process
                or self._waiting[0] != int(state.global_step) - 1
                or "train_runtime" in (logs or {})
            ):
                return
            scalars = self._waiting[1].scalars
            for name, value in (logs or {}).items():
                if isinstance(value, bool) or not isinstance(value, int | float) or name in _OWN:
                    continue
                column = "grad_norm" if name == "grad_norm" else f"extra_{re.sub(r'[^A-Za-z0-9_]+', '_', name)}"
                scalars[column] = float(value)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the run, and say what it cost."""
        self._end("finished", "")

    # What is written ------------------------------------------------------------------------------------------------

    def _open(self, first_step: int) -> None:
        trainer, place = self._trainer, self._trainer.accelerator
        if self.failure or self.cost.steps:
            return  # a second train() of the same trainer is not the same run
        if not (place.is_main_process or manifest.records_all(trainer, self.folder)):
            return
        resume = self._resume and (self.folder / MANIFEST_NAME).exists()
        tokenizer = copy.deepcopy(getattr(trainer, "_tokenizer", None) or trainer.processing_class)
        run = RunRecorder(
            self.folder,
            resume=resume,
            # A copy: the writer's thread asks it while the training uses its own.
            vocabulary=text_of_token(getattr(tokenizer, "tokenizer", tokenizer)),
            writer=place.process_index,
            **({} if resume else self._fields | self.manifest_fields()),
        )
        if resume:  # it may go on for longer than was planned
            run.manifest.planned_updates = manifest.planned_updates(trainer)
        if resume and run.last_step >= first_step:
            _LOG.warning(
                "ratioscope: %s holds the steps up to %d, the training goes on from %d: they are not written again.",
                self.folder, run.last_step, first_step,
            )  # fmt: skip
        self.number_from(first_step)
        self._run = run

    def _step(self, step: int) -> StepColumns:
        built = columns_of(self._passes, self._responses, self.rule(), step)
        loss = sum(float(one.loss) for one in self._passes if one.loss is not None)
        built.scalars |= {"policy_version": step, "loss": loss, "learning_rate": self._learning_rate}
        place = self._trainer.accelerator
        if place.num_processes > 1:
            built.sequences["rank"] = [place.process_index] * len(built.sequences["seq_id"])
        self._passes.clear()
        self.forget()
        return built

    def _scores(self, step: int) -> bool:
        return self._run is not None and self._new > 0 and step % self._new == 0

    def _flush(self) -> None:
        if self._waiting is None or self._run is None:
            return
        (step, built), self._waiting = self._waiting, None
        self._run.record_step(
            step,
            tokens=built.tokens,
            sequences=built.sequences,
            # Of the whole update, and said once.
            scalars=built.scalars if self._trainer.accelerator.is_main_process else None,
            messages=built.messages,
        )

    def _end(self, status: str, reason: str) -> None:
        with self._safely():
            self._flush()
        run, self._run = self._run, None
        if run is None:
            return
        try:
            run.close(status, reason)
        except Exception as error:  # noqa: BLE001 - the training goes on, whatever fails here
            self._fail(error)
        if not self._quiet and self._trainer.accelerator.is_main_process:
            print(self.cost.sentence(self.folder), flush=True)

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """What is in here may fail without the training noticing."""
        try:
            with self.cost.recording():
                yield
        except Exception as error:  # noqa: BLE001 - the training goes on, whatever fails here
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.failure:
            return
        self.failure = f"{type(error).__name__}: {error}"[:500]
        _LOG.warning("ratioscope: recording of %s stopped, the training goes on: %s", self.folder, self.failure)
        run, self._run, self._pass, self._waiting = self._run, None, None, None
        self._passes.clear()
        self._responses.clear()
        if run is not None:
            with suppress(Exception):
                run.close("failed", f"recording stopped: {self.failure}")


@dataclass
class _Seconds:
    """Of the step that runs."""

    sampling: float = 0.0
    generation: float = 0.0
    """Sampling, rewards and recomputed log-probabilities."""
    logging: float = 0.0


def _around(original: Method, wrapped: Method) -> Method:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapped(original, *args, **kwargs)

    return method


def keep_gradient(this: Pass, gradient: torch.Tensor) -> None:
    """Keep the gradient of the loss by the log-probabilities of a micro-batch."""
    this.gradient = gradient.detach() / this.scale


def _loss_scale(accelerator: Any) -> float:
    """What the loss is multiplied with before the backward pass: float16 needs it."""
    scaler = getattr(accelerator, "scaler", None)
    return float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 1.0


def _scored_again(one: Pass) -> torch.Tensor | None:
    """The log-probabilities of a micro-batch by the weights as they are now; draws no random number of the training."""
    if one.again is None:
        return None
    devices = [one.logp.device] if one.logp is not None and one.logp.is_cuda else []
    keywords = {name: False for name in ("compute_entropy", "compute_aux_loss") if name in one.again.keywords}
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        result = one.again(**keywords)
    return result if isinstance(result, torch.Tensor) else result[0]
