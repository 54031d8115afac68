"""TRL: GRPOTrainer."""

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.frameworks.definition import (
    SAFETY_BOUND,
    AsRun,
    Averaged,
    Dialect,
    Parameters,
    StepTokens,
    TheirNumber,
    clamp,
    clipped_high,
    clipped_low,
    exp_of,
    k3,
    mean,
    named_framework,
    setting_of,
)
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.run_format.manifest import Manifest
from ratioscope.tails import Array

# torch.isclose with its default absolute tolerance.
_ZERO = 1e-8
# log of the smallest weight that VESPO knows.
_SMALLEST = float(np.log(1e-8))
# VESPO's power and decay, as the recorder calls them: of advantages that are not negative, and of negative ones.
_GAMMA = ({"power_positive": 2.0, "decay_positive": 3.0}, {"power_negative": 3.0, "decay_negative": 2.0})


def _engine(tokens: StepTokens) -> Array:
    """log of their old policy over the sampler: old is evaluated at generation, with the weights that sampled."""
    return tokens.at_generation - tokens.behavior


def _step(tokens: StepTokens) -> Array:
    """log of the current policy over their old one, which is as old as the responses are."""
    return tokens.gate - tokens.at_generation


def _log_weights(tokens: StepTokens, parameters: Parameters) -> Array:
    """log of the weights against the engine: of responses (products), in the token modes of tokens."""
    return _engine(tokens) if parameters.get("by_token") else tokens.sums(_engine(tokens))


def _weights(tokens: StepTokens, parameters: Parameters) -> Array:
    """The weights as they are applied: above the largest allowed one 0, in the truncating modes that one."""
    weights = exp_of(_log_weights(tokens, parameters))
    cap = parameters["clip_max"]
    return np.where(weights > cap, cap if parameters.get("truncates") else 0.0, weights)


def _changed(tokens: StepTokens, parameters: Parameters) -> NDArray[np.bool_]:
    return _log_weights(tokens, parameters) > np.log(parameters["clip_max"])


def _without_spread(tokens: StepTokens, parameters: Parameters) -> float:
    """Share of the samples whose group has equal rewards; a single sample has no standard deviation.

    RLOO takes its KL penalty off the reward before.
    """
    rewards = tokens.reward
    if beta := parameters.get("kl_in_reward"):
        penalty = tokens.sums(tokens.at_generation - tokens.reference)
        if len(penalty) != len(rewards):
            return float("nan")
        rewards = rewards - beta * penalty
    _, group = np.unique(tokens.group, return_inverse=True)
    equal = np.zeros(group.max() + 1, dtype=bool)
    for index in range(len(equal)):
        of_group = rewards[group == index]
        equal[index] = len(of_group) > 1 and np.std(of_group, ddof=1) <= _ZERO
    return mean(equal[group])


