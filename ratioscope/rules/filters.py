"""Filters: which tokens are used, by more than ratio and advantage: the rest of the sequence, probabilities, age.

Every filter has the signature `(rows: Rows, **parameters) -> Gate`; it takes the ratios of tokens and aggregates them
itself, and follows the conventions of `gates`. An algorithm of the trainer may have one beside its gate, a what-if rule
instead of its gate. To add one, write it here under `@declared`; a new parameter is a row in `parameters`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ratioscope.errors import RatioscopeError
from ratioscope.rules.gates import Gate, difference, hard, one_side
from ratioscope.rules.parameters import Declared, Judged
from ratioscope.rules.ratios import LEVELS, LogRatios, count_sequences, mean_over_sequence, sum_over_sequence
from ratioscope.tensors import Tensor, as_type, highest_by, torch, xp


class Rows(NamedTuple):
    """What a filter may look at, each of shape (n_tokens,)."""

    ratios: LogRatios
    """Of tokens, not of sequences."""
    advantage: Tensor
    sequence: Tensor
    """Index of the token's sequence, from 0."""
    logp_behavior: Tensor
    """Log-probability of the token when it was sampled, nats."""
    version_lag: Tensor | None
    """How many updates ago the token was sampled; None where no version is logged."""
    entropy: Tensor | None = None
    """Of pi_k in the token's state, nats; None where it is not known."""


@dataclass(frozen=True)
class FilterRow(Declared):
    """A filter, as `declared` says it."""

    sequences: bool
    """Whether it has to see whole sequences."""
    updates: bool
    """Whether it has to see all tokens of an optimiser step at once; what-if looks at parts of them."""


FILTERS: dict[str, FilterRow] = {}

_Function = TypeVar("_Function", bound=Callable[..., Gate])


def declared(
    words: str, *, judged: Judged = Judged.RATIO, sequences: bool = False, updates: bool = False
) -> Callable[[_Function], _Function]:
    """The row of the filter below, in `FILTERS` by the function's name; the fields are those of `FilterRow`."""

    def add(function: _Function) -> _Function:
        FILTERS[function.__name__] = FilterRow(function, words, judged, sequences, updates)
        return function

    return add


@declared("filter: difference of probabilities (DPPO)", judged=Judged.PROBABILITY)
def probability_difference(rows: Rows, *, difference_low: float, difference_high: float) -> Gate:
    """DPPO: PPO's mask on the difference of probabilities, pi_theta - behavior, instead of their ratio."""
    logp = as_type(rows.logp_behavior, "float64")
    moved = difference(logp + rows.ratios.behavior, logp)
    return hard(
        below=(rows.advantage < 0) & (moved < -difference_low),
        above=(rows.advantage > 0) & (moved > difference_high),
    )


@declared("filter: stale tokens, |ρ_k − 1| > ε_stale", judged=Judged.STALENESS)
def stale(rows: Rows, *, epsilon_stale: float) -> Gate:
    """Keep |rho_k - 1| <= epsilon_stale (S0 5.6, 7.3)."""
    distance, active = xp.expm1(rows.ratios.current), rows.advantage != 0
    return hard(below=active & (distance < -epsilon_stale), above=active & (distance > epsilon_stale))


def _staleness_band(level: str, name: str, where: str) -> None:
    """Declare the filter that keeps rho_k of a level between two bounds."""

    def band(rows: Rows, *, floor: float, cap: float) -> Gate:
        rho, active = xp.exp(LEVELS[level].of(rows.ratios, rows.sequence).current), rows.advantage != 0
        return hard(below=active & (rho < floor), above=active & (rho > cap))

    band.__name__ = name
    band.__doc__ = f"Keep floor <= rho_k <= cap, rho_k that of {LEVELS[level].words} ({where})."
    words = f"filter: band of ρ_k of {LEVELS[level].words}"
    declared(words, judged=Judged.STALENESS, sequences=level != "token")(band)


_staleness_band("token", "staleness_band", "IcePop, Zhao et al. 2025")
_staleness_band("sequence", "sequence_staleness_band", "TRL's sequence_mask, SkyRL's product mask")
_staleness_band("geometric", "geometric_staleness_band", "SkyRL's geometric mask, verl's decoupled_geo_rs")


def _max_over_sequence(values: Tensor, sequence: Tensor) -> Tensor:
    return highest_by(values, sequence, count_sequences(sequence))[sequence]


# Estimators of KL(behavior || pi_theta) from one token's log rho_theta.
_divergence: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda log_rho: -log_rho,
    "k2": lambda log_rho: log_rho**2 / 2,
    "k3": lambda log_rho: xp.expm1(log_rho) - log_rho,
}


