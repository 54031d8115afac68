"""Every number of every framework as a plain loop over the tokens of a step."""

import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

from tests.oracles.brute_force import is_valid, rows_of


class Batch:
    """One step as lists: b rollout, c old, g at the gradient pass, f reference; `sequences` are lists of token rows."""

    def __init__(self, folder: Path, step: int, also: Callable[[Any], bool] = lambda row: True) -> None:
        self.rows = [row for row in rows_of(folder, "tokens") if row["step"] == step and is_valid(row) and also(row)]
        for row in self.rows:
            row["b"], row["c"] = row["logp_behavior"], row["logp_current"]
            row["g"] = row["c"] if row.get("logp_gate") is None else row["logp_gate"]
            row["f"], row["A"] = row["logp_reference"], row["advantage"]
            row["l"], row["r"] = row["c"] - row["b"], row["g"] - row["c"]
            # Who evaluates the old policy when it samples.
            sampled = row["c"] if row.get("logp_behavior_train") is None else row["logp_behavior_train"]
            row["engine"], row["step_"] = sampled - row["b"], row["g"] - sampled
        grouped = defaultdict(list)
        for row in self.rows:
            grouped[row["seq_id"]].append(row)
        self.sequences = list(grouped.values())
        self.logged = [row for row in rows_of(folder, "sequences") if row["step"] == step]

    def tokens(self, term: Callable[[Any], float]) -> list[float]:
        return [float(term(row)) for row in self.rows]

    def mean(self, term: Callable[[Any], float]) -> float:
        return fmean(self.tokens(term))

    def by_sequence(self, term: Callable[[Any], float], among: Callable[[Any], bool] = lambda row: True) -> list[float]:
        """Mean inside each sequence of the tokens `among` accepts, 0 where there is none."""
        chosen = [[float(term(row)) for row in rows if among(row)] for rows in self.sequences]
        return [fmean(values) if values else 0.0 for values in chosen]

    def log_weights(self) -> list[float]:
        return [math.fsum(row["l"] for row in rows) for rows in self.sequences]


def bound(x: float) -> float:
    return max(-20.0, min(20.0, x))


def k3(x: float) -> float:
    return math.exp(x) - x - 1


def weight(row: Any) -> float:
    return min(math.exp(bound(row["l"])), 2.0)


def signed(row: Any, log_ratio: float) -> int:
    """Which bound of PPO's clip at 0.2 stops the token: -1, 0 or +1, by comparing the two branches of the loss."""
    ratio = math.exp(log_ratio)
    plain, clipped = -row["A"] * ratio, -row["A"] * min(max(ratio, 0.8), 1.2)
    return 0 if not clipped > plain else (1 if row["A"] > 0 else -1)


def ess(weights: list[float]) -> float:
    return fmean(weights) ** 2 / fmean(w * w for w in weights)


def difference(row: Any) -> float:
    return abs(math.exp(row["b"]) - math.exp(row["c"]))


def correlation(batch: Batch) -> float:
    x, y = batch.tokens(lambda row: math.exp(row["b"])), batch.tokens(lambda row: math.exp(row["c"]))
    over = fmean(p * q for p, q in zip(x, y, strict=True)) - fmean(x) * fmean(y)
    return over / (pstdev(x) * pstdev(y))


def perplexity_differences(batch: Batch) -> list[float]:
    return batch.by_sequence(lambda row: row["b"] - row["c"])


def masked_weights(batch: Batch) -> list[float]:
    weights = [math.exp(math.fsum(row["engine"] for row in rows)) for rows in batch.sequences]
    return [w if w <= 3.0 else 0.0 for w in weights]


def without_spread(batch: Batch) -> float:
    rewards = defaultdict(list)
    for row in batch.logged:
        rewards[row["group_id"]].append(row["reward"])
    samples = [len(set(values)) == 1 and len(values) > 1 for values in rewards.values() for _ in values]
    return fmean(map(float, samples))


def jensen_shannon(row: Any) -> float:
    mixture = math.log((math.exp(row["b"]) + math.exp(row["c"])) / 2)
    return (k3(row["c"] - mixture) + k3(row["b"] - mixture)) / 2


def reference_term(row: Any) -> float:
    return min(k3(bound(row["f"] - row["g"])), 10.0)


def moved_too_far(row: Any) -> bool:
    """prime-rl's IPO."""
    return abs(math.exp(row["g"]) - math.exp(row["b"])) > 0.3


