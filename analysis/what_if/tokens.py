"""The tokens that rules are applied to: the usable rows of a range of steps as tensors, in blocks of prompt groups.

What no rule changes (ratios, distances, raw sums) is computed once for each block and kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from analysis.gated import create_gated
from analysis.relations import relations
from analysis.store import Run
from ratioscope.errors import RatioscopeError
from ratioscope.gates import Rows
from ratioscope.ratios import LEVELS, LogRatios, log_ratio
from ratioscope.tails import Array
from ratioscope.terms import ratio_distance

# So many tokens of float64 columns stay in the caches of a processor: faster than all tokens at once.
BLOCK_TOKENS = 65_536

_REQUIRED = ("step", "group_id", "seq_id", "logp_behavior", "logp_current", "advantage", "version_lag")


@dataclass(frozen=True)
class Tokens:
    """Usable tokens, sorted by step, prompt group and sequence; each tensor is (n_tokens,).

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
    version_lag: Tensor
    whole: Tensor
    """Bool: no token of its sequence is unusable."""
    logp_new: Tensor | None = None
    without_gate: int = 0
    """Rows of the range that were left out for their logp_gate alone (`analysis.gated`)."""
    fraction: float = 1.0
    """Share of the range's tokens that are here; below 1 it is a random sample of whole prompt groups."""

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def complete(self) -> "Tokens":
        """The tokens of whole sequences: what a sequence rule can be applied to."""
        return self if bool(self.whole.all()) else self._at(self.whole)

    @cached_property
    def blocks(self) -> tuple["Tokens", ...]:
        """The same tokens in blocks of whole prompt groups, of about `BLOCK_TOKENS` each."""
        number = self.group_starts // BLOCK_TOKENS
        cuts = [0, *self.group_starts[1:][number[1:] > number[:-1]].tolist(), len(self)]
        return tuple(self._at(slice(start, end)) for start, end in pairwise(cuts)) if len(cuts) > 2 else (self,)

    def _at(self, places: Tensor | slice) -> "Tokens":
        columns: dict[str, Any] = {
            f.name: value[places] for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)
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
        """½ |rho_k - 1|: a token's part of S_k."""
        return torch.expm1(self.rows.ratios.current).abs_() / 2

    @cached_property
    def drift(self) -> Tensor | None:
        """½ |rho_{k+1} - rho_k|: a token's part of U_k; None where logp_new is not logged."""
        return None if self.log_rho_new is None else ratio_distance(self.log_rho_new, self.rows.ratios.current) / 2

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
    def tails(self) -> dict[str, "Tail"]:
        """Of what a rule need not change, by what it is of; filled by what fits them."""
        return {}

    @cached_property
    def _levels(self) -> dict[str, "Level"]:
        return {}

    def level(self, name: str) -> "Level":
        """The ratios of a level, computed once."""
        if name not in self._levels:
            ratios = LEVELS[name](self.rows.ratios, self.sequence)
            rho = ratios.behavior.exp()
            sums = {
                "rho": self.sum_by_group(masked(rho, self.signal)),
                "rho_squared": self.sum_by_group(masked(rho.square(), self.signal)),
                "rho_deviation": self.sum_by_group(masked(torch.expm1(ratios.behavior).square_(), self.signal)),
            }
            self._levels[name] = Level(ratios, rho, sums)
        return self._levels[name]

    def sum_by_group(self, values: Tensor) -> Array:
        """(n_tokens,) -> sums, (n_groups,), float64."""
        if not len(self):
            return np.zeros(0)
        return np.add.reduceat(values.numpy(), self.group_starts, dtype=np.float64)


class Level(NamedTuple):
    """The ratios of tokens, or of their sequences."""

    ratios: LogRatios
    rho: Tensor
    """rho_theta, (n_tokens,)."""
    sums: dict[str, Array]
    """Raw sums over the signal tokens of each prompt group."""


class Tail(NamedTuple):
    """The upper tail of some weights other than 0."""

    khat: float | None
    reason: str
    """Why it cannot be estimated; empty where that is harmless."""
    n: int
    largest: float


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """`values` where `mask`, 0 elsewhere."""
    return torch.where(mask, values, 0.0)


def gated(values: Tensor, gate: Tensor) -> Tensor:
    """values x gate, (n_tokens,); values may be infinite: behind a closed gate they are 0."""
    return (values * gate).nan_to_num_(nan=0.0, posinf=torch.inf)


