"""A disk that is really full: one sentence with the file that was meant, nothing half-written, what was there stays."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ratioscope import Manifest, RatioscopeError, RunRecorder
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.watching.alerts import LinesFile, UndeliveredError
from ratioscope.run_format.compaction import compact
from ratioscope.storage.cache import Entry
from ratioscope.storage.whole_files import append_whole
from tests.making.commands import command
from tests.making.runs import Step, numbered_step, random_step, write_run
from tests.making.small_disk import fill, small_disk
from tests.making.training import same_tables, small, train

FULL = "No space left on device"
TABLES = {"tokens", "sequences", "steps"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 1024) as folder:
        yield folder


def large_step(number: int) -> Step:
    return random_step(np.random.default_rng(number), number, groups=30, responses=8, longest=60)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"filler"}


def test_a_recorder_says_which_file_keeps_what_was_flushed_and_goes_on_when_there_is_room(disk: Path) -> None:
    run, filler = disk / "run", fill(disk, free=450)

    def record(recorder: RunRecorder, number: int) -> None:
        step = large_step(number)
        recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        recorder.flush()

    recorder = RunRecorder(run, flush_seconds=0)
    number = 0
    with pytest.raises(RatioscopeError) as said:
        for number in range(100):
            record(recorder, number)
    flushed = recorder.last_step
    assert flushed == number - 1 >= 0
    meant = run / "tokens" / f"{number:06d}-{number:06d}-w0.parquet"
    assert str(said.value) == (
        f"{run}: the steps after {flushed} are not on disk yet ({meant}: {FULL}); they wait in memory, and "
        "writing them is tried again."
    )
    with pytest.raises(RatioscopeError, match=FULL):
        recorder.close()
    whole = [f"{n:06d}-{n:06d}-w0.parquet" for n in range(number)]
    assert files(run) == {
        "run.json",
        *(f"{table}/{name}" for table in TABLES for name in whole),
    }
    assert Manifest.read(run).status_reason == f"recording stopped: {meant}: {FULL}"

    filler.unlink()
    with RunRecorder(run, resume=True, flush_seconds=0) as recorder:
        for number in range(flushed + 1, flushed + 3):
            record(recorder, number)
    complete = write_run(disk.parent / "complete", [large_step(n) for n in range(flushed + 3)], flush_seconds=0)
    assert same_tables(run, complete) and not open_run(run).problems


def test_a_disk_without_room_for_anything_leaves_the_manifest_whole(disk: Path) -> None:
    recorder = RunRecorder(disk / "run", flush_seconds=0)
    before = Manifest.read(disk / "run")
    fill(disk)
    step = large_step(0)
    recorder.record_step(0, tokens=step.tokens, sequences=step.sequences)
    with pytest.raises(RatioscopeError, match=f"recording stopped .*w0.parquet: {FULL}"):
        recorder.close()
    assert Manifest.read(disk / "run").run_id == before.run_id and files(disk / "run") == {"run.json"}
    with pytest.raises(RatioscopeError, match=f"cannot be written .*run.json: {FULL}"):
        RunRecorder(disk / "another")


def test_a_cache_without_room_keeps_nothing_and_changes_no_number(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [numbered_step(n) for n in range(3)])
    expected = summarise(open_run(run)).values
    fill(disk, free=8)
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(disk / "cache"))
    entry = Entry("things", 32 * "0")
    entry.put(bytes(20_000))
    assert entry.get() is None and not files(disk / "cache")
    pd.testing.assert_frame_equal(summarise(open_run(run)).values, expected)
    assert not any("tmp-" in name for name in files(disk))
    assert (
        "does not keep partials; make room, make it writable"
        in command(monkeypatch, capsys, "partials", run, "--cache", disk / "cache", "--quiet").failed()
    )


def test_compacting_without_room_leaves_the_run_as_it_was(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(disk / "run", [numbered_step(n) for n in range(10)], flush_seconds=0)
    before = files(run)
    filler = fill(disk, free=8)
    said = command(monkeypatch, capsys, "compact", run).failed()
    assert said == f"ratioscope: {run}/tokens/000000-000009-w0.parquet: {FULL}."
    assert files(run) == before and {path.name for path in run.iterdir() if path.is_dir()} == {
        "tokens",
        "sequences",
        "steps",
    }
    filler.unlink()
    assert compact(run).after == 3


def test_a_report_without_room_is_not_there(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [numbered_step(n) for n in range(3)])
    fill(disk, free=8)
    report = command(monkeypatch, capsys, "report", run, "-o", disk / "report.html", "--pages", "findings")
    assert report.failed() == f"ratioscope: {disk}/report.html: {FULL}."
    assert not files(disk)


def test_training_stops_with_a_sentence_and_resumes_to_the_same_run(disk: Path, tmp_path: Path) -> None:
    config = small("updates=6", "checkpoint_every=2")
    whole = train(config, tmp_path / "whole").folder
    fill(disk, free=40)
    with pytest.raises(RatioscopeError, match=FULL) as said:
        train(config, disk / "run")
    assert str(disk / "run") in str(said.value) and "tmp-" not in str(said.value)
    assert not any("tmp-" in name for name in files(disk))
    (disk / "filler").unlink()
    train(config, disk / "run", resume=True)
    assert same_tables(whole, disk / "run")


def test_a_line_without_room_is_not_begun(disk: Path) -> None:
    """Half an alert would spoil the next one, which is tried again at the next check."""
    lines = disk / "lines"
    append_whole(lines, b"first\n")
    listener = LinesFile(disk / "alerts.jsonl")
    fill(disk)
    with pytest.raises(OSError, match=FULL) as said:
        append_whole(lines, bytes(100_000))
    assert said.value.filename == str(lines) and lines.read_bytes() == b"first\n"
    alert = {"severity": Severity.CRITICAL.value, "run": "run", "sentence": "x" * 10_000}
    with pytest.raises(UndeliveredError, match=f"alerts.jsonl: an alert could not be written .{FULL}."):
        listener.deliver(alert)
    assert not (disk / "alerts.jsonl").read_bytes()