def moved_with_the_advantage(row: Any) -> bool:
    """prime-rl's DPPO, with the bounds that `OF_LOSSES` gives it."""
    moved = math.exp(row["g"]) - math.exp(row["b"])
    return bool(moved > 0.05 if row["A"] > 0 else moved < -0.1)


def outside_of_the_band(row: Any) -> bool:
    """prime-rl's IcePop."""
    return not 0.7 <= math.exp(row["g"] - row["b"]) <= 1.5


def mismatch(row: Any) -> float:
    return k3(row["g"] - row["b"])


def entropy(row: Any) -> float:
    return float(row["entropy"])


def error(row: Any) -> float:
    return math.exp(abs(row["l"]))


def clamped_ratio(row: Any) -> float:
    return min(max(math.exp(row["r"]), 0.8), 1.2)


ORACLE: dict[str, dict[str, Callable[[Batch], float]]] = {
    "verl": {
        "rollout_corr/kl": lambda s: s.mean(lambda row: row["b"] - row["c"]),
        "rollout_corr/k3_kl": lambda s: s.mean(lambda row: k3(row["l"])),
        "rollout_corr/chi2_token": lambda s: s.mean(lambda row: math.exp(bound(row["l"])) ** 2) - 1,
        "rollout_corr/chi2_seq": lambda s: fmean(math.exp(bound(w)) ** 2 for w in s.log_weights()) - 1,
        "rollout_corr/training_ppl": lambda s: fmean(math.exp(-m) for m in s.by_sequence(lambda row: row["c"])),
        "rollout_corr/training_log_ppl": lambda s: -fmean(s.by_sequence(lambda row: row["c"])),
        "rollout_corr/rollout_ppl": lambda s: fmean(math.exp(-m) for m in s.by_sequence(lambda row: row["b"])),
        "rollout_corr/rollout_log_ppl": lambda s: -fmean(s.by_sequence(lambda row: row["b"])),
        "rollout_corr/log_ppl_diff": lambda s: fmean(perplexity_differences(s)),
        "rollout_corr/log_ppl_abs_diff": lambda s: fmean(map(abs, perplexity_differences(s))),
        "rollout_corr/log_ppl_diff_max": lambda s: max(perplexity_differences(s)),
        "rollout_corr/log_ppl_diff_min": lambda s: min(perplexity_differences(s)),
        "rollout_corr/ppl_ratio": lambda s: fmean(map(math.exp, perplexity_differences(s))),
        "rollout_corr/rollout_is_mean": lambda s: s.mean(weight),
        "rollout_corr/rollout_is_std": lambda s: pstdev(s.tokens(weight)),
        "rollout_corr/rollout_is_eff_sample_size": lambda s: ess(s.tokens(weight)),
        "rollout_corr/rollout_is_max": lambda s: max(s.tokens(weight)),
        "rollout_corr/rollout_is_min": lambda s: min(s.tokens(weight)),
        "rollout_corr/rollout_is_ratio_fraction_high": lambda s: s.mean(lambda row: row["l"] > math.log(2)),
        "rollout_corr/rollout_is_ratio_fraction_low": lambda s: s.mean(lambda row: row["l"] < -math.log(2)),
        "rollout_corr/rollout_is_seq_mean": lambda s: fmean(s.by_sequence(weight)),
        "rollout_corr/rollout_is_seq_std": lambda s: stdev(s.by_sequence(weight)),
        "rollout_corr/rollout_is_seq_max": lambda s: max(s.by_sequence(weight)),
        "rollout_corr/rollout_is_seq_min": lambda s: min(s.by_sequence(weight)),
        "rollout_corr/rollout_is_seq_max_deviation": lambda s: max(abs(w - 1) for w in s.by_sequence(weight)),
        "rollout_corr/rollout_is_seq_fraction_high": lambda s: fmean(
            float(w > 2) for w in s.by_sequence(lambda row: math.exp(bound(row["l"])))
        ),
        "rollout_corr/rollout_is_seq_fraction_low": lambda s: fmean(
            float(w < 0.5) for w in s.by_sequence(lambda row: math.exp(bound(row["l"])))
        ),
        "training/rollout_probs_diff_mean": lambda s: s.mean(difference),
        "training/rollout_probs_diff_max": lambda s: max(s.tokens(difference)),
        "training/rollout_probs_diff_std": lambda s: stdev(s.tokens(difference)),
        "training/rollout_actor_probs_pearson_corr": correlation,
        "actor/pg_clipfrac": lambda s: s.mean(lambda row: signed(row, bound(row["r"])) != 0),
        "actor/pg_clipfrac_lower": lambda s: s.mean(lambda row: row["A"] < 0 and math.exp(bound(row["r"])) > 3),
        "actor/ppo_kl": lambda s: s.mean(lambda row: bound(row["c"] - row["g"])),
        "actor/entropy": lambda s: s.mean(entropy),
        "actor/kl_loss": lambda s: s.mean(reference_term),
    },
    "trl": {
        "sampling/sampling_logp_difference/mean": lambda s: s.mean(lambda row: abs(row["engine"])),
        "sampling/sampling_logp_difference/max": lambda s: max(s.tokens(lambda row: abs(row["engine"]))),
        "sampling/importance_sampling_ratio/mean": lambda s: fmean(masked_weights(s)),
        "sampling/importance_sampling_ratio/min": lambda s: min(masked_weights(s)),
        "sampling/importance_sampling_ratio/max": lambda s: max(masked_weights(s)),
        "clip_ratio/low_mean": lambda s: s.mean(lambda row: signed(row, row["step_"]) < 0),
        "clip_ratio/high_mean": lambda s: s.mean(lambda row: signed(row, row["step_"]) > 0),
        "clip_ratio/region_mean": lambda s: s.mean(lambda row: signed(row, row["step_"]) != 0),
        "clip_ratio/low_min": lambda s: min(s.by_sequence(lambda row: signed(row, row["step_"]) < 0)),
        "clip_ratio/high_max": lambda s: max(s.by_sequence(lambda row: signed(row, row["step_"]) > 0)),
        "kl": lambda s: s.mean(lambda row: math.exp(row["step_"]) * k3(row["f"] - row["g"])),
        "entropy": lambda s: s.mean(entropy),
        "frac_reward_zero_std": without_spread,
        "completions/mean_length": lambda s: fmean(float(row["n_tokens"]) for row in s.logged),
    },
    "areal": {
        "importance_weight/avg": lambda s: s.mean(lambda row: math.exp(row["r"])),
        "importance_weight/min": lambda s: min(s.tokens(lambda row: math.exp(row["r"]))),
        "importance_weight/max": lambda s: max(s.tokens(lambda row: math.exp(row["r"]))),
        "approx_kl/avg": lambda s: s.mean(lambda row: row["g"] - row["c"]),
        "new_logp/avg": lambda s: s.mean(lambda row: row["g"]),
        "old_logp/avg": lambda s: s.mean(lambda row: row["b"]),
        "entropy/avg": lambda s: s.mean(entropy),
        "clip_ratio/avg": lambda s: s.mean(lambda row: signed(row, row["r"]) != 0),
        "behave_imp_weight/avg": lambda s: s.mean(lambda row: math.exp(row["l"])),
        "behave_imp_weight/min": lambda s: min(s.tokens(lambda row: math.exp(row["l"]))),
        "behave_imp_weight/max": lambda s: max(s.tokens(lambda row: math.exp(row["l"]))),
        "behave_approx_kl/avg": lambda s: s.mean(lambda row: row["c"] - row["b"]),
        "compute_logp/kl_div_direct/avg": lambda s: s.mean(lambda row: row["b"] - row["g"]),
        "compute_logp/kl_div_taylor/avg": lambda s: s.mean(lambda row: (row["g"] - row["b"]) ** 2 / 2),
        "compute_logp/kl_div_dual/avg": lambda s: s.mean(mismatch),
        "version_stats/sample_staleness_proximal_avg": lambda s: s.mean(
            lambda row: row["step"] - row["behavior_version"]
        ),
        "version_stats/sample_staleness_theta_avg": lambda s: s.mean(
            lambda row: row["step"] + 1 - row["behavior_version"]
        ),
    },
    "nemo_rl": {
        "token_mult_prob_error": lambda s: s.mean(error),
        "gen_kl_error": lambda s: s.mean(lambda row: k3(row["c"] - row["b"])),
        "policy_kl_error": lambda s: s.mean(lambda row: k3(row["b"] - row["c"])),
        "js_divergence_error": lambda s: s.mean(jensen_shannon),
        "sampling_importance_ratio": lambda s: s.mean(lambda row: math.exp(row["l"])),
        "probs_ratio": lambda s: s.mean(lambda row: math.exp(row["r"])),
        "probs_ratio_min": lambda s: min(s.tokens(lambda row: math.exp(row["r"]))),
        "probs_ratio_max": lambda s: max(s.tokens(lambda row: math.exp(row["r"]))),
        "probs_ratio_clamped": lambda s: s.mean(clamped_ratio),
        "probs_ratio_clamped_min": lambda s: min(s.tokens(clamped_ratio)),
        "probs_ratio_clamped_max": lambda s: max(s.tokens(clamped_ratio)),
        "approx_entropy": lambda s: -s.mean(lambda row: math.exp(row["g"] - row["b"]) * row["g"]),
        "kl_penalty": lambda s: s.mean(reference_term),
        "mean_seq_mult_prob_error": lambda s: fmean(s.by_sequence(error)),
        "max_seq_mult_prob_error": lambda s: max(s.by_sequence(error)),
        "min_seq_mult_prob_error": lambda s: min(s.by_sequence(error)),
        "avg_trajectory_age": lambda s: fmean(
            max(float(row["step"] - row["behavior_version"]) for row in rows) for rows in s.sequences
        ),
    },
    "prime_rl": {
        "mismatch_kl/all/mean": lambda s: s.mean(mismatch),
        "mismatch_kl/all/std": lambda s: stdev(s.tokens(mismatch)),
        "mismatch_kl/all/max": lambda s: max(s.tokens(mismatch)),
        "masked_mismatch_kl/mean": lambda s: fmean(s.by_sequence(mismatch, moved_too_far)),
        "unmasked_mismatch_kl/mean": lambda s: fmean(s.by_sequence(mismatch, lambda row: not moved_too_far(row))),
        "is_masked/mean": lambda s: fmean(s.by_sequence(moved_too_far)),
        "entropy/all/mean": lambda s: s.mean(entropy),
        "kl_ent_ratio/mean": lambda s: s.mean(mismatch) / s.mean(entropy),
    },
}


