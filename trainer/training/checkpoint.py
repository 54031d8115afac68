"""Everything a run needs to go on exactly as if it had not stopped, and whether it does."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from ratioscope.errors import RatioscopeError
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import to_arrow

CHECKPOINT_NAME = "checkpoint.pt"

# What says that a step is the same one, and nats that its log-probabilities may differ by on an engine that is not
# deterministic.
SAME = ("seq_id", "position", "token_id")
CLOSE = ("logp_behavior", "logp_current", "logp_new")
TOLERANCE = 1e-3


def save(folder: Path, state: dict[str, Any]) -> None:
    """Replace the run's checkpoint atomically.

    Raises:
        RatioscopeError: it cannot be written; the one before is still there.
    """
    temporary = folder / f"checkpoint.tmp-{os.getpid()}"
    try:
        torch.save(state, temporary)
        temporary.replace(folder / CHECKPOINT_NAME)
    except (OSError, RuntimeError) as error:  # torch has no name of its own for a full disk
        temporary.unlink(missing_ok=True)
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RatioscopeError(
            f"{folder / CHECKPOINT_NAME}: cannot be written ({reason}); make room, and resume the run."
        ) from error


def remove(folder: Path) -> None:
    """A finished run needs none."""
    (folder / CHECKPOINT_NAME).unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The state to go on from; None where a run was stopped before its first checkpoint: it starts over.

    Raises:
        RatioscopeError: there is one, and it cannot be read.
    """
    path = folder / CHECKPOINT_NAME
    for leftover in folder.glob("checkpoint.tmp-*"):
        if leftover.name.removeprefix("checkpoint.tmp-").isdecimal():  # of a trainer that was killed
            leftover.unlink(missing_ok=True)
    if not path.exists():
        return None
    try:
        # weights_only: a checkpoint from somebody else must not run code.
        return dict(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes torch raise
        raise RatioscopeError(
            f"{path}: cannot be read ({type(error).__name__}); delete it, and the run is computed again from its start."
        ) from None


def check_repeated(folder: Path, step: int, tokens: dict[str, Any]) -> None:
    """Whether a step that is on disk was computed again as it is there.

    Args:
        tokens: its columns as they were computed now.

    Raises:
        RatioscopeError: it is another one, so that what follows would not belong to what is recorded.
    """
    files = [(schema.FileName.parse(path.name), path) for path in (folder / schema.TOKENS.name).glob("*.parquet")]
    held = [path for name, path in files if name and name.first_step <= step <= name.last_step]
    if not held:
        return
    columns = ["step", *SAME, *CLOSE]
    before = pa.concat_tables([pq.read_table(path, columns=columns, filters=[("step", "=", step)]) for path in held])
    now = to_arrow(schema.TOKENS, {name: tokens[name] for name in columns[1:]}, step)
    if before.select(SAME).equals(now.select(SAME)):
        pairs = [(before[name].to_numpy(), now[name].to_numpy()) for name in CLOSE]
        if all(np.allclose(one, other, rtol=0, atol=TOLERANCE, equal_nan=True) for one, other in pairs):
            return
        found = f"its log-probabilities differ by more than {TOLERANCE:g} nats"
    else:
        found = "other tokens are sampled"
    raise RatioscopeError(
        f"{folder}: update {step} was computed again, and it is not the one that is recorded: {found}. Another version "
        "of torch, another machine or a changed file does that. Resume it where it ran, or start a new run."
    )
