"""prime-rl: loss metrics of its trainer."""

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.frameworks.definition import Dialect, Parameters, StepTokens, TheirNumber, k3, mean, std
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.tails import Array


def _mismatch(tokens: StepTokens) -> Array:
    """k3 of trainer over inference, at the last gradient pass."""
    return k3(tokens.gate - tokens.behavior)


def _moved(tokens: StepTokens) -> Array:
    """Trainer probability minus inference probability."""
    return np.exp(tokens.gate) - np.exp(tokens.behavior)


def _masked(tokens: StepTokens, parameters: Parameters) -> NDArray[np.bool_]:
    """Probability moved too far in the advantage's direction; an advantage of 0 goes with the negative ones."""
    moved = _moved(tokens)
    return np.where(tokens.advantage > 0, moved > parameters["mask_high"], moved < -parameters["mask_low"])


_TRAINER = "Trainer over inference at the gradient pass: the update's own passes are in it, where ours is at its start."
_MASK = (
    "A mask on the difference of probabilities, not on ratios; mean inside a sequence first, 0 where the set is empty."
)

DIALECT = Dialect(
    framework=FRAMEWORKS["prime_rl"],
    settings="default loss: mask on the probability difference, 0.2 on both sides",
    rows=(
        TheirNumber(
            "mismatch_kl/all/mean", "token mean of ρ - log ρ - 1, not clamped", _TRAINER,
            lambda t, p: mean(_mismatch(t)), ours="kl_k3", needs=("gate",),
        ),
        TheirNumber(
            "mismatch_kl/all/std", "standard deviation of ρ - log ρ - 1 over tokens",
            f"{_TRAINER} Of tokens, as if they were independent.",
            lambda t, p: std(_mismatch(t)), needs=("gate",), instead="khat_token",
        ),
        TheirNumber(
            "mismatch_kl/all/max", "largest ρ - log ρ - 1 of a token",
            f"{_TRAINER} Linear in log ρ for small ratios, linear in ρ for large ones: both tails in one number.",
            lambda t, p: float(_mismatch(t).max()), needs=("gate",), instead="khat_token",
        ),
        TheirNumber(
            "masked_mismatch_kl/mean", "sequence mean of the mean ρ - log ρ - 1 of masked tokens", _MASK,
            lambda t, p: mean(t.means(_mismatch(t), _masked(t, p))), needs=("gate",), instead="clip_fraction",
        ),
        TheirNumber(
            "unmasked_mismatch_kl/mean", "sequence mean of the mean ρ - log ρ - 1 of kept tokens", _MASK,
            lambda t, p: mean(t.means(_mismatch(t), ~_masked(t, p))), ours="kl_k3", needs=("gate",),
        ),
        TheirNumber(
            "is_masked/mean", "sequence mean of the share of masked tokens",
            f"{_MASK} Tokens with advantage 0 may be in it.",
            lambda t, p: mean(t.means(_masked(t, p).astype(float))), ours="clip_fraction", needs=("gate",),
        ),
        TheirNumber(
            "is_masked_low/mean", "sequence mean of the share of tokens with A < 0 that lost too much probability",
            _MASK,
            lambda t, p: mean(t.means(((t.advantage < 0) & _masked(t, p)).astype(float))), ours="clip_fraction_low",
            needs=("gate",),
        ),
        TheirNumber(
            "is_masked_high/mean", "sequence mean of the share of tokens with A > 0 that gained too much probability",
            _MASK,
            lambda t, p: mean(t.means(((t.advantage > 0) & _masked(t, p)).astype(float))), ours="clip_fraction_high",
            needs=("gate",),
        ),
        TheirNumber(
            "masked_advantage_positive/mean", "sequence mean of the share of A > 0 among masked tokens", _MASK,
            lambda t, p: mean(t.means((t.advantage > 0).astype(float), _masked(t, p))), needs=("gate",),
            instead="clip_fraction_positive",
        ),
        TheirNumber(
            "masked_advantage_negative/mean", "sequence mean of the share of A < 0 among masked tokens", _MASK,
            lambda t, p: mean(t.means((t.advantage < 0).astype(float), _masked(t, p))), needs=("gate",),
            instead="clip_fraction_negative",
        ),
        TheirNumber(
            "entropy/all/mean", "token mean of the entropy",
            "The same; theirs is of the policy at the gradient pass, ours of the one at the start of the update.",
            lambda t, p: float(np.nanmean(t.entropy)), ours="entropy", same=True, needs=("entropy",),
        ),
        TheirNumber(
            "kl_ent_ratio/mean", "mean ρ - log ρ - 1 over mean entropy",
            "A ratio of two means; large where the policy is nearly deterministic, whatever the mismatch.",
            lambda t, p: mean(_mismatch(t)) / float(np.nanmean(t.entropy)), needs=("entropy", "gate"), instead="kl_k3",
        ),
    ),
    not_reproducible={
        "mismatch_kl/<env>/*, entropy/<env>/*": "by environment; here all of them are one",
        "off_policy/*, dispatcher/off_policy/*": "ages and drops by the clock of their dispatcher; dropped rollouts "
        "have no tokens",
    },
)  # fmt: skip
