"""Tokens of whole prompt groups as arrays, with the states that responses share: what one column alone must satisfy.

A state is a prompt group, the tokens so far (where none of them was dropped) and, for what the sampler logs, the
version. There a log-probability is a function of the token (`Drawn.varying`), tokens that differ have their own
(`Drawn.blind`), the probabilities of different tokens add up to 1 at most (`Drawn.crowded`), and a second response
draws the same token with just that probability (`Collisions`).
"""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.what_if.tokens import starts_of

Floats = NDArray[np.float64]
Series = pd.Series

# Two passes over one state in other batches differ by rounding; what is further apart belongs to another token.
SAME_VALUE = 0.02
# In float32 they are equal to this.
ROUNDING = 1e-4
# Kernels that depend on the batch differ by more, in proportion to 1 - p: by how much their own repeats say, up to a
# multiple of the median that noise hardly reaches, and that values of other tokens exceed by far.
_NOISY_VALUE, _TIMES_MEDIAN, _LARGEST_NOISE = 0.25, 8.0, 1.0
# Float32 rounding and a coarse number format add up over the tokens of a state.
MOST_MASS = 1.05
_FEWEST = 20
COLUMNS = ("logp_behavior", "logp_behavior_train", "logp_current", "logp_new", "logp_reference")
SAMPLER = COLUMNS[:2]


@dataclass(frozen=True)
class Drawn:
    """What a column says inside shared states; NaN where too few are shared."""

    varying: float
    """Share of the repeated tokens of a state whose values differ."""
    blind: float
    """Share of the states with different uncertain tokens where all have one value."""
    crowded: float
    """Share of the states with several tokens whose probabilities add up to more than 1."""


@dataclass(frozen=True)
class Collisions:
    """How often a second response draws the first one's token, against the logged probability of that."""

    excess: float
    """Mean over tokens of (share of the others with the same token) - p."""
    z: float
    """In cluster-robust standard errors; 0 where p is the sampler's."""
    n: int
    expected: float
    """Mean p."""


