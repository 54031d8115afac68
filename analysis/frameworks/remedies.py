"""What to set against a difference of engines, in the words and flags of each framework.

for advice in remedies("verl"):
    advice.purpose, advice.setting, advice.effect

The releases and files that were read are those of `analysis.frameworks.sources`; a test looks for the flags in the
packages that are installed.
"""

import re
from dataclasses import dataclass
from enum import Enum

from ratioscope.analysis.frameworks.naming import written_by
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.run_format.manifest import Manifest


class Like(Enum):
    """What a difference of engines is like."""

    NOTHING = "nothing"
    ROUNDING = "rounding"
    TEMPERATURE = "a temperature"
    TRUNCATION = "truncation (top-p, top-k)"
    WEIGHTS = "other weights"
    UNKNOWN = "nothing that is known here"


class Purpose(Enum):
    """What a setting is for."""

    ALIGN = "Remove the cause"
    CORRECT = "Correct it in the loss"
    LOG = "Measure it"


@dataclass(frozen=True)
class Advice:
    """A setting of a framework."""

    purpose: Purpose
    setting: str
    effect: str
    against: Like | None = None
    """What it removes; None: whatever it is."""


OWN = "ratioscope"
"""The built-in trainer."""
_PROCESSED = "the sampler logs the log-probabilities that it drew with, after temperature, top-p and top-k"
_ROUTING = "mixture of experts: the trainer takes the sampler's choice of experts"
_UNTRUNCATED = "nothing is left out that the trainer counts"
_TRUNCATED = "weights of trainer over sampler, cut at the cap"
_MASKED = "tokens or responses beyond the bounds are left out"

_ROLLOUT, _CORRECTION = "actor_rollout_ref.rollout", "algorithm.rollout_correction"
_A, _C, _L = Purpose.ALIGN, Purpose.CORRECT, Purpose.LOG
REMEDIES: dict[str, tuple[Advice, ...]] = {
    OWN: (
        Advice(_A, "sampler.dtype=same", "sampler and trainer compute in one number format", Like.WEIGHTS),
        Advice(_A, "sampler.top_p=1 sampler.top_k=0", _UNTRUNCATED, Like.TRUNCATION),
        Advice(_A, "sampler.temperature=1", "the sampler draws at the trainer's temperature", Like.TEMPERATURE),
        Advice(_C, "algorithm=rec_oneside_is", "ratios to the sampler's own log-probs, clipped on one side"),
    ),
    "verl": (
        Advice(_A, f"{_ROLLOUT}.logprobs_mode=processed_logprobs", _PROCESSED, Like.TEMPERATURE),
        Advice(_A, f"{_ROLLOUT}.top_p=1 {_ROLLOUT}.top_k=-1", _UNTRUNCATED, Like.TRUNCATION),
        Advice(_A, f"{_ROLLOUT}.enable_rollout_routing_replay=True "
               "actor_rollout_ref.actor.megatron.router_replay.mode=R3", _ROUTING),
        Advice(_C, f"{_CORRECTION}.rollout_is=token {_CORRECTION}.rollout_is_threshold=2.0",
               _TRUNCATED),
        Advice(_C, f"{_CORRECTION}.rollout_rs=seq_mean_k3 "
               f"{_CORRECTION}.rollout_rs_threshold=0.01", _MASKED),
        Advice(_C, f"{_CORRECTION}.bypass_mode=true",
               "the sampler's log-probs are the denominator, so that the clip sees the difference"),
        Advice(_L, f"{_ROLLOUT}.calculate_log_probs=True",
               "the sampler's log-probs reach the trainer; bypass_mode=false recomputes them there"),
    ),
    "trl": (
        Advice(_A, "vllm serve --logprobs-mode processed_logprobs", f"server mode: {_PROCESSED}", Like.TEMPERATURE),
        Advice(_A, "top_p=1.0, top_k=0", _UNTRUNCATED, Like.TRUNCATION),
        Advice(_C, 'vllm_importance_sampling_correction=True, vllm_importance_sampling_mode="token_truncate"',
               _TRUNCATED),
        Advice(_C, 'vllm_importance_sampling_mode="sequence_mask", vllm_importance_sampling_clip_max=3.0', _MASKED),
        Advice(_L, "use_vllm=True", "generate of Transformers returns no log-probabilities, vLLM does"),
    ),
    "prime_rl": (
        Advice(_A, "inference.enable_fp32_lm_head = true", "the sampler's last layer is in float32", Like.ROUNDING),
        Advice(_A, "trainer.enable_router_replay = true", _ROUTING),
        Advice(_C, "trainer.loss.eps = 0.3", "tokens whose probability differs by more are left out"),
        Advice(_C, 'trainer.loss.type = "icepop"', "tokens with a ratio outside of 0.2 to 5 are left out"),
    ),
    "areal": (
        Advice(_A, "gconfig.top_p=1 gconfig.temperature=1", _UNTRUNCATED, Like.TRUNCATION),
        Advice(_C, "actor.use_decoupled_loss=true actor.rejection_sampling.action=clamp "
               "actor.rejection_sampling.upper=5", _TRUNCATED),
        Advice(_C, "actor.rejection_sampling.action=mask actor.rejection_sampling.level=sequence", _MASKED),
        Advice(_L, "actor.recompute_logprob=true", "the training engine's own log-probs beside the sampler's"),
    ),
    "nemo_rl": (
        Advice(_A, "policy.generation.vllm_cfg.logprobs_mode=processed_logprobs", _PROCESSED, Like.TEMPERATURE),
        Advice(_C, "loss_fn.use_importance_sampling_correction=true loss_fn.truncated_importance_sampling_type=tis "
               "loss_fn.truncated_importance_sampling_ratio=2", _TRUNCATED),
        Advice(_C, "loss_fn.truncated_importance_sampling_type=icepop", _MASKED),
        Advice(_L, "token_mult_prob_error", "its own number: 1 + 2 × the plain total variation; alert at 1.05"),
    ),
    "skyrl": (
        Advice(_A, "generator.inference_engine.enable_return_routed_experts=true "
               "trainer.policy.megatron_config.moe_enable_routing_replay=true", _ROUTING),
        Advice(_C, "trainer.algorithm.off_policy_correction.tis_ratio_type=token "
               "trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high=2.0", _TRUNCATED),
        Advice(_C, "trainer.algorithm.off_policy_correction.sequence_mask_metric=geometric", _MASKED),
        Advice(_L, "generator.sampling_params.logprobs=1", "the sampler's log-probs reach the trainer"),
    ),
    "slime": (
        Advice(_A, "--use-rollout-routing-replay", _ROUTING),
        Advice(_C, "--use-tis --tis-clip 2.0", _TRUNCATED),
        Advice(_C, "--custom-tis-function-path", "another correction, such as masks"),
        Advice(_L, "--get-mismatch-metrics", "the training engine's log-probs beside the sampler's"),
    ),
    "miles": (
        Advice(_A, "--true-on-policy-mode", "kernels of sampler and trainer that agree bit by bit", Like.ROUNDING),
        Advice(_A, "--use-rollout-routing-replay", _ROUTING),
        Advice(_C, "--use-tis --tis-clip 2.0", _TRUNCATED),
        Advice(_L, "--get-mismatch-metrics", "the training engine's log-probs beside the sampler's"),
    ),
    "open_instruct": (
        Advice(_C, "--use_rho_correction --rho_clamp_upper_bound 2.0", _TRUNCATED),
        Advice(_C, "--rho_mask_upper_bound", _MASKED),
    ),
    "openrlhf": (
        Advice(_C, "--algo.advantage.is_correction_level token --algo.advantage.is_correction_mode clip",
               f"{_TRUNCATED}; vLLM then logs processed log-probs"),
        Advice(_C, "--algo.advantage.is_correction_mode mask --algo.advantage.is_correction_threshold 0.5 5.0",
               _MASKED),
    ),
    "trinity_rft": (
        Advice(_C, "trainer.rollout_correction: rollout_is, rollout_rs, bypass_mode", "verl's corrections"),
    ),
    "tinker": (
        Advice(_C, "loss_fn=importance_sampling", "the ratio to the sampler's log-probs is the weight"),
        Advice(_C, "loss_fn=ppo", "and is clipped"),
        Advice(_L, "optim/kl_sample_train_v1", "its own number: mean difference of sampler and trainer"),
    ),
    "roll": (
        Advice(_C, "train_infer_correction.is_weight.enabled: true, weight_type: token", _TRUNCATED),
        Advice(_C, "train_infer_correction.filters", _MASKED),
        Advice(_L, "enable_old_logprobs_recompute: true", "the training engine's log-probs beside the sampler's"),
    ),
}  # fmt: skip
"""By key of `FRAMEWORKS`, and of the built-in trainer."""


