"""The tokens that rules are applied to: the usable rows of a range of steps as tensors, in blocks of prompt groups.

What no rule changes (ratios, distances, raw sums) is computed once for each block and kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratioscope.rules.filters import Rows
from ratioscope.rules.ratios import LEVELS, LogRatios, log_ratio
from ratioscope.tails import Array
from ratioscope.tensors import Tensor, torch
from ratioscope.terms import LOG_RHO, LOG_RHO_NEW, evaluate_term, ratio_distance

# So many tokens of float64 columns stay in the caches of a processor: faster than all tokens at once.
BLOCK_TOKENS = 131_072

_DRIFT = ratio_distance(LOG_RHO_NEW, LOG_RHO)


@dataclass(frozen=True)
class Tokens:
    """Usable tokens with ratio and advantage, sorted by step, prompt group and sequence; each tensor is (n_tokens,).

    `logp_new` is None where the range does not log it throughout.
    """

    step: Tensor
    group: Tensor
    """Index of the prompt group (of one step), from 0: the unit of dependence."""
    sequence: Tensor
    """Index of the sequence, from 0."""
    logp_behavior: Tensor
    logp_current: Tensor
    logp_gate: Tensor
    """Where the loss evaluated its gate; `logp_current` where that was not logged."""
    advantage: Tensor
    version_lag: Tensor | None
    """None where the range does not log the version throughout."""
    whole: Tensor
    """Bool: no token of its sequence is unusable."""
    logp_new: Tensor | None = None
    without_gate: int = 0
    """Rows of the range that were left out for their logp_gate alone (`analysis.what_if.gated`)."""
    fraction: float = 1.0
    """Share of the range's tokens that are here; below 1 it is a random sample of whole prompt groups."""

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def complete(self) -> "Tokens":
        """The tokens of whole sequences: what a sequence rule can be applied to."""
        return self if bool(self.whole.all()) else self._at(self.whole)

    def sample(self, max_tokens: int, seed: int = 0) -> "Tokens":
        """Randomly chosen prompt groups with at most `max_tokens` tokens (at least one group); all, where they fit."""
        if len(self) <= max_tokens:
            return self
        sizes = np.diff(self.group_starts, append=len(self))
        order = np.random.default_rng(seed).permutation(len(sizes))
        chosen = np.zeros(len(sizes), dtype=bool)
        chosen[order[: max(1, int((np.cumsum(sizes[order]) <= max_tokens).sum()))]] = True
        sample = self._at(torch.from_numpy(np.repeat(chosen, sizes)))
        return replace(sample, fraction=self.fraction * len(sample) / len(self))

    @cached_property
    def blocks(self) -> tuple["Tokens", ...]:
        """The same tokens in blocks of whole prompt groups, of about `BLOCK_TOKENS` each."""
        number = self.group_starts // BLOCK_TOKENS
        cuts = [0, *self.group_starts[1:][number[1:] > number[:-1]].tolist(), len(self)]
        return tuple(self._at(slice(start, end)) for start, end in pairwise(cuts)) if len(cuts) > 2 else (self,)

    def _at(self, places: Tensor | slice) -> "Tokens":
        columns: dict[str, Any] = {
            f.name: value[places] for f in fields(self) if isinstance(value := getattr(self, f.name), torch.Tensor)
        }
        for name in ("group", "sequence"):
            columns[name] = torch.unique_consecutive(columns[name], return_inverse=True)[1]
        if self.logp_gate is self.logp_current:
            columns["logp_gate"] = columns["logp_current"]
        return replace(self, **columns)

    @cached_property
    def group_starts(self) -> NDArray[np.int64]:
        """Where each prompt group begins, (n_groups,)."""
        return starts_of(self.group.numpy())

    @cached_property
    def sequence_starts(self) -> NDArray[np.int64]:
        """Where each sequence begins, (n_sequences,)."""
        return starts_of(self.sequence.numpy())

    @cached_property
    def rows(self) -> Rows:
        """Token ratios and what filters look at beside them."""
        current = log_ratio(self.logp_current, self.logp_behavior)
        one_pass = self.logp_gate is self.logp_current
        behavior = current if one_pass else log_ratio(self.logp_gate, self.logp_behavior)
        return Rows(LogRatios(behavior, current), self.advantage, self.sequence, self.logp_behavior, self.version_lag)

    @cached_property
    def signal(self) -> Tensor:
        """Bool: the advantage is not 0, so that there is a gradient that a rule can change."""
        return self.advantage != 0

    @cached_property
    def size(self) -> Tensor:
        """|A|, float64."""
        return self.advantage.double().abs()

    @cached_property
    def rho_k(self) -> Tensor:
        """pi_k / behavior."""
        return self.rows.ratios.current.exp()

    @cached_property
    def log_rho_new(self) -> Tensor | None:
        """log of pi_{k+1} / behavior; None where logp_new is not logged."""
        return None if self.logp_new is None else log_ratio(self.logp_new, self.logp_behavior)

    @cached_property
    def staleness(self) -> Tensor:
        """½ |rho_k - 1|: a token's part of staleness in its plain form.

        What rules keep is chosen by the ratio. The bounded form looks at one side of 1 only: a cap on the other
        side can raise it.
        """
        return torch.expm1(self.rows.ratios.current).abs_() / 2

    @cached_property
    def drift(self) -> Tensor | None:
        """½ |rho_{k+1} - rho_k|: a token's part of U_k; None where logp_new is not logged."""
        if self.log_rho_new is None:
            return None
        columns = {"log_rho": self.rows.ratios.current, "log_rho_new": self.log_rho_new}
        distance: Tensor = evaluate_term(_DRIFT, columns, torch)
        return distance / 2

    @cached_property
    def sums(self) -> dict[str, Array]:
        """Counts and raw sums by prompt group that no rule changes."""
        sums = {
            "tokens": self.sum_by_group(torch.ones(len(self), dtype=torch.float64)),
            "signal": self.sum_by_group(self.signal),
            "positive": self.sum_by_group(self.advantage > 0),
            "staleness": self.sum_by_group(masked(self.staleness, self.signal)),
        }
        return sums | {"negative": sums["signal"] - sums["positive"]}

    @cached_property
    def steps(self) -> dict[int, "StepsPart"]:
        """Where each step's tokens, prompt groups and sequences are."""
        step = self.step.numpy()
        cuts = [
            np.append(starts_of(of_rows), len(of_rows)).tolist()
            for of_rows in (step, step[self.group_starts], step[self.sequence_starts])
        ]
        slices = [[slice(start, end) for start, end in pairwise(of_rows)] for of_rows in cuts]
        return {int(step[part[0].start]): StepsPart(*part) for part in zip(*slices, strict=True)}

    @cached_property
    def weighted(self) -> dict[str, "Weighted"]:
        """Weights without parameters, by name and level; filled by what computes them (`analysis.what_if.judging`)."""
        return {}

    @cached_property
    def _levels(self) -> dict[str, "LevelRatios"]:
        return {}

    def level(self, name: str) -> "LevelRatios":
        """The ratios of a level, computed once."""
        if name not in self._levels:
            ratios = LEVELS[name].of(self.rows.ratios, self.sequence)
            rho = self.rho_k if ratios.behavior is self.rows.ratios.current else ratios.behavior.exp()
            sums = {
                "rho": self.sum_by_group(masked(rho, self.signal)),
                "rho_squared": self.sum_by_group(masked(rho.square(), self.signal)),
                "rho_deviation": self.sum_by_group(masked(torch.expm1(ratios.behavior).square_(), self.signal)),
            }
            self._levels[name] = LevelRatios(ratios, rho, sums)
        return self._levels[name]

    def sum_by_group(self, values: Tensor) -> Array:
        """(n_tokens,) -> sums, (n_groups,), float64."""
        if not len(self):
            return np.zeros(0)
        counted = values.dtype is torch.bool  # as whole numbers it takes half the time
        return np.add.reduceat(values.numpy(), self.group_starts, dtype=np.int32 if counted else np.float64).astype(
            np.float64, copy=False
        )


