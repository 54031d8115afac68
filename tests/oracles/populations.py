"""Populations of log-ratios whose total variation, chi-square and KL are known exactly, and samples of them.

A sample is a step: prompt groups of responses of tokens. In group g every ratio has the scale s_g, uniform around 1, so
that groups differ; a token's ratio given its group's scale has mean 1. Many samples are one table of many steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from ratioscope.analysis.summary.order_statistics import of_step
from ratioscope.analysis.summary.partials import Partials

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, Array], Array]

RESPONSES, LENGTHS = 8, (24, 73)
SPREAD = 0.4
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_SCALES, _SHARES = 1 + SPREAD * _NODES, _WEIGHTS / 2


@dataclass(frozen=True)
class Population:
    """How log-ratios are drawn, given the scale of each one's group, and the truth of their means."""

    draw: Draw
    truth: Mapping[str, float] = field(hash=False)
    square: Callable[[Array], Array] = field(hash=False)
    """E rho^2 in a group of each of these scales: that of a response of T tokens is its T-th power."""


def _lognormal(*parts: tuple[float, float]) -> Population:
    """A mixture of log-ratios that are normal with these (share, standard deviation) and mean -sd^2/2."""
    shares, sds = (np.array(values) for values in zip(*parts, strict=True))

    def draw(rng: np.random.Generator, scale: Array) -> Array:
        sd = sds[np.searchsorted(np.cumsum(shares)[:-1], rng.random(scale.shape))] * scale
        return sd * rng.standard_normal(scale.shape) - sd**2 / 2

    def over(term: Callable[[Array], Array]) -> float:
        return float(_SHARES @ (term(_SCALES[:, None] * sds) @ shares))

    truth = {
        "s_k": over(lambda sd: special.erf(sd / np.sqrt(8))),
        "chi2_token": over(lambda sd: np.expm1(sd**2)),
        "kl_k3": over(lambda sd: sd**2 / 2),
        "kl_reverse": over(lambda sd: sd**2 / 2),
    }
    return Population(draw, truth, lambda scale: np.exp(np.multiply.outer(scale, sds) ** 2) @ shares)


def _gamma(sd: float) -> Population:
    """Ratios that are gamma distributed with mean 1 and this standard deviation."""

    def draw(rng: np.random.Generator, scale: Array) -> Array:
        shape = (sd * scale) ** -2
        return np.log(rng.standard_gamma(shape) / shape)

    shape = (sd * _SCALES) ** -2
    tv = np.exp(special.xlogy(shape, shape) - shape - special.gammaln(shape + 1))
    truth = {
        "s_k": float(_SHARES @ tv),
        "chi2_token": float(_SHARES @ (sd * _SCALES) ** 2),
        "kl_k3": float(_SHARES @ (np.log(shape) - special.digamma(shape))),
        "kl_reverse": float(_SHARES @ (special.digamma(shape + 1) - np.log(shape))),
    }
    return Population(draw, truth, lambda scale: 1 + (sd * scale) ** 2)


def _pareto(exponent: float) -> Population:
    """Pareto ratios of mean 1, whose moments below `exponent` exist; of a group's tokens the share `scale` / 2."""
    floor = (exponent - 1) / exponent
    square = floor**2 * exponent / (exponent - 2) - 1

    def draw(rng: np.random.Generator, scale: Array) -> Array:
        logs = np.log(floor) - np.log(rng.random(scale.shape)) / exponent
        return np.where(rng.random(scale.shape) < scale / 2, logs, 0.0)

    # The distribution function, 1 - (floor / x)^exponent, from the floor to 1.
    tv = 1 - floor - (floor - floor**exponent) / (exponent - 1)
    truth = {
        "s_k": tv / 2,
        "chi2_token": square / 2,
        "kl_k3": (-np.log(floor) - 1 / exponent) / 2,
        "kl_reverse": (np.log(floor) + 1 / (exponent - 1)) / 2,
    }
    return Population(draw, truth, lambda scale: 1 + scale / 2 * square)


_ACTIONS, _STATES, _BLOCKS = 40, 60, 50


@cache
def _softmax(temperature: float, noise: float) -> Population:
    """Actions of softmax policies in `_BLOCKS` sets of states, one a group: the scale's place chooses the set."""
    rng = np.random.default_rng(0)
    scale = 1 - SPREAD + 2 * SPREAD * (np.arange(_BLOCKS) + 0.5) / _BLOCKS
    logits = rng.standard_normal((_BLOCKS, _STATES, _ACTIONS)) * temperature
    behavior = special.log_softmax(logits, axis=2)
    moved = logits + noise * scale[:, None, None] * rng.standard_normal(logits.shape)
    ratio = special.log_softmax(moved, axis=2) - behavior
    cumulative = np.exp(behavior).cumsum(axis=2).reshape(-1, _ACTIONS)

    def draw(rng: np.random.Generator, scale: Array) -> Array:
        block = np.clip(((scale - 1 + SPREAD) / (2 * SPREAD) * _BLOCKS).astype(int), 0, _BLOCKS - 1)
        state = (block * _STATES + rng.integers(_STATES, size=scale.shape)).ravel()
        # One sorted search for all states: their cumulative probabilities lie one after the other.
        places = np.searchsorted(
            (cumulative + np.arange(len(cumulative))[:, None]).ravel(), rng.random(len(state)) + state
        )
        return ratio.ravel()[np.minimum(places, state * _ACTIONS + _ACTIONS - 1)].reshape(scale.shape)

    rho, p = np.exp(ratio), np.exp(behavior)

    def mean(term: Array) -> float:
        return float((p * term).sum(axis=2).mean())

    truth = {
        "s_k": mean(abs(rho - 1)) / 2,
        "chi2_token": mean((rho - 1) ** 2),
        "kl_k3": mean(-ratio),
        "kl_reverse": mean(rho * ratio),
    }
    of_block = 1 + (p * (rho - 1) ** 2).sum(axis=2).mean(axis=1)
    return Population(draw, truth, lambda at: np.interp(at, scale, of_block))


