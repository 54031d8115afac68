"""The catalogue: every algorithm is a declaration of parts.

All of them share one gradient,

    g = (1/norm) sum_i sum_t  w_i A_it * weight_it * gate_it * grad log pi_theta(y_it | x_i, y_i,<t)  -  grad penalty

and differ in how its factors are chosen: `advantages`, `selection`, `losses` and `regularisers` beside this module,
and on the floor `ratios.LEVELS`, `weights`, `gates` and `filters` of `ratioscope.rules`.
The rows here are those of the seeds, others are in `field_rows`.
To add an algorithm, add a row here, and a part where it brings a new one.
"""

from ratioscope.trainer.algorithms.algorithm import IDLE, PARTS, Algorithm
from ratioscope.trainer.algorithms.algorithm import values as _set
from ratioscope.trainer.algorithms.field_rows import ROWS

_CLIP = _set(epsilon_low=0.2, epsilon_high=0.2)
_RING = _set(epsilon_low=0.2, epsilon_high=0.2, outer_low=0.6, outer_high=2.0)
_CRITIC = {"gamma": 1.0, "value_coefficient": 0.5}
_TOKENS = "token mean over the batch, as in S3's experiments, instead of the sum over a group"
_OR = f"the ring is the logical OR of its bands; eq. 19 adds indicators that overlap only on a bound; {_TOKENS}"
_RESPONSES = "token mean over the batch, instead of the mean over responses"
_PASSES = "four passes per update, because a gate anchored at pi_k cannot bind in the first; group mean as advantage"