# The same from the token's probability in both policies, which leaves out how the rest of the distribution moved.
_SMALLEST_PROBABILITY = 1e-6


def _binary_kl(rows: Rows) -> Tensor:
    """KL of "this token or another" from behavior to pi_theta; probabilities stay off 0 and 1, as in OpenRLHF."""
    ends = (_SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    logp = as_type(rows.logp_behavior, "float64")
    p, q = (xp.clip(xp.exp(at), *ends) for at in (logp, logp + rows.ratios.behavior))
    return p * (xp.log(p) - xp.log(q)) + (1 - p) * (xp.log1p(-p) - xp.log1p(-q))


class _Aggregated(NamedTuple):
    """How a divergence is aggregated over the tokens of a sequence."""

    words: str
    over: Callable[[Tensor, Tensor], Tensor]


_aggregated = {
    "sum": _Aggregated("summed over responses", sum_over_sequence),
    "mean": _Aggregated("mean over responses", mean_over_sequence),
    "max": _Aggregated("largest of a response", _max_over_sequence),
}


def _beyond(rows: Rows, divergence: Tensor, largest: float, over: str = "token") -> Gate:
    """Shut on what has a divergence above the largest one, of tokens or over their sequence; the side is log rho's."""
    direction = rows.ratios.behavior
    if over in _aggregated:
        divergence = _aggregated[over].over(divergence, rows.sequence)
        direction = sum_over_sequence(direction, rows.sequence)
    out = (rows.advantage != 0) & (divergence > largest)
    return hard(below=out & (direction <= 0), above=out & (direction > 0))


def _rejection(estimator: str, over: str) -> None:
    """Declare the filter that drops what has `estimator`, of tokens or over their sequence, above a threshold."""
    aggregated = _aggregated.get(over)
    what = f"responses whose {over} over their tokens of {estimator} is" if aggregated else f"tokens with {estimator}"

    def reject(rows: Rows, *, threshold: float) -> Gate:
        return _beyond(rows, _divergence[estimator](rows.ratios.behavior), threshold, over)

    reject.__name__ = f"reject_{over}_{estimator}"
    reject.__doc__ = f"Drop {what} above `threshold` nats; the side is the log-ratio's."
    words = aggregated.words if aggregated else "of tokens"
    declared(f"filter: {estimator} {words}", sequences=aggregated is not None)(reject)


for _estimator in _divergence:
    _rejection(_estimator, "token")


def _moved(rows: Rows) -> Tensor:
    logp = as_type(rows.logp_behavior, "float64")
    return abs(difference(logp + rows.ratios.behavior, logp))


@declared("filter: change of probability of tokens (IPO)", judged=Judged.PROBABILITY)
def reject_token_tv(rows: Rows, *, difference: float) -> Gate:
    """Drop tokens whose probability moved by more than `difference`, up or down (prime-rl's ipo, OpenRLHF's tv)."""
    return _beyond(rows, _moved(rows), difference)


@declared("filter: change of probability, mean over responses", judged=Judged.PROBABILITY, sequences=True)
def reject_mean_tv(rows: Rows, *, difference: float) -> Gate:
    """Drop responses whose tokens' probabilities moved by more than `difference` in the mean (OpenRLHF's tv)."""
    return _beyond(rows, _moved(rows), difference, "mean")


@declared("filter: binary KL of tokens", judged=Judged.PROBABILITY)
def reject_token_binary(rows: Rows, *, threshold: float) -> Gate:
    """Drop tokens whose binary KL, of "this token or another", is above `threshold` nats (OpenRLHF's binary_kl)."""
    return _beyond(rows, _binary_kl(rows), threshold)


@declared("filter: binary KL, mean over responses (FlashREINFORCE)", judged=Judged.PROBABILITY, sequences=True)
def reject_mean_binary(rows: Rows, *, threshold: float) -> Gate:
    """Drop responses whose mean binary KL is above `threshold` nats (OpenRLHF's FlashREINFORCE)."""
    return _beyond(rows, _binary_kl(rows), threshold, "mean")


@declared("filter: binary KL on the advantage's side (DPPO)", judged=Judged.PROBABILITY)
def binary_divergence(rows: Rows, *, threshold: float) -> Gate:
    """DPPO with the binary KL: stop what moved further than `threshold` nats on the advantage's side."""
    far, moved = _binary_kl(rows) > threshold, rows.ratios.behavior
    return hard(below=far & (rows.advantage < 0) & (moved < 0), above=far & (rows.advantage > 0) & (moved > 0))


@declared("filter: far responses with A < 0 (OPSM)", sequences=True)
def opposite_sign(rows: Rows, *, delta: float) -> Gate:
    """OPSM: drop A<0 in sequences whose mean k1, -log rho_theta, is above `delta` nats (DeepSeek-V3.2)."""
    divergence = mean_over_sequence(-rows.ratios.behavior, rows.sequence)
    below = (rows.advantage < 0) & (divergence > delta)
    return hard(below=below, above=xp.zeros_like(below))


@declared("filter: window of versions W", judged=Judged.AGE, sequences=True)
def window(rows: Rows, *, max_lag: float) -> Gate:
    """Keep sequences whose oldest token was sampled at most `max_lag` updates ago; older ones are on side -1.

    S0 5.6's window of the newest W versions is `max_lag` = W - 1 where every update makes a version.

    Raises:
        RatioscopeError: no version is logged.
    """
    if rows.version_lag is None:
        raise RatioscopeError("A window of versions cannot be applied: behavior_version is not logged for every token.")
    oldest = _max_over_sequence(as_type(rows.version_lag, "float64"), rows.sequence)
    below = (rows.advantage != 0) & (oldest > max_lag)
    return hard(below=below, above=xp.zeros_like(below))


for _over in _aggregated:
    for _estimator in _divergence:
        _rejection(_estimator, _over)


# Filters of whole optimiser steps -------------------------------------------------------------------------------------


@declared("filter: second moment of log-ratios (M2PO)", updates=True)
def second_moment(rows: Rows, *, moment: float) -> Gate:
    """M2PO: of the tokens that go on in the advantage's direction, drop those with the largest (log rho_theta)^2 until
    its mean is at most `moment` (Zheng et al. 2025, algorithm 1)."""
    moved = rows.ratios.behavior
    onward = rows.advantage.sign() * moved > 0
    squares = moved[onward] ** 2
    ordered = squares.sort().values
    mean = ordered.cumsum(0) / torch.arange(1, len(ordered) + 1, device=ordered.device)
    far = torch.zeros_like(onward)
    far[onward] = mean[torch.searchsorted(ordered, squares, right=True) - 1] > moment
    return hard(below=far & (moved < 0), above=far & (moved > 0))


def covariances(advantage: Tensor, logp: Tensor) -> Tensor:
    """(A - mean A)(log pi - mean log pi), (n_tokens,): what lowers the entropy (Cui et al. 2025)."""
    a, values = advantage.double(), logp.double()
    return (a - a.mean()) * (values - values.mean())


def largest(values: Tensor, share: float, n: int) -> Tensor:
    """Bool: the largest of the values, `share` of n and at least one; equal ones go together."""
    k = min(max(1, int(share * n)), len(values))
    return values >= values.topk(k).values[-1] if k else torch.zeros_like(values, dtype=torch.bool)


@declared("filter: high covariance (Clip-Cov)", judged=Judged.PROBABILITY, updates=True)
def covariance_band(
    rows: Rows,
    *,
    epsilon_low: float,
    epsilon_high: float,
    covariance_low: float,
    covariance_high: float,
    covariance_share: float,
) -> Gate:
    """Clip-Cov: of the tokens that PPO's mask keeps, drop a share with a covariance between two bounds (Cui et al.
    2025); here those with the largest, where the source draws at random."""
    once = one_side(rows.ratios, rows.advantage, epsilon_low=epsilon_low, epsilon_high=epsilon_high)
    found = covariances(rows.advantage, rows.logp_behavior.double() + rows.ratios.behavior)
    able = (found > covariance_low) & (found < covariance_high) & ~once.clipped & (rows.advantage != 0)
    chosen = torch.zeros_like(able)
    chosen[able] = largest(found[able], covariance_share, len(found))
    return hard(below=chosen & (rows.advantage < 0), above=chosen & (rows.advantage > 0))


@declared("filter: only the highest entropies", judged=Judged.ENTROPY, updates=True)
def top_entropy(rows: Rows, *, entropy_share: float) -> Gate:
    """Keep the share of tokens in whose states pi_k has the highest entropy (Wang et al. 2025; TRL's
    top_entropy_quantile); the others are on side -1.

    Raises:
        RatioscopeError: no entropy is known.
    """
    if rows.entropy is None:
        raise RatioscopeError("The tokens of the highest entropy cannot be chosen: no entropy is known.")
    entropy = rows.entropy.double()
    lowest = entropy.quantile(1 - entropy_share) if len(entropy) else entropy.sum()
    below = (rows.advantage != 0) & (entropy < lowest)
    return hard(below=below, above=torch.zeros_like(below))
