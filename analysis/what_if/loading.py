"""Reading the tokens of a range of steps of a run, all of them or a sample of whole prompt groups."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratioscope.analysis.findings.logged import logged
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.what_if.gated import create_gated
from ratioscope.analysis.what_if.tokens import Tokens, tokens_of
from ratioscope.errors import RatioscopeError

_REQUIRED = ("step", "group_id", "seq_id", "logp_behavior", "logp_current", "advantage")


def load_tokens(
    run: Run, first: int | None = None, last: int | None = None, max_tokens: int | None = None, seed: int = 0
) -> Tokens:
    """The usable tokens of the steps first..last of a run, both included, that have a ratio and an advantage.

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
            why = logged(run).sentence("what_if")
            why = f"{why[0].lower()}{why[1:]}" if why else f"no usable token {_range(first, last)}; choose other steps."
            raise RatioscopeError(f"{run.folder}: {why}")
        broken = connection.execute(
            "select step, seq_id, count(*) filter (invalid is null) as without_gate from judged where not usable "
            "group by step, seq_id"
        ).fetchnumpy()
    columns: dict[str, Any] = {name: table[name].to_numpy() for name in (*_REQUIRED, "position")}
    for name in ("logp_new", "version_lag"):
        if not table[name].null_count:
            columns[name] = table[name].to_numpy()
    if table["logp_gate"].null_count < len(table):
        columns["logp_gate"] = table["gated_at"].to_numpy()
    columns["whole"] = _not_among(columns["step"], columns["seq_id"], broken["step"], broken["seq_id"])
    return tokens_of(columns, groups["fraction"] if groups else 1.0, int(broken["without_gate"].sum()))


def load_in_parts(run: Run, sizes: Mapping[int, int], most: int) -> Iterator[Tokens]:
    """All tokens of some steps, as many steps at a time as have at most `most` tokens (at least one step).

    Args:
        sizes: how many tokens each step has, in order of the steps.
    """
    for steps in parts_of(sizes, most):
        yield load_tokens(run, steps[0], steps[-1])


def parts_of(sizes: Mapping[int, int], most: int) -> list[Sequence[int]]:
    """Consecutive steps that have at most `most` tokens together, or are one step."""
    parts: list[list[int]] = []
    filled = 0
    for step, size in sizes.items():
        if not parts or filled + size > most:
            parts.append([])
            filled = 0
        parts[-1].append(step)
        filled += size
    return [part for part in parts if part]


def _range(first: int | None, last: int | None) -> str:
    if first is None and last is None:
        return "in any step"
    if first is None or last is None:
        return f"up to step {last}" if first is None else f"from step {first} on"
    return f"in the steps {first} to {last}"


# grain: one token with a ratio and an advantage, which is what a rule is about; it judges by the gate's ratio: without
# one a row is as unusable as without a ratio at all. The ratio divides by what the log has of the sampling policy.
_JUDGED = """
create or replace temporary view judged as
select * replace (logp_sampled as logp_behavior), invalid is null and gated_at is not null as usable
from gated
where log_rho is not null and advantage is not null
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
    """In the order of the files, which is nearly always that of steps, groups and sequences: sorted later, if not."""
    columns = ", ".join((*_REQUIRED, "position", "version_lag", "logp_gate", "logp_new", "gated_at"))
    chosen, parameters = "", {}
    if groups is not None:
        chosen = "join (select unnest($steps) as step, unnest($groups) as group_id) using (step, group_id)"
        parameters = {name: groups[name] for name in ("steps", "groups")}
    return connection.sql(f"select {columns} from judged {chosen} where usable", params=parameters).to_arrow_table()


def _not_among(step: Any, sequence: Any, broken_step: Any, broken_sequence: Any) -> NDArray[np.bool_]:
    whole = np.ones(len(step), dtype=bool)
    broken = set(zip(broken_step.tolist(), broken_sequence.tolist(), strict=True))
    if broken:
        suspects = np.flatnonzero(np.isin(sequence, broken_sequence))
        whole[suspects] = [(step[place], sequence[place]) not in broken for place in suspects]
    return whole
