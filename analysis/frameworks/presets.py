"""Presets: the corrections of RL frameworks as rules for the what-if analysis, with the values that each starts with.

A preset is the framework's correction of trainer against sampler. Where a framework weighs tokens with rho_k, how far
the recomputed policy is from the one that sampled, beside a PPO clip on pi_theta / pi_k, the rule has both, and is
exact in later passes too. Weights of whole responses are judged by pi_theta, which is the same in the first pass; such
a clip stops nothing there. A rule has one gate: of two masks the note names the one that is left out. What takes
numbers that a framework does not provide, or decides by the batch (SkyRL's outlier tokens, AReaL's M2PO, covariance
clips), is not listed.
"""

from dataclasses import dataclass

from ratioscope.analysis.frameworks.sources import FRAMEWORKS, Framework
from ratioscope.analysis.what_if.rule import Rule


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


def _clamped(floor: float, cap: float) -> Rule:
    return Rule("none", {}, "clamped", {"floor": floor, "cap": cap})


def _masked(cap: float, level: str = "token") -> Rule:
    """Above the cap nothing counts, below it the ratio does; both at one level."""
    return Rule("masked", {"cap": cap}, "ratio", {}, level, level)


def _epsilons(low: float, high: float) -> dict[str, float]:
    """The bounds 1 - epsilon_low and 1 + epsilon_high; rounded, because 1 - (1 - 0.99) is not 0.99."""
    return {"epsilon_low": round(1 - low, 12), "epsilon_high": round(high - 1, 12)}


def _band(low: float, high: float, level: str = "token", weight: str = "ratio") -> Rule:
    """Kept with low <= ratio <= high at `level`; the weight is of tokens."""
    return Rule("two_side", _epsilons(low, high), weight, {}, level)


_BANDS = {
    "token": "staleness_band", "sequence": "sequence_staleness_band", "geometric": "geometric_staleness_band",
}  # fmt: skip


def _decoupled(epsilon: float, cap: float = 0.0) -> Rule:
    """PPO's clip on pi_theta / pi_k beside rho_k, which is truncated at `cap`; without one, rho_k is left out."""
    weight = "truncated_staleness" if cap else "incremental"
    return Rule("incremental", {"epsilon": epsilon}, weight, {"cap": cap} if cap else {})


def _kept(low: float, high: float, level: str = "token", weight: str = "ratio", cap: float = 0.0) -> Rule:
    """Kept with low <= rho_k <= high at `level`, whatever pi_theta has become; "truncated" is of responses."""
    of_weight, parameters = "sequence" if weight == "truncated" else "token", {"cap": cap} if cap else {}
    bounds = {"floor": round(low, 12), "cap": round(high, 12)}
    return Rule(_BANDS[level], bounds, weight, parameters, weight_level=of_weight)


def _within(mode: str, low: float, high: float, weight: str = "none", cap: float = 0.0, level: str = "token") -> Rule:
    """verl's rollout_rs by k1, whose bounds are on 1 / ratio, in a loss on pi_theta / pi_rollout."""
    at = {"seq_sum_k1": "sequence", "seq_mean_k1": "geometric"}[mode]
    return Rule("two_side", _epsilons(1 / high, 1 / low), weight, {"cap": cap} if cap else {}, at, level)


def _k3(threshold: float, weight: str = "incremental", cap: float = 0.0, level: str = "token") -> Rule:
    """verl's rollout_rs=seq_mean_k3 beside a weight."""
    return Rule("reject_mean_k3", {"threshold": threshold}, weight, {"cap": cap} if cap else {}, weight_level=level)


def _clip(epsilon: float, high: float | None = None, weight: str = "ratio", level: str = "token") -> Rule:
    """PPO's clip on the ratio to the sampler, at one level with the ratio."""
    return Rule("one_side", {"epsilon_low": epsilon, "epsilon_high": high or epsilon}, weight, {}, level, level)


def _dual(epsilon: float, dual: float) -> Rule:
    return Rule("dual_clip", {"epsilon_low": epsilon, "epsilon_high": epsilon, "dual": dual})


def _sapo(positive: float, negative: float) -> Rule:
    return Rule("soft", {"tau_positive": positive, "tau_negative": negative})


