"""Presets: the off-policy corrections of RL frameworks, with their defaults, as rules for the what-if analysis.

A preset is the framework's correction of trainer against sampler alone. Its PPO clip on pi_theta / pi_old, which most
of them apply on top, stops nothing in the first pass of an update; where the clip is the rule, the note says so.
Settings that no gate, filter and weight express (two-sided clamps, dual clips, rejections without a default threshold)
are not listed. Defaults were read from the sources between April and August 2026.
"""

from dataclasses import dataclass

from analysis.what_if.rule import Rule


@dataclass(frozen=True)
class Preset:
    """One setting of one framework."""

    framework: str
    setting: str
    """Its name in that framework."""
    rule: Rule
    default: bool
    """Whether the framework does it when nothing is set."""
    source: str
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.framework}: {self.setting}"


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


_VERL = "verl-project/verl 1dda039b9, rollout_corr_helper.py"
_TRL = "huggingface/trl f2cd57710, grpo_trainer.py"
_TRINITY = "Trinity-RFT 0.5.2, policy losses; S3 4.1 and B.3"
_AREAL = "areal-project/AReaL cbff54d64, utils/functional"
_SLIME = "THUDM/slime 624b824a8, loss.py"
_PRIME = "PrimeIntellect-ai/prime-rl 559b44772, trainer/rl/loss.py"
_SKYRL = "NovaSky-AI/SkyRL a9564572e, off_policy_correction_utils.py"
_NEMO = "NVIDIA-NeMo/RL 7ea279ab, loss_functions.py"
_OPEN_INSTRUCT = "allenai/open-instruct e6c3044a, grpo_utils.py"
_OPENRLHF = "OpenRLHF/OpenRLHF 3c3be623, models/loss.py"
_ROLL = "alibaba/ROLL 8eb27cc2, roll/pipeline"
_CLIP_ONLY = "the clip itself, on pi_theta / pi_k: engine mismatch and staleness are not corrected"
_WITHOUT_WEIGHT = "the mask alone: without a further correction its tokens have no weight"