def _clipped(tokens: StepTokens, parameters: Parameters) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Below and above their bounds by the advantage's sign: tokens, or responses where the ratio is a response's."""
    low, high = parameters["epsilon"], parameters.get("epsilon_high", parameters["epsilon"])
    if not parameters.get("by_response"):
        return clipped_low(tokens, _step(tokens), low), clipped_high(tokens, _step(tokens), high)
    of_response = tokens.sums if parameters.get("by_product") else tokens.means
    ratio, advantage = exp_of(of_response(_step(tokens))), tokens.means(tokens.advantage)
    return (advantage < 0) & (ratio < 1 - low), (advantage > 0) & (ratio > 1 + high)


def _of_responses(tokens: StepTokens, clipped: NDArray[np.bool_], parameters: Parameters) -> Array:
    """The share of each response that is clipped."""
    shares = clipped.astype(float)
    return shares if parameters.get("by_response") else tokens.means(shares)


def _phi(tokens: StepTokens, parameters: Parameters) -> Array:
    """VESPO's weight of each response, e^λ w^k e^{-λw} at the product w of its ratios, the engine's weights in it."""
    log_w = tokens.sums(clamp(_step(tokens)))
    if parameters.get("corrected"):
        with np.errstate(divide="ignore"):
            applied = np.log(_weights(tokens, {**parameters, "by_token": 1.0}))
        log_w = log_w + tokens.sums(np.clip(applied, _SMALLEST, SAFETY_BOUND))
    log_w = np.clip(log_w, _SMALLEST, SAFETY_BOUND)
    power, decay = np.where(
        tokens.means(tokens.advantage) >= 0,
        *(np.array([[parameters.get(name, usual)] for name, usual in side.items()]) for side in _GAMMA),
    )
    return exp_of(decay + power * log_w - decay * np.exp(log_w))


def _penalty(tokens: StepTokens, parameters: Parameters) -> Array:
    """k3 of the current policy to the reference, weighted with the ratio to old unless a run turned that off."""
    weight = exp_of(_step(tokens)) if parameters.get("bias_correction", 1) else 1.0
    return weight * k3(tokens.reference - tokens.gate)


def _as_run(manifest: Manifest) -> AsRun:
    """What the recorder's manifest says of the loss: its name, bounds, level, and the correction of the engine."""
    parts, parameters = manifest.parts, manifest.parameters
    if named_framework(manifest) != "trl" or not parts:
        return AsRun()
    name = manifest.algorithm_name
    low, high, cap = (setting_of(manifest, each) for each in ("epsilon_low", "epsilon_high", "cap"))
    if name == "cispo":  # TRL's bound is that on the ratio itself, ours its distance from 1
        found = {"cispo_bound": 1 + high if high is not None else cap}
    else:
        found = {"epsilon": low, "epsilon_high": high}
    mode = str(parameters.get("vllm_importance_sampling_mode", ""))
    caps = [setting_of(manifest, f"vllm_importance_sampling_{each}") for each in ("clip_max", "cap")]
    found["clip_max"] = next((each for each in caps if each is not None), None)
    estimator = parameters.get("reference_kl_estimator")
    of_run = {key: value for key, value in found.items() if value is not None}
    of_run |= {"by_response": 1.0} if parts.get("level") == "geometric" or name == "rloo" else {}
    of_run |= {"by_product": 1.0} if name == "rloo" else {}
    of_run |= {"kl_in_reward": beta} if (beta := setting_of(manifest, "kl_in_reward")) else {}
    of_run |= {"corrected": 1.0} if str(parts.get("weight", "")).endswith("_corrected") else {}
    of_run |= {key: value for side in _GAMMA for key in side if (value := setting_of(manifest, key)) is not None}
    of_run |= {"by_token": 1.0} if mode.startswith("token") else {}
    of_run |= {"truncates": 1.0} if mode.endswith("truncate") else {}
    of_run |= {"bias_correction": 0.0} if estimator == "k3" else {}
    return AsRun("grpo" if name == "gspo" else name, of_run)


_OF_GRPO = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
_CLIPPED = (*_OF_GRPO, "rloo")
_PENALISED = (*_OF_GRPO, "cispo", "sapo", "vespo")
_MICRO, _GENERATION = Averaged.MICRO_BATCHES, Averaged.GENERATIONS
_APPLIED = "Products over sequences, set to 0 above clip_max: applied weights, not raw (TRL #5231) or tokens' ones."
_RATIO = (
    "The ratio is to old, the sampling policy as the trainer evaluates it, with their bounds; ours is what the run's "
    "own gate did."
)

