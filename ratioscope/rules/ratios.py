"""Log-ratios between the policies of one logged token, and the plain distances built from them.

b, c, n are the log-probabilities of the sampled action under the behavior, the current and the new policy
(columns logp_behavior, logp_current, logp_new). Log-probabilities are float32; differences are taken in float64,
and ratios leave log space at the last moment.
"""

from collections.abc import Callable
from typing import NamedTuple

from ratioscope.tensors import Tensor, as_type, sum_by, torch, xp


class LogRatios(NamedTuple):
    """What a gate may look at, each of shape (n_tokens,).

    behavior: log of rho_theta = pi_theta / behavior, at the gradient pass.
    current: log of rho_k = pi_k / behavior, at the start of the update.
    """

    behavior: Tensor
    current: Tensor

    @property
    def incremental(self) -> Tensor:
        """log of r = pi_theta / pi_k (S0 5.3)."""
        return self.behavior - self.current


def log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """log p/q from log-probabilities, in float64; -inf in the numerator is a legitimate ratio of 0."""
    return as_type(numerator, "float64") - as_type(denominator, "float64")


def sequence_log_ratio(token_log_ratio: Tensor, sequence: Tensor, n_sequences: int) -> Tensor:
    """log W = sum of the token log-ratios of each sequence (S1 4.2); `sequence` (n_tokens,) counts from 0."""
    return sum_by(token_log_ratio, sequence, n_sequences)


def count_sequences(sequence: Tensor) -> int:
    """How many sequences an index from 0, (n_tokens,), counts."""
    return int(sequence.max()) + 1 if len(sequence) else 0


def sum_over_sequence(values: Tensor, sequence: Tensor) -> Tensor:
    """The sum over each token's sequence, (n_tokens,)."""
    return sequence_log_ratio(values, sequence, count_sequences(sequence))[sequence]


def mean_over_sequence(values: Tensor, sequence: Tensor) -> Tensor:
    """The mean over each token's sequence, (n_tokens,)."""
    n = count_sequences(sequence)
    length = xp.clip(xp.bincount(sequence, minlength=n), 1, None)
    return (sequence_log_ratio(values, sequence, n) / length)[sequence]


def token_level(ratios: LogRatios, sequence: Tensor) -> LogRatios:
    """Every token has its own ratio."""
    return ratios


def sequence_level(ratios: LogRatios, sequence: Tensor) -> LogRatios:
    """Every token has the ratio of its whole sequence, the product over the tokens (S4 eq. 105)."""
    return LogRatios(*(sum_over_sequence(ratio, sequence) for ratio in ratios))


def geometric_level(ratios: LogRatios, sequence: Tensor) -> LogRatios:
    """Every token has the geometric mean of its sequence's ratios (S4 eq. 107)."""
    return LogRatios(*(mean_over_sequence(ratio, sequence) for ratio in ratios))


class Level(NamedTuple):
    """Whose ratio a token has."""

    of: Callable[[LogRatios, Tensor], LogRatios]
    """Token log-ratios and the index of each token's sequence -> the log-ratios of the level."""
    words: str


LEVELS: dict[str, Level] = {
    "token": Level(token_level, "tokens"),
    "sequence": Level(sequence_level, "sequences: product"),
    "geometric": Level(geometric_level, "sequences: geometric mean"),
}


def total_variation(log_ratio_p: Tensor, log_ratio_q: Tensor | None = None) -> Tensor:
    """TV(p, q) estimated from samples of b: half the mean of |p/b - q/b|; q = b when left out (S0 4.6).

    Args:
        log_ratio_p: log p/b, (n_tokens,).
        log_ratio_q: log q/b, (n_tokens,).
    """
    if log_ratio_q is None:
        return torch.expm1(log_ratio_p).abs().mean() / 2
    return (torch.exp(log_ratio_p) - torch.exp(log_ratio_q)).abs().mean() / 2
