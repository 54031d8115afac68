"""ms-swift: records the run of its GRPOTrainer, which is a subclass of TRL's with a batch and a loss of its own.

In a file that is given to `swift rlhf` with `--external_plugins FILE --callbacks ratioscope`:

    from swift.callbacks import TrainerCallback, callbacks_map
    from ratioscope.adapters.ms_swift import record

    class Recorded(TrainerCallback):
        def on_init_end(self, args, state, control, **kwargs):
            record(self.trainer, "runs/mine")

    callbacks_map["ratioscope"] = Recorded

Columns, steps and versions are those of TRL's recorder. `logp_behavior_train` is the policy at generation, which
ms-swift always evaluates again; `logp_behavior` is what vLLM returned, where it did so for every token of a batch.

Read against ms-swift 4.6.0: swift/rlhf_trainers/grpo_trainer.py, swift/rlhf_trainers/rollout_mixin.py,
swift/rlhf_trainers/args_mixin.py and swift/rl_core/data.py.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ratioscope.adapters.methods import function_behind
from ratioscope.adapters.trl import manifest
from ratioscope.adapters.trl.columns import KEY, LossRule, Message, ScoredResponse
from ratioscope.adapters.trl.recorder import GRPORecorder, Method, attached
from ratioscope.adapters.trl.responses import conversation_text, message_of, prompt_id
from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import library_versions

_NO_LOSS = ("fipo", "real")
"""Losses with a gate that is none of TRL's."""
# Settings that change a loss and have no part of ours; those at these values do nothing.
_IDLE = {
    "rollout_importance_sampling_mode": None,
    "off_policy_sequence_mask_delta": None,
    "overlong_filter": False,
    "top_entropy_quantile": 1.0,
    "dynamic_sample": False,
    "sdar_loss_coef": 0.0,
    "advantage_reweight": None,
}
_SCALES = {"group": "group_normalised", "none": "group_mean", "batch": "batch_normalised", "gdpo": "normalised_parts"}


def record(
    trainer: Any,
    folder: str | Path,
    *,
    new: bool | int = False,
    resume: bool = False,
    name: str = "",
    task: Mapping[str, Any] | None = None,
    notes: str = "",
    tags: tuple[str, ...] = (),
    quiet: bool = False,
) -> "SwiftRecorder":
    """Record the training of ms-swift's GRPOTrainer into a run folder; the arguments are those of TRL's recorder.

    Raises:
        RatioscopeError: it is not such a trainer, or has a setting with which its batch is not seen.
    """
    if reason := _not_recorded(trainer):
        raise RatioscopeError(reason)
    fields = {"name": name, "notes": notes, "tags": list(tags)}
    return attached(SwiftRecorder, trainer, folder, new=int(new), resume=resume, task=task, fields=fields, quiet=quiet)


