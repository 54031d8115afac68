"""SkyRL: a training callback that records the run.

    from ratioscope.adapters.skyrl import RunCallback

    trainer.add_callback(RunCallback("runs/mine"))      # before training; or RayPPOTrainer(..., callbacks=[...])

When a step ends, SkyRL has taken rewards and uids out of the batch and has scaled its advantages for the loss
reduction. So the callback keeps them as they were computed: it looks at what `compute_advantages_and_returns` returns.
Responses are right-aligned, and a column's place t belongs to response token t.

Read against SkyRL 0.4.0: skyrl/train/trainer.py, skyrl/train/utils/callbacks.py, skyrl/train/config/config.py and
skyrl/backends/skyrl_train/training_batch.py.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from skyrl.train.utils.callbacks import TrainingCallback

from ratioscope.adapters.recording import Recording
from ratioscope.adapters.tensors import (
    MadeColumns,
    as_numpy,
    counts,
    group_numbers,
    sampled_spans,
    token_columns,
    totals,
)
from ratioscope.run_format.manifest import library_versions

PRODUCER = "ratioscope skyrl callback"
MASKED = "masked out of the loss"
_TOKEN_FIELDS = {
    "rollout_logprobs": "logp_behavior",
    "action_log_probs": "logp_current",
    "base_action_log_probs": "logp_reference",
}
_INPUTS = ("sequences", "attention_mask", "rollout_expert_indices", "pixel_values", "image_grid_thw")
_OWN = {"final_loss": "loss", "grad_norm": "grad_norm", "policy_lr": "learning_rate"}
_SAMPLED_BEFORE = (
    "RayPPOTrainer sends the weights to the sampler after each step, so a batch has no tokens of older ones."
)


class RunCallback(TrainingCallback):  # type: ignore[misc]
    """Records each step of SkyRL's `RayPPOTrainer`.

    Args:
        folder: where the run goes.
        new: score the batch again after every n-th update (`logp_new`), a forward pass each time; 0: never.
        texts: keep the texts of prompts and responses.
        quiet: do not print what recording cost when the training ends.
    """

    def __init__(self, folder: str | Path, *, new: int = 0, texts: bool = True, quiet: bool = False) -> None:
        self.recording = Recording(folder, PRODUCER, new=int(new), quiet=quiet)
        self._texts = texts
        self._kept: MadeColumns = {}

    def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None:
        compute = trainer.compute_advantages_and_returns

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            batch = compute(*args, **kwargs)
            self._kept = self.recording.attempt(lambda: kept(batch)) or {}
            return batch

        trainer.compute_advantages_and_returns = computed

    def on_step_start(self, trainer: Any, callback_input: Any, control: Any) -> None:
        self.recording.cost.step_began()

    def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
        recording, batch = self.recording, callback_input.batch
        new = recording.score(lambda: _scored(trainer, batch)) if recording.scores_now else None
        decode = trainer.tokenizer.batch_decode if self._texts else None
        version = int(callback_input.global_step) - 1
        sampled = version if _samples_with_the_last_weights(trainer) else None
        tables = recording.attempt(lambda: step_columns(batch, self._kept, version=sampled, new=new, decode=decode))
        self._kept = {}
        if tables is not None:
            tokens, sequences = tables
            recording.write(
                int(callback_input.global_step),
                tokens=tokens,
                sequences=sequences,
                scalars={"policy_version": version} | _seconds(trainer) | scalars_of(callback_input.metrics or {}),
                manifest=lambda: fields(trainer, tokens, recording.new),
                resumed=callback_input.global_step > 1,
            )
        recording.cost.step_ended()

    def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
        self.recording.close()


def kept(batch: Any) -> MadeColumns:
    """What SkyRL removes or overwrites before a step ends: advantages, rewards and uids."""
    rewards = batch.get("rewards")
    return {
        "advantages": batch["advantages"].clone(),
        "rewards": None if rewards is None else totals(rewards),
        "uids": list((batch.metadata or {}).get("uids") or []) or None,
    }


def step_columns(
    batch: Any, kept: Mapping[str, Any], *, version: int | None = None, new: Any = None, decode: Any = None
) -> tuple[MadeColumns, MadeColumns]:
    """The tokens and the sequences of a `TrainingInputBatch` at the end of its step.

    Args:
        batch: tensors of (responses, longest), right-aligned; the last `metadata["pad_size"]` rows are copies.
        kept: advantages, rewards and uids as `kept` found them before the update.
        version: of the policy that sampled all of it; None: not known.
        new: log-probabilities after the update, like `action_log_probs`; None: not scored.
        decode: token ids of several texts to their texts; None: no texts.
    """
    metadata = batch.metadata or {}
    rows = len(batch["loss_mask"]) - int(metadata.get("pad_size", 0))
    width = batch["loss_mask"].shape[1]
    mask = batch["loss_mask"][:rows]
    values = {name: batch.get(field) for field, name in _TOKEN_FIELDS.items()}
    values |= {"advantage": kept.get("advantages"), "logp_new": new, "token_id": batch["sequences"][:, -width:]}
    lengths, groups = counts(mask), _groups(kept.get("uids"), metadata.get("policy_prompt_boundaries"), rows)
    tokens = token_columns(
        mask, {name: None if value is None else value[:rows] for name, value in values.items()} | {"group_id": groups}
    )
    there = as_numpy(batch["attention_mask"][:rows]).sum(axis=1)
    prompts = there - as_numpy(batch["response_mask"][:rows]).sum(axis=1)
    sequences: MadeColumns = {"seq_id": np.arange(rows), "n_tokens": lengths, "prompt_tokens": prompts}
    spans = sampled_spans(as_numpy(mask))
    if spans.max(initial=0) > 1:
        sequences["n_turns"] = spans
    if version is not None:
        tokens["behavior_version"] = np.full(len(tokens["seq_id"]), version)
        sequences |= dict.fromkeys(("behavior_version_min", "behavior_version_max"), np.full(rows, version))
    if groups is not None:
        sequences["group_id"] = groups
    if kept.get("rewards") is not None:
        sequences["reward"] = kept["rewards"][:rows]
    if not lengths.all():
        sequences["dropped"] = pa.array([None if length else MASKED for length in lengths], pa.string())
    if decode is not None:
        response = as_numpy(batch["response_mask"][:rows]).sum(axis=1)
        whole = [
            row[there.bool()].tolist() for row, there in zip(batch["sequences"], batch["attention_mask"], strict=True)
        ]
        pairs = list(zip(whole, response.tolist(), strict=False))
        sequences["prompt"] = decode([ids[: len(ids) - count] for ids, count in pairs], skip_special_tokens=True)
        sequences["response"] = decode([ids[len(ids) - count :] for ids, count in pairs], skip_special_tokens=True)
    return tokens, sequences


def _samples_with_the_last_weights(trainer: Any) -> bool:
    """Whether the training loop is SkyRL's synchronous one, not one that a subclass has put in its place."""
    return getattr(getattr(type(trainer), "train", None), "__qualname__", "") == "RayPPOTrainer.train"


