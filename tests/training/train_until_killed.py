"""A process with several unfinished runs that waits to be killed: python -m tests.training.train_until_killed FOLDER.

Importing torch takes most of its time, so all runs share one process. Each trains in a thread that stands still after
its last update, with its recorder still at work.
"""

import sys
import threading
import time
from pathlib import Path

import torch

from tests.training.small import RESUMABLE, small
from trainer.loop import Progress, Trainer

# Seconds between flushes, and the last update before the kill; checkpoints are written after 3 and 6 updates.
RUNS = {"flushed at once": (0.0, 7), "flushed by checkpoints only": (1_000.0, 7), "without a checkpoint": (0.0, 1)}


def train_until(folder: Path, flush_seconds: float, last_update: int) -> None:
    """Train in the background until the update is recorded; the run is never closed."""
    arrived = threading.Event()

    def report(progress: Progress) -> None:
        if progress.update == last_update:
            arrived.set()
            time.sleep(600)

    trainer = Trainer(small(*RESUMABLE), folder, flush_seconds=flush_seconds)
    threading.Thread(target=trainer.run, args=(report,), daemon=True).start()
    arrived.wait()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, (flush_seconds, last_update) in RUNS.items():
        train_until(Path(sys.argv[1]) / name, flush_seconds, last_update)
    print("ready", flush=True)
    time.sleep(600)