POPULATIONS = {
    "benign, largest ratio 1.04": _lognormal((0.8, 0.0002), (0.19, 0.002), (0.01, 0.013)),
    "benign, largest ratio 1.12": _lognormal((0.8, 0.001), (0.18, 0.006), (0.02, 0.032)),
    "ordinary": _gamma(0.2),
    "LLM-like": _lognormal((0.8, 0.002), (0.15, 0.08), (0.05, 0.6)),
    "heavy tail": _pareto(2.5),
    "softmax": _softmax(2.0, 0.3),
}
BENIGN = tuple(name for name in POPULATIONS if name.startswith("benign"))
SIZES = ("equal", "Pareto")


def truth_of(name: str) -> dict[str, float]:
    """The exact value of each metric that is judged, by key of the step summary."""
    population = POPULATIONS[name]
    found = dict(population.truth)
    lengths = np.arange(*LENGTHS)
    log_square = np.log(population.square(_SCALES))[:, None] * lengths
    chi2_seq = float(_SHARES @ np.expm1(log_square).mean(axis=1))
    return found | {
        "s_k_bounded": found["s_k"],
        "ratio_mean": 1.0,
        "chi2_token_raw": found["chi2_token"],
        "ess_token": 1 / (1 + found["chi2_token"]),
        "chi2_seq": chi2_seq,
        "log1p_chi2_seq": float(np.log1p(chi2_seq)),
        "ess_seq": 1 / (1 + chi2_seq),
    }


def samples(name: str, sizes: str, groups: int, steps: int, seed: int = 0) -> Partials:
    """So many samples of a population, each of so many groups of equal sizes or of Pareto distributed ones, 1 to 32."""
    rng = np.random.default_rng(seed)
    parts = [_samples(rng, POPULATIONS[name], sizes, groups, number) for number in range(steps)]
    frames = (pd.concat(frames, ignore_index=True) for frames in zip(*parts, strict=True))
    return Partials(*frames, pd.DataFrame({"step": [], "bin": [], "tokens": []}))


def _samples(
    rng: np.random.Generator, population: Population, sizes: str, groups: int, number: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    per_group = np.full(groups, RESPONSES)
    if sizes == "Pareto":
        per_group = np.minimum(1 / rng.uniform(1 / 33, 1, groups), 32).astype(int)
    of_responses = np.arange(groups).repeat(per_group)
    lengths = rng.integers(*LENGTHS, len(of_responses))
    scale = rng.uniform(1 - SPREAD, 1 + SPREAD, groups)
    log_rho = population.draw(rng, scale[of_responses].repeat(lengths))
    starts = np.concatenate([[0], lengths.cumsum()[:-1]])
    log_w = np.add.reduceat(log_rho, starts)
    of_tokens = of_responses.repeat(lengths)

    def of_group(terms: Array, where: NDArray[np.intp] = of_tokens) -> Array:
        return np.bincount(where, weights=terms, minlength=groups)

    deviation, rho = np.expm1(log_rho), np.exp(log_rho)
    w, n_tokens = np.exp(log_w), np.bincount(of_tokens, minlength=groups)
    sums = {
        "n_tokens": n_tokens,
        "n_current": n_tokens,
        "n_ratios": n_tokens,
        "n_signal": n_tokens,
        "n_sequences": per_group,
        "n_weights": per_group,
        "rho": of_group(rho),
        "rho_squared": of_group(rho**2),
        "deviation": of_group(abs(deviation)),
        "shortfall": of_group(np.maximum(-deviation, 0)),
        "deviation_squared": of_group(deviation**2),
        "k1": of_group(-log_rho),
        "kl_k3": of_group(deviation - log_rho),
        "kl_reverse": of_group(rho * log_rho - deviation),
        "lse_w": np.log(of_group(w, of_responses)),
        "lse_w_squared": np.log(of_group(w**2, of_responses)),
        "lse_chi2": np.log(of_group(np.expm1(log_w) ** 2, of_responses)),
    }
    frame = pd.DataFrame({"step": number, "group_id": np.arange(groups)} | sums)
    frame = frame.assign(peak=0.0, scaled=frame["rho"], scaled_squared=frame["rho_squared"])
    order = pd.DataFrame([{"step": number} | of_step(np.sort(log_rho), np.empty(0), log_w)])
    return frame, order
