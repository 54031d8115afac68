"""Logs that are large enough for every mark to be read, of which one column is strange from some step on."""

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.cases.score import made
from tests.fuzzing.holding import Target, lasting
from tests.fuzzing.tables import KINDS, read

_LOGS = ("healthy_03_reward_parts-verl", "fine_agents_of_many_turns", "fine_ppo_with_values", "fine_one_slow_server")
_KINDS = (
    "nulls of its type", "some nulls", "smallest of its type", "largest of its type", "empty text", "all 0.0",
    "all -1000.0", "all nan", "all inf", "some nan", "some inf", "some 1000.0", "some 1e+30",
)  # fmt: skip
_FROM = {"all along": 0.0, "late": 0.5, "at the end": 0.95}
"""The share of the steps that are as they were."""


@cache
def _log(name: str) -> Path:
    return made(name, lasting())


@cache
def _columns() -> list[tuple[str, str, str]]:
    """Log, table and column."""
    return [
        (name, table, column)
        for name in _LOGS
        for table, file in _files(_log(name)).items()
        for column in pq.read_schema(file).names
    ]


def _files(run: Path) -> Mapping[str, Path]:
    return {path.parent.name: path for path in sorted(run.glob("*/*.parquet"))}


def ask_marks(inside: Path, change: tuple[str, str, str, str, str]) -> None:
    """A column of another kind: log, table, column, kind, when; `not` before the last one turns the steps around."""
    name, table, column, kind, when = change
    run = Path(shutil.copytree(_log(name), inside / "run"))
    file = _files(run)[table]
    found = pq.ParquetFile(file).read()
    values, step = found[column], found["step"].to_numpy()
    since = np.quantile(step, _FROM[when.removeprefix("not ")])
    rows = step < since if when.startswith("not ") else step >= since
    try:
        changed = pc.if_else(pa.array(rows), KINDS[kind](values).cast(values.type), values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return  # not every value can be made one of every kind
    pq.write_table(found.set_column(found.column_names.index(column), column, changed), file)
    read(run)


def _example(where: tuple[str, str, str], kind: str, when: str) -> tuple[str, ...]:
    return (*where, kind, when)


_examples = st.builds(
    _example,
    st.deferred(lambda: st.sampled_from(_columns())),
    st.sampled_from(_KINDS),
    st.sampled_from([*_FROM, *(f"not {when}" for when in list(_FROM)[1:])]),
)


def _kind(change: Any) -> str:
    return " ".join(change[1:])


TARGETS = {"marks": Target(_examples, ask_marks, _kind, few=8)}
