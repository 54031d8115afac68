"""RL frameworks: what was read of each, its defaults, and presets: its corrections as rules for the what-if analysis.

A preset is the framework's correction of trainer against sampler alone. Its PPO clip on pi_theta / pi_old, which most
of them apply on top, stops nothing in the first pass of an update; where the clip is the rule, the note says so.
Settings that no gate, filter and weight express (two-sided clamps, dual clips, rejections without a default threshold)
are not listed. Defaults were read from the sources between April and August 2026.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratioscope.analysis.what_if.rule import Rule


@dataclass(frozen=True)
class Framework:
    """What was read of a framework."""

    title: str
    repository: str
    commit: str
    """The snapshot, or the release."""
    files: str
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Values that its presets and its dialect (`analysis.frameworks`) share, by the framework's names."""

    @property
    def source(self) -> str:
        return f"{self.repository} {self.commit}, {self.files}"


FRAMEWORKS: dict[str, Framework] = {
    "verl": Framework(
        "verl", "verl-project/verl", "1dda039b9",
        "trainer/ppo/rollout_corr_helper.py, utils/debug/metrics.py, core_algos.py",
        {"rollout_is_threshold": 2.0, "clip_ratio": 0.2, "clip_ratio_c": 3.0},
    ),
    "trl": Framework(
        "TRL", "huggingface/trl", "f2cd57710", "trainer/grpo_trainer.py", {"clip_max": 3.0, "epsilon": 0.2}
    ),
    "trinity_rft": Framework("Trinity-RFT", "Trinity-RFT", "0.5.2", "policy losses; S3 4.1 and B.3"),
    "areal": Framework(
        "AReaL", "areal-project/AReaL", "cbff54d64", "trainer/ppo/actor.py, utils/functional/functional.py",
        {"eps_clip": 0.2},
    ),
    "slime": Framework("slime", "THUDM/slime", "624b824a8", "loss.py"),
    "prime_rl": Framework(
        "prime-rl", "PrimeIntellect-ai/prime-rl", "559b44772", "src/prime_rl/trainer/rl/loss.py and train.py",
        {"mask_low": 0.2, "mask_high": 0.2},
    ),
    "skyrl": Framework("SkyRL", "NovaSky-AI/SkyRL", "a9564572e", "off_policy_correction_utils.py"),
    "nemo_rl": Framework(
        "NeMo-RL", "NVIDIA-NeMo/RL", "7ea279ab", "nemo_rl/algorithms/loss/loss_functions.py",
        {"ratio_clip_min": 0.2, "ratio_clip_max": 0.2},
    ),
    "open_instruct": Framework("open-instruct", "allenai/open-instruct", "e6c3044a", "grpo_utils.py"),
    "openrlhf": Framework("OpenRLHF", "OpenRLHF/OpenRLHF", "3c3be623", "models/loss.py"),
    "roll": Framework("ROLL", "alibaba/ROLL", "8eb27cc2", "roll/pipeline"),
}  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """One setting of one framework."""

    framework: Framework
    setting: str
    """Its name in that framework."""
    rule: Rule
    default: bool = False
    """Whether the framework does it when nothing is set."""
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.framework.title}: {self.setting}"


def _truncated(cap: float, level: str = "token") -> Rule:
    return Rule("none", {}, "truncated", {"cap": cap}, weight_level=level)


def _masked(cap: float, level: str = "token") -> Rule:
    """Above the cap nothing counts, below it the ratio does; both at one level."""
    return Rule("masked", {"cap": cap}, "ratio", {}, level, level)


def _band(low: float, high: float, level: str = "token", weight: str = "ratio") -> Rule:
    """Kept with low <= ratio <= high at `level`; the weight is of tokens."""
    # Rounded: 1 - (1 - 0.99) is not 0.99, and a bound has to be the one that the framework has.
    return Rule("two_side", {"epsilon_low": round(1 - low, 12), "epsilon_high": round(high - 1, 12)}, weight, {}, level)


def _rec(gate: str, weight: str) -> Rule:
    parameters = {"epsilon_low": 0.2, "epsilon_high": 0.2}
    return Rule(gate, parameters | ({"outer_low": 0.6, "outer_high": 2.0} if gate == "ring" else {}), weight)


(_VERL, _TRL, _TRINITY, _AREAL, _SLIME, _PRIME, _SKYRL, _NEMO, _OPEN_INSTRUCT, _OPENRLHF, _ROLL) = FRAMEWORKS.values()
_THRESHOLD, _CLIP_MAX = _VERL.defaults["rollout_is_threshold"], _TRL.defaults["clip_max"]
_MASK_LOW, _MASK_HIGH = _PRIME.defaults["mask_low"], _PRIME.defaults["mask_high"]
_EPS_CLIP, _RATIO_CLIP = _AREAL.defaults["eps_clip"], _NEMO.defaults["ratio_clip_min"]
_CLIP_ONLY = "the clip itself, on pi_theta / pi_k: engine mismatch and staleness are not corrected"
_WITHOUT_WEIGHT = "the mask alone: without a further correction its tokens have no weight"

