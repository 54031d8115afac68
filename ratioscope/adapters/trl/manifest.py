"""What a run's manifest says of a GRPOTrainer or an RLOOTrainer: its settings in the words of the trainer's parts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratioscope.adapters.trl.known import own_loss
from ratioscope.run_format.manifest import library_versions
from ratioscope.storage.places import Remote

PRODUCER = "ratioscope trl recorder"
RLOO = "rloo"
"""The loss of an RLOOTrainer, which has no choice of losses."""
CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", RLOO)
"""Losses with PPO's clip on pi_theta / pi_old."""
_AGGREGATIONS = {
    "grpo": "sequence_mean",
    "sapo": "sequence_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "vespo": "token_mean",
    "dr_grpo": "longest_mean",
    "luspo": "sequence_sum",
    RLOO: "sequence_sum",
}
# Settings of TRL that change a loss and have no part of ours; those at these values do nothing.
_IDLE = {
    "off_policy_mask_threshold": None,
    "top_entropy_quantile": 1.0,
    "mask_truncated_completions": False,
    "entropy_coef": 0.0,
}
_VLLM = (
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_cap",
)
_VESPO = {
    "vespo_k_pos": "power_positive",
    "vespo_lambda_pos": "decay_positive",
    "vespo_k_neg": "power_negative",
    "vespo_lambda_neg": "decay_negative",
}


def loss_of(trainer: Any) -> str:
    """Name of the trainer's loss."""
    return str(getattr(trainer, "loss_type", RLOO))


def level_of(trainer: Any) -> str:
    """What the loss's ratio is of; see `Rule`."""
    if loss_of(trainer) == RLOO:
        return "sequence"
    return "geometric" if getattr(trainer, "importance_sampling_level", "token") == "sequence" else "token"


def uses_vllm(trainer: Any) -> bool:
    """Whether vLLM samples; ms-swift's trainer knows it by its arguments only."""
    return bool(getattr(trainer, "use_vllm", trainer.args.use_vllm))


def corrects_engine(trainer: Any) -> bool:
    """Whether the loss weighs tokens with the trainer's over the sampler's probability of them."""
    return uses_vllm(trainer) and bool(getattr(trainer, "vllm_importance_sampling_correction", False))


def has_sampler(trainer: Any) -> bool:
    """Whether somebody samples who says with which log-probabilities: vLLM, or the user's rollout_func.

    An RLOOTrainer throws away what vLLM says.
    """
    if loss_of(trainer) == RLOO:
        return False
    return uses_vllm(trainer) or getattr(trainer, "rollout_func", None) is not None


def shards(trainer: Any) -> bool:
    """Whether a process has a part of the weights only: a forward pass needs all of them at the same time."""
    return bool(trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled)


def records_all(trainer: Any, folder: Path) -> bool:
    """Whether every process records its share: a run at a URL has one writer."""
    return int(trainer.accelerator.num_processes) == 1 or not isinstance(folder, Remote)