class StepsPart(NamedTuple):
    """Some steps: which tokens, prompt groups and sequences are theirs."""

    tokens: slice
    groups: slice
    sequences: slice


EVERYTHING = StepsPart(slice(None), slice(None), slice(None))


class LevelRatios(NamedTuple):
    """The ratios of tokens, or of their sequences."""

    ratios: LogRatios
    rho: Tensor
    """rho_theta, (n_tokens,)."""
    sums: dict[str, Array]
    """Raw sums over the signal tokens of each prompt group."""


class Weighted(NamedTuple):
    """A rule's weights of a block."""

    weight: Tensor
    """Before the gate, 0 without an advantage, (n_tokens,)."""
    is_ratio: bool
    """Whether the weight is the ratio of its level itself: nothing of it is truncated."""
    mass: Array
    """Sum of |weight x A| by prompt group."""


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """`values` where `mask`, 0 elsewhere."""
    return torch.where(mask, values, 0.0)


def gated(values: Tensor, gate: Tensor) -> Tensor:
    """values x gate, (n_tokens,); values may be infinite: behind a closed gate they are 0."""
    return (values * gate).nan_to_num_(nan=0.0, posinf=torch.inf)


def tokens_of(columns: Mapping[str, Any], fraction: float = 1.0, without_gate: int = 0) -> Tokens:
    """Tokens from columns of the tokens table in any order, (n_tokens,) each.

    Args:
        columns: step, group_id, seq_id, logp_behavior, logp_current, advantage; as far as there are any version_lag,
            logp_gate, logp_new and position; and `whole`, without which every sequence is.
        fraction: share of the tokens of the range that these are.
        without_gate: see `Tokens`.
    """
    arrays = {name: np.asarray(values) for name, values in columns.items() if values is not None}
    keys = [arrays[name] for name in ("step", "group_id", "seq_id", "position") if name in arrays]
    if not _is_sorted(keys):
        order = np.lexsort(keys[::-1])
        arrays = {name: values[order] for name, values in arrays.items()}
    group = _numbered(arrays["step"], arrays["group_id"])
    tensors = {name: torch.from_numpy(np.require(values, requirements=("C", "W"))) for name, values in arrays.items()}
    return Tokens(
        step=tensors["step"],
        group=torch.from_numpy(group),
        sequence=torch.from_numpy(_numbered(group, arrays["seq_id"])),
        logp_behavior=tensors["logp_behavior"],
        logp_current=tensors["logp_current"],
        logp_gate=tensors.get("logp_gate", tensors["logp_current"]),
        advantage=tensors["advantage"],
        version_lag=tensors.get("version_lag"),
        whole=tensors.get("whole", torch.ones(len(group), dtype=torch.bool)),
        logp_new=tensors.get("logp_new"),
        without_gate=without_gate,
        fraction=fraction,
    )


