"""The rows of the catalogue that come from the field: what frameworks and papers outside of the seeds train with.

Where a row names a framework its defaults are those of that framework, in the release that `source` names.
"""

from ratioscope.trainer.algorithms.algorithm import Algorithm, values

_CLIP = values(epsilon_low=0.2, epsilon_high=0.2)
_TOKENS = "token mean over the batch; group mean as advantage"
_FOUR = "four passes per update, because a clip anchored at pi_k cannot bind in the first"
_OLD = "the old policy of ratios and clip is the one that sampled"

ROWS = (
    # Clips and masks on the ratio to the sampler.
    Algorithm(
        "grpo_dual_clip", "GRPO with dual clip", "Ye et al. 2020; verl 0.9.1 clip_ratio_c = 3, TRL's delta",
        "((r_i - r̄)/σ_r) ρ_θ M 1[A > 0 or ρ_θ ≤ c] ∇log π_θ",
        advantage="group_normalised", weight="ratio", gate="dual_clip", parameters=values(**_CLIP, dual=3.0),
        differs=f"{_OLD}; TRL sets no delta by default",
    ),
    Algorithm(
        "dppo_tv", "DPPO, binary TV", "Qi et al. 2026; verl's example of dppo_tv, threshold 0.15",
        "(r_i - r̄) ρ_θ 1[|π_θ - behavior| ≤ Δ on the advantage's side] ∇log π_θ / T_max",
        advantage="group_mean", weight="ratio", filter="probability_difference", aggregation="longest_mean",
        parameters=values(difference_low=0.15, difference_high=0.15),
        differs="without verl's cap on the weight, clip_ratio_c",
    ),
    Algorithm(
        "dppo_kl", "DPPO, binary KL", "Qi et al. 2026; verl's example of dppo_kl, threshold 0.05",
        "(r_i - r̄) ρ_θ 1[binary KL ≤ threshold on the advantage's side] ∇log π_θ / T_max",
        advantage="group_mean", weight="ratio", filter="binary_divergence", aggregation="longest_mean",
        parameters=values(threshold=0.05),
        differs="without verl's cap on the weight, clip_ratio_c; probabilities are kept 1e-6 away from 0 and 1",
    ),
    Algorithm(
        "prime_rl", "prime-rl's default loss before September 2026",
        "prime-rl 559b447, default_loss_fn: DPPO's TV, Kimi K2.5's pull",
        "((r_i - r̄) ρ_θ 1[|π_θ - behavior| ≤ Δ on the advantage's side] - τ log ρ_θ) ∇log π_θ",
        advantage="group_mean", weight="ratio", filter="probability_difference", regulariser="squared_token_log_ratio",
        parameters=values(difference_low=0.2, difference_high=0.2, tau=2e-3),
        differs="τ is twice its kl_tau of 1e-3, because the penalty here is halved",
    ),
    Algorithm(
        "prime_rl_ipo", "prime-rl's ipo loss", "prime-rl 559b447, ipo_loss_fn",
        "((r_i - r̄) ρ_θ 1[|π_θ - behavior| ≤ Δ] - τ log ρ_θ) ∇log π_θ",
        advantage="group_mean", weight="ratio", filter="reject_token_tv", regulariser="squared_token_log_ratio",
        parameters=values(difference=0.1, tau=2e-3),
        differs="τ is twice its kl_tau of 1e-3, because the penalty here is halved; since September 2026 Δ is 0.3, τ 0",
    ),
    Algorithm(
        "opsm", "GRPO with opposite-sign masking", "DeepSeek-V3.2; Trinity-RFT's sequence masking, delta 0.1",
        "((r_i - r̄)/σ_r) ρ_θ M 1[A > 0 or mean of -log ρ_θ ≤ δ] ∇log π_θ",
        advantage="group_normalised", weight="ratio", gate="one_side", filter="opposite_sign",
        parameters=values(**_CLIP, delta=0.1), differs="DeepSeek gives no δ; slime's is 1e-4",
    ),
    Algorithm(
        "reject_k3", "PPO clip with rejection of responses by k3", "verl 0.9.1 bypass_ppo_clip_k3_rs, threshold 0.01",
        "((r_i - r̄)/σ_r) ρ_θ M 1[mean k3 ≤ threshold] ∇log π_θ",
        advantage="group_normalised", weight="ratio", gate="one_side", filter="reject_mean_k3",
        parameters=values(**_CLIP, threshold=0.01), differs="a rejected token still counts in the token mean",
    ),
    Algorithm(
        "m2po", "M2PO", "Zheng et al. 2025 as Trinity-RFT 3a41dc2 has it, threshold 0.04",
        "((r_i - r̄)/σ_r) ρ_θ M_2 ∇log π_θ",
        advantage="group_normalised", weight="ratio", filter="second_moment", parameters=values(moment=0.04),
        differs="tokens of equal ratio are dropped together",
    ),
    Algorithm(
        "topr", "TOPR", "Le Roux et al. 2025; Trinity-RFT 0.6.0",
        "(r_i - r̄) min(W_θ, 1)^1[A < 0] ∇log π_θ, W_θ = Π_t ρ_θ",
        advantage="group_mean", level="sequence", weight="tapered",
        differs=f"{_TOKENS}, where the source takes the reward itself; Trinity-RFT truncates the ratios of tokens",
    ),
    Algorithm(
        "snis", "Self-normalised importance sampling", "S4 remark 1.3",
        "(r_i - r̄) W_θ ∇log π_θ / Σ W_θ",
        advantage="group_mean", level="sequence", weight="ratio", aggregation="self_normalised",
        differs="a response has as many shares in both sums as it has tokens",
    ),
    # Recomputed old log-probs: clip on π_θ/π_k, and a weight for how old π_k's data are.
    Algorithm(
        "decoupled_tis", "Recomputed log-probs with truncated staleness weights",
        "verl 0.9.1 decoupled_token_is, threshold 2; AReaL 1.0.4 use_decoupled_loss with clamp",
        "((r_i - r̄)/σ_r) min(ρ_k, C) r 1[|r - 1| ≤ ε on the advantage's side] ∇log π_θ, r = π_θ/π_k",
        advantage="group_normalised", weight="truncated_staleness", gate="incremental", epochs=4,
        parameters=values(epsilon=0.2, cap=2.0), differs=f"{_FOUR}; AReaL's cap is 5",
    ),
    Algorithm(
        "decoupled_seq_tis", "Recomputed log-probs with truncated weights of responses",
        "verl 0.9.1 decoupled_seq_is, threshold 2",
        "((r_i - r̄)/σ_r) min(Π ρ_k, C) r 1[|r - 1| ≤ ε on the advantage's side] ∇log π_θ",
        advantage="group_normalised", weight="truncated_sequence_staleness", gate="incremental", epochs=4,
        parameters=values(epsilon=0.2, cap=2.0), differs=_FOUR,
    ),
    Algorithm(
        "icepop", "IcePop", "Zhao et al. 2025 (Ant Group); NeMo-RL's and OpenRLHF's icepop, 0.5 to 5",
        "((r_i - r̄)/σ_r) ρ_k 1[α ≤ ρ_k ≤ β] r 1[|r - 1| ≤ ε on the advantage's side] ∇log π_θ",
        advantage="group_normalised", weight="ratio", filter="staleness_band", gate="incremental", epochs=4,
        parameters=values(epsilon=0.2, floor=0.5, cap=5.0), differs=_FOUR,
    ),
    Algorithm(
        "seq_mask", "Recomputed log-probs with masked weights of responses",
        "TRL 1.16 vllm_importance_sampling_mode = sequence_mask, clip_max 3",
        "((r_i - r̄)/σ_r) Π ρ_k 1[Π ρ_k ≤ C] r 1[|r - 1| ≤ ε on the advantage's side] ∇log π_θ",
        advantage="group_normalised", weight="truncated_sequence_staleness", filter="sequence_staleness_band",
        gate="incremental", epochs=4, parameters=values(epsilon=0.2, floor=0.0, cap=3.0), differs=_FOUR,
    ),
    Algorithm(
        "geo_mask", "Recomputed log-probs with a geometric mask on responses",
        "SkyRL 0.3.0 sequence_mask_metric = geometric, 0.99 to 1.01",
        "((r_i - r̄)/σ_r) 1[α ≤ (Π ρ_k)^(1/|y_i|) ≤ β] r 1[|r - 1| ≤ ε on the advantage's side] ∇log π_θ",
        advantage="group_normalised", weight="incremental", filter="geometric_staleness_band",
        gate="incremental", epochs=4, parameters=values(epsilon=0.2, floor=0.99, cap=1.01),
        differs=f"{_FOUR}; the bounds are made for engines that differ, and let little through of stale data",
    ),
    # Entropy.
    Algorithm(
        "clip_cov", "Clip-Cov", "Cui et al. 2025; verl 0.9.1 clip_cov, share 2e-4, bounds 1 and 5",
        "((r_i - r̄)/σ_r) ρ_θ M 1[not among the highest covariances] ∇log π_θ",
        advantage="group_normalised", weight="ratio", gate="one_side", filter="covariance_band",
        parameters=values(**_CLIP, covariance_low=1.0, covariance_high=5.0, covariance_share=2e-4),
        differs=f"the largest covariances between the bounds are dropped, not random ones; {_OLD}",
    ),
    Algorithm(
        "kl_cov", "KL-Cov", "Cui et al. 2025; verl 0.9.1 kl_cov, share 2e-4, coefficient 1",
        "(((r_i - r̄)/σ_r) ρ_θ - β sign(log ρ_θ) 1[among the highest covariances]) ∇log π_θ",
        advantage="group_normalised", weight="ratio", regulariser="covariance_kl",
        parameters=values(covariance_share=2e-4, covariance_pull=1.0), differs=_OLD,
    ),
    Algorithm(
        "top_entropy", "DAPO's loss on the tokens of the highest entropy",
        "Wang et al. 2025, share 0.2; TRL's top_entropy_quantile",
        "((r_i - r̄)/σ_r) ρ_θ M 1[H_t among the highest] ∇log π_θ",
        advantage="group_normalised", weight="ratio", gate="one_side", filter="top_entropy",
        parameters=values(epsilon_low=0.2, epsilon_high=0.28, entropy_share=0.2),
        differs="without DAPO's dynamic sampling and overlong penalty; the entropy is that of π_k",
    ),
    # Baselines.
    Algorithm(
        "rloo", "RLOO", "Ahmadian et al. 2024; verl 0.9.1 rloo", "(r_i - mean of the others' r) ∇log π_θ",
        advantage="leave_one_out", aggregation="sequence_sum",
    ),
    Algorithm(
        "remax", "ReMax", "Li et al. 2023, algorithm 1; verl 0.9.1 remax",
        "(r_i - r of the greedy response) ∇log π_θ",
        advantage="greedy_baseline", aggregation="sequence_sum",
        differs="the greedy response is of the version that sampled, as old as the schedule makes it",
    ),
    Algorithm(
        "reinforce_plus_plus", "REINFORCE++", "Hu 2025; verl 0.9.1 reinforce_plus_plus",
        "(G_t whitened over the batch) ρ_θ M ∇log π_θ",
        advantage="whitened", weight="ratio", gate="one_side", parameters=values(**_CLIP, gamma=1.0),
        differs="without its KL to the reference in the reward, which reference_kl adds",
    ),
    Algorithm(
        "gpg", "GPG", "Chu et al. 2025", "α (r_i - r̄) ∇log π_θ, α = responses / those of groups with a signal",
        advantage="signal_rescaled",
        differs="F_norm = 1; verl 0.9.1 counts the responses with a reward other than 0 instead",
    ),
    Algorithm(
        "optimal_token_baseline", "REINFORCE with the optimal token baseline", "verl 0.9.1 optimal_token_baseline",
        "(r_i - Σ_j r_j E_jt / Σ_j E_jt) ∇log π_θ, E_t = Σ_s≤t (1 - 2 π_k(y_s) + Σ_v π_k(v)²)",
        advantage="optimal_token_baseline", differs="token mean over the batch, without importance weights",
    ),
    Algorithm(
        "overlong_filter", "GRPO with overlong filtering", "S4 5.4.2, DAPO; TRL's mask_truncated_completions",
        "((r_i - r̄)/σ_r) ρ_θ M ∇log π_θ for responses with an end mark",
        advantage="group_normalised", selection="finished", weight="ratio", gate="one_side", parameters=_CLIP,
        differs="rewards of truncated responses still count in r̄ and σ_r, as in TRL",
    ),
    # OPMD's other forms.
    Algorithm(
        "opmd_token", "OPMD with a squared log-ratio of tokens",
        "S3 4.2 as its authors' code has it (Trinity-RFT's k2); verl's dro",
        "(r_i - r̄ - τ log ρ_θ) ∇log π_θ",
        advantage="group_mean", regulariser="squared_token_log_ratio", parameters=values(tau=0.1), differs=_TOKENS,
    ),
    Algorithm(
        "opmd_log_z", "OPMD with the log-Z baseline", "S3 4.2, the surrogate before r̄ stands in for τ log Z",
        "(r_i - τ log mean exp(r/τ) - τ log(π_θ(y_i)/π_old(y_i))) ∇log π_θ(y_i)",
        advantage="log_mean_exp", regulariser="squared_log_ratio", parameters=values(tau=0.1),
        differs="both terms under the token mean, and without the factor 2τ of the squared loss",
    ),
)  # fmt: skip
