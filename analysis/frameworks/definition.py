"""What a framework's number is: a row with its name, its formula, and a function of one step's tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.frameworks.sources import Framework
from ratioscope.run_format.manifest import Manifest, as_finite
from ratioscope.tails import Array

Indices = NDArray[np.int64]
Parameters = Mapping[str, float]

# Where float32, in which all of them compute, overflows.
FLOAT32_LIMIT = log(float(np.finfo(np.float32).max))

# The clamp on log-ratios that several of them share.
SAFETY_BOUND = 20.0


@dataclass(frozen=True)
class StepTokens:
    """The usable tokens of one step, each (n_tokens,), and its sequences' rewards; NaN: not logged."""

    behavior: Array
    """Log-probability by the sampler: their rollout, generation or inference log-probs."""
    current: Array
    """At the start of the update: their old, proximal or prev log-probs."""
    recomputed: Array
    """By the trainer with the weights that sampled: the old log-probs of those who compute them at generation."""
    gate: Array
    """At the last gradient pass: their current or trainer log-probs; `current` where not logged, NaN: no gate."""
    reference: Array
    entropy: Array
    advantage: Array
    lag: Array
    """Updates since the version that sampled the token."""
    sequence: Indices
    """Index of the token's sequence, from 0 without gaps."""
    reward: Array
    """(n_sequences logged,)"""
    length: Array
    """(n_sequences logged,)"""
    group: Indices
    """(n_sequences logged,)"""
    micro_batch: Array | None = None
    """The micro-batch of the update that the token's response was in; NaN where not logged, None nowhere."""
    rank: Array | None = None
    """The process that learned from the token's response; likewise."""
    environment: Indices | None = None
    """Index of the environment of the token's response; -1: none."""
    gate_logged: bool = True
    """Whether any token of the step has a logp_gate of its own."""
    grouped: bool = True
    """Whether prompt groups are logged; otherwise every response is one."""

    @cached_property
    def log_rho(self) -> Array:
        """log of current over behavior."""
        return self.current - self.behavior

    @cached_property
    def log_r(self) -> Array:
        """log of the policy at the last gradient pass over that at the start of the update."""
        return self.gate - self.current

    @cached_property
    def at_generation(self) -> Array:
        """The policy that sampled, as the trainer evaluates it; where that is not logged, that before the update."""
        return np.where(np.isnan(self.recomputed), self.current, self.recomputed)

    @cached_property
    def lengths(self) -> Array:
        """Usable tokens of each sequence."""
        return np.bincount(self.sequence).astype(float)

    def sums(self, values: Array) -> Array:
        """(n_sequences,)"""
        return np.bincount(self.sequence, weights=values).astype(float)

    def means(self, values: Array, mask: NDArray[np.bool_] | None = None) -> Array:
        """Mean inside each sequence, (n_sequences,); of the tokens of a mask, and 0 where it has none."""
        if mask is None:
            return self.sums(values) / self.lengths
        return self.sums(np.where(mask, values, 0.0)) / np.maximum(self.sums(mask.astype(float)), 1)

    @cached_property
    def gated(self) -> "StepTokens":
        """Without the tokens that have no gate (`analysis.what_if.gated`)."""
        there = ~np.isnan(self.gate)
        return self if there.all() else self.those(there)

    def those(self, there: NDArray[np.bool_]) -> "StepTokens":
        """Some of the tokens, with all of the responses that are listed."""
        of_tokens = {name: getattr(self, name) for name in OF_TOKENS}
        found = {name: values[there] for name, values in of_tokens.items() if values is not None}
        return replace(self, sequence=np.unique(self.sequence[there], return_inverse=True)[1], **found)

    def parts(self, size: int = 1) -> "list[StepTokens]":
        """The tokens of each micro-batch, or of each `size` of them; [] where not every token's is logged."""
        return self._by(None if self.micro_batch is None else self.micro_batch // size)

    @cached_property
    def by_process(self) -> "list[StepTokens]":
        """The tokens of each process; [] where not every token's is logged."""
        return self._by(self.rank)

    def _by(self, part: Array | None) -> "list[StepTokens]":
        if part is None or np.isnan(part).any():
            return []
        return [self.those(part == one) for one in np.unique(part)]

    def logged(self, column: str) -> bool:
        """Whether a column has a value; of responses, too, where they are listed at all."""
        if column == "group":
            return self.grouped
        return bool(np.isfinite(getattr(self, column)).any())

    def asked_by(self, compute: "Callable[[StepTokens, Parameters], object]", parameters: Parameters) -> set[str]:
        """Which of the columns a formula looks at."""
        watched = object.__new__(_Watched)
        asked = set[str]()
        watched.__dict__.update({each.name: getattr(self, each.name) for each in fields(self)} | {"asked": asked})
        with np.errstate(all="ignore"):
            compute(watched, parameters)
        return asked


OF_TOKENS = (
    "behavior", "current", "recomputed", "gate", "reference", "entropy", "advantage", "lag",
    "micro_batch", "rank", "environment",
)  # fmt: skip
"""Fields of `StepTokens` with a value a token, without `sequence`."""


class _Watched(StepTokens):
    """Tokens that write down which of their columns are looked at."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            object.__getattribute__(self, "__dict__")["asked"].add(name)
        return object.__getattribute__(self, name)


class Averaged(Enum):
    """Parts of an update whose values a framework averages."""

    MICRO_BATCHES = "micro-batches"
    GENERATIONS = "generations"
    """What was sampled at once; an update may take several, or a part of one."""


@dataclass(frozen=True)
class AsRun:
    """What a run's manifest says of its loss, in a framework's words."""

    loss: str = ""
    """Name of the loss; "": not known, and the framework's default is assumed."""
    parameters: Parameters = field(default_factory=dict)
    """In place of the defaults."""


@dataclass(frozen=True)
class TheirNumber:
    """One number in a framework's log."""

    name: str
    formula: str
    """In words."""
    why: str
    """Why it differs from ours, or what it is when we have none like it."""
    compute: Callable[[StepTokens, Parameters], float]
    ours: str = ""
    """The catalogue key that is closest; empty: none."""
    same: bool = False
    """Whether it is defined as ours, up to their clamps and to the pass of an update that they average over."""
    instead: str = ""
    """Where none is close: the catalogue key that answers the question it is read for."""
    needs: tuple[str, ...] = ()
    """Columns of `StepTokens` that have to be logged; a number that needs `gate` is of the tokens that have one."""
    clamped: Callable[[StepTokens, Parameters], NDArray[np.bool_]] | None = None
    """Which terms (tokens or sequences) their clamp or mask changes."""

    losses: tuple[str, ...] = ()
    """Names of the losses that log it; (): all."""
    averaged: Averaged | None = None
    """Over what parts of an update a mean of its values is logged; None: it is of the whole."""
    of_processes: bool = False
    """Whether it is a mean of the processes' own values."""

    @property
    def nearest(self) -> str:
        """The catalogue key to read beside it."""
        return self.ours or self.instead


@dataclass(frozen=True)
class Dialect:
    """How one framework reports."""

    framework: Framework
    settings: str
    """What is assumed to be switched on, in words."""
    rows: tuple[TheirNumber, ...]
    not_reproducible: Mapping[str, str] = field(default_factory=dict)
    """Names that cannot be reproduced from a log, and why."""
    default_loss: str = ""
    as_run: Callable[[Manifest], AsRun] = lambda manifest: AsRun()
    """What a run's manifest says; of runs of other frameworks nothing."""
    per_environment: str = ""
    """The part of a name in whose place an environment's stands: those numbers are logged of each, too."""

    @property
    def parameters(self) -> Parameters:
        """Their defaults, with which the numbers are computed."""
        return self.framework.defaults

    def of_environment(self, environment: str) -> tuple[TheirNumber, ...]:
        """The numbers that are logged of one environment: none where its name is that of all of them, or empty."""
        if environment in ("", self.per_environment.strip("/")):
            return ()
        return tuple(
            replace(
                row,
                name=row.name.replace(self.per_environment, f"/{environment}/"),
                formula=f"{row.formula}, of the responses in {environment}",
                ours="",
                same=False,
                instead=row.nearest,
            )
            for row in self.rows
            if self.per_environment and self.per_environment in row.name
        )

    def row(self, name: str) -> TheirNumber | None:
        """The number of a name, an environment's among them."""
        if found := next((row for row in self.rows if row.name == name), None):
            return found
        environment = name.partition("/")[2].rpartition("/")[0]
        return next((row for row in self.of_environment(environment) if row.name == name), None)


def named_framework(manifest: Manifest) -> str:
    """The framework that trained, in the form of the keys; "" where the manifest does not say it."""
    return str(manifest.source.get("framework", "")).strip().lower().replace("-", "_")


def setting_of(manifest: Manifest, name: str) -> float | None:
    """A number among the parameters of a run's algorithm; None where it has none of that name."""
    return as_finite(manifest.parameters.get(name))


def exp_of(values: Array) -> Array:
    """e^x as float32 has it: infinite from 88.7 on."""
    return np.where(values > FLOAT32_LIMIT, np.inf, np.exp(np.minimum(values, FLOAT32_LIMIT)))


def clamp(values: Array) -> Array:
    return np.clip(values, -SAFETY_BOUND, SAFETY_BOUND)


def beyond(values: Array) -> NDArray[np.bool_]:
    """What `clamp` changes."""
    return np.abs(values) > SAFETY_BOUND


def mean(values: Array | NDArray[np.bool_]) -> float:
    return float(np.mean(values))


def std(values: Array) -> float:
    """Sample standard deviation; NaN for a single value, as torch has it."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def k3(log_ratio: Array) -> Array:
    return exp_of(log_ratio) - log_ratio - 1


def clipped_low(tokens: StepTokens, log_ratio: Array, epsilon: float) -> NDArray[np.bool_]:
    """A < 0 and the ratio below 1 - epsilon."""
    return (tokens.advantage < 0) & (exp_of(log_ratio) < 1 - epsilon)


def clipped_high(tokens: StepTokens, log_ratio: Array, epsilon: float) -> NDArray[np.bool_]:
    """A > 0 and the ratio above 1 + epsilon."""
    return (tokens.advantage > 0) & (exp_of(log_ratio) > 1 + epsilon)