def masks(masked: Callable[[Any], bool]) -> dict[str, Callable[[Batch], float]]:
    return {
        "masked_mismatch_kl/mean": lambda s: fmean(s.by_sequence(mismatch, masked)),
        "unmasked_mismatch_kl/mean": lambda s: fmean(s.by_sequence(mismatch, lambda row: not masked(row))),
        "is_masked/mean": lambda s: fmean(s.by_sequence(masked)),
    }


def directed(masked: Callable[[Any], bool]) -> dict[str, Callable[[Batch], float]]:
    return {
        "is_masked_low/mean": lambda s: fmean(s.by_sequence(lambda row: row["A"] < 0 and masked(row))),
        "is_masked_high/mean": lambda s: fmean(s.by_sequence(lambda row: row["A"] > 0 and masked(row))),
        "masked_advantage_positive/mean": lambda s: fmean(s.by_sequence(lambda row: row["A"] > 0, masked)),
        "masked_advantage_negative/mean": lambda s: fmean(s.by_sequence(lambda row: row["A"] < 0, masked)),
    }


def response_ratio(rows: list[Any]) -> float:
    return math.exp(fmean(row["step_"] for row in rows))


def product(rows: list[Any]) -> float:
    return math.exp(math.fsum(row["step_"] for row in rows))


