"""NeMo-RL: ClippedPGLossFn."""

from math import log

import numpy as np

from ratioscope.analysis.frameworks.definition import (
    FLOAT32_LIMIT,
    Dialect,
    Parameters,
    StepTokens,
    TheirNumber,
    beyond,
    clamp,
    exp_of,
    k3,
    mean,
)
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.tails import Array


def _multiplicative_error(tokens: StepTokens) -> Array:
    return exp_of(np.abs(tokens.log_rho))


def _weights(tokens: StepTokens) -> Array:
    """Token weights as they repair them: what is not finite counts as 0."""
    weights = exp_of(tokens.log_rho)
    return np.where(np.isfinite(weights), weights, 0.0)


def _jensen_shannon_term(tokens: StepTokens) -> Array:
    mixture = np.logaddexp(tokens.current, tokens.behavior) - log(2)
    return (k3(tokens.current - mixture) + k3(tokens.behavior - mixture)) / 2


def _clamped_ratio(tokens: StepTokens, parameters: Parameters) -> Array:
    return np.clip(exp_of(tokens.log_r), 1 - parameters["ratio_clip_min"], 1 + parameters["ratio_clip_max"])


def _penalty_term(tokens: StepTokens) -> Array:
    return np.clip(k3(clamp(tokens.reference - tokens.gate)), -10, 10)


def _age(tokens: StepTokens) -> Array:
    """Age of each sequence's oldest token, (n_sequences,)."""
    age = np.full(len(tokens.lengths), -np.inf)
    np.maximum.at(age, tokens.sequence, tokens.lag)
    return age


_RATIO = "Current over prev (the start of the update), not over the sampler; means of micro-batches are summed up."
_ERROR = "Both directions count as enlargement: 1 on-policy, about 1 + 2 S_k near it, and never below 1."
_SEQUENCE = f"{_ERROR} Mean inside a sequence first."

DIALECT = Dialect(
    framework=FRAMEWORKS["nemo_rl"],
    settings="token-level ratios, no truncated importance sampling (their default), ratio_clip 0.2 on both sides; the "
    "KL penalty is k3, its input clamped to ±20 and itself to ±10",
    rows=(
        TheirNumber(
            "token_mult_prob_error", "token mean of e^|log prev - log generation|", _ERROR,
            lambda t, p: mean(_multiplicative_error(t)), ours="s_k",
        ),
        TheirNumber(
            "gen_kl_error", "token mean of ρ - log ρ - 1",
            "The same as our k3 of KL(behavior || current).",
            lambda t, p: mean(k3(t.log_rho)), ours="kl_k3", same=True,
        ),
        TheirNumber(
            "policy_kl_error", "token mean of 1/ρ + log ρ - 1",
            "Meant as KL(current || behavior), but from tokens of the sampler without weights: biased, and infinite "
            "where a ratio is 0.",
            lambda t, p: mean(k3(-t.log_rho)), ours="kl_reverse",
        ),
        TheirNumber(
            "js_divergence_error", "token mean of half k3 of either policy to their mixture",
            "From tokens of the sampler only and with k3 turned round: not the Jensen-Shannon divergence, not bounded "
            "by log 2.",
            lambda t, p: mean(_jensen_shannon_term(t)), instead="s_k_bounded",
        ),
        TheirNumber(
            "sampling_importance_ratio", "token mean of ρ; infinite ones count as 0",
            "The same while float32 holds; beyond a log-ratio of 88.7 the largest weights turn into 0. With truncation "
            "on, theirs is of the truncated weights (NeMo-RL #3900).",
            lambda t, p: mean(_weights(t)), ours="ratio_mean", clamped=lambda t, p: t.log_rho > FLOAT32_LIMIT,
            same=True,
        ),
        TheirNumber(
            "probs_ratio", "token mean of current over prev", _RATIO,
            lambda t, p: mean(exp_of(t.log_r)), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "probs_ratio_min", "smallest current over prev", _RATIO,
            lambda t, p: float(exp_of(t.log_r).min()), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "probs_ratio_max", "largest current over prev", _RATIO,
            lambda t, p: float(exp_of(t.log_r).max()), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "probs_ratio_clamped", "token mean of current over prev, clamped to the clip range",
            f"{_RATIO} Clamped whatever the advantage's sign; no clip fraction is logged.",
            lambda t, p: mean(_clamped_ratio(t, p)), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "probs_ratio_clamped_min", "smallest current over prev, clamped to the clip range", _RATIO,
            lambda t, p: float(_clamped_ratio(t, p).min()), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "probs_ratio_clamped_max", "largest current over prev, clamped to the clip range", _RATIO,
            lambda t, p: float(_clamped_ratio(t, p).max()), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "approx_entropy", "minus the token mean of (current over generation) log current",
            "A Monte Carlo estimate with importance weights, of the policy at the last pass; ours is the logged one.",
            lambda t, p: -mean(exp_of(t.gate - t.behavior) * t.gate), ours="entropy", needs=("gate",),
        ),
        TheirNumber(
            "kl_penalty", "token mean of k3 to the reference, its input clamped to ±20 and itself to ±10",
            "Not importance-weighted to the current policy, whose KL it is meant to be; the clamp on k3 biases it.",
            lambda t, p: float(np.nanmean(_penalty_term(t))), ours="kl_to_reference", needs=("reference", "gate"),
            clamped=lambda t, p: beyond(t.reference - t.gate) | (_penalty_term(t) >= 10),
        ),
        TheirNumber(
            "mean_seq_mult_prob_error", "sequence mean of the mean e^|log prev - log generation|", _SEQUENCE,
            lambda t, p: mean(t.means(_multiplicative_error(t))), ours="s_k",
        ),
        TheirNumber(
            "max_seq_mult_prob_error", "largest mean e^|log prev - log generation| of a sequence", _SEQUENCE,
            lambda t, p: float(t.means(_multiplicative_error(t)).max()), instead="s_k_bounded",
        ),
        TheirNumber(
            "min_seq_mult_prob_error", "smallest mean e^|log prev - log generation| of a sequence", _SEQUENCE,
            lambda t, p: float(t.means(_multiplicative_error(t)).min()), instead="s_k_bounded",
        ),
        TheirNumber(
            "avg_trajectory_age", "sequence mean of the current version - the sampling version",
            "Sequences count the same whatever their length, and one of several versions counts by its oldest.",
            lambda t, p: mean(_age(t)), ours="version_lag",
        ),
    ),
    not_reproducible={
        "is_oob_ratio": "logged with truncated importance sampling only, off by default",
        "*_seq_mult_prob_error_after_mask, num_masked_seqs, masked_correct_pct": "describe a sequence mask that is off "
        "by default, whose rejected sequences a log of the loss does not hold",
    },
)  # fmt: skip
