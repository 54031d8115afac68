"""Populations of log-ratios whose total variation, chi-square and KL are known exactly, and samples of them.

A sample is a step: prompt groups of responses of tokens. In group g every ratio has the scale s_g, uniform around 1 or
lognormal, so that groups differ; a token's ratio given its group's scale has mean 1, but where the sampler truncates.
Many samples are one table of many steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import NamedTuple

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


class Scales(NamedTuple):
    """How the scales of prompt groups are distributed."""

    draw: Callable[[np.random.Generator, int], Array]
    nodes: Array
    shares: Array
    """Of a quadrature: the mean of a function of the scale is `shares` times its values at the `nodes`."""


def _uniform() -> Scales:
    nodes, weights = np.polynomial.legendre.leggauss(40)
    return Scales(lambda rng, n: rng.uniform(1 - SPREAD, 1 + SPREAD, n), 1 + SPREAD * nodes, weights / 2)


def _unequal(spread: float) -> Scales:
    """Lognormal ones, whose mean square is 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return Scales(
        lambda rng, n: np.exp(spread * rng.standard_normal(n) - spread**2),
        np.exp(spread * nodes - spread**2),
        weights / weights.sum(),
    )


ALIKE = _uniform()


class Moments(NamedTuple):
    """E rho and E rho^2 in a group of each of some scales: those of a response of T tokens are their T-th powers."""

    first: Array
    second: Array


@dataclass(frozen=True)
class Population:
    """How log-ratios are drawn, given the scale of each one's group, and the truth of their means."""

    draw: Draw
    truth: Mapping[str, float] = field(hash=False)
    moments: Callable[[Array], Moments] = field(hash=False)
    scales: Scales = ALIKE


def _of_mean_one(square: Callable[[Array], Array]) -> Callable[[Array], Moments]:
    return lambda scale: Moments(np.ones_like(scale), square(scale))


def _lognormal(*parts: tuple[float, float]) -> Population:
    """A mixture of log-ratios that are normal with these (share, standard deviation) and mean -sd^2/2."""
    shares, sds = (np.array(values) for values in zip(*parts, strict=True))

    def draw(rng: np.random.Generator, scale: Array) -> Array:
        sd = sds[np.searchsorted(np.cumsum(shares)[:-1], rng.random(scale.shape))] * scale
        return sd * rng.standard_normal(scale.shape) - sd**2 / 2

    def over(term: Callable[[Array], Array]) -> float:
        return float(ALIKE.shares @ (term(ALIKE.nodes[:, None] * sds) @ shares))

    truth = {
        "s_k": over(lambda sd: special.erf(sd / np.sqrt(8))),
        "chi2_token": over(lambda sd: np.expm1(sd**2)),
        "kl_k2": over(lambda sd: sd**2 / 2 + sd**4 / 8),
        "kl_k3": over(lambda sd: sd**2 / 2),
        "kl_reverse": over(lambda sd: sd**2 / 2),
    }
    return Population(draw, truth, _of_mean_one(lambda scale: np.exp(np.multiply.outer(scale, sds) ** 2) @ shares))


def _gamma(sd: float, scales: Scales = ALIKE) -> Population:
    """Ratios that are gamma distributed with mean 1 and this standard deviation."""

    def draw(rng: np.random.Generator, scale: Array) -> Array:
        shape = (sd * scale) ** -2
        return np.log(rng.standard_gamma(shape) / shape)

    shape = (sd * scales.nodes) ** -2
    tv = np.exp(special.xlogy(shape, shape) - shape - special.gammaln(shape + 1))
    truth = {
        "s_k": float(scales.shares @ tv),
        "chi2_token": float(scales.shares @ (sd * scales.nodes) ** 2),
        "kl_k2": float(
            scales.shares @ (special.polygamma(1, shape) + (special.digamma(shape) - np.log(shape)) ** 2) / 2
        ),
        "kl_k3": float(scales.shares @ (np.log(shape) - special.digamma(shape))),
        "kl_reverse": float(scales.shares @ (special.digamma(shape + 1) - np.log(shape))),
    }
    return Population(draw, truth, _of_mean_one(lambda scale: 1 + (sd * scale) ** 2), scales)


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
        "kl_k2": ((np.log(floor) + 1 / exponent) ** 2 + exponent**-2) / 4,
        "kl_k3": (-np.log(floor) - 1 / exponent) / 2,
        "kl_reverse": (np.log(floor) + 1 / (exponent - 1)) / 2,
    }
    return Population(draw, truth, _of_mean_one(lambda scale: 1 + scale / 2 * square))


_STATES, _BLOCKS = 60, 50