class SwiftRecorder(GRPORecorder):
    """Watches one trainer of ms-swift; made by `record`."""

    def watched(self) -> dict[str, Method]:
        """Return what is done around each method of the trainer, by its name."""
        return super().watched() | {
            "_generate_completions": self._generate,
            "_postprocess_batch": self._batch,
            "training_step": self._divided,
            "_get_rollout_is_correction": self._correction,
            "_compute_off_policy_sequence_mask": self._kept,
        }

    def with_keys(self, generation: Any, passes: list[Tensor]) -> Any:
        """Return a generation as it is: its batches have their keys."""
        return generation

    def inputs(self, model: Any, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return the columns of a GRPOBatch under the names that TRL's have.

        A completion stands anywhere in its row, and tokens that the policy did not draw are in between: what it drew
        says the mask of the labels.
        """
        model_inputs, batch, *_ = (*args, *kwargs.values())
        keys = getattr(batch, KEY, None)
        if keys is None:
            return None
        own = batch.completion_mask.bool()
        ids = model_inputs["input_ids"][:, -batch.logits_to_keep :]
        columns = {
            KEY: keys,
            "completion_mask": own & ~batch.truncated_mask.unsqueeze(1) if self._trainer.overlong_filter else own,
            "tool_mask": own,
            "advantages": batch.advantages,
            "old_per_token_logps": batch.old_per_token_logps,
            "ref_per_token_logps": batch.ref_per_token_logps,
            "sampling_per_token_logps": batch.rollout_per_token_logps,
            "teacher_per_token_logps": batch.teacher_per_token_logps,
        }
        if self._trainer.template.padding_free:  # one row of all responses: split as the trainer splits their logps
            ids = self._trainer._unpad_logps_and_entropies(
                ids.double(), None, batch.logits_to_keep, len(own), batch.seq_lengths
            )[0].long()
        elif (attention := model_inputs.get("attention_mask")) is not None and attention.dim() == 2:
            columns["prompt_mask"] = _before(attention, own)
        return {name: values for name, values in columns.items() if values is not None} | {"completion_ids": ids}

    def rule(self) -> LossRule:
        """Return what of the loss decides about a token."""
        trainer, found = self._trainer, super().rule()
        return replace(
            found,
            loss="" if found.loss in _NO_LOSS else found.loss,
            level="token" if trainer.importance_sampling_level == "token" else "geometric",
            temperatures=(float(trainer.tau_pos), float(trainer.tau_neg)) if found.loss == "sapo" else None,
            masks_engine=str(trainer.rollout_importance_sampling_mode).endswith("mask"),
        )

    def manifest_fields(self) -> dict[str, Any]:
        """Return fields of the manifest: TRL's where ms-swift means the same by it."""
        trainer, args, found = self._trainer, self._trainer.args, super().manifest_fields()
        samples = manifest.uses_vllm(trainer)
        parts, parameters = found["algorithm"]["parts"], found["algorithm"]["parameters"]
        level = trainer.importance_sampling_level
        if level == "sequence_token":  # a response's ratio and a token's gradient: none of ours
            parts["level"] = level
        if trainer.loss_type == "sapo":
            parameters |= {"tau_positive": float(trainer.tau_pos), "tau_negative": float(trainer.tau_neg)}
        parts["advantage"] = self._advantage()
        if trainer.off_policy_sequence_mask_delta is not None:
            parts["selection"] = "off_policy_sequence_mask"
        if samples and trainer.rollout_importance_sampling_mode is not None:
            parts["weight"] += "_corrected"
            parameters["rollout_importance_sampling_threshold"] = float(trainer.rollout_importance_sampling_threshold)
        beta = parameters.pop("reference_kl", None)
        parameters.pop("reference_kl_estimator", None)
        if beta:
            parameters |= (
                {"kl_in_reward": beta}
                if trainer.kl_in_reward
                else {"reference_kl": beta, "reference_kl_estimator": "k3"}
            )
        parameters |= {
            name: getattr(args, name) for name, idle in _IDLE.items() if getattr(args, name, idle) not in (idle, None)
        }
        schedule = found["schedule"]
        # Not shuffled: a group is torn apart only where an update ends within it.
        rows = int(args.per_device_train_batch_size) * schedule["gradient_accumulation_steps"] * schedule["processes"]
        schedule["groups_span_steps"] &= rows % int(trainer.num_generations) != 0
        if not schedule["groups_span_steps"]:
            found["sampler"]["prompts"] = rows // int(trainer.num_generations)
        assumed = [one for one in found["assumed"] if not one.startswith("logp_behavior_train is the loss's own pass")]
        return found | {
            "producer": {"name": "ratioscope ms-swift recorder"} | library_versions("ratioscope"),
            "source": {"framework": "ms-swift", "version": library_versions("ms-swift").get("ms-swift", "")},
            "assumed": assumed,
            "sampled_with": "processed" if samples else "",
            "libraries": found["libraries"] | library_versions("ms-swift"),
        }

    def _advantage(self) -> str:
        trainer = self._trainer
        kind = {"grpo": _SCALES[trainer.scale_rewards], "rloo": "leave_one_out"}.get(trainer.advantage_estimator)
        more = {"kl": trainer.kl_in_reward and trainer.beta, "teacher": trainer._has_teacher_explicit()}
        return "_".join([kind or trainer.advantage_estimator, *(name for name, there in more.items() if there)])

    def _batch(self, original: Method, samples: list[Any], batches: list[dict[str, Any]]) -> Any:
        """Give each response of a generation its key, in the order in which the batches have them."""
        result = original(samples, batches)
        if self._run is not None and self._trainer.model.training:
            with self._safely():
                if self._trainer.dynamic_num_samples:
                    raise RatioscopeError("the scheduler makes several samples of a trajectory, which is not recorded")
                keys = iter(self.keys(self._responses_of(samples)))
                for one in batches:
                    batch = one["grpo_batch"]
                    found = [next(keys) for _ in range(len(batch.completion_mask))]
                    setattr(batch, KEY, torch.tensor(found, dtype=torch.int64))
        return result

    def _divided(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        """Take a micro-batch's loss as transformers has divided it by their number, where it does."""
        result = original(*args, **kwargs)
        if self._passes and isinstance(result, Tensor):
            self._passes[-1].loss = result.detach()
        return result

    def _kept(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        """Keep the mask of whole responses, (B,), as TRL's, (B, 1)."""
        result = original(*args, **kwargs)
        if self._pass is not None:
            with self._safely():
                self._pass.kept = result.detach().unsqueeze(1)
        return result

    def _correction(self, original: Method, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if self._pass is not None and result[1] is not None:
            self._pass.inputs["importance_sampling_ratio"] = result[1].detach()
        return result

    def _responses_of(self, samples: list[Any]) -> list[ScoredResponse]:
        trainer, n = self._trainer, len(samples)
        place = trainer.accelerator.process_index
        rewards = trainer._rewards_per_func.detach().cpu().float()[place * n : (place + 1) * n]
        totals = (rewards * trainer.reward_weights.detach().cpu().float()).nansum(dim=1).tolist()
        unscored = rewards.isnan().all(dim=1).tolist()
        names = [str(name) for name in trainer.reward_func_names]
        version = int(trainer.state.global_step)
        found = []
        for row, sample in enumerate(samples):
            first = _first_answer(sample)
            asked, said = sample.messages[:first], sample.messages[first:]
            prompt = conversation_text(asked)
            answers = [{**message, "content": self._text(message.get("content"))} for message in said]
            turns = [message_of(message, sampled=False) for message in asked]
            turns += [message_of(message, sampled=True) for message in answers]
            found.append(
                ScoredResponse(
                    group=self._next_group + (place * n + row) // int(trainer.num_generations),
                    version=version,
                    prompt=prompt,
                    prompt_id=prompt_id(prompt),
                    text=conversation_text(answers),
                    reward=None if unscored[row] else totals[row],
                    parts={
                        name: None if part != part else part
                        for name, part in zip(names, rewards[row].tolist(), strict=True)
                    },
                    length=_ANY,
                    ended=not sample.is_truncated,
                    messages=_as_tools(turns) if len(said) > 1 else (),
                )
            )
        return found

    def _text(self, content: Any) -> Any:
        """Text of a message, whose tokens may stand in its place."""
        if isinstance(content, dict):
            content = content.get("token_ids")
        if isinstance(content, list) and all(isinstance(token, int) for token in content):
            return str(self._trainer.processing_class.decode(content))
        return content


_ANY = 1 << 30
"""Length of a completion that is not counted from the first column: its mask says where it is."""


def _not_recorded(trainer: Any) -> str:
    kind = type(trainer)
    loss = function_behind(getattr(trainer, "_compute_loss", None))
    if (
        loss is None
        or "grpo_batch" not in inspect.signature(loss).parameters
        or not hasattr(kind, "_postprocess_batch")
    ):
        return f"{kind.__name__} is not a trainer that this recorder knows: ms-swift's GRPOTrainer."
    args, template = trainer.args, trainer.template
    if args.use_liger_kernel:
        return f"{kind.__name__} is not recorded: with use_liger_kernel it has no log-probabilities of tokens."
    if args.async_generate:
        return f"{kind.__name__} is not recorded: with async_generate its batch does not say which weights sampled it."
    if template.sequence_parallel_size > 1:
        return f"{kind.__name__} is not recorded: with sequence_parallel_size a process has parts of responses."
    return ""


def _before(attention: Tensor, own: Tensor) -> Tensor:
    """Mask of the tokens before the first one that the policy drew, (B, S)."""
    width = attention.shape[1]
    first = width - own.shape[1] + own.int().argmax(dim=1, keepdim=True)
    return attention.bool() & (torch.arange(width, device=attention.device) < first)


def _first_answer(sample: Any) -> int:
    """Place of the first message that was sampled: of as many answers from the end as there are lists of tokens."""
    answers = [place for place, message in enumerate(sample.messages) if message.get("role") == "assistant"]
    ids = sample.response_token_ids
    turns = len(ids) if ids and isinstance(ids[0], list) else 1
    return answers[-min(turns, len(answers))] if answers else len(sample.messages)


def _as_tools(turns: list[Message]) -> tuple[Message, ...]:
    """With what came between the answers as a tool's: ms-swift's schedulers add it as a user's or a tool's message."""
    return tuple(replace(turn, role="tool") if turn.sampled and turn.role != "assistant" else turn for turn in turns)
