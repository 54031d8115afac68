"""A run that was cut off: whatever moment the writer was killed at, what is on disk opens, and can be continued."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ratioscope import Manifest, RunFormatError, RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.run_format import schema
from tests.making.runs import Step, numbered_step, write_run

ROOT = Path(__file__).parents[2]
ENDLESS_WRITER = """
import sys
from pathlib import Path
from ratioscope import RunRecorder
from tests.making.runs import numbered_step

with RunRecorder(Path(sys.argv[1]), flush_seconds=0.0, vocabulary=str) as recorder:
    for number in range(10**6):
        step = numbered_step(number)
        recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
"""


def record(recorder: RunRecorder, *steps: Step) -> None:
    for step in steps:
        recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)


def steps_in(folder: Path, table: str) -> list[int]:
    """The step of every file's rows, once a file."""
    files = sorted((folder / table).glob("*.parquet"))
    return [step for file in files for step in pq.read_table(file)["step"].unique().to_pylist()]


@contextmanager
def writing(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes a run until it is killed."""
    with subprocess.Popen([sys.executable, "-c", ENDLESS_WRITER, str(folder)], cwd=ROOT) as process:
        try:
            deadline = time.monotonic() + 30
            while not list(folder.glob("steps/*.parquet")):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.005)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="module", params=range(4))
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose writer was killed at some moment."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    with writing(folder) as process:
        time.sleep(float(np.random.default_rng(request.param).uniform(0, 0.2)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return folder


def test_a_killed_run_opens_and_summarises_to_its_last_flushed_step(killed: Path) -> None:
    run = open_run(killed)
    assert run.problems == () and run.status == "interrupted" and run.manifest.status == "running"
    summary = summarise(run)
    assert summary.values.index.tolist() == list(range(run.last_step + 1))
    assert summary.values["s_k"].notna().all()
    for number in (0, run.last_step):
        step = numbered_step(number)
        rho = np.exp(step.tokens["logp_current"].astype(float) - step.tokens["logp_behavior"])
        assert summary.values.loc[number, "s_k"] == pytest.approx(abs(rho - 1).mean() / 2, rel=1e-9)


def test_every_file_of_a_killed_run_is_whole(killed: Path) -> None:
    for path in killed.rglob("*.parquet"):
        assert pq.ParquetFile(path).metadata.num_rows > 0
        assert path.parent == killed or schema.FileName.parse(path.name) is not None
    written = {table: set(steps_in(killed, table)) for table in schema.TABLES}
    assert written["steps"] <= written["sequences"] <= written["tokens"]
    vocabulary = set(pq.read_table(killed / "vocabulary.parquet")["token_id"].to_pylist())
    assert set(numbered_step(0).tokens["token_id"].tolist()) <= vocabulary


def test_a_killed_run_is_continued_without_writing_a_step_twice(killed: Path) -> None:
    before = {path: path.read_bytes() for path in killed.glob("*/*.parquet")}
    with RunRecorder(killed, resume=True, vocabulary=str) as recorder:
        first = recorder.last_step
        assert first == max(steps_in(killed, "steps"))
        record(recorder, *(numbered_step(number) for number in range(first + 1, first + 4)))
    assert all(path.read_bytes() == content for path, content in before.items())
    for table in schema.TABLES:
        assert sorted(steps_in(killed, table)) == list(range(first + 4)), table
    assert not list(killed.rglob("*.tmp-*"))
    run = open_run(killed)
    assert run.problems == () and run.status == "finished"
    assert summarise(run).values["s_k"].notna().sum() == first + 4


def test_steps_that_are_on_disk_are_not_written_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [numbered_step(number) for number in range(3)], flush_seconds=0)
    before = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    with RunRecorder(folder, resume=True) as recorder:
        assert recorder.last_step == 2
        record(recorder, *(numbered_step(number) for number in range(5)))
    assert all(path.read_bytes() == content for path, content in before.items())
    for table in schema.TABLES:
        assert sorted(steps_in(folder, table)) == [0, 1, 2, 3, 4]


def test_tables_that_were_cut_off_at_different_steps_are_filled_up(tmp_path: Path) -> None:
    """Tokens are written before sequences and steps: a kill in between leaves the later tables behind."""
    folder = write_run(tmp_path / "run", [numbered_step(number) for number in range(3)], flush_seconds=0)
    (folder / "steps" / "000002-000002-w0.parquet").unlink()
    with RunRecorder(folder, resume=True) as recorder:
        assert recorder.last_step == 1
        record(recorder, numbered_step(2), numbered_step(3))
    for table in schema.TABLES:
        assert sorted(steps_in(folder, table)) == [0, 1, 2, 3], table


def test_resuming_keeps_the_manifest_and_takes_over_the_process(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [numbered_step(0)], seed=7, tags=["a"])
    old = Manifest.read(folder)
    with RunRecorder(folder, resume=True):
        manifest = Manifest.read(folder)
        assert manifest.status == "running" and manifest.process_id == os.getpid()
        assert (manifest.run_id, manifest.created, manifest.seed, manifest.tags) == (old.run_id, old.created, 7, ["a"])


def test_a_run_that_is_still_written_cannot_be_resumed(tmp_path: Path) -> None:
    with RunRecorder(tmp_path / "run"), pytest.raises(RunFormatError, match="is still writing this run"):
        RunRecorder(tmp_path / "run", resume=True)


def test_what_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunFormatError, match=r"it has no run\.json"):
        RunRecorder(tmp_path, resume=True)
