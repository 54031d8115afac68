"""A process with several unfinished runs that waits to be killed: python -m tests.making.train_until_killed FOLDER.

Importing torch takes most of its time, so all runs share one process. Each trains in a thread that stands still after
its last update, with its recorder still at work.
"""

import multiprocessing
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch

from ratioscope.trainer.training.loop import Trainer, UpdateProgress
from tests.making.training import RESUMABLE, small


class Unfinished(NamedTuple):
    """A run, seconds between its flushes, and its last update before the kill."""

    overrides: tuple[str, ...]
    flush_seconds: float
    last_update: int


MOVING = ("learning_rate=0.01", "updates=12")
# Checkpoints are written after 3 and 6 updates.
RUNS = {
    "flushed at once": Unfinished(RESUMABLE, 0.0, 7),
    "flushed by checkpoints only": Unfinished(RESUMABLE, 1_000.0, 7),
    "without a checkpoint": Unfinished(RESUMABLE, 0.0, 1),
    "with a critic": Unfinished((*MOVING, "algorithm=ppo", "minibatches=3"), 0.0, 7),
    "with an adaptive penalty": Unfinished((*MOVING, "algorithm=ppo_kl"), 0.0, 7),
    "with a mixture": Unfinished((*MOVING, "mixture=[1, 1, 1]", "sync_interval=2"), 0.0, 7),
    "with switches": Unfinished((*MOVING, "mixture=[0, 0, 1]", "switch_probability=0.4"), 0.0, 7),
    "with dynamic sampling": Unfinished((*MOVING, "algorithm=dapo", "sync_interval=2"), 0.0, 7),
    "with random drops": Unfinished((*MOVING, "algorithm=red_drop", "micro_batch=2"), 0.0, 7),
    "with probes": Unfinished((*MOVING, "probe_every=4", "noise_floor_every=5", "top_p=0.9"), 0.0, 7),
}
# Its actors are started before there are threads, and need not import anything.
ASYNCHRONOUS = Unfinished((*MOVING, "actors=2"), 0.0, 7)


def train_until(folder: Path, run: Unfinished) -> None:
    """Train in the background until the update is recorded; the run is never closed."""
    arrived = threading.Event()

    def report(progress: UpdateProgress) -> None:
        if progress.update == run.last_update:
            arrived.set()
            time.sleep(600)

    trainer = Trainer(small(*run.overrides), folder, flush_seconds=run.flush_seconds)
    threading.Thread(target=trainer.run, args=(report,), daemon=True).start()
    arrived.wait()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with patch("multiprocessing.get_context", return_value=multiprocessing.get_context("fork")):
        train_until(Path(sys.argv[1]) / "with actors", ASYNCHRONOUS)
    for name, run in RUNS.items():
        train_until(Path(sys.argv[1]) / name, run)
    print("ready", flush=True)
    time.sleep(600)
