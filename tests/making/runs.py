"""Builder of synthetic runs: steps as plain arrays, written with `RunRecorder` or laid out in files by hand.

write_run(folder, [random_step(rng, step) for step in range(3)])
write_run(folder, [plain_step(b, c, n)])                              # log-probabilities token by token
write_files(folder, [("tokens", 0, [step])], manifest=...)            # any layout of files
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from ratioscope import Manifest, RunRecorder
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import to_arrow, write_table_file

Columns = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One update: the columns of its three tables, without `step`."""

    number: int
    tokens: Columns
    sequences: Columns
    scalars: Columns = field(default_factory=dict)

    def with_tokens(self, **columns: Any) -> "Step":
        """The same step with token columns replaced; None takes a column away."""
        merged = self.tokens | columns
        return replace(self, tokens={name: values for name, values in merged.items() if values is not None})

    def with_sequences(self, **columns: Any) -> "Step":
        """The same step with columns of responses replaced."""
        return replace(self, sequences=self.sequences | columns)

    def rows(self, kept: NDArray[Any], sequences_kept: NDArray[Any] | None = None) -> "Step":
        """The step with its token rows (and sequence rows) selected or reordered."""
        tokens = {name: np.asarray(values)[kept] for name, values in self.tokens.items()}
        chosen = slice(None) if sequences_kept is None else sequences_kept
        sequences = {name: np.asarray(values)[chosen] for name, values in self.sequences.items()}
        return replace(self, tokens=tokens, sequences=sequences)


def plain_step(
    behavior: ArrayLike,
    current: ArrayLike,
    new: ArrayLike | None = None,
    *,
    number: int = 0,
    sequence: ArrayLike | None = None,
    group: ArrayLike | None = None,
    **columns: Any,
) -> Step:
    """A step from log-probabilities, (n_tokens,); without `sequence` every token is a response of its own.

    Args:
        group: prompt group of each token; without it every sequence is a group of its own.
        **columns: further token columns.
    """
    b = np.asarray(behavior, dtype=np.float32)
    sequences = np.arange(len(b)) if sequence is None else np.asarray(sequence, dtype=np.int64)
    groups = sequences if group is None else np.asarray(group, dtype=np.int64)
    tokens: Columns = {
        "seq_id": sequences,
        "group_id": groups,
        "position": _positions(sequences),
        "token_id": np.arange(len(b), dtype=np.int32) % 7,
        "behavior_version": np.full(len(b), number, dtype=np.int32),
        "logp_behavior": b,
        "logp_current": np.asarray(current, dtype=np.float32),
        "advantage": np.ones(len(b), dtype=np.float32),
    }
    if new is not None:
        tokens["logp_new"] = np.asarray(new, dtype=np.float32)
    ids, first, lengths = np.unique(sequences, return_index=True, return_counts=True)
    return Step(
        number,
        tokens | columns,
        {
            "seq_id": ids,
            "group_id": groups[first],
            "n_tokens": lengths.astype(np.int32),
            "reward": np.zeros(len(ids), dtype=np.float32),
        },
        {"policy_version": number},
    )


def with_held_out(step: Step, other: Step) -> Step:
    """A step and, after it, the responses of another one as held out: groups that the update did not see."""
    ids = {name: int(np.max(step.sequences[name])) + 1 for name in ("seq_id", "group_id")}

    def both(table: str) -> Columns:
        ours, theirs = (getattr(one, table) for one in (step, other))
        joined = {name: np.concatenate([ours[name], theirs[name]]) for name in ours.keys() & theirs.keys()}
        n = len(theirs["seq_id"])
        for name, shift in ids.items():
            joined[name][-n:] += shift
        return joined

    n, m = len(step.sequences["seq_id"]), len(other.sequences["seq_id"])
    sequences = both("sequences") | {"dropped": [None] * n + [schema.HELD_OUT] * m}
    return replace(step, tokens=both("tokens"), sequences=sequences)


