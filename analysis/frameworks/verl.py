"""verl: rollout_corr/*, training/*, actor/*."""

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.frameworks.definition import (
    Dialect,
    Parameters,
    StepTokens,
    TheirNumber,
    beyond,
    clamp,
    clipped_high,
    clipped_low,
    exp_of,
    k3,
    mean,
    std,
)
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.tails import Array


def _raw(tokens: StepTokens) -> Array:
    """Token weights before truncation."""
    return exp_of(clamp(tokens.log_rho))


def _applied(tokens: StepTokens, parameters: Parameters) -> Array:
    """Token weights after truncation."""
    return np.minimum(_raw(tokens), parameters["rollout_is_threshold"])


def _changed(tokens: StepTokens, parameters: Parameters) -> NDArray[np.bool_]:
    """Which weights are not the plain ratio any more: truncated, or at the clamp."""
    return (_raw(tokens) > parameters["rollout_is_threshold"]) | beyond(tokens.log_rho)


def _population_std(weights: Array) -> float:
    return float(np.sqrt(max(mean(weights**2) - mean(weights) ** 2, 0.0)))


def _effective_sample_size(weights: Array) -> float:
    return 1 / mean((weights / (mean(weights) + 1e-8)) ** 2)


def _log_perplexity_difference(tokens: StepTokens) -> Array:
    return tokens.means(tokens.behavior) - tokens.means(tokens.current)


def _probability_difference(tokens: StepTokens) -> Array:
    return np.abs(np.exp(tokens.behavior) - np.exp(tokens.current))


def _correlation(tokens: StepTokens) -> float:
    return float(np.corrcoef(np.exp(tokens.behavior), np.exp(tokens.current))[0, 1])


def _reference_term(tokens: StepTokens) -> Array:
    return np.clip(k3(clamp(tokens.reference - tokens.gate)), -10, 10)


_APPLIED = (
    "Applied weights (after truncation at the threshold): it looks healthy exactly where truncation works hardest."
)
_PERPLEXITY = (
    "Mean log-probability inside a sequence first, then over sequences: short ones count as much as long ones."
)
_PASSES = (
    "Against the policy at the start of the update, not the sampler; they average over all micro-batches and passes, \
the log has the last pass."
)
_PROBABILITIES = (
    "Difference of the sampled tokens' probabilities, not of ratios: at most 1, blind to rare tokens, and not a \
divergence."
)

