"""What a run's manifest says of a trainer of verl: its configuration in the words of the built-in trainer's parts."""

from collections.abc import Mapping
from typing import Any

from ratioscope.run_format.manifest import library_versions

PRODUCER = "ratioscope verl plugin"
_ADVANTAGES = {
    "grpo": "group_normalised",
    "gae": "gae",
    "rloo": "leave_one_out",
    "reinforce_plus_plus": "batch_normalised",
}
_AGGREGATIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-mean": "sequence_mean",
}
_LEVELS = {"gspo": "geometric", "geo_mean": "geometric"}
_MISSING = {
    "logp_gate": "verl evaluates its gate on the workers, which keep no value of a token.",
    "gate": "verl evaluates its gate on the workers, which keep no value of a token.",
    "gradient_weight": "verl's loss is computed on the workers, which keep no value of a token.",
}


def setting(config: Any, path: str, default: Any = None) -> Any:
    """A value of a nested configuration by its dotted name; the default where it is absent or null."""
    for part in path.split("."):
        if config is None:
            return default
        config = config.get(part) if hasattr(config, "get") else getattr(config, part, None)
    return default if config is None else config


def is_bypass(config: Any) -> bool:
    """Whether `old_log_probs` is a copy of the sampler's."""
    return bool(setting(config, "algorithm.rollout_correction.bypass_mode", False))


def rejection(config: Any) -> str:
    """What takes tokens out of the loss before the advantages are computed; "": nothing does."""
    rule = setting(config, "algorithm.rollout_correction.rollout_rs", "")
    return f"rejection sampling ({rule})" if rule and not is_bypass(config) else ""


def fields(config: Any, found: Mapping[str, Any], *, version: str, new: int, format_read: str) -> dict[str, Any]:
    """Keyword arguments of `RunRecorder`.

    Args:
        config: the trainer's.
        found: columns of the tokens table of the first step.
        version: of verl.
        new: how often `logp_new` is scored; 0: never.
        format_read: what the batches were.
    """
    rollout = setting(config, "actor_rollout_ref.rollout", {})
    group, temperature = int(setting(rollout, "n", 1)), setting(rollout, "temperature", 1.0)
    engine = str(setting(rollout, "name", ""))
    processed = engine == "vllm" and setting(rollout, "logprobs_mode") == "processed_logprobs"
    return {
        "name": str(setting(config, "trainer.experiment_name", "")) or "verl",
        "algorithm": _algorithm(config),
        "schedule": {
            "sync_interval": 1,
            "sync_offset": 0,
            "offline": False,
            "mode": str(setting(config, "trainer.v1.trainer_mode", "")) if setting(config, "trainer.use_v1") else "",
            "parameter_sync_step": int(setting(config, "trainer.v1.separate_async.parameter_sync_step", 1)),
        },
        "sampler": {
            "prompts": int(setting(config, "data.train_batch_size", 0)),
            "samples_per_prompt": group,
            "temperature": float(temperature),
            "top_p": float(setting(rollout, "top_p", 1.0)),
            "top_k": max(0, int(setting(rollout, "top_k", 0))),
            "engine": engine,
            "dtype": str(setting(rollout, "dtype", "")),
        },
        "model": {"path": str(setting(config, "actor_rollout_ref.model.path", ""))},
        "task": {
            "name": str(setting(config, "trainer.project_name", "")) or "data set of the trainer",
            "response_length": int(setting(config, "data.max_response_length", 0)),
        },
        "optimiser": {"learning_rate": float(setting(config, "actor_rollout_ref.actor.optim.lr", 0.0))},
        "planned_updates": setting(config, "trainer.total_training_steps"),
        "libraries": library_versions(
            "verl", "torch", "transformers", "vllm", "sglang", "tensordict", "ray", "pyarrow"
        ),
        "source": {"framework": "verl", "version": version, "format": format_read},
        "sampled_with": "processed" if processed else "",
        "missing": _missing(config, found, new),
    }


def _algorithm(config: Any) -> dict[str, Any]:
    """Name, parts and parameters. Where the gate's denominator is not the logged sampler, the part says so."""
    actor = setting(config, "actor_rollout_ref.actor", {})
    advantage = str(setting(config, "algorithm.adv_estimator", "unknown"))
    loss = str(setting(actor, "policy_loss.loss_mode", "vanilla"))
    low = high = float(setting(actor, "clip_ratio", 0.2))
    bypass = is_bypass(config)
    if bypass:  # the loss of the configuration is not used then
        loss = f"bypass_{setting(config, 'algorithm.rollout_correction.loss_type', 'ppo_clip')}"
    clips = loss in ("vanilla", "bypass_ppo_clip")
    on = "" if bypass else "_on_recomputed"
    normalised = setting(config, "algorithm.norm_adv_by_std_in_grpo", True)
    parameters: dict[str, Any] = {
        "epsilon_low": float(setting(actor, "clip_ratio_low", low)),
        "epsilon_high": float(setting(actor, "clip_ratio_high", high)),
        "epochs": int(setting(actor, "ppo_epochs", 1)),
        "dual": float(setting(actor, "clip_ratio_c", 3.0)),
        "loss_mode": loss,
    }
    if setting(actor, "use_kl_loss", False):
        parameters |= {"reference_kl": float(setting(actor, "kl_loss_coef", 0.0))}
    correction = setting(config, "algorithm.rollout_correction", {})
    parameters |= {name: str(value) for name in ("rollout_is", "rollout_rs") if (value := setting(correction, name))}
    return {
        "name": advantage if clips else loss,
        "parts": {
            "advantage": "group_mean"
            if advantage == "grpo" and not normalised
            else _ADVANTAGES.get(advantage, advantage),
            "selection": "rejection_sampling" if "rollout_rs" in parameters else "all",
            "sample_weight": "equal",
            "level": _LEVELS.get(loss, "token"),
            "weight": f"ratio{on}{'_corrected' if 'rollout_is' in parameters else ''}" if clips else f"{loss}{on}",
            "gate": f"dual_clip{on}" if clips else f"{loss}{on}",
            "aggregation": _AGGREGATIONS.get(str(setting(actor, "loss_agg_mode", "")), "other"),
            "regulariser": "none",
            "step": "adamw",
        },
        "parameters": parameters,
    }


def _missing(config: Any, found: Mapping[str, Any], new: int) -> dict[str, str]:
    reasons = {
        "logp_behavior": "verl has no log-probabilities of its sampler: "
        "actor_rollout_ref.rollout.calculate_log_probs is false.",
        "logp_current": "In bypass mode verl takes the sampler's log-probabilities for the policy's own.",
        "logp_new": "The batch is not scored again after the update: RATIOSCOPE_NEW=10 does it at every tenth one.",
        "logp_reference": "The training has no reference policy.",
        "entropy": "In bypass mode verl does not compute it before the update.",
    }
    scored = {"logp_new": new > 0, "logp_current": new > 0}
    absent = {name: why for name, why in reasons.items() if name not in found and not scored.get(name, False)}
    if "logp_current" not in found and is_bypass(config) and not new:
        absent["logp_current"] += " RATIOSCOPE_NEW=10 computes them at every tenth step."
    return absent | _MISSING