def gamma_kernels(batch: Batch) -> list[float]:
    """VESPO's weight of each response with 2, 3 and 4, 1; the ratio against the engine is cut at 1.05."""
    found = []
    for rows in batch.sequences:
        good = fmean(row["A"] for row in rows) >= 0
        power, decay = (2.0, 3.0) if good else (4.0, 1.0)
        weight = product(rows) * math.prod(min(math.exp(row["engine"]), 1.05) for row in rows)
        found.append(math.exp(decay) * weight**power * math.exp(-decay * weight))
    return found


def clipped_responses(
    batch: Batch, side: int, response_ratio: Callable[[list[Any]], float] = response_ratio
) -> list[float]:
    """Whether a response is clipped, by the geometric mean of its ratios by default, with bounds 0.9 and 1.3."""
    found = []
    for rows in batch.sequences:
        advantage = fmean(row["A"] for row in rows)
        low, high = advantage < 0 and response_ratio(rows) < 0.9, advantage > 0 and response_ratio(rows) > 1.3
        found.append(float(low if side < 0 else high if side > 0 else low or high))
    return found


def truncated(batch: Batch) -> list[float]:
    return [min(math.exp(row["engine"]), 1.05) for row in batch.rows]


_ONE_SIDE = {"gate": "one_side_on_recomputed", "weight": "ratio", "level": "token"}

