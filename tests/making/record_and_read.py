"""A program: records two steps in the folder given, reads them back with pyarrow, and asks for what is not there.

Nothing but numpy, pyarrow and ratioscope is imported, so that it runs in the smallest installation.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import ratioscope
from ratioscope import Manifest, RunRecorder
from ratioscope.run_format import schema


def record(folder: Path) -> None:
    """Two steps of two responses of three tokens."""
    with RunRecorder(folder, algorithm={"name": "grpo"}, vocabulary=str) as recorder:
        for step in range(2):
            recorder.record_step(
                step,
                tokens={
                    "seq_id": np.repeat([0, 1], 3),
                    "group_id": np.zeros(6, dtype=int),
                    "position": np.tile(np.arange(3), 2),
                    "token_id": np.arange(6),
                    "behavior_version": np.full(6, step),
                    "logp_behavior": np.linspace(-1.0, -0.5, 6),
                    "logp_current": np.linspace(-1.0, -0.5, 6),
                    "advantage": np.repeat([1.0, -1.0], 3),
                },
                sequences={"seq_id": [0, 1], "group_id": [0, 0], "n_tokens": [3, 3], "reward": [1.0, 0.0]},
                scalars={"policy_version": step},
            )


def read(folder: Path) -> None:
    assert Manifest.read(folder).status == "finished"
    assert "logp_behavior" in schema.describe()
    tokens = pq.read_table(folder / "tokens")
    assert tokens.column("step").to_pylist() == [0] * 6 + [1] * 6
    assert np.allclose(tokens.column("logp_behavior").to_numpy()[:6], np.linspace(-1.0, -0.5, 6))
    assert pq.read_table(folder / "sequences").column("reward").to_pylist() == [1.0, 0.0] * 2


def sentences() -> list[str]:
    """What those are told who ask for more than this installation has."""
    found = []
    for ask in (lambda: ratioscope.open_run, lambda: __import__("ratioscope.metrics")):
        try:
            ask()
        except ratioscope.RatioscopeError as error:
            found.append(str(error))
    return found


if __name__ == "__main__":
    run = Path(sys.argv[1])
    record(run)
    read(run)
    print("\n".join(sentences()))
