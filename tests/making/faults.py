"""Logs with a fault: clean synthetic ones to start from, and what can go wrong with a log that a trainer wrote.

damage(folder, copy_to, "tokens", shift_by_one)       a trainer's log, with one of its tables changed
clean_steps(rng, kind="stale", steps=4)               steps without a fault, from known distributions
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ratioscope.run_format import schema
from ratioscope.run_format.table_files import write_table_file
from tests.making.runs import Step, plain_step

Array = NDArray[np.float64]
Change = Callable[[pd.DataFrame], pd.DataFrame]

KEY = ["step", "seq_id", "position"]
RESPONSES, VOCABULARY = 8, 12


def damage(run: Path, to: Path, table: str, change: Change) -> Path:
    """A copy of a run with the files of one table changed, all of them at once; types are those of the run format."""
    shutil.copytree(run, to)
    files = sorted((to / table).glob("*.parquet"))
    whole = pa.concat_tables([pq.read_table(file) for file in files], promote_options="default")
    changed = change(whole.to_pandas())
    added = [column for column in schema.TABLES[table].columns if column.name in set(changed) - set(whole.schema.names)]
    types = pa.schema([*whole.schema, *((column.name, column.type) for column in added)], whole.schema.metadata)
    steps = changed["step"]
    for file in files:
        first, last = int(file.name[:6]), int(file.name[7:13])
        rows = changed[(steps >= first) & (steps <= last)]
        columns = [_column(rows[field.name], field, whole) for field in types]
        write_table_file(file, pa.Table.from_arrays(columns, schema=types))
    return to


def _column(values: "pd.Series[float]", field: pa.Field, whole: pa.Table) -> pa.Array:
    """As it is written: pandas has one NaN for what is no number and for what is not logged, which is so everywhere or
    was null before."""
    logged = field.name in whole.schema.names and not whole[field.name].null_count and values.notna().any()
    return pa.array(values.to_numpy(), field.type, from_pandas=not (logged and pa.types.is_floating(field.type)))


# Tokens ---------------------------------------------------------------------------------------------------------------


def at(condition: Callable[[pd.DataFrame], "pd.Series[bool]"], **values: object) -> Change:
    """Set columns to a value (or another column, by its name) in the rows that a condition holds for."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        rows = condition(frame)
        for column, value in values.items():
            frame.loc[rows, column] = frame.loc[rows, value] if isinstance(value, str) and value in frame else value
        return frame

    return change


def every(n: int) -> Callable[[pd.DataFrame], "pd.Series[bool]"]:
    """Every n-th row."""
    return lambda frame: pd.Series(np.arange(len(frame)) % n == 0, index=frame.index)


def everywhere(frame: pd.DataFrame) -> "pd.Series[bool]":
    """All rows."""
    return pd.Series(True, index=frame.index)


def shifted(column: str, by: int) -> Change:
    """A column that is `by` positions off inside each sequence; 0 where there is nothing to take."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.sort_values(KEY)
        frame[column] = frame.groupby(["step", "seq_id"])[column].shift(by, fill_value=-0.01)
        return frame

    return change


def duplicated(frame: pd.DataFrame) -> pd.DataFrame:
    """Some rows twice."""
    return pd.concat([frame, frame[frame["seq_id"] == 3]]).sort_values(KEY)


def without(condition: Callable[[pd.DataFrame], "pd.Series[bool]"]) -> Change:
    """Some rows fewer."""
    return lambda frame: frame[~condition(frame)]


def versions_off_by_one(frame: pd.DataFrame) -> pd.DataFrame:
    """The sampler counts from one lower."""
    return frame.assign(behavior_version=frame["behavior_version"] - 1)


# Clean logs -----------------------------------------------------------------------------------------------------------

KINDS = ("exact", "noisy engine", "stale", "stale and sharper")


def clean_steps(
    rng: np.random.Generator, kind: str, *, steps: int, groups: int, longest: int, first: int = 0
) -> Iterator[Step]:
    """Steps of responses drawn from the behavior policy itself, so that E rho = 1 exactly.

    Each prompt group has a state a position, shared by its responses. `kind` is one of `KINDS`: the current policy's
    logits are the behavior's, the behavior's and small noise (an engine of other precision, on-policy), or the
    behavior's and noise that grows with age, perhaps times more than 1 (training makes policies sharper).
    """
    spread = rng.uniform(1, 3)
    drift = {"exact": 0.0, "noisy engine": 0.01}.get(kind, float(rng.uniform(0.05, 0.4)))
    sharper = 1 + rng.uniform(0, 0.3) * (kind == "stale and sharper")
    for number in range(first, first + steps):
        age = 0 if kind in ("exact", "noisy engine") else 1 + number % 3
        logits = spread * rng.standard_normal((groups, longest, VOCABULARY))
        moved = sharper * (logits + max(1, age) ** 0.5 * drift * rng.standard_normal(logits.shape))
        behavior, current = _log_softmax(logits), _log_softmax(moved)
        new = _log_softmax(moved + 0.02 * rng.standard_normal(logits.shape))
        # Gumbel's trick: the largest of log-probability and noise is a draw.
        noise = rng.gumbel(size=(groups, RESPONSES, longest, VOCABULARY))
        token = (behavior[:, None] + noise).argmax(axis=-1)  # (groups, responses, positions)
        sequence = np.repeat(np.arange(groups * RESPONSES), longest)

        def drawn(log_probs: Array, token: NDArray[np.int64] = token) -> Array:
            wide = np.broadcast_to(log_probs[:, None], (*token.shape, VOCABULARY))
            return np.take_along_axis(wide, token[..., None], axis=-1).ravel()

        rounding = 1e-6 * rng.standard_normal(token.size) * (kind == "exact")
        yield plain_step(
            drawn(behavior),
            np.minimum(drawn(current) + rounding, 0),
            drawn(new),
            number=number,
            sequence=sequence,
            group=sequence // RESPONSES,
            token_id=token.ravel().astype(np.int32),
            behavior_version=np.full(token.size, number - age, dtype=np.int32),
            position=np.tile(np.arange(longest, dtype=np.int32), groups * RESPONSES),
        )


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