def stale_step(number: int, staleness: float) -> Step:
    """24 responses of 10 tokens to as many prompts, four versions old: S_k = `staleness`, half the ratios above 1."""
    token = np.arange(240)
    behavior = -np.random.default_rng(number).uniform(1.0, 4.0, 240)
    current = behavior + np.log1p(2 * staleness * np.where(token % 2 == 0, 1.0, -1.0))
    step = plain_step(behavior, current, number=number, sequence=token // 10)
    return replace(step, scalars={"policy_version": number + 4})


def random_step(
    rng: np.random.Generator, number: int = 0, *, groups: int = 4, responses: int = 3, longest: int = 9,
    spread: float = 0.3,
) -> Step:  # fmt: skip
    """A step with every column that the summary reads: stale data, clipping, rewards, a zero-signal group."""
    lengths = rng.integers(1, longest + 1, groups * responses)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    n = len(sequence)
    behavior = -rng.exponential(1.0, n) - 0.01
    current = np.minimum(behavior + spread * rng.standard_normal(n), -1e-3)  # exactly 0 would be certain
    new = np.minimum(current + spread / 2 * rng.standard_normal(n), -1e-3)
    group = sequence // responses
    advantage = np.where(group == 0, 0.0, rng.standard_normal(len(lengths))[sequence])
    side = rng.choice(np.array([-1, 0, 1], dtype=np.int8), n, p=[0.1, 0.8, 0.1])
    step = plain_step(
        behavior, current, new, number=number, sequence=sequence, group=group,
        advantage=advantage.astype(np.float32), clip_side=side, clipped=side != 0,
        gate=(side == 0).astype(np.float32), entropy=rng.uniform(0, 2, n).astype(np.float32),
        behavior_version=np.maximum(number - rng.integers(0, 4, n), 0).astype(np.int32),
    )  # fmt: skip
    step.sequences["reward"] = rng.integers(0, 2, len(lengths)).astype(np.float32)
    step = step.with_tokens(
        logp_behavior_train=np.minimum(behavior + spread / 5 * rng.standard_normal(n), -1e-3).astype(np.float32),
        logp_reference=np.minimum(behavior + spread * rng.standard_normal(n), -1e-3).astype(np.float32),
        logp_teacher=np.minimum(behavior - spread * np.cos(np.arange(n)), -1e-3).astype(np.float32),
        tv_current_behavior=rng.uniform(0, 0.5, n).astype(np.float32),
        chi2_current_behavior=rng.exponential(0.1, n).astype(np.float32),
        tv_new_current=rng.uniform(0, 0.2, n).astype(np.float32),
    )
    scalars = {"policy_version": number, "loss": 0.5, "grad_norm": 1.0 + number, "eval_accuracy": 0.25}
    return replace(step, scalars=scalars)


def numbered_step(number: int) -> Step:
    """Always the same step for a number, in whatever process."""
    return random_step(np.random.default_rng(number), number, groups=6, responses=4, longest=30)


def write_run(
    folder: Path,
    steps: Iterable[Step],
    *,
    flush_seconds: float = float("inf"),
    vocabulary: Callable[[int], str] | None = None,
    **manifest_fields: Any,
) -> Path:
    """Record the steps; `flush_seconds=0` gives every step its own files, the default only the first."""
    with RunRecorder(folder, flush_seconds=flush_seconds, vocabulary=vocabulary, **manifest_fields) as recorder:
        for step in steps:
            recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
            if flush_seconds == 0:
                recorder.flush()
    return folder


def write_files(folder: Path, layout: Sequence[tuple[str, int, Sequence[Step]]], **manifest_fields: Any) -> Path:
    """Lay a run out by hand: each entry (table, writer, steps) becomes one file."""
    folder.mkdir(parents=True, exist_ok=True)
    Manifest(**({"name": folder.name, "status": "finished"} | manifest_fields)).write(folder)
    for name, writer, steps in layout:
        table = pa.concat_tables([_arrow(name, step) for step in steps], promote_options="default")
        (folder / name).mkdir(exist_ok=True)
        numbers = [step.number for step in steps]
        write_table_file(folder / name / str(schema.FileName(min(numbers), max(numbers), writer)), table)
    return folder


def _arrow(name: str, step: Step) -> pa.Table:
    scalars = {key: [value] for key, value in step.scalars.items()} | {"wall_time": [datetime.now(UTC)]}
    columns: Mapping[str, Columns] = {"tokens": step.tokens, "sequences": step.sequences, "steps": scalars}
    return to_arrow(schema.TABLES[name], columns[name], step.number)


def _positions(sequences: NDArray[Any]) -> NDArray[Any]:
    """0, 1, 2, ... inside each sequence, in row order."""
    counted: dict[int, int] = {}
    positions = np.zeros(len(sequences), dtype=np.int32)
    for row, sequence in enumerate(sequences.tolist()):
        positions[row] = counted[sequence] = counted.get(sequence, -1) + 1
    return positions