DIALECT = Dialect(
    framework=FRAMEWORKS["trl"],
    settings="vllm_importance_sampling_correction on (their default), mode sequence_mask, clip_max 3.0, no clip_min; "
    "epsilon 0.2, no delta, loss dapo; where a run names other ones, those",
    rows=(
        TheirNumber(
            "sampling/sampling_logp_difference/mean", "token mean of |log old - log sampling|",
            "Old is the policy that sampled, so that only the engines differ; ours has the age of the data in it, too. "
            "A mean of the means of processes.",
            lambda t, p: mean(np.abs(_engine(t))), ours="abs_log_ratio", averaged=_GENERATION, of_processes=True,
        ),
        TheirNumber(
            "sampling/sampling_logp_difference/max", "largest |log old - log sampling| of a token",
            "Both tails in one number: it does not say whether a ratio is large or near 0.",
            lambda t, p: float(np.abs(_engine(t)).max()), instead="ratio_max", averaged=_GENERATION,
        ),
        TheirNumber(
            "sampling/importance_sampling_ratio/mean",
            "mean over sequences of W, 0 where W is above clip_max", _APPLIED,
            lambda t, p: mean(_weights(t, p)), ours="ratio_mean", clamped=_changed, averaged=_GENERATION,
            of_processes=True,
        ),
        TheirNumber(
            "sampling/importance_sampling_ratio/min", "smallest W, 0 where one is above clip_max",
            f"{_APPLIED} A masked sequence, which had the largest weight, is the minimum.",
            lambda t, p: float(_weights(t, p).min()), ours="ratio_min", clamped=_changed, averaged=_GENERATION,
        ),
        TheirNumber(
            "sampling/importance_sampling_ratio/max", "largest W that is not above clip_max",
            f"{_APPLIED} It cannot exceed clip_max.",
            lambda t, p: float(_weights(t, p).max()), ours="ratio_max", clamped=_changed, averaged=_GENERATION,
        ),
        TheirNumber(
            "clip_ratio/low_mean", "share of tokens with A < 0 and a ratio below 1 - epsilon", _RATIO,
            lambda t, p: mean(_clipped(t, p)[0]), ours="clip_fraction_low", needs=("gate",), losses=_CLIPPED,
            averaged=_MICRO,
        ),
        TheirNumber(
            "clip_ratio/high_mean", "share of tokens with A > 0 and a ratio above 1 + epsilon", _RATIO,
            lambda t, p: mean(_clipped(t, p)[1]), ours="clip_fraction_high", needs=("gate",), losses=_CLIPPED,
            averaged=_MICRO,
        ),
        TheirNumber(
            "clip_ratio/region_mean", "share of tokens with either", _RATIO,
            lambda t, p: mean(np.logical_or(*_clipped(t, p))), ours="clip_fraction", needs=("gate",), losses=_CLIPPED,
            averaged=_MICRO,
        ),
        TheirNumber(
            "clip_ratio/low_min", "smallest share of a sequence with A < 0 and a ratio below 1 - epsilon",
            f"{_RATIO} A minimum: 0 as soon as one sequence is not clipped. Older versions take it over processes.",
            lambda t, p: float(_of_responses(t, _clipped(t, p)[0], p).min()), needs=("gate",),
            instead="clip_fraction_low", losses=_CLIPPED, averaged=_MICRO,
        ),
        TheirNumber(
            "clip_ratio/high_max", "largest share of a sequence with A > 0 and a ratio above 1 + epsilon",
            f"{_RATIO} The worst sequence, not the batch. Older versions take it over processes.",
            lambda t, p: float(_of_responses(t, _clipped(t, p)[1], p).max()), needs=("gate",),
            instead="clip_fraction_high", losses=_CLIPPED, averaged=_MICRO,
        ),
        TheirNumber(
            "cispo_clip_ratio", "share of tokens with A > 0 and a ratio above the bound of CISPO (epsilon_high)",
            "CISPO has one bound and logs no clip_ratio/*; a token beyond it keeps its gradient, with that weight.",
            lambda t, p: mean((t.advantage > 0) & (exp_of(_step(t)) > p.get("cispo_bound", p["epsilon"]))),
            needs=("gate",), instead="clip_fraction_high", losses=("cispo",), averaged=_MICRO,
        ),
        TheirNumber(
            "vespo/phi_seq_mean", "mean over responses of VESPO's weight e^λ w^k e^(-λw)",
            "w is the product of the ratios to old, times the weights against the engine where TRL corrects for it. "
            "It is at most 1 on policy, and far below that where a product is large or small.",
            lambda t, p: mean(_phi(t, p)), needs=("gate",), instead="ess_seq", losses=("vespo",), averaged=_MICRO,
        ),
        TheirNumber(
            "kl", "token mean of the ratio to old times k3 of the current policy to the reference, not clamped",
            "Weighted with current over old (use_bias_correction_kl, their default); older versions do not weight it.",
            lambda t, p: float(np.nanmean(_penalty(t, p))), ours="kl_to_reference",
            needs=("reference", "gate"), losses=_PENALISED, averaged=_MICRO,
        ),
        TheirNumber(
            "entropy", "token mean of the entropy",
            "The same; theirs is of the policy at each pass, ours of the one at the start of the update.",
            lambda t, p: float(np.nanmean(t.entropy)), ours="entropy", same=True, needs=("entropy",), averaged=_MICRO,
        ),
        TheirNumber(
            "frac_reward_zero_std", "share of samples in groups whose rewards have no spread",
            "By rewards, not by advantages, and counted in samples: groups with an advantage of 0 for another reason "
            "are not in it.",
            _without_spread, ours="zero_advantage_group_fraction",
            needs=("reward", "group"),
        ),
        TheirNumber(
            "completions/mean_length", "mean length of the completions",
            "The same; where tool tokens are masked, theirs counts them.",
            lambda t, p: mean(t.length), ours="response_length", same=True, needs=("length",), averaged=_GENERATION,
        ),
    ),
    not_reproducible={
        "clip_ratio": "of GRPO until spring 2025: the tokens that the clip does not stop (TRL #3032, #3175); of "
        "AsyncGRPO until summer 2026: beyond a bound, whatever the advantage's sign (TRL #6021)",
        "objective/kl, objective/entropy": "of Online DPO and PPO: sums that take padded places in (TRL #6803, #6121)",
        "kl of RLOO": "the first-order log ratio of old to the reference, over what was generated",
        "completions/clipped_ratio": "needs their end-of-sequence rule",
        "ratio, sample/staleness_mean, sample/staleness_max": "of AsyncGRPO, whose stale samples have no tokens: some "
        "count and some do not",
    },
    default_loss="dapo",
    as_run=_as_run,
)  # fmt: skip
