"""The numbers that gates, filters and weights take: what each means, its range, its symbol and its slider.

The trainer's algorithms and the what-if analysis hold theirs against the same ranges. A gate, filter or weight is a
function and a row that declares it beside the function (`Declared`); a parameter is a keyword-only argument of the
function and a row here.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """Meaning and allowed range; `above` excludes `low` itself."""

    meaning: str
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    whole: bool = False

    def allows(self, value: float) -> bool:
        over = value > self.low if self.above else value >= self.low
        return over and value <= self.high and (not self.whole or value == int(value))

    @property
    def range(self) -> str:
        """The allowed values in words."""
        number = "a whole number " if self.whole else ""
        low = f"{number}{'above' if self.above else 'from'} {self.low:g}"
        return low if self.high == math.inf else f"{low} to {self.high:g}"


@dataclass(frozen=True)
class Scale:
    """The values of a parameter that people choose from; a range may have no upper end, a slider must."""

    low: float
    high: float
    typical: float
    """Where a rule starts that has not had the parameter before."""
    logarithmic: bool = True


@dataclass(frozen=True, kw_only=True)
class RuleParameter(Parameter):
    """A parameter of a gate, a filter or a weight, as it is shown and moved."""

    symbol: str
    """Plain text."""
    label: str
    """Symbol and words, LaTeX between dollar signs."""
    scale: Scale
    at_least: str = ""
    """The parameter that it must not be below, where a rule has both."""


# Rules of whole sequences have bounds of 1e-4.
PARAMETERS: dict[str, RuleParameter] = {
    "epsilon_low": RuleParameter(
        "lower clip bound: ratios below 1 - epsilon_low", high=1,
        symbol="ε_low", label=r"$\varepsilon_{low}$ lower bound", scale=Scale(1e-4, 1, 0.2),
    ),
    "epsilon_high": RuleParameter(
        "upper clip bound: ratios above 1 + epsilon_high",
        symbol="ε_high", label=r"$\varepsilon_{high}$ upper bound", scale=Scale(1e-4, 10, 0.2),
    ),
    "outer_low": RuleParameter(
        "lower outer margin of the ring, at least epsilon_low", high=1, at_least="epsilon_low",
        symbol="ε′_low", label=r"$\varepsilon'_{low}$ outer margin below", scale=Scale(1e-2, 1, 0.6),
    ),
    "outer_high": RuleParameter(
        "upper outer margin of the ring, at least epsilon_high", at_least="epsilon_high",
        symbol="ε′_high", label=r"$\varepsilon'_{high}$ outer margin above", scale=Scale(1e-2, 20, 2.0),
    ),
    "epsilon": RuleParameter(
        "half the width of a band centred at the current policy", above=True,
        symbol="ε′", label=r"$\varepsilon'$ half width", scale=Scale(1e-4, 10, 0.2),
    ),
    "epsilon_log": RuleParameter(
        "clip bound on the log-ratio, in nats", above=True,
        symbol="ε (nats)", label=r"$\varepsilon$ bound, nats", scale=Scale(1e-4, 10, 0.4),
    ),
    "epsilon_stale": RuleParameter(
        "largest distance of rho_k from 1",
        symbol="ε_stale", label=r"$\varepsilon_{stale}$ distance from 1", scale=Scale(1e-4, 10, 0.4),
    ),
    "cap": RuleParameter(
        "largest importance weight", low=1, symbol="C", label="$C$ largest weight", scale=Scale(1, 100, 2.0)
    ),
    "floor": RuleParameter(
        "smallest importance weight", high=1, symbol="c", label="$c$ smallest weight", scale=Scale(1e-3, 1, 0.5)
    ),
    "dual": RuleParameter(
        "ratio above which tokens with A < 0 are stopped", low=1,
        symbol="c, A < 0", label="$c$ largest ratio, A < 0", scale=Scale(1, 100, 3.0),
    ),
    "power_positive": RuleParameter(
        "exponent k of the ratio where A > 0", above=True,
        symbol="k, A > 0", label="$k_{+}$ exponent, A > 0", scale=Scale(1e-1, 100, 2.0),
    ),
    "decay_positive": RuleParameter(
        "decay λ in the ratio where A > 0", above=True,
        symbol="λ, A > 0", label=r"$\lambda_{+}$ decay, A > 0", scale=Scale(1e-1, 100, 3.0),
    ),
    "power_negative": RuleParameter(
        "exponent k of the ratio where A < 0", above=True,
        symbol="k, A < 0", label="$k_{-}$ exponent, A < 0", scale=Scale(1e-1, 100, 3.0),
    ),
    "decay_negative": RuleParameter(
        "decay λ in the ratio where A < 0", above=True,
        symbol="λ, A < 0", label=r"$\lambda_{-}$ decay, A < 0", scale=Scale(1e-1, 100, 2.0),
    ),
    "tau_positive": RuleParameter(
        "temperature of the soft gate where A > 0", above=True,
        symbol="τ, A > 0", label=r"$\tau_{+}$ temperature, A > 0", scale=Scale(1e-2, 100, 1.0),
    ),
    "tau_negative": RuleParameter(
        "temperature of the soft gate where A < 0", above=True,
        symbol="τ, A < 0", label=r"$\tau_{-}$ temperature, A < 0", scale=Scale(1e-2, 100, 1.05),
    ),
    "delta": RuleParameter(
        "largest mean divergence of a response with A < 0, in nats",
        symbol="δ (nats)", label=r"$\delta$ divergence, nats", scale=Scale(1e-4, 10, 0.1),
    ),
    "difference_low": RuleParameter(
        "how far a probability may fall", high=1,
        symbol="Δ_low", label=r"$\Delta_{low}$ fall of probability", scale=Scale(1e-4, 1, 0.2),
    ),
    "difference_high": RuleParameter(
        "how far a probability may rise", high=1,
        symbol="Δ_high", label=r"$\Delta_{high}$ rise of probability", scale=Scale(1e-4, 1, 0.2),
    ),
    "difference": RuleParameter(
        "how far a probability may move, up or down", high=1,
        symbol="Δ", label=r"$\Delta$ change of probability", scale=Scale(1e-4, 1, 0.1),
    ),
    "threshold": RuleParameter(
        "largest divergence that is kept, in nats",
        symbol="threshold (nats)", label="threshold, nats", scale=Scale(1e-4, 10, 0.01),
    ),
    "moment": RuleParameter(
        "largest mean of the squared log-ratios",
        symbol="τ_M", label=r"$\tau_M$ second moment", scale=Scale(1e-4, 1, 0.04),
    ),
    "covariance_low": RuleParameter(
        "covariance from which on tokens may be dropped",
        symbol="ω_low", label=r"$\omega_{low}$ covariance", scale=Scale(1e-2, 100, 1.0),
    ),
    "covariance_high": RuleParameter(
        "covariance up to which tokens may be dropped", at_least="covariance_low",
        symbol="ω_high", label=r"$\omega_{high}$ covariance", scale=Scale(1e-2, 100, 5.0),
    ),
    "covariance_share": RuleParameter(
        "share of the tokens with the largest covariance, at least one token", above=True, high=1,
        symbol="share", label="share of tokens", scale=Scale(1e-4, 1, 2e-4),
    ),
    "entropy_share": RuleParameter(
        "share of the tokens that is kept, those of the highest entropy", above=True, high=1,
        symbol="share", label="share of tokens", scale=Scale(1e-2, 1, 0.2),
    ),
    "max_lag": RuleParameter(
        "largest number of updates since the oldest token of a response was sampled",
        symbol="W − 1", label="$W-1$ oldest lag kept", scale=Scale(0, 64, 8, logarithmic=False),
    ),
}  # fmt: skip


class Judged(Enum):
    """What of a token a gate, filter or weight looks at."""

    RATIO = "rho_theta"
    STEP = "rho_theta against rho_k"
    STALENESS = "rho_k"
    PROBABILITY = "the probability itself"
    AGE = "when it was sampled"
    ENTROPY = "the policy's entropy"


@dataclass(frozen=True)
class Declared:
    """A function of the rule's algebra and what everybody asks about it; its docstring is its sentence and source."""

    function: Callable[..., Any]
    words: str
    """Its name in a list to choose from, plain text."""
    judged: Judged

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def parameters(self) -> dict[str, RuleParameter]:
        """The function's keyword-only arguments, in its order."""
        return {name: PARAMETERS[name] for name in keywords_of(self.function)}


def keywords_of(part: Callable[..., Any]) -> list[str]:
    """Names of a part's keyword-only arguments: the parameters that it takes."""
    arguments = inspect.signature(part).parameters.values()
    return [argument.name for argument in arguments if argument.kind is argument.KEYWORD_ONLY]


def inside_out(values: Mapping[str, float]) -> tuple[str, str] | None:
    """The first two of the values, (inner, outer), of which the outer one lies inside of the inner one; None: none."""
    for outer, row in PARAMETERS.items():
        if row.at_least and {outer, row.at_least} <= values.keys() and values[outer] < values[row.at_least]:
            return row.at_least, outer
    return None