DIALECT = Dialect(
    framework=FRAMEWORKS["verl"],
    settings="rollout_is = token with threshold 2.0 (truncation), no rejection, loss vanilla: clip 0.2, dual clip 3; "
    "by default rollout_is is off and rollout_is_* are not logged",
    rows=(
        TheirNumber(
            "rollout_corr/kl", "token mean of log rollout - log old",
            "The same estimator k1 of the same divergence; may be negative.",
            lambda t, p: mean(-t.log_rho), ours="kl_k1", same=True,
        ),
        TheirNumber(
            "rollout_corr/k3_kl", "token mean of ρ - log ρ - 1, not clamped",
            "The same; from float32, which loses it below about 1e-7 and overflows at a log-ratio of 88.7.",
            lambda t, p: mean(k3(t.log_rho)), ours="kl_k3", same=True,
        ),
        TheirNumber(
            "rollout_corr/chi2_token", "token mean of ρ², minus 1; log ρ clamped to ±20",
            "Raw form, not centred: may be negative and is far noisier near on-policy; saturates at e^40.",
            lambda t, p: mean(_raw(t) ** 2) - 1, ours="chi2_token_raw", clamped=lambda t, p: beyond(t.log_rho),
            same=True,
        ),
        TheirNumber(
            "rollout_corr/chi2_seq", "sequence mean of (product of ρ)², minus 1; its logarithm clamped to ±20",
            "Raw form, not centred; saturates at e^40 = 2.4e17, which looks like data. Ours is computed in log space.",
            lambda t, p: mean(exp_of(2 * clamp(t.sums(t.log_rho)))) - 1, ours="chi2_seq_raw",
            clamped=lambda t, p: beyond(t.sums(t.log_rho)), same=True,
        ),
        TheirNumber(
            "rollout_corr/training_ppl", "sequence mean of exp(-mean log old)", _PERPLEXITY,
            lambda t, p: mean(exp_of(-t.means(t.current))), instead="ppl_current",
        ),
        TheirNumber(
            "rollout_corr/training_log_ppl", "sequence mean of -mean log old", _PERPLEXITY,
            lambda t, p: mean(-t.means(t.current)), instead="ppl_current",
        ),
        TheirNumber(
            "rollout_corr/rollout_ppl", "sequence mean of exp(-mean log rollout)", _PERPLEXITY,
            lambda t, p: mean(exp_of(-t.means(t.behavior))), instead="ppl_behavior",
        ),
        TheirNumber(
            "rollout_corr/rollout_log_ppl", "sequence mean of -mean log rollout", _PERPLEXITY,
            lambda t, p: mean(-t.means(t.behavior)), instead="ppl_behavior",
        ),
        TheirNumber(
            "rollout_corr/log_ppl_diff", "sequence mean of (mean log rollout - mean log old)",
            f"k1 with another denominator. {_PERPLEXITY}",
            lambda t, p: mean(_log_perplexity_difference(t)), ours="kl_k1",
        ),
        TheirNumber(
            "rollout_corr/log_ppl_abs_diff", "sequence mean of |mean log rollout - mean log old|", _PERPLEXITY,
            lambda t, p: mean(np.abs(_log_perplexity_difference(t))), instead="s_k_bounded",
        ),
        TheirNumber(
            "rollout_corr/log_ppl_diff_max", "largest mean log rollout - mean log old of a sequence",
            "Minus the log of the smallest geometric mean ratio.",
            lambda t, p: float(_log_perplexity_difference(t).max()), instead="ratio_min",
        ),
        TheirNumber(
            "rollout_corr/log_ppl_diff_min", "smallest mean log rollout - mean log old of a sequence",
            "Minus the log of the largest geometric mean ratio.",
            lambda t, p: float(_log_perplexity_difference(t).min()), instead="ratio_max",
        ),
        TheirNumber(
            "rollout_corr/ppl_ratio", "sequence mean of exp(mean log rollout - mean log old)",
            "Mean of inverse geometric ratios: 1 on-policy, but not 1 in expectation off-policy.",
            lambda t, p: mean(exp_of(_log_perplexity_difference(t))), instead="ratio_mean",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_mean", "token mean of min(ρ, threshold)", _APPLIED,
            lambda t, p: mean(_applied(t, p)), ours="ratio_mean", clamped=_changed,
        ),
        TheirNumber(
            "rollout_corr/rollout_is_std", "standard deviation of min(ρ, threshold) over tokens",
            f"{_APPLIED} As the root of E w² - (E w)², which cancels in float32.",
            lambda t, p: _population_std(_applied(t, p)), clamped=_changed, instead="chi2_token",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_eff_sample_size", "1 / mean of (w / mean w)², w = min(ρ, threshold)", _APPLIED,
            lambda t, p: _effective_sample_size(_applied(t, p)), ours="ess_token",
            clamped=_changed,
        ),
        TheirNumber(
            "rollout_corr/rollout_is_max", "largest min(ρ, threshold)",
            f"{_APPLIED} It cannot exceed the threshold.",
            lambda t, p: float(_applied(t, p).max()), ours="ratio_max", clamped=_changed,
        ),
        TheirNumber(
            "rollout_corr/rollout_is_min", "smallest min(ρ, threshold); log ρ clamped to ±20",
            "Ends at e^-20 instead of 0.",
            lambda t, p: float(_applied(t, p).min()), ours="ratio_min", clamped=_changed,
        ),
        TheirNumber(
            "rollout_corr/rollout_is_ratio_fraction_high", "share of tokens with ρ above the threshold",
            "Raw weights: the share that truncation touches.",
            lambda t, p: mean(_raw(t) > p["rollout_is_threshold"]), instead="ratio_p99",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_ratio_fraction_low", "share of tokens with ρ below 1 / threshold",
            "Raw weights; truncation has no lower bound, the inverse threshold stands in for it.",
            lambda t, p: mean(_raw(t) < 1 / p["rollout_is_threshold"]), instead="ratio_p01",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_seq_mean", "sequence mean of the mean min(ρ, threshold) of its tokens",
            f"{_APPLIED} Mean inside a sequence first: not 1 in expectation even untruncated.",
            lambda t, p: mean(t.means(_applied(t, p))), ours="ratio_mean", clamped=_changed,
        ),
        TheirNumber(
            "rollout_corr/rollout_is_seq_std", "standard deviation of the sequences' mean min(ρ, threshold)", _APPLIED,
            lambda t, p: std(t.means(_applied(t, p))) if len(t.lengths) > 1 else 0.0, clamped=_changed,
            instead="ess_seq",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_seq_max", "largest mean min(ρ, threshold) of a sequence",
            f"{_APPLIED} A mean of ratios, not their product.",
            lambda t, p: float(t.means(_applied(t, p)).max()), clamped=_changed, instead="ess_seq",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_seq_min", "smallest mean min(ρ, threshold) of a sequence",
            f"{_APPLIED} A mean of ratios, not their product.",
            lambda t, p: float(t.means(_applied(t, p)).min()), clamped=_changed, instead="ess_seq",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_seq_max_deviation", "largest |mean min(ρ, threshold) - 1| of a sequence", _APPLIED,
            lambda t, p: float(np.abs(t.means(_applied(t, p)) - 1).max()), clamped=_changed, instead="ess_seq",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_seq_fraction_high", "share of sequences whose mean ρ is above the threshold",
            "Raw weights, mean inside a sequence (not the product).",
            lambda t, p: mean(t.means(_raw(t)) > p["rollout_is_threshold"]), clamped=lambda t, p: beyond(t.log_rho),
            instead="ess_seq",
        ),
        TheirNumber(
            "rollout_corr/rollout_is_seq_fraction_low", "share of sequences whose mean ρ is below 1 / threshold",
            "Raw weights, mean inside a sequence; the inverse threshold stands in for a lower bound.",
            lambda t, p: mean(t.means(_raw(t)) < 1 / p["rollout_is_threshold"]),
            clamped=lambda t, p: beyond(t.log_rho), instead="ess_seq",
        ),
        TheirNumber(
            "training/rollout_probs_diff_mean", "token mean of |rollout probability - old probability|", _PROBABILITIES,
            lambda t, p: mean(_probability_difference(t)), ours="s_k",
        ),
        TheirNumber(
            "training/rollout_probs_diff_max", "largest |rollout probability - old probability|", _PROBABILITIES,
            lambda t, p: float(_probability_difference(t).max()), instead="s_k_bounded",
        ),
        TheirNumber(
            "training/rollout_probs_diff_std", "standard deviation of |rollout probability - old probability|",
            _PROBABILITIES, lambda t, p: std(_probability_difference(t)), instead="s_k_bounded",
        ),
        TheirNumber(
            "training/rollout_actor_probs_pearson_corr", "correlation of rollout and old probabilities over tokens",
            "Blind to a common factor and dominated by the spread of the probabilities, not by their distance.",
            lambda t, p: _correlation(t), instead="s_k_bounded",
        ),
        TheirNumber(
            "actor/pg_clipfrac", "share of tokens where the clipped branch strictly wins, by the advantage's sign",
            f"{_PASSES} Recomputed with their bounds; ours is what the run's own gate did.",
            lambda t, p: mean(
                clipped_low(t, clamp(t.log_r), p["clip_ratio"]) | clipped_high(t, clamp(t.log_r), p["clip_ratio"])
            ),
            ours="clip_fraction", needs=("gate",),
        ),
        TheirNumber(
            "actor/pg_clipfrac_lower", "share of tokens with A < 0 and a ratio above the dual clip", _PASSES,
            lambda t, p: mean((t.advantage < 0) & (exp_of(clamp(t.log_r)) > p["clip_ratio_c"])), needs=("gate",),
            instead="clip_fraction_negative",
        ),
        TheirNumber(
            "actor/ppo_kl", "token mean of log old - log current, clamped to ±20",
            f"The opposite sign of AReaL's approx_kl and ROLL's policykl. {_PASSES}",
            lambda t, p: mean(clamp(-t.log_r)), clamped=lambda t, p: beyond(t.log_r), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "actor/entropy", "token mean of the entropy",
            "The same; theirs is of the policy at each pass, ours of the one at the start of the update.",
            lambda t, p: float(np.nanmean(t.entropy)), ours="entropy", same=True, needs=("entropy",),
        ),
        TheirNumber(
            "actor/kl_loss", "token mean of k3 to the reference, its input clamped to ±20 and itself to ±10",
            "Not importance-weighted to the current policy, whose KL it is meant to be; the clamp on k3 biases it.",
            lambda t, p: float(np.nanmean(_reference_term(t))), ours="kl_to_reference", needs=("reference", "gate"),
            clamped=lambda t, p: beyond(t.reference - t.gate) | (_reference_term(t) >= 10),
        ),
    ),
    not_reproducible={
        "rollout_corr/rollout_rs_*": "rejection is off by default, and its statistics describe the rejected batch",
        "rollout_corr/rollout_is_batch_norm_factor": "logged only with batch normalisation of weights, off by default",
        "rollout_corr/rollout_is_oob_ratio": "logged with two-sided thresholds (IcePop) only",
        "variance_proxy/*": "they need the full distribution of each state",
        "training/off_policy/trajectory_*": "spans and staleness by the clock of their rollout server",
        "fully_async/*": "counters of their scheduler",
    },
)  # fmt: skip
