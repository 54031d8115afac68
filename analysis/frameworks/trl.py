"""TRL: GRPOTrainer."""

import numpy as np

from ratioscope.analysis.frameworks.definition import (
    Dialect,
    Parameters,
    StepTokens,
    TheirNumber,
    clipped_high,
    clipped_low,
    exp_of,
    k3,
    mean,
)
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.tails import Array

# torch.isclose with its default absolute tolerance.
_ZERO = 1e-8


def _engine(tokens: StepTokens) -> Array:
    """log of their old policy over the sampler: old is evaluated at generation, with the weights that sampled."""
    return tokens.at_generation - tokens.behavior


def _step(tokens: StepTokens) -> Array:
    """log of the current policy over their old one, which is as old as the responses are."""
    return tokens.gate - tokens.at_generation


def _sequence_weights(tokens: StepTokens, parameters: Parameters) -> Array:
    """Products of ρ, 0 above the largest allowed one (mode sequence_mask)."""
    weights = exp_of(tokens.sums(_engine(tokens)))
    return np.where(weights > parameters["clip_max"], 0.0, weights)


def _without_spread(tokens: StepTokens) -> float:
    """Share of the samples whose group has equal rewards; a single sample has no standard deviation."""
    _, group = np.unique(tokens.group, return_inverse=True)
    equal = np.zeros(group.max() + 1, dtype=bool)
    for index in range(len(equal)):
        rewards = tokens.reward[group == index]
        equal[index] = len(rewards) > 1 and np.std(rewards, ddof=1) <= _ZERO
    return mean(equal[group])


def _low(tokens: StepTokens, parameters: Parameters) -> Array:
    return clipped_low(tokens, _step(tokens), parameters["epsilon"]).astype(float)


def _high(tokens: StepTokens, parameters: Parameters) -> Array:
    return clipped_high(tokens, _step(tokens), parameters["epsilon"]).astype(float)


_APPLIED = "Products over sequences, set to 0 above clip_max: applied weights, not raw ones, and not those of tokens."
_RATIO = (
    "The ratio is to old, the sampling policy as the trainer evaluates it, with their bounds; ours is what the run's "
    "own gate did."
)

DIALECT = Dialect(
    framework=FRAMEWORKS["trl"],
    settings="vllm_importance_sampling_correction on (their default), mode sequence_mask, clip_max 3.0, no clip_min; "
    "epsilon 0.2, no delta, loss dapo",
    rows=(
        TheirNumber(
            "sampling/sampling_logp_difference/mean", "token mean of |log old - log sampling|",
            "Old is the policy that sampled, so that only the engines differ; ours has the age of the data in it, too. "
            "A mean of the means of processes.",
            lambda t, p: mean(np.abs(_engine(t))), ours="abs_log_ratio",
        ),
        TheirNumber(
            "sampling/sampling_logp_difference/max", "largest |log old - log sampling| of a token",
            "Both tails in one number: it does not say whether a ratio is large or near 0.",
            lambda t, p: float(np.abs(_engine(t)).max()), instead="ratio_max",
        ),
        TheirNumber(
            "sampling/importance_sampling_ratio/mean",
            "mean over sequences of W, 0 where W is above clip_max", _APPLIED,
            lambda t, p: mean(_sequence_weights(t, p)), ours="ratio_mean",
            clamped=lambda t, p: t.sums(_engine(t)) > np.log(p["clip_max"]),
        ),
        TheirNumber(
            "sampling/importance_sampling_ratio/min", "smallest W, 0 where one is above clip_max",
            f"{_APPLIED} A masked sequence, which had the largest weight, is the minimum.",
            lambda t, p: float(_sequence_weights(t, p).min()), ours="ratio_min",
            clamped=lambda t, p: t.sums(_engine(t)) > np.log(p["clip_max"]),
        ),
        TheirNumber(
            "sampling/importance_sampling_ratio/max", "largest W that is not above clip_max",
            f"{_APPLIED} It cannot exceed clip_max.",
            lambda t, p: float(_sequence_weights(t, p).max()), ours="ratio_max",
            clamped=lambda t, p: t.sums(_engine(t)) > np.log(p["clip_max"]),
        ),
        TheirNumber(
            "clip_ratio/low_mean", "share of tokens with A < 0 and a ratio below 1 - epsilon", _RATIO,
            lambda t, p: mean(_low(t, p)), ours="clip_fraction_low", needs=("gate",),
        ),
        TheirNumber(
            "clip_ratio/high_mean", "share of tokens with A > 0 and a ratio above 1 + epsilon", _RATIO,
            lambda t, p: mean(_high(t, p)), ours="clip_fraction_high", needs=("gate",),
        ),
        TheirNumber(
            "clip_ratio/region_mean", "share of tokens with either", _RATIO,
            lambda t, p: mean(_low(t, p) + _high(t, p)), ours="clip_fraction", needs=("gate",),
        ),
        TheirNumber(
            "clip_ratio/low_min", "smallest share of a sequence with A < 0 and a ratio below 1 - epsilon",
            f"{_RATIO} A minimum: 0 as soon as one sequence is not clipped. Older versions take it over processes.",
            lambda t, p: float(t.means(_low(t, p)).min()), needs=("gate",), instead="clip_fraction_low",
        ),
        TheirNumber(
            "clip_ratio/high_max", "largest share of a sequence with A > 0 and a ratio above 1 + epsilon",
            f"{_RATIO} The worst sequence, not the batch. Older versions take it over processes.",
            lambda t, p: float(t.means(_high(t, p)).max()), needs=("gate",), instead="clip_fraction_high",
        ),
        TheirNumber(
            "kl", "token mean of the ratio to old times k3 of the current policy to the reference, not clamped",
            "Weighted with current over old (use_bias_correction_kl, their default); older versions do not weight it.",
            lambda t, p: float(np.nanmean(exp_of(_step(t)) * k3(t.reference - t.gate))), ours="kl_to_reference",
            needs=("reference", "gate"),
        ),
        TheirNumber(
            "entropy", "token mean of the entropy",
            "The same; theirs is of the policy at each pass, ours of the one at the start of the update.",
            lambda t, p: float(np.nanmean(t.entropy)), ours="entropy", same=True, needs=("entropy",),
        ),
        TheirNumber(
            "frac_reward_zero_std", "share of samples in groups whose rewards have no spread",
            "By rewards, not by advantages, and counted in samples: groups with an advantage of 0 for another reason "
            "are not in it.",
            lambda t, p: _without_spread(t), ours="zero_advantage_group_fraction",
            needs=("reward", "group"),
        ),
        TheirNumber(
            "completions/mean_length", "mean length of the completions",
            "The same; where tool tokens are masked, theirs counts them.",
            lambda t, p: mean(t.length), ours="response_length", same=True, needs=("length",),
        ),
    ),
    not_reproducible={
        "cispo_clip_ratio, vespo/phi_seq_mean": "belong to other losses than the assumed one",
        "completions/clipped_ratio": "needs their end-of-sequence rule",
        "ratio (AsyncGRPO)": "stale samples are dropped before it is computed, and have no tokens",
    },
)  # fmt: skip