def _groups(uids: list[str] | None, boundaries: Any, rows: int) -> Any:
    """Group of each response: by uid, or by the stretches of one prompt that SkyRL keeps for its loss."""
    if uids:
        return group_numbers(uids[:rows])
    if not boundaries:
        return None
    groups = np.zeros(rows, dtype=np.int64)
    for number, (start, end) in enumerate(boundaries):
        groups[start:end] = number
    return groups


def _scored(trainer: Any, batch: Any) -> Any:
    """Log-probabilities of the responses under the weights of now, right-aligned like `action_log_probs`."""
    inputs = [name for name in _INPUTS if batch.get(name) is not None]
    data = batch.select(keys=inputs, metadata_keys=["response_length"])
    return trainer._execute_forward_pass("policy", data, key="logprobs", mini_batch_boundaries=None)


def _seconds(trainer: Any) -> dict[str, float]:
    timings = getattr(trainer, "all_timings", {})
    names = {"seconds_sampling": "generate", "seconds_training": "train_critic_and_policy"}
    return {ours: float(timings[theirs]) for ours, theirs in names.items() if theirs in timings}


def scalars_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """SkyRL's metrics of a step as columns of the steps table: our names where the meaning is the same, else extra_."""
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    extra = {f"extra_{re.sub('[^0-9A-Za-z]+', '_', name).strip('_').lower()}": value for name, value in numbers.items()}
    own = {ours: float(numbers[theirs]) for theirs, ours in _OWN.items() if theirs in numbers}
    return {name: float(value) for name, value in extra.items()} | own


def fields(trainer: Any, found: Mapping[str, Any], new: int) -> dict[str, Any]:
    """Keyword arguments of `RunRecorder`."""
    config = trainer.cfg
    algorithm, sampling = config.trainer.algorithm, config.generator.sampling_params
    reasons = {
        "logp_behavior": "The generator gave no log-probabilities (generator.sampling_params.logprobs).",
        "logp_current": f"SkyRL does not compute them for the loss {algorithm.policy_loss_type}.",
        "logp_new": "The batch is not scored again after the update: RunCallback(..., new=10) does it at every tenth.",
        "logp_reference": "The training has no reference policy.",
        "behavior_version": "SkyRL's batch does not say which weights sampled a response.",
    }
    if new:
        reasons.pop("logp_new")
    absent = "is on the workers, which keep no value of a token."
    return {
        "name": str(getattr(config.trainer, "run_name", "") or "skyrl"),
        "algorithm": {
            "name": str(algorithm.advantage_estimator),
            "parameters": {
                "policy_loss_type": str(algorithm.policy_loss_type),
                "loss_reduction": str(algorithm.loss_reduction),
                "epsilon_low": float(algorithm.eps_clip_low),
                "epsilon_high": float(algorithm.eps_clip_high),
                "epochs": int(config.trainer.update_epochs_per_batch),
            },
        },
        "schedule": {"sync_interval": 1, "sync_offset": 0, "offline": False},
        "sampler": {
            "prompts": int(config.trainer.train_batch_size),
            "samples_per_prompt": int(config.generator.n_samples_per_prompt),
            "temperature": float(sampling.temperature),
            "top_p": float(sampling.top_p),
            "top_k": max(0, int(sampling.top_k)),
            "engine": str(config.generator.inference_engine.backend),
        },
        "model": {"path": str(config.trainer.policy.model.path)},
        "task": {
            "name": str(getattr(config.trainer, "project_name", "") or "data set of the trainer"),
            "response_length": int(sampling.max_generate_length),
        },
        "optimiser": {"learning_rate": float(config.trainer.policy.optimizer_config.lr)},
        "libraries": library_versions("skyrl", "torch", "transformers", "vllm", "ray", "pyarrow"),
        "source": {
            "framework": "SkyRL",
            "version": library_versions("skyrl").get("skyrl", ""),
            "format": "TrainingInputBatch",
        },
        "assumed": [_SAMPLED_BEFORE] if "behavior_version" in found else [],
        "missing": {name: why for name, why in reasons.items() if name not in found}
        | {
            "gate": f"The gate {absent}",
            "logp_gate": f"The gate {absent}",
            "gradient_weight": f"The loss {absent}",
            "entropy": "SkyRL does not compute it before the update.",
        },
        "vocabulary": lambda token: str(trainer.tokenizer.decode([token])),
    }