_ROWS = (
    Algorithm(
        "vanilla_pg", "Vanilla policy gradient", "S4 3.3, eq. 39", "G_t ∇log π_θ",
        advantage="reward_to_go", aggregation="sequence_sum", parameters=_set(gamma=1.0),
    ),
    Algorithm(
        "reinforce", "REINFORCE, group-relative", "S3 eq. 1", "(r_i - r̄) ∇log π_θ",
        advantage="group_mean",
        differs=_TOKENS,
    ),
    Algorithm(
        "a2c", "A2C, advantage actor-critic", "S4 3.4.2, eq. 46, 47", "(Ĝ_t - V(s_t)) ∇log π_θ",
        advantage="gae", parameters=_set(**_CRITIC, gae_lambda=1.0),
        differs="uses stale data without a correction; the critic is a head on the policy's own last layer",
    ),
    Algorithm(
        "a3c", "A3C, asynchronous advantage actor-critic", "S4 3.4.3",
        "(Ĝ_t - V(s_t)) ∇log π_θ, applied to what the weights have become",
        advantage="gae", parameters=_set(**_CRITIC, gae_lambda=1.0),
        differs="one worker applies its gradient at a time, with shared AdamW moments; with workers=0 it is a2c",
    ),
    Algorithm(
        "trpo", "TRPO", "S4 4.6, eq. 69-74", "A ρ_θ ∇log π_θ, stepped along F⁻¹g with mean KL(π_k ‖ π_θ) ≤ δ",
        advantage="group_mean", weight="ratio", step="trust_region",
        parameters=_set(max_kl=0.01, cg_steps=10, damping=0.1, shrink=0.8, line_search_steps=15),
        differs="group mean as advantage; the ratio is to the behavior policy and the KL to the current one",
    ),
    Algorithm(
        "ppo", "PPO, clipped, with a critic", "S4 4.7, eq. 78-85", "A ρ_θ M ∇log π_θ + c₂ ∇H",
        advantage="gae", weight="ratio", gate="one_side",
        parameters=_set(**_CLIP, **_CRITIC, gae_lambda=0.95, entropy_coefficient=0.01), epochs=4,
        differs="the critic is a head on the policy's own last layer",
    ),
    Algorithm(
        "ppo_kl", "PPO with adaptive KL penalty", "S4 4.7.4", "A ρ_θ ∇log π_θ - β ∇KL(π_k ‖ π_θ)",
        advantage="gae", weight="ratio", regulariser="adaptive_kl",
        parameters=_set(**_CRITIC, gae_lambda=0.95, kl_target=0.01, kl_start=1.0), epochs=4,
        differs="the KL is to the policy before the update, which under stale data is not the one that sampled",
    ),
    Algorithm(
        "grpo", "GRPO", "S4 5.3, S3 4.1", "((r_i - r̄)/σ_r) ρ_θ M ∇log π_θ",
        advantage="group_normalised", weight="ratio", gate="one_side", parameters=_CLIP,
        differs="token mean as in S3's experiments (S4 averages inside a sequence first: aggregation=sequence_mean)",
    ),
    Algorithm(
        "dr_grpo", "Dr. GRPO", "S4 5.4.1, eq. 98-100", "(r_i - r̄) ρ_θ M ∇log π_θ / T_max",
        advantage="group_mean", weight="ratio", gate="one_side", aggregation="longest_mean", parameters=_CLIP,
    ),
    Algorithm(
        "dapo", "DAPO", "S4 5.4.2, eq. 101, 102", "((r_i - r̄)/σ_r) ρ_θ M ∇log π_θ, r with the overlong penalty",
        advantage="group_normalised", selection="mixed_groups", weight="ratio", gate="one_side",
        parameters=_set(epsilon_low=0.2, epsilon_high=0.28, max_rounds=4, overlong_fraction=0.2),
        differs="after max_rounds the batch is filled up with zero-signal groups, so that no run hangs",
    ),
    Algorithm(
        "gspo", "GSPO", "S4 5.5, eq. 107-111",
        "((r_i - r̄)/σ_r) s_i M_i (1/|y_i|) ∇log π_θ, s_i = (Π_t ρ_θ)^(1/|y_i|)",
        advantage="group_normalised", level="geometric", weight="ratio", gate="one_side", aggregation="sequence_mean",
        parameters=_CLIP,
        differs="ε = 0.2 for short responses; at LLM lengths it is 3e-4 and 4e-4",
    ),
    Algorithm(
        "sapo", "SAPO", "S4 5.6, eq. 117-122", "((r_i - r̄)/σ_r) ρ_θ sech²(τ(ρ_θ - 1)/2) ∇log π_θ",
        advantage="group_normalised", weight="ratio", gate="soft", aggregation="sequence_mean",
        parameters=_set(tau_positive=1.0, tau_negative=1.05),
    ),
    Algorithm(
        "cispo", "CISPO", "S3 5, MiniMax-M1 eq. 4", "((r_i - r̄)/σ_r) min(ρ_θ, 1 + ε_high) ∇log π_θ",
        advantage="group_normalised", weight="upper_clipped", parameters=_set(epsilon_high=4.0),
    ),
    Algorithm(
        "gmpo", "GMPO", "S3 5, Zhao et al. 2025 eq. 4",
        "((r_i - r̄)/σ_r) (Π_t clip(ρ_θ))^(1/|y_i|) M (1/|y_i|) ∇log π_θ",
        advantage="group_normalised", weight="geometric_of_clipped", gate="one_side_log", aggregation="sequence_mean",
        parameters=_set(epsilon_log=0.4),
    ),
    Algorithm(
        "vespo", "VESPO", "Shen et al. 2026", "((r_i - r̄)/σ_r) W_i^k e^(λ(1 - W_i)) ∇log π_θ, W_i = Π_t ρ_θ",
        advantage="group_normalised", level="sequence", weight="gamma_kernel",
        parameters=_set(power_positive=2.0, decay_positive=3.0, power_negative=3.0, decay_negative=2.0),
    ),
    Algorithm(
        "rec_oneside_is", "REC-OneSide-IS", "S3 4.1", "(r_i - r̄) ρ_θ M ∇log π_θ",
        advantage="group_mean", weight="ratio", gate="one_side", parameters=_CLIP,
        differs=_TOKENS,
    ),
    Algorithm(
        "rec_oneside_nois", "REC-OneSide-NoIS", "S3 4.1", "(r_i - r̄) M ∇log π_θ",
        advantage="group_mean", gate="one_side", parameters=_CLIP,
        differs=_TOKENS,
    ),
    Algorithm(
        "rec_twoside_is", "REC-TwoSide-IS", "S3 B.3 eq. 18", "(r_i - r̄) ρ_θ 1[1-ε_low ≤ ρ_θ ≤ 1+ε_high] ∇log π_θ",
        advantage="group_mean", weight="ratio", gate="two_side", parameters=_CLIP,
        differs=_TOKENS,
    ),
    Algorithm(
        "rec_twoside_nois", "REC-TwoSide-NoIS", "S3 B.3 eq. 18", "(r_i - r̄) 1[1-ε_low ≤ ρ_θ ≤ 1+ε_high] ∇log π_θ",
        advantage="group_mean", gate="two_side", parameters=_CLIP,
        differs=_TOKENS,
    ),
    Algorithm(
        "rec_ring_is", "REC-Ring-IS", "S3 B.3 eq. 19", "(r_i - r̄) ρ_θ M_ring ∇log π_θ",
        advantage="group_mean", weight="ratio", gate="ring", parameters=_RING,
        differs=_OR,
    ),
    Algorithm(
        "rec_ring_nois", "REC-Ring-NoIS", "S3 B.3 eq. 19", "(r_i - r̄) M_ring ∇log π_θ",
        advantage="group_mean", gate="ring", parameters=_RING,
        differs=_OR,
    ),
    Algorithm(
        "opmd", "OPMD, Kimi's variant", "S3 4.2", "(r_i - r̄ - τ log(π_θ(y_i)/π_old(y_i))) ∇log π_θ(y_i)",
        advantage="group_mean", regulariser="squared_log_ratio", parameters=_set(tau=0.1),
        differs="both terms under the token mean",
    ),
    Algorithm(
        "asymre", "AsymRE", "S3 4.2", "(r_i - (r̄ - shift)) ∇log π_θ",
        advantage="shifted", parameters=_set(baseline_shift=0.1),
        differs=_TOKENS,
    ),
    Algorithm(
        "pairwise_reinforce", "Pairwise-weighted REINFORCE", "S3 eq. 9", "(Σ_j w_j) w_i (r_i - r̄_w) ∇log π_θ",
        advantage="pairwise", sample_weight="pair_sums",
        differs="w makes every reward value of a group weigh the same, so that rare outcomes count more",
    ),
    Algorithm(
        "red_drop", "RED-Drop", "S3 4.3 eq. 10", "(r_i - r̄_S) ∇log π_θ for i in S",
        advantage="group_mean", selection="balanced",
        differs=_TOKENS,
    ),
    Algorithm(
        "red_weight", "RED-Weight", "S3 4.3", "exp(A_i/τ) (r_i - r̄) ∇log π_θ",
        advantage="group_mean", sample_weight="exponential", parameters=_set(tau=1.0),
        differs=_TOKENS,
    ),
    Algorithm(
        "surrogate_pairs", "Pairwise consistency loss", "S3 eq. 5-7",
        "2τ/(1+τ)² (a_i - ā) ∇log π_θ(y_i), a_i = r_i - τ log(π_θ(y_i)/π_k(y_i))",
        advantage="group_mean", sample_weight="consistency", aggregation="sequence_sum",
        regulariser="pair_consistency", parameters=_set(tau=1.0), epochs=4,
        differs="four passes per update, because the first is REINFORCE",
    ),
    Algorithm(
        "adaptive_clip", "Method One, adaptive clipping", "S0 5.3-5.4",
        "A ρ_θ 1[|ρ_θ - ρ_k| ≤ ε on the advantage's side] ∇log π_θ",
        advantage="group_mean", weight="ratio", gate="adaptive", parameters=_set(epsilon=0.2), epochs=4,
        differs=_PASSES,
    ),
    Algorithm(
        "incremental_clip", "Method Two, incremental clipping (decoupled PPO)", "S0 5.3-5.4, S3 5",
        "ρ_k A r 1[|r - 1| ≤ ε on the advantage's side] ∇log π_θ, r = π_θ/π_k",
        advantage="group_mean", weight="ratio", gate="incremental", parameters=_set(epsilon=0.2), epochs=4,
        differs=_PASSES,
    ),
    Algorithm(
        "token_tis", "Token-level truncated importance sampling", "S1 7", "(r_i - r̄) min(ρ_θ, C) ∇log π_θ",
        advantage="group_mean", weight="truncated", parameters=_set(cap=2.0),
        differs=_RESPONSES,
    ),
    Algorithm(
        "seq_is", "Sequence-level importance sampling", "S1 7, S4 eq. 106", "(r_i - r̄) W_θ ∇log π_θ, W_θ = Π_t ρ_θ",
        advantage="group_mean", level="sequence", weight="ratio",
        differs=_RESPONSES,
    ),
    Algorithm(
        "seq_tis", "Sequence-level truncated importance sampling", "S1 7", "(r_i - r̄) min(W_θ, C) ∇log π_θ",
        advantage="group_mean", level="sequence", weight="truncated", parameters=_set(cap=5.0),
        differs=_RESPONSES,
    ),
    Algorithm(
        "seq_mis", "Sequence-level masked importance sampling", "S1 7", "(r_i - r̄) W_θ 1[W_θ ≤ C] ∇log π_θ",
        advantage="group_mean", level="sequence", weight="ratio", gate="masked", parameters=_set(cap=5.0),
        differs=_RESPONSES,
    ),
)  # fmt: skip

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (*_ROWS, *ROWS)}

# Other names for the same thing.
ALIASES = {"decoupled_ppo": "incremental_clip", "method_one": "adaptive_clip", "method_two": "incremental_clip"}


def algorithms_table() -> str:
    """All algorithms, a line each, with the parts that do something."""
    rows = [("name", *PARTS, "epochs", "source")]
    rows += [
        (a.name, *("." if part in IDLE else part for part in a.parts().values()), str(a.epochs), a.source)
        for a in ALGORITHMS.values()
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