@cache
def _softmax(
    temperature: float, noise: float, actions: int = 40, top_p: float = 1.0, freedom: float = inf
) -> Population:
    """Actions of softmax policies in `_BLOCKS` sets of states, one a group: the scale's place chooses the set.

    Args:
        temperature, noise: standard deviation of the logits, and scale of their change.
        top_p: the sampler draws of the likeliest actions alone that have together so much probability, as engines do.
        freedom: of Student's t, which the changes have.
    """
    rng = np.random.default_rng(0)
    scale = 1 - SPREAD + 2 * SPREAD * (np.arange(_BLOCKS) + 0.5) / _BLOCKS
    logits = rng.standard_normal((_BLOCKS, _STATES, actions)) * temperature
    change = rng.standard_normal(logits.shape) if np.isinf(freedom) else rng.standard_t(freedom, logits.shape)
    p = _truncated(special.softmax(logits, axis=2), top_p)
    with np.errstate(divide="ignore"):
        behavior = np.log(p)
    current = special.log_softmax(logits + noise * scale[:, None, None] * change, axis=2)
    ratio = np.where(p > 0, current - behavior, 0.0)  # where nothing is drawn, a number that is not used
    cumulative = p.cumsum(axis=2).reshape(-1, actions)

    def draw(rng: np.random.Generator, scale: Array) -> Array:
        block = np.clip(((scale - 1 + SPREAD) / (2 * SPREAD) * _BLOCKS).astype(int), 0, _BLOCKS - 1)
        state = (block * _STATES + rng.integers(_STATES, size=scale.shape)).ravel()
        # One sorted search for all states: their cumulative probabilities lie one after the other.
        places = np.searchsorted(
            (cumulative + np.arange(len(cumulative))[:, None]).ravel(), rng.random(len(state)) + state
        )
        return ratio.ravel()[np.minimum(places, state * actions + actions - 1)].reshape(scale.shape)

    rho = np.exp(ratio)

    def mean(term: Array) -> float:
        return float((p * term).sum(axis=2).mean())

    truth = {
        "s_k": mean(abs(rho - 1)) / 2,
        "s_k_bounded": mean(np.maximum(1 - rho, 0)),
        "ratio_mean": mean(rho),
        "chi2_token": mean((rho - 1) ** 2),
        "kl_k2": mean(ratio**2) / 2,
        "kl_k3": mean(rho - 1 - ratio),
        "kl_reverse": mean(rho * ratio - rho + 1),
    }
    first, second = ((p * rho**power).sum(axis=2).mean(axis=1) for power in (1, 2))
    return Population(draw, truth, lambda at: Moments(np.interp(at, scale, first), np.interp(at, scale, second)))


def _truncated(p: Array, top_p: float) -> Array:
    """Probabilities of the likeliest actions alone that have together `top_p`, over their sum."""
    order = np.argsort(-p, axis=2)
    descending = np.take_along_axis(p, order, axis=2)
    kept = np.where(descending.cumsum(axis=2) - descending < top_p, descending, 0.0)
    found = np.zeros_like(p)
    np.put_along_axis(found, order, kept, axis=2)
    return found / found.sum(axis=2, keepdims=True)


POPULATIONS = {
    "benign, largest ratio 1.04": _lognormal((0.8, 0.0002), (0.19, 0.002), (0.01, 0.013)),
    "benign, largest ratio 1.12": _lognormal((0.8, 0.001), (0.18, 0.006), (0.02, 0.032)),
    "ordinary": _gamma(0.2),
    "LLM-like": _lognormal((0.8, 0.002), (0.15, 0.08), (0.05, 0.6)),
    "heavy tail": _pareto(2.5),
    "softmax": _softmax(2.0, 0.3),
    "softmax, top-p .95": _softmax(2.0, 0.3, 200, 0.95, freedom=3.0),
    "unequal groups": _gamma(0.2, _unequal(0.8)),
}
BENIGN = tuple(name for name in POPULATIONS if name.startswith("benign"))
SIZES = ("equal", "Pareto")


def truth_of(name: str) -> dict[str, float]:
    """The exact value of each metric that is judged, by key of the step summary."""
    population = POPULATIONS[name]
    nodes, shares = population.scales[1:]
    found = {"ratio_mean": 1.0} | population.truth
    first = found["ratio_mean"]
    square = found["chi2_token"] + 2 * first - 1
    lengths = np.arange(*LENGTHS)
    of_groups = population.moments(nodes)
    of_responses = [np.log(moment)[:, None] * lengths for moment in of_groups]
    log_first, log_second = (float(special.logsumexp(logs, b=shares[:, None] / len(lengths))) for logs in of_responses)
    with np.errstate(over="ignore", divide="ignore"):
        return (
            {"s_k_bounded": found["s_k"]}
            | found
            | {
                "kl_k1": found["kl_k3"] + 1 - first,
                "chi2_token_raw": square - 1,
                "ess_token": first**2 / square,
                "chi2_seq": float(np.exp(log_second) - 2 * np.exp(log_first) + 1),
                "log1p_chi2_seq": float(np.logaddexp(log_second, np.log(max(2 - 2 * np.exp(log_first), 0.0)))),
                "ess_seq": float(np.exp(2 * log_first - log_second)),
            }
        )


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
    scale = population.scales.draw(rng, groups)
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
        "kl_k2": of_group(log_rho**2),
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