PRESETS: tuple[Preset, ...] = (
    Preset("verl", "rollout_is=token, threshold 2.0", _truncated(2), False, _VERL),
    Preset("verl", "rollout_is=sequence, threshold 2.0", _truncated(2, "sequence"), False, _VERL),
    Preset("TRL", "sequence_mask, clip_max 3.0", _masked(3, "sequence"), True, _TRL),
    Preset("TRL", "sequence_truncate, clip_max 3.0", _truncated(3, "sequence"), False, _TRL),
    Preset("TRL", "token_mask, clip_max 3.0", _masked(3), False, _TRL),
    Preset("TRL", "token_truncate, clip_max 3.0", _truncated(3), False, _TRL),
    Preset(
        "Trinity-RFT", "REC clip_mode=one-side, weight=importance_sampling", _rec("one_side", "ratio"), False, _TRINITY
    ),
    Preset("Trinity-RFT", "REC clip_mode=one-side, weight=none", _rec("one_side", "none"), False, _TRINITY),
    Preset(
        "Trinity-RFT", "REC clip_mode=two-side, weight=importance_sampling", _rec("two_side", "ratio"), False, _TRINITY
    ),
    Preset("Trinity-RFT", "REC clip_mode=two-side, weight=none", _rec("two_side", "none"), False, _TRINITY),
    Preset(
        "Trinity-RFT", "REC clip_mode=ring, weight=importance_sampling", _rec("ring", "ratio"), False, _TRINITY
    ),
    Preset("Trinity-RFT", "REC clip_mode=ring, weight=none", _rec("ring", "none"), False, _TRINITY),
    Preset(
        "Trinity-RFT", "GSPO, 3e-4 and 4e-4",
        Rule("one_side", {"epsilon_low": 3e-4, "epsilon_high": 4e-4}, "ratio", {}, "geometric", "geometric"),
        False, _TRINITY,
    ),
    Preset(
        "Trinity-RFT", "PPO sequence masking, delta 0.1", Rule("opposite_sign", {"delta": 0.1}, "none"), False,
        _TRINITY, _WITHOUT_WEIGHT,
    ),
    Preset("AReaL", "rejection_sampling token, mask by ratio, upper 5", _masked(5), False, _AREAL),
    Preset("AReaL", "rejection_sampling token, clamp by ratio, upper 5", _truncated(5), False, _AREAL),
    Preset(
        "AReaL", "use_decoupled_loss, eps_clip 0.2", Rule("incremental", {"epsilon": 0.2}), False, _AREAL,
        "the clip is on pi_theta / pi_k, the weight contains rho_k",
    ),
    Preset("slime", "--use-tis, 2.0", _truncated(2), False, _SLIME),
    Preset(
        "slime", "OPSM, delta 1e-4", Rule("opposite_sign", {"delta": 1e-4}, "none"), False, _SLIME, _WITHOUT_WEIGHT
    ),
    Preset(
        "prime-rl", "DPPO mask on the probability difference, 0.2 and 0.2",
        Rule("probability_difference", {"difference_low": 0.2, "difference_high": 0.2}), True, _PRIME,
        "without its penalty on the squared log-ratio",
    ),
    Preset(
        "prime-rl", "max_off_policy_steps 8", Rule("window", {"max_lag": 8}), True, _PRIME,
        "before the loss, beside its mask",
    ),
    Preset("SkyRL", "tis_ratio_type=token, 2.0", _truncated(2), False, _SKYRL),
    Preset("SkyRL", "tis_ratio_type=sequence, 5.0", _truncated(5, "sequence"), False, _SKYRL),
    Preset(
        "SkyRL", "sequence mask geometric, 0.99 to 1.01", _band(0.99, 1.01, "geometric", "none"), False, _SKYRL,
        _WITHOUT_WEIGHT,
    ),
    Preset(
        "SkyRL", "sequence mask product, 0.5 to 2", _band(0.5, 2, "sequence", "none"), False, _SKYRL, _WITHOUT_WEIGHT
    ),
    Preset("NeMo-RL", "ClippedPG, 0.2", Rule("incremental", {"epsilon": 0.2}, "incremental"), True, _NEMO, _CLIP_ONLY),
    Preset(
        "NeMo-RL", "ClippedPG, 0.2, use_importance_sampling_correction", Rule("incremental", {"epsilon": 0.2}),
        False, _NEMO, "the clip is on pi_theta / pi_k, the weight contains rho_k",
    ),
    Preset("open-instruct", "use_rho_correction, upper 2.0", _truncated(2), True, _OPEN_INSTRUCT),
    Preset("OpenRLHF", "icepop, 0.5 to 5", _band(0.5, 5), False, _OPENRLHF),
    Preset("OpenRLHF", "seq-mask-tis, 0.5 to 5", _band(0.5, 5, "geometric"), False, _OPENRLHF),
    Preset("ROLL", "is_weight token, cap 1.2", _truncated(1.2), False, _ROLL),
    Preset("ROLL", "is_weight geometric, cap 1.2", _truncated(1.2, "geometric"), False, _ROLL),
    Preset("ROLL", "is_weight sequence, cap 1.2", _truncated(1.2, "sequence"), False, _ROLL),
    Preset("ROLL", "filter token ratio, 0.8 to 1.2", _band(0.8, 1.2, "token", "none"), False, _ROLL, _WITHOUT_WEIGHT),
    Preset(
        "ROLL", "filter geometric ratio, 0.8 to 1.2", _band(0.8, 1.2, "geometric", "none"), False, _ROLL,
        _WITHOUT_WEIGHT,
    ),
    Preset(
        "ROLL", "filter sequence ratio, 0.8 to 1.2", _band(0.8, 1.2, "sequence", "none"), False, _ROLL, _WITHOUT_WEIGHT
    ),
)  # fmt: skip
