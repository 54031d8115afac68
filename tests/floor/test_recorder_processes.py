"""Recorders and the processes around them: programs that end anyhow, several writers, forked children, what is left."""

import multiprocessing
import subprocess
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ratioscope import Manifest, RunFormatError, RunRecorder
from ratioscope.analysis.findings.finding import Outcome
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from ratioscope.run_format import schema
from tests.making.runs import numbered_step

ROOT = Path(__file__).parents[2]
RECORDING = """
import os, sys
from pathlib import Path
from ratioscope import RatioscopeError, RunRecorder
from tests.making.runs import numbered_step

folder = Path(sys.argv[1])

def record(recorder, *numbers):
    for number in numbers:
        step = numbered_step(number)
        recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)

"""


def program(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that records, to its end."""
    # Python 3.12 and later warn of any fork beside a thread; this one is what is tested.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", RECORDING + text, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def record(recorder: RunRecorder, *numbers: int) -> None:
    for number in numbers:
        step = numbered_step(number)
        recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)


def steps_in(folder: Path, table: str) -> list[int]:
    files = (folder / table).glob("*.parquet")
    return sorted(step for file in files for step in pq.read_table(file)["step"].unique().to_pylist())


def locks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".*"))


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ("", "finished", "the program ended without closing the recorder"),
        ("sys.exit(3)", "finished", "the program ended without closing the recorder"),
        ("raise ValueError('no')", "failed", "ValueError: no"),
    ],
)
def test_a_program_that_ends_without_close_loses_nothing(tmp_path: Path, end: str, status: str, reason: str) -> None:
    folder = tmp_path / "run"
    ended = program(f"recorder = RunRecorder(folder)\nrecord(recorder, *range(50))\n{end}", folder)
    assert (
        "the program ended without closing the recorder; it is closed now, the last step on disk is 49" in ended.stderr
    )
    assert all(steps_in(folder, table) == list(range(50)) for table in schema.TABLES)
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.status_reason, locks(folder)) == (status, reason, [])


def test_a_forked_child_leaves_the_run_to_its_parent(tmp_path: Path) -> None:
    """It neither ends it nor waits for a thread that it does not have."""
    text = """
with RunRecorder(folder) as recorder:
    record(recorder, 0)
    if os.fork() == 0:
        try:
            record(recorder, 1)
        except RatioscopeError as error:
            print(error, flush=True)
        sys.exit()
    os.wait()
    record(recorder, 1, 2)
"""
    ended = program(text, tmp_path / "run")
    assert "from which this one was forked; make a RunRecorder here, with a writer number" in ended.stdout
    assert (ended.returncode, ended.stderr) == (0, "")
    assert steps_in(tmp_path / "run", "steps") == [0, 1, 2]
    assert Manifest.read(tmp_path / "run").status == "finished"


def test_a_forked_child_does_not_keep_the_run_from_being_resumed(tmp_path: Path) -> None:
    text = """
recorder = RunRecorder(folder)
if os.fork() == 0:
    import time
    print(os.getpid(), flush=True)  # by now it has let go of the parent's lock
    time.sleep(30)
os._exit(9)
"""
    command = [sys.executable, "-c", RECORDING + text, str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.wait()
            with RunRecorder(tmp_path / "run", resume=True) as recorder:
                record(recorder, 0)
        finally:
            subprocess.run(["kill", "-9", str(child)], check=False)
    assert Manifest.read(tmp_path / "run").status == "finished" and locks(tmp_path / "run") == []


def _claim(folder: Path, together: Barrier, resume: bool, tries: int) -> int:
    """How many of the runs were this process's."""
    won = 0
    for number in range(tries):
        together.wait()
        try:
            recorder = RunRecorder(folder / str(number), resume=resume)
        except RunFormatError:
            together.wait()
            continue
        together.wait()  # the other one has tried, too
        recorder.close()
        won += 1
    return won


@pytest.mark.parametrize("resume", [False, True])
def test_of_two_writers_that_start_at_once_one_is_accepted(tmp_path: Path, resume: bool) -> None:
    tries = 15
    if resume:
        for number in range(tries):
            RunRecorder(tmp_path / str(number)).close()
    with multiprocessing.Manager() as manager:
        together = manager.Barrier(2)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            claims = [pool.apply_async(_claim, (tmp_path, together, resume, tries)) for _ in range(2)]
            assert sum(claim.get(timeout=60) for claim in claims) == tries
    assert all(Manifest.read(tmp_path / str(number)).status == "finished" for number in range(tries))


def test_without_locks_of_the_file_system_one_of_two_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some network file systems: the manifest is made by one of them."""
    from ratioscope.run_format import writers

    monkeypatch.setattr(writers, "fcntl", None)
    first, seen = writers.Seat.approach, []

    def late(seat: writers.Seat, target: Path, *, resume: bool) -> Manifest | None:
        seen.append(first(seat, target, resume=resume))
        if len(seen) == 2:  # just when nothing has been found for the second time, another process makes the run
            Manifest(name="other").write(target)
        return seen[-1]

    monkeypatch.setattr(writers.Seat, "approach", late)
    with pytest.raises(RunFormatError, match="already holds a run"):
        RunRecorder(tmp_path / "run")
    assert Manifest.read(tmp_path / "run").name == "other"


def test_writers_with_numbers_of_their_own_record_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = RunRecorder(folder, writer=3, seed=7, vocabulary=str)  # whoever comes first makes the run
    second = RunRecorder(folder, writer=0, seed=8, vocabulary=str)
    with pytest.raises(RunFormatError, match="already holds a run"):
        RunRecorder(folder, writer=3)
    record(first, 0, 2)
    record(second, 1)
    for recorder in (first, second):
        recorder.flush()
    second.close()
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.live_status(), manifest.seed) == ("running", "running", 7)
    assert {name: writer["status"] for name, writer in manifest.writers.items()} == {"0": "finished", "3": "running"}
    with RunRecorder(folder, writer=0, resume=True) as again:  # while the other one is still at it
        assert again.last_step == 1
        record(again, 3)
    first.close()
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.status_reason, manifest.process_id) == ("finished", "", 0)
    assert steps_in(folder, "steps") == [0, 1, 2, 3] and locks(folder) == []
    ids = set(pq.read_table(folder / "vocabulary.parquet")["token_id"].to_pylist())
    assert ids >= {token for number in range(4) for token in numbered_step(number).tokens["token_id"].tolist()}


def test_a_step_of_several_writers_is_one_step(tmp_path: Path) -> None:
    """Ranks that record the same steps made a log with several rows a step, which was called broken, and the row of a
    rank without scalars took the others' place."""
    first, second = (RunRecorder(tmp_path / "run", writer=rank) for rank in range(2))
    for number in range(4):
        step = numbered_step(number)
        first.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars={"loss": 0.5})
        apart = {key: {**columns, "seq_id": columns["seq_id"] + 1_000} for key, columns in vars(step).items()
                 if key in ("tokens", "sequences")}  # fmt: skip
        second.record_step(number, **apart)
    first.close()
    second.close()
    run = open_run(tmp_path / "run")
    assert run.steps["step"].tolist() == [0, 1, 2, 3] and run.repeated_steps == []
    assert run.steps["loss"].tolist() == [0.5] * 4
    (said,) = [remark for remark in lint(run) if remark.rule == "steps"]
    assert said.outcome is Outcome.PASSED


def test_the_run_of_several_writers_ends_as_the_worst_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunRecorder(folder) as recorder:
        program("record(RunRecorder(folder, writer=1, flush_seconds=0), 0)\nos._exit(9)", folder)
        record(recorder, 1)
        assert Manifest.read(folder).live_status() == "running"
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.status_reason) == ("interrupted", "its process ended without a word")
    with RunRecorder(folder, writer=1, resume=True) as recorder:
        record(recorder, 2)
    assert Manifest.read(folder).status == "finished"


def test_resuming_removes_the_half_files_of_its_own_writer_only(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    RunRecorder(folder).close()
    own = ["tokens/000000-000001-w0.tmp-77", "run.json.tmp-0123456789abcdef", "vocabulary.tmp-77"]
    others = ["notes.tmp-1", "tokens/000000-000001-w1.tmp-77", "tokens/mine.tmp-77", "backup/run.json.tmp-1", "a.tmp-"]
    (folder / "backup").mkdir()
    for name in (*own, *others):
        (folder / name).touch()
    RunRecorder(folder, resume=True).close()
    assert [name for name in own if (folder / name).exists()] == []
    assert [name for name in others if (folder / name).exists()] == others
