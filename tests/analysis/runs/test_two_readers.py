"""Two dashboards on one run and one cache, while it is written: both see what one alone would."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.making.runs import random_step

STEPS = 30
# What a server does with a run that is followed: it is opened again and again, over the cache on disk.
_FOLLOW = """
import sys
from ratioscope.analysis.diagnosis.opened import open_folder

seen = set()
while True:
    opened = open_folder(sys.argv[1])
    seen.add(opened.summary.last_step)
    if opened.run.manifest.status == "finished":
        break
opened.summary.values.to_parquet(sys.argv[2])
print(len(seen))
"""


def test_two_readers_share_a_cache_while_a_run_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    rng, folder = np.random.default_rng(0), tmp_path / "run"
    tables = [tmp_path / f"{number}.parquet" for number in range(2)]
    with RunRecorder(folder, algorithm={"name": "grpo"}, seed=0) as recorder:

        def write(number: int) -> None:
            step = random_step(rng, number)
            recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
            recorder.flush()

        write(0)
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", _FOLLOW, folder, table],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for table in tables
        ]  # fmt: skip
        # They are there: each has left something in the cache.
        while not any((tmp_path / "cache").rglob("*.*")):
            assert all(reader.poll() is None for reader in readers)
        for number in range(1, STEPS):
            write(number)
    said = [reader.communicate(timeout=120) for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0], said
    assert any(int(out) > 1 for out, _ in said)
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "other"))
    expected = summarise(open_run(folder)).values
    for table in tables:
        pd.testing.assert_frame_equal(pd.read_parquet(table), expected, check_dtype=False)