def tokens_of(columns: Mapping[str, Any], fraction: float = 1.0, without_gate: int = 0) -> Tokens:
    """Tokens from columns of the tokens table in any order, (n_tokens,) each.

    Args:
        columns: step, group_id, seq_id, logp_behavior, logp_current, advantage, version_lag; as far as there are any
            logp_gate and logp_new; and `whole`, without which every sequence is.
        fraction: share of the tokens of the range that these are.
        without_gate: see `Tokens`.
    """
    arrays = {name: np.asarray(values) for name, values in columns.items() if values is not None}
    keys = [arrays[name] for name in ("seq_id", "group_id", "step")]
    order = np.lexsort(keys)
    arrays = {name: values[order] for name, values in arrays.items()}
    group = _numbered(arrays["step"], arrays["group_id"])
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}
    return Tokens(
        step=tensors["step"],
        group=torch.from_numpy(group),
        sequence=torch.from_numpy(_numbered(group, arrays["seq_id"])),
        logp_behavior=tensors["logp_behavior"],
        logp_current=tensors["logp_current"],
        logp_gate=tensors.get("logp_gate", tensors["logp_current"]),
        advantage=tensors["advantage"],
        version_lag=tensors["version_lag"],
        whole=tensors.get("whole", torch.ones(len(order), dtype=torch.bool)),
        logp_new=tensors.get("logp_new"),
        without_gate=without_gate,
        fraction=fraction,
    )


def load(
    run: Run, first: int | None = None, last: int | None = None, max_tokens: int | None = None, seed: int = 0
) -> Tokens:
    """The usable tokens of the steps first..last of a run, both included.

    Args:
        max_tokens: with more tokens than this, a random sample of whole prompt groups (at least one) that has no more.
        seed: of the sample.

    Raises:
        RatioscopeError: the range has no usable token, or a file cannot be read any more.
    """
    with relations(run, first, last) as connection:
        create_gated(connection)
        connection.execute(_JUDGED)
        groups = None if max_tokens is None else _sampled(connection, max_tokens, seed)
        table = _read(connection, groups)
        if not len(table):
            raise RatioscopeError(f"{run.folder}: no usable token {_range(first, last)}; choose other steps.")
        broken = connection.execute("select distinct step, seq_id from judged where not usable").fetchnumpy()
        without_gate = connection.execute("select count(*) from judged where invalid is null and not usable").fetchall()
    columns: dict[str, Any] = {name: table[name].to_numpy() for name in _REQUIRED}
    if not table["logp_new"].null_count:
        columns["logp_new"] = table["logp_new"].to_numpy()
    if table["logp_gate"].null_count < len(table):
        columns["logp_gate"] = table["gated_at"].to_numpy()
    columns["whole"] = _not_among(columns["step"], columns["seq_id"], broken["step"], broken["seq_id"])
    return tokens_of(columns, groups["fraction"] if groups else 1.0, without_gate[0][0])


def _range(first: int | None, last: int | None) -> str:
    if first is None and last is None:
        return "in any step"
    if first is None or last is None:
        return f"up to step {last}" if first is None else f"from step {first} on"
    return f"in the steps {first} to {last}"


# grain: one token; a rule judges by the gate's ratio: without one a row is as unusable as without a ratio at all.
_JUDGED = """
create or replace temporary view judged as
select *, invalid is null and gated_at is not null as usable
from gated
"""


def _sampled(connection: duckdb.DuckDBPyConnection, max_tokens: int, seed: int) -> dict[str, Any] | None:
    """Steps, ids and share of randomly chosen prompt groups with at most `max_tokens` tokens; None: all fit."""
    sizes = connection.execute(
        "select step, group_id, count(*) as n from judged where usable group by all order by all"
    ).fetchnumpy()
    n = sizes["n"]
    if n.sum() <= max_tokens:
        return None
    order = np.random.default_rng(seed).permutation(len(n))
    chosen = order[np.cumsum(n[order]) <= max_tokens] if n[order[0]] <= max_tokens else order[:1]
    return {
        "steps": sizes["step"][chosen].tolist(),
        "groups": sizes["group_id"][chosen].tolist(),
        "fraction": float(n[chosen].sum() / n.sum()),
    }


def _read(connection: duckdb.DuckDBPyConnection, groups: Mapping[str, Any] | None) -> pa.Table:
    columns = ", ".join((*_REQUIRED, "logp_gate", "logp_new", "gated_at"))
    chosen, parameters = "", {}
    if groups is not None:
        chosen = "join (select unnest($steps) as step, unnest($groups) as group_id) using (step, group_id)"
        parameters = {name: groups[name] for name in ("steps", "groups")}
    text = f"select {columns} from judged {chosen} where usable order by step, group_id, seq_id, position"
    return connection.sql(text, params=parameters).to_arrow_table()


def starts_of(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal keys begins."""
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])


def _numbered(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """0, 1, 2, ... for each run of equal keys in sorted rows."""
    changed = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.cumsum(changed)


def _not_among(step: Any, sequence: Any, broken_step: Any, broken_sequence: Any) -> NDArray[np.bool_]:
    whole = np.ones(len(step), dtype=bool)
    broken = set(zip(broken_step.tolist(), broken_sequence.tolist(), strict=True))
    if broken:
        suspects = np.flatnonzero(np.isin(sequence, broken_sequence))
        whole[suspects] = [(step[place], sequence[place]) not in broken for place in suspects]
    return whole