def title_of(key: str) -> str:
    """The framework's name."""
    return FRAMEWORKS[key].title if key in FRAMEWORKS else "The built-in trainer"


def framework_of(manifest: Manifest) -> str:
    """Whose words a run's remedy is in: the framework that the manifest names; "" where it names none that is known."""
    if manifest.producer.get("name") == "ratioscope trainer":
        return OWN
    named = _plain(str(manifest.source.get("framework", "")))
    known = {_plain(framework.title): key for key, framework in FRAMEWORKS.items()} | {key: key for key in FRAMEWORKS}
    return known.get(named, "") or (found if (found := written_by(manifest)) in REMEDIES else "")


def remedies(key: str, like: Like = Like.UNKNOWN) -> tuple[Advice, ...]:
    """What to set there: what removes this cause first, without what removes another one."""
    known = like in (Like.TEMPERATURE, Like.TRUNCATION)
    fits = [
        one for one in REMEDIES.get(key, ()) if not known or one.purpose is not Purpose.ALIGN or one.against is like
    ]
    return tuple(sorted(fits, key=lambda one: one.against is not like))


def set_to_usual(key: str, name: str) -> str:
    """The assignment that makes a sampler's setting, such as top_p, the trainer's; "" where none is known."""
    aligned = (one.setting for one in REMEDIES.get(key, ()) if one.purpose is Purpose.ALIGN)
    parts = (part for setting in aligned for part in re.split(r",?\s+", setting))
    return next((part for part in parts if re.search(rf"(^|\.){re.escape(name)}=", part)), "")


def to_log(key: str) -> str:
    """The setting that measures it, in this framework; "" where none is known."""
    return next((one.setting for one in REMEDIES.get(key, ()) if one.purpose is Purpose.LOG), "")


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