PRESETS: tuple[Preset, ...] = (
    Preset(_VERL, f"rollout_is=token, threshold {_THRESHOLD}", _truncated(_THRESHOLD)),
    Preset(_VERL, f"rollout_is=sequence, threshold {_THRESHOLD}", _truncated(_THRESHOLD, "sequence")),
    Preset(_TRL, f"sequence_mask, clip_max {_CLIP_MAX}", _masked(_CLIP_MAX, "sequence"), default=True),
    Preset(_TRL, f"sequence_truncate, clip_max {_CLIP_MAX}", _truncated(_CLIP_MAX, "sequence")),
    Preset(_TRL, f"token_mask, clip_max {_CLIP_MAX}", _masked(_CLIP_MAX)),
    Preset(_TRL, f"token_truncate, clip_max {_CLIP_MAX}", _truncated(_CLIP_MAX)),
    Preset(_TRINITY, "REC clip_mode=one-side, weight=importance_sampling", _rec("one_side", "ratio")),
    Preset(_TRINITY, "REC clip_mode=one-side, weight=none", _rec("one_side", "none")),
    Preset(_TRINITY, "REC clip_mode=two-side, weight=importance_sampling", _rec("two_side", "ratio")),
    Preset(_TRINITY, "REC clip_mode=two-side, weight=none", _rec("two_side", "none")),
    Preset(_TRINITY, "REC clip_mode=ring, weight=importance_sampling", _rec("ring", "ratio")),
    Preset(_TRINITY, "REC clip_mode=ring, weight=none", _rec("ring", "none")),
    Preset(
        _TRINITY,
        "GSPO, 3e-4 and 4e-4",
        Rule("one_side", {"epsilon_low": 3e-4, "epsilon_high": 4e-4}, "ratio", {}, "geometric", "geometric"),
    ),
    Preset(
        _TRINITY, "PPO sequence masking, delta 0.1", Rule("opposite_sign", {"delta": 0.1}, "none"), note=_WITHOUT_WEIGHT
    ),
    Preset(_AREAL, "rejection_sampling token, mask by ratio, upper 5", _masked(5)),
    Preset(_AREAL, "rejection_sampling token, clamp by ratio, upper 5", _truncated(5)),
    Preset(
        _AREAL,
        f"use_decoupled_loss, eps_clip {_EPS_CLIP}",
        Rule("incremental", {"epsilon": _EPS_CLIP}),
        note="the clip is on pi_theta / pi_k, the weight contains rho_k",
    ),
    Preset(_SLIME, "--use-tis, 2.0", _truncated(2)),
    Preset(_SLIME, "OPSM, delta 1e-4", Rule("opposite_sign", {"delta": 1e-4}, "none"), note=_WITHOUT_WEIGHT),
    Preset(
        _PRIME,
        f"DPPO mask on the probability difference, {_MASK_LOW} and {_MASK_HIGH}",
        Rule("probability_difference", {"difference_low": _MASK_LOW, "difference_high": _MASK_HIGH}),
        default=True,
        note="without its penalty on the squared log-ratio",
    ),
    Preset(
        _PRIME,
        "max_off_policy_steps 8",
        Rule("window", {"max_lag": 8}),
        default=True,
        note="before the loss, beside its mask",
    ),
    Preset(_SKYRL, "tis_ratio_type=token, 2.0", _truncated(2)),
    Preset(_SKYRL, "tis_ratio_type=sequence, 5.0", _truncated(5, "sequence")),
    Preset(
        _SKYRL, "sequence mask geometric, 0.99 to 1.01", _band(0.99, 1.01, "geometric", "none"), note=_WITHOUT_WEIGHT
    ),
    Preset(_SKYRL, "sequence mask product, 0.5 to 2", _band(0.5, 2, "sequence", "none"), note=_WITHOUT_WEIGHT),
    Preset(
        _NEMO,
        f"ClippedPG, {_RATIO_CLIP}",
        Rule("incremental", {"epsilon": _RATIO_CLIP}, "incremental"),
        default=True,
        note=_CLIP_ONLY,
    ),
    Preset(
        _NEMO,
        f"ClippedPG, {_RATIO_CLIP}, use_importance_sampling_correction",
        Rule("incremental", {"epsilon": _RATIO_CLIP}),
        note="the clip is on pi_theta / pi_k, the weight contains rho_k",
    ),
    Preset(_OPEN_INSTRUCT, "use_rho_correction, upper 2.0", _truncated(2), default=True),
    Preset(_OPENRLHF, "icepop, 0.5 to 5", _band(0.5, 5)),
    Preset(_OPENRLHF, "seq-mask-tis, 0.5 to 5", _band(0.5, 5, "geometric")),
    Preset(_ROLL, "is_weight token, cap 1.2", _truncated(1.2)),
    Preset(_ROLL, "is_weight geometric, cap 1.2", _truncated(1.2, "geometric")),
    Preset(_ROLL, "is_weight sequence, cap 1.2", _truncated(1.2, "sequence")),
    Preset(_ROLL, "filter token ratio, 0.8 to 1.2", _band(0.8, 1.2, "token", "none"), note=_WITHOUT_WEIGHT),
    Preset(_ROLL, "filter geometric ratio, 0.8 to 1.2", _band(0.8, 1.2, "geometric", "none"), note=_WITHOUT_WEIGHT),
    Preset(_ROLL, "filter sequence ratio, 0.8 to 1.2", _band(0.8, 1.2, "sequence", "none"), note=_WITHOUT_WEIGHT),
)