class Sample:
    """Usable and unusable rows of whole groups, sorted by step, response and position.

    Args:
        rows: of `examined`, see sample.sql.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        known = rows["token_id"].notna()
        if known.any() and not known.all():  # a state is the tokens before it, which have to be known
            rows = rows[known.groupby([rows["step"], rows["seq_id"]]).transform("all")].reset_index(drop=True)
        self.rows = rows
        self._columns: dict[str, Floats] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> Floats:
        """A column in double, (n_rows,); NaN where it is not logged or the row is missing it."""
        if name not in self._columns:
            self._columns[name] = self.rows[name].to_numpy(dtype=float, na_value=np.nan)
            self._columns[name].flags.writeable = False
        return self._columns[name]

    @cached_property
    def sampled(self) -> Floats:
        """What ratios divide by: logp_behavior, else its recomputation, (n_rows,)."""
        behavior = self.column("logp_behavior")
        return np.where(np.isnan(behavior), self.column("logp_behavior_train"), behavior)

    def logged(self, name: str) -> bool:
        """Whether a column has a finite value."""
        return bool(np.isfinite(self.column(name)).any())

    @cached_property
    def response(self) -> NDArray[np.int64]:
        """Number of the response, (n_rows,)."""
        keys = self.rows[["step", "seq_id"]].to_numpy(dtype=np.int64)
        begins = np.any(keys[1:] != keys[:-1], axis=1)
        return np.concatenate([np.zeros(min(1, len(keys)), dtype=np.int64), np.cumsum(begins)])

    @cached_property
    def group(self) -> NDArray[np.int64]:
        """Number of the prompt group of a step, (n_rows,)."""
        return self.rows.groupby(["step", "group_id"], sort=False).ngroup().to_numpy().astype(np.int64)

    @cached_property
    def follows_all(self) -> NDArray[np.bool_]:
        """Whether every token before this one is there, so that its state is known, (n_rows,)."""
        before = self.rows.groupby(self.response)["position"].cumcount()
        return np.asarray(before.to_numpy() == self.rows["position"].to_numpy())

    @cached_property
    def path(self) -> NDArray[np.uint64]:
        """A number for the tokens before this one in the response, (n_rows,)."""
        mixed = (self.token.view(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= self.rows["position"].to_numpy(dtype=np.int64).view(np.uint64) * np.uint64(2) + np.uint64(
            0xBF58476D1CE4E5B9
        )
        mixed ^= mixed >> np.uint64(32)
        return pd.Series(mixed).groupby(self.response).cumsum().to_numpy() - mixed

    @cached_property
    def version_state(self) -> NDArray[np.int64]:
        """Number of the state of the version that sampled, (n_rows,)."""
        return self._number(self.group, self.rows["behavior_version"], self.rows["position"], self.path)

    @cached_property
    def state(self) -> NDArray[np.int64]:
        """Number of the state, whatever version sampled there, (n_rows,)."""
        return self._number(self.group, self.rows["position"], self.path)

    def state_of(self, column: str) -> NDArray[np.int64]:
        """The states in which a column is one function of the token."""
        return self.version_state if column in SAMPLER else self.state

    def _number(self, *keys: object) -> NDArray[np.int64]:
        frame = pd.DataFrame(dict(enumerate(keys)))
        return frame.groupby(list(frame), sort=False, dropna=False).ngroup().to_numpy().astype(np.int64)

    @cached_property
    def token(self) -> NDArray[np.int64]:
        """token_id, which has to be known, (n_rows,)."""
        return self.rows["token_id"].to_numpy(dtype=np.int64)

    @cached_property
    def _by_version_state(self) -> NDArray[np.intp]:
        return np.lexsort((self.token, self.version_state))

    @cached_property
    def _by_state(self) -> NDArray[np.intp]:
        return np.lexsort((self.token, self.state))

    def _shared(self, column: str) -> "_Shared":
        """A column by state and token."""
        rows = self._by_version_state if column in SAMPLER else self._by_state
        x = self.column(column)
        rows = rows[(np.isfinite(x) & self.follows_all)[rows]]
        state, x = self.state_of(column)[rows], x[rows]
        starts = starts_of(state, self.token[rows])
        sizes = np.diff(starts, append=len(rows))
        lowest, highest = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
        return _Shared(state[starts], sizes > 1, lowest, highest, np.add.reduceat(x, starts) / sizes)

    def restless(self, column: str) -> float:
        """Share of the repeated, uncertain tokens of a state whose values differ at all; NaN for a few."""
        tokens = self._shared(column)
        return _share((tokens.highest - tokens.lowest)[tokens.unsure_again] > ROUNDING)

    def drawn(self, column: str) -> Drawn:
        """What a column says inside the states that several responses share."""
        tokens = self._shared(column)
        least, most = tokens.lowest[tokens.unsure_again], tokens.highest[tokens.unsure_again]
        apart, unsure = most - least, -np.expm1(least)
        typical = float(np.median(apart / unsure)) if len(apart) else np.nan
        noise = float(np.clip(_TIMES_MEDIAN * typical, _NOISY_VALUE, _LARGEST_NOISE))
        varying = _share(apart > np.maximum(SAME_VALUE * (1 + np.abs(least)), noise * unsure))
        states = starts_of(tokens.state)
        several = np.diff(states, append=len(tokens.state)) > 1
        lowest, highest = np.minimum.reduceat(tokens.lowest, states), np.maximum.reduceat(tokens.highest, states)
        blind = _share((highest - lowest)[several & (lowest < -SAME_VALUE)] < 1e-5)
        mass = np.add.reduceat(np.exp(tokens.mean), states)[several]
        return Drawn(varying, blind, _share(mass > MOST_MASS))

    def collisions(self, column: str, keep: NDArray[np.bool_]) -> Collisions:
        """The tokens of a state against the probabilities that a column gives them; of the rows to keep."""
        with np.errstate(over="ignore"):
            p = np.exp(self.column(column))
        keep = keep & np.isfinite(p) & self.follows_all
        rows = self._by_version_state[keep[self._by_version_state]]
        n, same = np.empty((2, len(self)), dtype=np.int64)
        for counts, keys in ((n, (self.version_state[rows],)), (same, (self.version_state[rows], self.token[rows]))):
            sizes = np.diff(starts_of(*keys), append=len(rows))
            counts[rows] = np.repeat(sizes, sizes)
        n, same = n[keep], same[keep]
        shared = n > 1
        excess = (same[shared] - 1) / (n[shared] - 1) - p[keep][shared]
        return Collisions(
            float(excess.mean()) if len(excess) else float("nan"),
            self.z(excess, self.group[keep][shared]),
            int(shared.sum()),
            float(p[keep][shared].mean()) if len(excess) else float("nan"),
        )

    def z(self, values: Floats, groups: NDArray[np.int64]) -> float:
        """The mean of values in cluster-robust standard errors; NaN for fewer than two groups."""
        sums = pd.Series(values).groupby(groups).agg(["sum", "size"])
        total, n = sums["sum"].to_numpy(float), sums["size"].to_numpy(float)
        # Under the hypothesis the mean is 0, which the variance may use.
        error = sqrt(float((total**2).sum())) / n.sum() if len(n) > 1 else 0.0
        return float(total.sum() / n.sum() / error) if error > 0 else float("nan")


class _Shared(NamedTuple):
    """A column by state and token, in the order of both, (n_tokens_of_states,) each."""

    state: NDArray[np.int64]
    repeated: NDArray[np.bool_]
    """Whether several responses have the token there."""
    lowest: Floats
    highest: Floats
    mean: Floats

    @property
    def unsure_again(self) -> NDArray[np.bool_]:
        """Repeated, and not nearly certain."""
        return self.repeated & (self.lowest < -SAME_VALUE)


def _share(found: NDArray[np.bool_]) -> float:
    return float(found.mean()) if len(found) >= _FEWEST else float("nan")
