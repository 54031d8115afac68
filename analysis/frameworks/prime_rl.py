"""prime-rl: loss metrics of its trainer."""

import re

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.frameworks.definition import (
    AsRun,
    Dialect,
    Parameters,
    StepTokens,
    TheirNumber,
    exp_of,
    k3,
    mean,
    named_framework,
    setting_of,
    std,
)
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.run_format.manifest import Manifest
from ratioscope.tails import Array

_IPO, _DPPO, _ICEPOP = "ipo", "dppo", "icepop"

_DEFAULTS: dict[str, Parameters] = {
    _DPPO: {"dppo_mask_low": 0.2, "dppo_mask_high": 0.2},
    _ICEPOP: {"ratio_low": 0.2, "ratio_high": 5.0},
    _IPO: FRAMEWORKS["prime_rl"].defaults,
}
"""Thresholds of each loss; DPPO's of 559b4477, the last to have it (August 2026)."""


def _mismatch(tokens: StepTokens) -> Array:
    """k3 of trainer over inference, at the last gradient pass."""
    return k3(tokens.gate - tokens.behavior)


def _moved(tokens: StepTokens) -> Array:
    """Trainer probability minus inference probability."""
    return np.exp(tokens.gate) - np.exp(tokens.behavior)


def _masked(tokens: StepTokens, parameters: Parameters) -> NDArray[np.bool_]:
    """Tokens that the run's loss leaves out.

    IPO: probability moved too far. DPPO, before September 2026: too far in the advantage's direction, an advantage of 0
    with the negative ones. IcePop: the ratio is outside of its band.
    """
    if "ratio_low" in parameters:
        ratio = exp_of(tokens.gate - tokens.behavior)
        return (ratio < parameters["ratio_low"]) | (ratio > parameters["ratio_high"])
    moved = _moved(tokens)
    if "dppo_mask_low" in parameters:
        low, high = parameters["dppo_mask_low"], parameters["dppo_mask_high"]
        return np.where(tokens.advantage > 0, moved > high, moved < -low)
    return np.abs(moved) > parameters["eps"]


def _as_run(manifest: Manifest) -> AsRun:
    """The loss by its settings, which the importer keeps; where only its type is there, with the defaults."""
    if named_framework(manifest) != "prime_rl":
        return AsRun()
    found = re.search(r"\((\w+) loss\)", manifest.algorithm_name)
    named = found[1].lower() if found else ""
    if (threshold := setting_of(manifest, "ipo_threshold")) is not None and named in ("", _IPO):
        return AsRun(_IPO, {"eps": threshold})
    for loss, defaults in _DEFAULTS.items():
        values = {name: value for name in defaults if (value := setting_of(manifest, name)) is not None}
        if named == loss or (len(values) == len(defaults) and (not named or loss == _DPPO)):
            return AsRun(loss, {**defaults, **values})
    return AsRun(named)


_TRAINER = "Trainer over inference at the gradient pass: the update's own passes are in it, where ours is at its start."
_MASK = "By differences of probabilities, not by ratios; mean inside a sequence first, 0 where the set is empty."
_KNOWN, _BEFORE = (_IPO, _DPPO, _ICEPOP), (_DPPO,)

DIALECT = Dialect(
    framework=FRAMEWORKS["prime_rl"],
    settings="IPO loss: tokens whose probability moved by more than 0.3 are masked; else the loss that the run names",
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
            losses=_KNOWN,
        ),
        TheirNumber(
            "unmasked_mismatch_kl/mean", "sequence mean of the mean ρ - log ρ - 1 of kept tokens", _MASK,
            lambda t, p: mean(t.means(_mismatch(t), ~_masked(t, p))), ours="kl_k3", needs=("gate",), losses=_KNOWN,
        ),
        TheirNumber(
            "is_masked/mean", "sequence mean of the share of masked tokens",
            f"{_MASK} Tokens with advantage 0 may be in it.",
            lambda t, p: mean(t.means(_masked(t, p).astype(float))), ours="clip_fraction", needs=("gate",),
            losses=_KNOWN,
        ),
        TheirNumber(
            "is_masked_low/mean", "sequence mean of the share of tokens with A < 0 that lost too much probability",
            _MASK,
            lambda t, p: mean(t.means(((t.advantage < 0) & _masked(t, p)).astype(float))), ours="clip_fraction_low",
            needs=("gate",), losses=_BEFORE,
        ),
        TheirNumber(
            "is_masked_high/mean", "sequence mean of the share of tokens with A > 0 that gained too much probability",
            _MASK,
            lambda t, p: mean(t.means(((t.advantage > 0) & _masked(t, p)).astype(float))), ours="clip_fraction_high",
            needs=("gate",), losses=_BEFORE,
        ),
        TheirNumber(
            "masked_advantage_positive/mean", "sequence mean of the share of A > 0 among masked tokens", _MASK,
            lambda t, p: mean(t.means((t.advantage > 0).astype(float), _masked(t, p))), needs=("gate",),
            instead="clip_fraction_positive", losses=_BEFORE,
        ),
        TheirNumber(
            "masked_advantage_negative/mean", "sequence mean of the share of A < 0 among masked tokens", _MASK,
            lambda t, p: mean(t.means((t.advantage < 0).astype(float), _masked(t, p))), needs=("gate",),
            instead="clip_fraction_negative", losses=_BEFORE,
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
        "off_policy/*, dispatcher/off_policy/*": "ages and drops by the clock of their dispatcher; dropped rollouts "
        "have no tokens",
    },
    default_loss=_IPO,
    as_run=_as_run,
    per_environment="/all/",
)  # fmt: skip
