"""One update of SmolLM2-135M-Instruct with 64 responses of 24 tokens: seconds and memory."""

import itertools
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.training.loop import Trainer

UPDATES = 3


def run() -> None:
    """Print the time of an update, its stages, and the most memory that the process had."""
    config = load_settings(
        "smollm2", [f"updates={UPDATES}", "response_length=24", "evaluate_every=1000", "exact=false"]
    )
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        trainer = Trainer(config, Path(folder) / "run")
        print(f"  loading SmolLM2 {time.perf_counter() - started:33.1f} s")
        times = [time.perf_counter()]
        trainer.run(lambda progress: times.append(time.perf_counter()))
    update = median(after - before for before, after in itertools.pairwise(times))
    print(f"  one update of 8 x 8 responses, up to 24 tokens {update:2.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  most memory {peak:37.1f} GiB")