def updates_per_generation(args: Any, iterations: int) -> int:
    """Updates that are made of one generation's responses, 1 at least."""
    passes = int(args.steps_per_generation) * iterations
    return max(1, -(-passes // int(args.gradient_accumulation_steps)))


def spans_steps(args: Any) -> bool:
    """Whether a generation's responses are shuffled over several updates, which tears prompt groups apart."""
    return int(args.steps_per_generation) > int(args.gradient_accumulation_steps)


def fields(trainer: Any, *, folder: Path, scores: bool = True, task: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Keyword arguments of `RunRecorder`, without the name.

    Args:
        trainer: a GRPOTrainer whose training has begun.
        folder: where the run goes.
        scores: whether the batch is scored again after an update, at any step.
        task: goes over what is read from the data set.
    """
    args = trainer.args
    group = int(trainer.num_generations)
    iterations = int(getattr(trainer, "num_iterations", 1))
    rows = int(args.per_device_train_batch_size) * int(args.steps_per_generation) * trainer.accelerator.num_processes
    engine = f"vllm ({args.vllm_mode})" if uses_vllm(trainer) else "transformers"
    if getattr(trainer, "rollout_func", None) is not None:
        engine = f"rollout_func with {engine}"
    return common_fields(trainer, task=task) | {
        "algorithm": algorithm(trainer),
        "schedule": {
            "sync_interval": updates_per_generation(args, iterations),
            "sync_offset": 0,
            "offline": False,
            "steps_per_generation": int(args.steps_per_generation),
            "num_iterations": iterations,
            "gradient_accumulation_steps": int(args.gradient_accumulation_steps),
            "groups_span_steps": spans_steps(args),
            "processes": int(trainer.accelerator.num_processes),
            "processes_recorded": int(trainer.accelerator.num_processes) if records_all(trainer, folder) else 1,
        },
        "sampler": sampling(args) | {"prompts": rows // group, "samples_per_prompt": group, "engine": engine},
        "missing": missing(trainer, scores=scores),
        "assumed": assumed(trainer, folder),
        "sampled_with": "processed" if has_sampler(trainer) and getattr(trainer, "rollout_func", None) is None else "",
    }


def sampling(args: Any) -> dict[str, Any]:
    """Return how the sampler draws."""
    return {
        "temperature": float(args.temperature),
        "top_p": float(args.top_p),
        "top_k": max(0, int(args.top_k or 0)),
        "min_p": float(getattr(args, "min_p", None) or 0.0),
        "repetition_penalty": float(getattr(args, "repetition_penalty", 1.0)),
    }


def common_fields(trainer: Any, *, task: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what is the same of every trainer: model, task, optimiser."""
    args, model, data = trainer.args, trainer.accelerator.unwrap_model(trainer.model), trainer.train_dataset
    return {
        "producer": {"name": PRODUCER} | library_versions("ratioscope"),
        "model": {
            "path": str(getattr(model.config, "_name_or_path", "") or ""),
            "architecture": str(getattr(model.config, "model_type", "")),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "trained_parameters": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "autocast": "bfloat16" if args.bf16 else "float16" if args.fp16 else "",
        },
        "task": {
            "name": str(getattr(getattr(data, "info", None), "dataset_name", None) or "data set of the trainer"),
            "size": len(data) if hasattr(data, "__len__") else None,
            "response_length": int(args.max_completion_length),
            "rewards": list(getattr(trainer, "reward_func_names", ())),
        }
        | dict(task or {}),
        "optimiser": {
            "learning_rate": float(args.learning_rate),
            "beta1": float(args.adam_beta1),
            "beta2": float(args.adam_beta2),
            "weight_decay": float(args.weight_decay),
            "max_grad_norm": float(args.max_grad_norm or 0.0),
            "schedule": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
            "name": str(getattr(args.optim, "value", args.optim)),
        },
        "planned_updates": planned_updates(trainer),
        "seed": int(args.seed),
        "source": {"framework": "TRL", "version": library_versions("trl").get("trl", "")},
        "libraries": library_versions("torch", "transformers", "trl", "accelerate", "vllm", "peft", "pyarrow"),
    }


def planned_updates(trainer: Any) -> int | None:
    """Optimizer steps of the whole training, those before it was resumed included."""
    return int(trainer.state.max_steps) if trainer.state.max_steps > 0 else None


def algorithm(trainer: Any) -> dict[str, Any]:
    """Name, parts and parameters.

    Where TRL's rule is none of ours (a clip against the recomputed policy beside the sampler's own log-probabilities),
    the part has a name of its own, so that nobody replays it as another one.
    """
    args, own, level = trainer.args, own_loss(trainer), level_of(trainer)
    loss = own or loss_of(trainer)
    parameters: dict[str, Any] = {"epochs": 1, "minibatches": 1}
    gate, weight = "none", "ratio"
    if loss in CLIPPED:
        gate = "one_side"
        parameters |= {"epsilon_low": float(trainer.epsilon_low), "epsilon_high": float(trainer.epsilon_high)}
        if getattr(args, "delta", None) is not None:
            gate = "dual_clip"
            parameters["dual"] = float(args.delta)
    elif loss == "cispo":
        cap = float(trainer.epsilon_high)  # TRL's is the bound itself, ours its distance from 1
        weight = "upper_clipped" if cap > 1 else "truncated"
        parameters |= {"epsilon_high": round(cap - 1, 12)} if cap > 1 else {"cap": cap}
    elif loss == "sapo":
        gate = "soft"
        parameters |= {
            "tau_positive": float(args.sapo_temperature_pos),
            "tau_negative": float(args.sapo_temperature_neg),
        }
    elif loss == "vespo":
        level, weight = "sequence", "gamma_kernel"
        parameters |= {ours: float(getattr(args, theirs)) for theirs, ours in _VESPO.items()}
    else:
        weight, gate = loss, loss if own else "none"
    if has_sampler(trainer):
        # The loss clips pi_theta / pi_old, and the logged ratios are to the sampler.
        gate = f"{gate}_on_recomputed" if gate != "none" else gate
        weight = f"{weight}_on_recomputed"
    if corrects_engine(trainer):
        weight += "_corrected"
        parameters |= {name: getattr(args, name) for name in _VLLM if getattr(args, name, None) is not None}
    beta = float(trainer.beta)
    if beta and loss_of(trainer) == RLOO:
        parameters["kl_in_reward"] = beta
    elif beta:
        corrected = bool(getattr(args, "use_bias_correction_kl", False))
        parameters |= {"reference_kl": beta, "reference_kl_estimator": "k2" if corrected else "k3"}
    parameters |= {
        name: getattr(args, name) for name, idle in _IDLE.items() if getattr(args, name, idle) not in (idle, False)
    }
    masked = getattr(args, "off_policy_mask_threshold", None) is not None
    return {
        "name": "gspo" if loss == "grpo" and level == "geometric" else loss,
        "parts": {
            "advantage": advantage(trainer),
            "selection": "off_policy_sequence_mask" if masked else "all",
            "sample_weight": "equal",
            "level": level,
            "weight": weight,
            "gate": gate,
            "aggregation": token_mean(args) if loss == "bnpo" else _AGGREGATIONS.get(loss, loss),
            "regulariser": "none",
            "step": optimiser_of(args),
        },
        "parameters": parameters,
    }


def token_mean(args: Any) -> str:
    """Name of the aggregation that takes a mean over the tokens of each micro-batch: with several, none of ours."""
    return "token_mean" if int(args.gradient_accumulation_steps) == 1 else "token_mean_of_micro_batches"


def optimiser_of(args: Any) -> str:
    """Name of the part that steps."""
    return "adamw" if "adamw" in str(getattr(args.optim, "value", args.optim)) else "other"


def advantage(trainer: Any) -> str:
    """How rewards become advantages; a name that is none of ours where more than the rewards goes in."""
    if loss_of(trainer) == RLOO:
        more = {
            "kl": bool(trainer.beta),
            "clipped": bool(getattr(trainer, "reward_clip_range", None)),
            "normalised": bool(trainer.normalize_advantages),
        }
        return "_".join(["leave_one_out", *(name for name, there in more.items() if there)])
    if getattr(trainer, "multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return "normalised_parts"
    scale = str(trainer.scale_rewards).lower()
    return {"group": "group_normalised", "true": "group_normalised", "none": "group_mean", "false": "group_mean"}.get(
        scale, "batch_normalised"
    )


def missing(trainer: Any, *, scores: bool) -> dict[str, str]:
    """Columns that the run will not have, and why."""
    found = {}
    if not has_sampler(trainer):
        who = "TRL's RLOOTrainer asks vLLM for" if uses_vllm(trainer) else "Transformers' generate returns"
        found["logp_behavior"] = (
            f"{who} no log-probabilities: what the sampler and the trainer disagree on is not measured; ratios are to "
            "the trainer's own recomputation of the sampling policy."
        )
    if shards(trainer):
        found["logp_new"] = "Scoring the batch again needs all processes where weights are sharded (FSDP, DeepSpeed)."
    elif not scores:
        found["logp_new"] = "The batch was not scored again after the update; record(..., new=True) does it."
    if not trainer.beta:
        found["logp_reference"] = "The loss has no reference policy (beta = 0)."
    if trainer.is_deepspeed_enabled:
        found["gradient_weight"] = "DeepSpeed scales the loss inside its own backward pass."
    return found


def assumed(trainer: Any, folder: Path) -> list[str]:
    """What a reader has to know of how columns came about."""
    args, said = trainer.args, []
    if own := own_loss(trainer):
        said.append(f"{own} computes a loss of its own: what it clips is not recorded, gradient_weight is.")
    steps = int(args.steps_per_generation) * int(getattr(trainer, "num_iterations", 1))
    recomputes = corrects_engine(trainer) or loss_of(trainer) == RLOO
    if int(args.gradient_accumulation_steps) % steps == 0 and not recomputes:
        said.append(
            "logp_behavior_train is the loss's own pass, because no weight changes between sampling and update: TRL "
            "takes it for the old policy, too."
        )
    filtered = [
        f"{name} {value}"
        for name, value, idle in (
            ("top_p", args.top_p, 1.0),
            ("top_k", max(0, int(args.top_k or 0)), 0),
            ("min_p", getattr(args, "min_p", None) or 0, 0),
            ("repetition_penalty", getattr(args, "repetition_penalty", 1.0), 1.0),
        )
        if value != idle
    ]
    if filtered and not has_sampler(trainer):
        said.append(
            f"logp_behavior_train is of the whole distribution, and what was sampled from is a part of it "
            f"({', '.join(filtered)})."
        )
    if float(trainer.temperature) != 1.0:
        said.append(f"All log-probabilities are at temperature {trainer.temperature:g}, as TRL's loss takes them.")
    processes = int(trainer.accelerator.num_processes)
    if not records_all(trainer, folder):
        # First: whoever reads on must know it.
        said.insert(
            0,
            f"This is the share of process 0 of {processes}, because a run at a URL has one writer. Record into a "
            "folder that all processes see, to have all of each batch.",
        )
    elif processes > 1:
        said.append(f"loss is that of process 0 of {processes}, on its own share of the batch.")
    return said