def rows_of(columns: Mapping[str, Any]) -> Rows:
    """What rules look at, as NumPy arrays: of the columns that `tokens_of` takes, sorted already."""
    gate, current, behavior = (columns[name] for name in ("logp_gate", "logp_current", "logp_behavior"))
    sequence: Any = _numbered(columns["step"], columns["group_id"], columns["seq_id"])
    ratios = LogRatios(log_ratio(gate, behavior), log_ratio(current, behavior))
    return Rows(ratios, columns["advantage"], sequence, behavior, columns.get("version_lag"))


def starts_of(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of rows with equal keys begins."""
    return np.flatnonzero(_begins(keys))


def _numbered(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """0, 1, 2, ... for each run of equal keys in sorted rows."""
    return np.cumsum(_begins(keys)) - 1


def _begins(keys: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Whether a row differs from the one before it, (n_rows,)."""
    begins = np.zeros(len(keys[0]), dtype=bool)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return begins


def _is_sorted(keys: Sequence[NDArray[Any]]) -> bool:
    """Whether rows are in ascending order of the first key, then of the second, and so on."""
    undecided = np.ones(max(0, len(keys[0]) - 1), dtype=bool)
    for key in keys:
        if (undecided & (key[1:] < key[:-1])).any():
            return False
        undecided &= key[1:] == key[:-1]
    return True