def _vespo(k_pos: float, lambda_pos: float, k_neg: float, lambda_neg: float) -> Rule:
    numbers = {
        "power_positive": k_pos, "decay_positive": lambda_pos, "power_negative": k_neg, "decay_negative": lambda_neg,
    }  # fmt: skip
    return Rule("none", {}, "gamma_kernel", numbers, weight_level="sequence")


def _rec(gate: str, weight: str) -> Rule:
    parameters = {"epsilon_low": 0.2, "epsilon_high": 0.2}
    return Rule(gate, parameters | ({"outer_low": 0.6, "outer_high": 2.0} if gate == "ring" else {}), weight)


def _opsm(delta: float) -> Rule:
    return Rule("opposite_sign", {"delta": delta}, "none")


def _cispo(epsilon_high: float) -> Rule:
    return Rule("none", {}, "upper_clipped", {"epsilon_high": epsilon_high})


def _dppo(low: float, high: float) -> Rule:
    return Rule("probability_difference", {"difference_low": low, "difference_high": high})


_VERL, _TRL, _AREAL, _PRIME, _NEMO = (FRAMEWORKS[key] for key in ("verl", "trl", "areal", "prime_rl", "nemo_rl"))
_TRINITY, _SLIME, _MILES, _SKYRL = (FRAMEWORKS[key] for key in ("trinity_rft", "slime", "miles", "skyrl"))
_OPEN_INSTRUCT, _OPENRLHF, _TINKER, _ROLL = (FRAMEWORKS[key] for key in ("open_instruct", "openrlhf", "tinker", "roll"))
_CLIP_RATIO, _DUAL, _CLIP_MAX = _VERL.defaults["clip_ratio"], _VERL.defaults["clip_ratio_c"], _TRL.defaults["clip_max"]
_EPSILON, _EPS_CLIP, _RATIO_CLIP = (
    _TRL.defaults["epsilon"],
    _AREAL.defaults["eps_clip"],
    _NEMO.defaults["ratio_clip_min"],
)
_THRESHOLD = _VERL.defaults["rollout_is_threshold"]
_EPS = _PRIME.defaults["eps"]
_CLIP_ONLY = "the clip itself, on pi_theta / pi_k: engine mismatch and staleness are not corrected"
_WITHOUT_WEIGHT = "the mask alone: without a further correction its tokens have no weight"
_WITHOUT_STEP = "without the clip on pi_theta / pi_k beside it, which stops nothing in the first pass"
_WITHOUT_DUAL = "without its dual clip, 3 on pi_theta / pi_k"
_K3 = f"{_WITHOUT_STEP}; it judges pi_k, the rule here pi_theta, which is the same there"
_TO_ROLLOUT = "without its cap on the weight; in bypass mode, where the old policy is the one that sampled"
_GEO = (1 / 1.001, 1 / 0.999)  # its bounds are on 1 / ratio
_WITHOUT_CLIP = f"without the clip beside it, {_CLIP_RATIO} and dual {_DUAL:g} on pi_theta / pi_rollout"
_TO_SAMPLER = "the ratio is to the sampler, so that the clip corrects staleness and engine mismatch, too"
_TO_OLD = (
    "its ratio is to old_per_token_logps, the trainer's own record of the sampler; with vLLM the importance sampling "
    "ratio comes on top"
)
_CLIP_WITH_WEIGHT = "the clip is on pi_theta / pi_k, the weight contains rho_k"

