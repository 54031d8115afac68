"""Everything a run needs to go on exactly as if it had not stopped."""

import os
import random
from pathlib import Path
from typing import Any

import torch

from ratioscope.errors import RatioscopeError

CHECKPOINT_NAME = "checkpoint.pt"


def save(folder: Path, state: dict[str, Any]) -> None:
    """Replace the run's checkpoint atomically."""
    temporary = folder / f"checkpoint.tmp-{os.getpid()}"
    torch.save(state, temporary)
    temporary.replace(folder / CHECKPOINT_NAME)


def remove(folder: Path) -> None:
    """A finished run needs none."""
    (folder / CHECKPOINT_NAME).unlink(missing_ok=True)


def load(folder: Path) -> dict[str, Any] | None:
    """The state to go on from; None where a run was stopped before its first checkpoint: it starts over.

    Raises:
        RatioscopeError: there is one, and it cannot be read.
    """
    path = folder / CHECKPOINT_NAME
    if not path.exists():
        return None
    try:
        # weights_only: a checkpoint from somebody else must not run code.
        return dict(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception as error:
        raise RatioscopeError(
            f"{path}: cannot be read ({type(error).__name__}); delete it, and the run is computed again from its start."
        ) from None


def random_state(generator: random.Random) -> list[Any]:
    """The state of a `random.Random` in types that a checkpoint may hold."""
    version, numbers, gauss = generator.getstate()
    return [version, list(numbers), gauss]


def restore_random_state(generator: random.Random, state: list[Any]) -> None:
    generator.setstate((state[0], tuple(state[1]), state[2]))