OF_LOSSES: dict[str, tuple[str, dict[str, Any], dict[str, Callable[[Batch], float]]]] = {
    "DPPO": (
        "prime_rl",
        {"source": {"framework": "prime-rl"},
         "algorithm": {"name": "grpo", "parameters": {"dppo_mask_low": 0.1, "dppo_mask_high": 0.05}}},
        masks(moved_with_the_advantage) | directed(moved_with_the_advantage),
    ),
    "IcePop": (
        "prime_rl",
        {"source": {"framework": "prime-rl"},
         "algorithm": {"name": "grpo (icepop loss)", "parameters": {"ratio_low": 0.7, "ratio_high": 1.5}}},
        masks(outside_of_the_band),
    ),
    "CISPO": (
        "trl",
        {"source": {"framework": "TRL"},
         "algorithm": {"name": "cispo", "parts": {"weight": "upper_clipped", "level": "token"},
                       "parameters": {"epsilon_high": 0.1}}},
        {"cispo_clip_ratio": lambda s: s.mean(lambda row: row["A"] > 0 and math.exp(row["step_"]) > 1.1)},
    ),
    "GSPO": (
        "trl",
        {"source": {"framework": "TRL"},
         "algorithm": {"name": "gspo", "parts": _ONE_SIDE | {"level": "geometric"},
                       "parameters": {"epsilon_low": 0.1, "epsilon_high": 0.3}}},
        {
            "clip_ratio/low_mean": lambda s: fmean(clipped_responses(s, -1)),
            "clip_ratio/high_mean": lambda s: fmean(clipped_responses(s, 1)),
            "clip_ratio/region_mean": lambda s: fmean(clipped_responses(s, 0)),
            "clip_ratio/low_min": lambda s: min(clipped_responses(s, -1)),
            "clip_ratio/high_max": lambda s: max(clipped_responses(s, 1)),
        },
    ),
    "RLOO": (
        "trl",
        {"source": {"framework": "TRL"},
         "algorithm": {"name": "rloo", "parts": _ONE_SIDE | {"level": "sequence"},
                       "parameters": {"epsilon_low": 0.1, "epsilon_high": 0.3}}},
        {
            "clip_ratio/low_mean": lambda s: fmean(clipped_responses(s, -1, product)),
            "clip_ratio/high_mean": lambda s: fmean(clipped_responses(s, 1, product)),
            "clip_ratio/region_mean": lambda s: fmean(clipped_responses(s, 0, product)),
            "clip_ratio/low_min": lambda s: min(clipped_responses(s, -1, product)),
            "clip_ratio/high_max": lambda s: max(clipped_responses(s, 1, product)),
        },
    ),
    "VESPO, corrected": (
        "trl",
        {"source": {"framework": "TRL"},
         "algorithm": {"name": "vespo", "parts": {"weight": "gamma_kernel_corrected", "level": "sequence"},
                       "parameters": {"power_negative": 4, "decay_negative": 1,
                                      "vllm_importance_sampling_mode": "token_truncate",
                                      "vllm_importance_sampling_clip_max": 1.05}}},
        {"vespo/phi_seq_mean": lambda s: fmean(gamma_kernels(s))},
    ),
    "GRPO, token_truncate, no bias correction": (
        "trl",
        {"source": {"framework": "TRL"},
         "algorithm": {"name": "grpo", "parts": _ONE_SIDE,
                       "parameters": {"epsilon_low": 0.2, "epsilon_high": 0.2, "reference_kl_estimator": "k3",
                                      "vllm_importance_sampling_mode": "token_truncate",
                                      "vllm_importance_sampling_clip_max": 1.05}}},
        {
            "kl": lambda s: s.mean(lambda row: k3(row["f"] - row["g"])),
            "sampling/importance_sampling_ratio/mean": lambda s: fmean(truncated(s)),
            "sampling/importance_sampling_ratio/min": lambda s: min(truncated(s)),
            "sampling/importance_sampling_ratio/max": lambda s: max(truncated(s)),
            "clip_ratio/region_mean": lambda s: s.mean(lambda row: signed(row, row["step_"]) != 0),
        },
    ),
}  # fmt: skip
"""A loss that a manifest names: whose it is, the manifest, and the numbers that it changes."""