PRESETS: tuple[Preset, ...] = (
    # The methods of RolloutCorrectionConfig by their names.
    Preset(_VERL, "decoupled_token_is", _decoupled(_CLIP_RATIO, _THRESHOLD), note=_WITHOUT_DUAL),
    Preset(_VERL, "decoupled_seq_is", _truncated(_THRESHOLD, "sequence"), note=_WITHOUT_STEP),
    Preset(_VERL, "decoupled_token_icepop", _kept(0.5, 5), note=_WITHOUT_STEP),
    Preset(
        _VERL,
        "decoupled_seq_is_rs",
        _kept(1 / 2, 1 / 0.5, "sequence", "truncated", _THRESHOLD),
        note=_WITHOUT_STEP,
    ),
    Preset(_VERL, "decoupled_geo_rs", _kept(*_GEO, "geometric", "incremental"), note=_WITHOUT_STEP),
    Preset(
        _VERL,
        "decoupled_geo_rs_seq_tis",
        _kept(*_GEO, "geometric", "truncated", _THRESHOLD),
        note=_WITHOUT_STEP,
    ),
    Preset(
        _VERL,
        "decoupled_geo_rs_token_tis",
        _kept(*_GEO, "geometric", "truncated_staleness", _THRESHOLD),
        note=_WITHOUT_STEP,
    ),
    Preset(_VERL, "decoupled_k3_rs", _k3(0.01), note=_K3),
    Preset(_VERL, "decoupled_k3_rs_seq_tis", _k3(0.01, "truncated", _THRESHOLD, "sequence"), note=_K3),
    Preset(_VERL, "decoupled_k3_rs_token_tis", _k3(0.01, "truncated_staleness", _THRESHOLD), note=_K3),
    Preset(_VERL, "bypass_ppo_clip", _dual(_CLIP_RATIO, _DUAL), note=_TO_SAMPLER),
    Preset(_VERL, "bypass_ppo_clip_geo_rs", _within("seq_mean_k1", 0.999, 1.001, "ratio"), note=_WITHOUT_CLIP),
    Preset(_VERL, "bypass_ppo_clip_k3_rs", _k3(0.01, "ratio"), note=_WITHOUT_CLIP),
    Preset(_VERL, "bypass_pg_is", _truncated(_THRESHOLD, "sequence")),
    Preset(_VERL, "bypass_pg_token_icepop", _band(0.5, 5)),
    Preset(_VERL, "bypass_pg_geo_rs", _within("seq_mean_k1", 0.999, 1.001), note=_WITHOUT_WEIGHT),
    Preset(
        _VERL,
        "bypass_pg_geo_rs_seq_tis",
        _within("seq_mean_k1", 0.999, 1.001, "truncated", _THRESHOLD, "sequence"),
    ),
    Preset(_VERL, "bypass_pg_geo_rs_token_tis", _within("seq_mean_k1", 0.999, 1.001, "truncated", _THRESHOLD)),
    Preset(_VERL, "disabled", _decoupled(_CLIP_RATIO), note=f"{_CLIP_ONLY}; without its dual clip"),
    Preset(_VERL, "loss_mode=dppo_tv, clip_ratio 0.15 (their example)", _dppo(0.15, 0.15), note=_TO_ROLLOUT),
    Preset(
        _VERL,
        "loss_mode=dppo_kl, clip_ratio 0.05 (their example)",
        Rule("binary_divergence", {"threshold": 0.05}),
        note=_TO_ROLLOUT,
    ),
    Preset(
        _TRL, f"sequence_mask, clip_max {_CLIP_MAX}", _masked(_CLIP_MAX, "sequence"), default=True, note=_WITHOUT_STEP
    ),
    Preset(_TRL, f"sequence_truncate, clip_max {_CLIP_MAX}", _truncated(_CLIP_MAX, "sequence"), note=_WITHOUT_STEP),
    Preset(_TRL, f"token_mask, clip_max {_CLIP_MAX}", _kept(0, _CLIP_MAX), note=_WITHOUT_STEP),
    Preset(_TRL, f"token_truncate, clip_max {_CLIP_MAX}", _decoupled(_EPSILON, _CLIP_MAX)),
    Preset(_TRL, f"loss_type=dapo, grpo, bnpo or dr_grpo, epsilon {_EPSILON}", _clip(_EPSILON), note=_TO_OLD),
    Preset(_TRL, "loss_type=cispo, epsilon_high 5 (recommended)", _cispo(4), note=_TO_OLD),
    Preset(_TRL, "loss_type=sapo, temperatures 1 and 1.05", _sapo(1, 1.05), note=_TO_OLD),
    Preset(
        _TRL,
        "loss_type=vespo, k 2 and 3, lambda 3 and 2",
        _vespo(2, 3, 3, 2),
        note="the ratio to vLLM is in it, truncated or masked by tokens",
    ),
    Preset(
        _TRL,
        f"loss_type=luspo or GSPO (importance_sampling_level=sequence), epsilon {_EPSILON}",
        _clip(_EPSILON, level="geometric"),
        note=_TO_OLD,
    ),
    Preset(
        _TRL,
        "off_policy_mask_threshold 0.5 (their example)",
        Rule("opposite_sign", {"delta": 0.5}),
        note="without the clip beside it",
    ),
    Preset(_TRINITY, "PPO, clip_range 0.2, clip_ratio_c 3", _dual(0.2, 3), default=True, note=_TO_SAMPLER),
    Preset(_TRINITY, "REC clip_mode=one-side, weight=importance_sampling", _rec("one_side", "ratio")),
    Preset(_TRINITY, "REC clip_mode=one-side, weight=none", _rec("one_side", "none")),
    Preset(_TRINITY, "REC clip_mode=two-side, weight=importance_sampling", _rec("two_side", "ratio")),
    Preset(_TRINITY, "REC clip_mode=two-side, weight=none", _rec("two_side", "none")),
    Preset(_TRINITY, "REC clip_mode=ring, weight=importance_sampling", _rec("ring", "ratio")),
    Preset(_TRINITY, "REC clip_mode=ring, weight=none", _rec("ring", "none")),
    Preset(_TRINITY, "REC clip_mode=gspo-one-side, weight=gspo_importance_sampling", _clip(0.2, level="geometric")),
    Preset(_TRINITY, "GSPO, 3e-4 and 4e-4", _clip(3e-4, 4e-4, level="geometric")),
    Preset(_TRINITY, "CISPO, clip_range_high 0.28", _cispo(0.28)),
    Preset(_TRINITY, "SAPO, 1 and 1.05", _sapo(1, 1.05)),
    Preset(_TRINITY, "sPPO, epsilon 0.3", _band(1 / 1.3, 1.3, weight="none")),
    Preset(_TRINITY, "TOPR", Rule("none", {}, "tapered")),
    Preset(_TRINITY, "importance_sampling", Rule()),
    Preset(
        _TRINITY,
        "PPO sequence masking, delta 0.1",
        Rule("opposite_sign", {"delta": 0.1}),
        note="without the clip beside it",
    ),
    Preset(_AREAL, f"eps_clip {_EPS_CLIP}", _clip(_EPS_CLIP), default=True, note=_TO_SAMPLER),
    Preset(_AREAL, "rejection_sampling token, mask by ratio, upper 5", _kept(0, 5), note=_WITHOUT_STEP),
    Preset(_AREAL, "rejection_sampling token, clamp by ratio, upper 5", _decoupled(_EPS_CLIP, 5)),
    Preset(_AREAL, "rejection_sampling sequence, mask by ratio, upper 5", _masked(5, "geometric")),
    Preset(_AREAL, "rejection_sampling sequence, clamp by ratio, upper 5", _truncated(5, "geometric")),
    Preset(_AREAL, "use_sapo_loss, 1 and 1.05", _sapo(1, 1.05)),
    Preset(
        _AREAL,
        f"use_decoupled_loss, eps_clip {_EPS_CLIP}",
        Rule("incremental", {"epsilon": _EPS_CLIP}),
        note=_CLIP_WITH_WEIGHT,
    ),
    Preset(_SLIME, "--use-tis, 2.0", _decoupled(0.2, 2)),
    Preset(_SLIME, "icepop_function, 0 to 2.0", _kept(0, 2), note=_WITHOUT_STEP),
    Preset(_SLIME, "OPSM, delta 1e-4", _opsm(1e-4), note=_WITHOUT_WEIGHT),
    Preset(_SLIME, "cispo, --eps-clip 1.0 --eps-clip-high 4.0 (recommended)", _cispo(4)),
    Preset(_MILES, "--use-tis, 2.0", _decoupled(0.2, 2)),
    Preset(_MILES, "icepop_function, 0 to 2.0", _kept(0, 2), note=_WITHOUT_STEP),
    Preset(_MILES, "OPSM, delta 1e-4", _opsm(1e-4), note=_WITHOUT_WEIGHT),
    Preset(
        _PRIME,
        f"ipo loss, eps {_EPS}",
        Rule("reject_token_tv", {"difference": _EPS}),
        default=True,
        note="newer ones cap the ratio of a kept token at 10,000",
    ),
    Preset(_PRIME, "icepop loss, ratio_low 0.2, ratio_high 5", _band(0.2, 5)),
    Preset(
        _PRIME,
        "default loss before September 2026: DPPO mask on the probability difference, 0.2 and 0.2",
        _dppo(0.2, 0.2),
        note="without its penalty on the squared log-ratio",
    ),
    Preset(
        _PRIME,
        "max_off_policy_steps 8",
        Rule("window", {"max_lag": 8}),
        default=True,
        note="before the loss, beside its mask",
    ),
    Preset(_SKYRL, "tis_ratio_type=token, 2.0", _decoupled(0.2, 2)),
    Preset(_SKYRL, "tis_ratio_type=sequence, 5.0", _truncated(5, "sequence"), note=_WITHOUT_STEP),
    Preset(
        _SKYRL,
        "sequence mask geometric, 0.99 to 1.01",
        _kept(0.99, 1.01, "geometric", "incremental"),
        note=_WITHOUT_STEP,
    ),
    Preset(_SKYRL, "sequence mask product, 0.5 to 2", _kept(0.5, 2, "sequence", "incremental"), note=_WITHOUT_STEP),
    Preset(
        _SKYRL,
        "policy_loss_type=regular, 0.2",
        _decoupled(0.2),
        default=True,
        note=_CLIP_ONLY,
    ),
    Preset(_SKYRL, "policy_loss_type=rollout_is, 0.2", _band(0.8, 1.2)),
    Preset(_SKYRL, "policy_loss_type=dppo, binary_tv, 0.2", _dppo(0.2, 0.2)),
    Preset(_SKYRL, "policy_loss_type=cispo, 1.0 and 4.0", _cispo(4), note="cispo_anchor=old: on pi_theta / pi_k"),
    Preset(_SKYRL, "policy_loss_type=sapo, 1 and 1.05", _sapo(1, 1.05)),
    Preset(
        _NEMO,
        f"ClippedPG, {_RATIO_CLIP}",
        _decoupled(_RATIO_CLIP),
        default=True,
        note=_CLIP_ONLY,
    ),
    Preset(
        _NEMO,
        f"ClippedPG, {_RATIO_CLIP}, use_importance_sampling_correction",
        Rule("incremental", {"epsilon": _RATIO_CLIP}),
        note=_CLIP_WITH_WEIGHT,
    ),
    Preset(_NEMO, "tis, 2 (their examples)", _decoupled(_RATIO_CLIP, 2)),
    Preset(_NEMO, "icepop, 0.5 to 5 (their reference)", _kept(0.5, 5), note=_WITHOUT_STEP),
    Preset(
        _NEMO, "seq-mask-tis, 0.999 to 1.002 (their reference)", _kept(0.999, 1.002, "geometric"), note=_WITHOUT_STEP
    ),
    Preset(_OPEN_INSTRUCT, "use_rho_correction, upper 2.0", _truncated(2), default=True),
    Preset(_OPENRLHF, "TIS: token clip by ratio, 0.5 to 5", _clamped(0.5, 5), note="exact in the first pass"),
    Preset(_OPENRLHF, "ICEPOP: token mask by ratio, 0.5 to 5", _kept(0.5, 5), note=_WITHOUT_STEP),
    Preset(_OPENRLHF, "seq-mask-tis: seq mask by ratio, 0.5 to 5", _kept(0.5, 5, "geometric"), note=_WITHOUT_STEP),
    Preset(_TINKER, "importance_sampling", Rule(), default=True),
    Preset(_TINKER, "ppo, 0.8 to 1.2", _clip(0.2), note=_TO_SAMPLER),
    Preset(_TINKER, "cispo, 0 to 4", _cispo(3)),
    Preset(_ROLL, "is_weight token, cap 1.2", _truncated(1.2)),
    Preset(_ROLL, "is_weight geometric, cap 1.2", _truncated(1.2, "geometric")),
    Preset(_ROLL, "is_weight sequence, cap 1.2", _truncated(1.2, "sequence")),
    Preset(_ROLL, "filter token ratio, 0.8 to 1.2", _band(0.8, 1.2, "token", "none"), note=_WITHOUT_WEIGHT),
    Preset(_ROLL, "filter geometric ratio, 0.8 to 1.2", _band(0.8, 1.2, "geometric", "none"), note=_WITHOUT_WEIGHT),
    Preset(_ROLL, "filter sequence ratio, 0.8 to 1.2", _band(0.8, 1.2, "sequence", "none"), note=_WITHOUT_WEIGHT),
)
