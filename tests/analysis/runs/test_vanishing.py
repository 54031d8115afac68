"""What goes away while it is read: compacted, deleted, late; one sentence each, and the next reading is right."""

import errno
import os
import shutil
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from ratioscope import Manifest, RunRecorder
from ratioscope.analysis.runs import store
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.watching import headlines
from ratioscope.errors import VanishedError
from ratioscope.run_format import schema
from ratioscope.run_format.compaction import compact
from ratioscope.run_format.manifest import INTERRUPTED_AFTER_SECONDS, MANIFEST_NAME
from ratioscope.storage.cache import forget
from tests.making.commands import command
from tests.making.runs import numbered_step, write_run

STEPS = 4


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in a file a step, of which nothing is known yet."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    return write_run(tmp_path / "run", map(numbered_step, range(STEPS)), flush_seconds=0)


def forget_all_that_was_read() -> None:
    """On disk and in memory."""
    forget()
    store._step_rows.cache_clear()


def between_listing_and_reading(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Do something once, when a run has been opened and nothing of it was read."""
    original, done = Run.__init__, list[bool]()

    def listed(self: Run, *arguments: Any, **more: Any) -> None:
        original(self, *arguments, **more)
        if not done:
            done.append(True)
            action()

    monkeypatch.setattr(Run, "__init__", listed)


@pytest.mark.parametrize(
    "arguments", [("summarize", "--json"), ("translate", "--to", "verl"), ("check",), ("partials", "--quiet")]
)
@pytest.mark.parametrize("action", [compact, shutil.rmtree])
def test_files_that_vanish_between_listing_and_opening_are_one_sentence(
    run: Path,
    arguments: tuple[str, ...],
    action: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *options = arguments
    with monkeypatch.context() as patch:
        between_listing_and_reading(patch, lambda: action(run))
        said = command(monkeypatch, capsys, name, run, *options).failed()
    assert said.startswith(f"ratioscope: {run}/") and "vanished or changed while it was read" in said
    again = command(monkeypatch, capsys, name, run, *options)
    if action is compact:
        assert again.code in (0, 1) and not again.err
    else:
        assert again.failed() == f"ratioscope: {run}: there is no such folder."


def test_every_way_to_read_a_file_says_that_it_vanished(run: Path) -> None:
    opened = open_run(run)
    expected = summarise(opened).values
    forget_all_that_was_read()
    compact(run)
    for table in schema.TABLES:
        with pytest.raises(VanishedError, match="try again"):
            opened.read(table)
    pd.testing.assert_frame_equal(summarise(open_run(run)).values, expected, rtol=1e-12, atol=1e-15)


def test_the_list_of_runs_says_it_of_the_one_and_reads_it_at_the_next_look(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        between_listing_and_reading(patch, lambda: compact(run))
        assert "try again" in headlines.found(run).problem
    found = headlines.found(run)
    assert not found.problem and found.last_step == STEPS - 1


def test_two_who_read_one_run_into_one_cache_get_the_same_numbers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one does all of it in the moment between looking into the cache and computing."""
    other: list[pd.DataFrame] = []
    original = summarise.__globals__["tables_of"]

    def outrun(*arguments: Any, **more: Any) -> Any:
        if not other:
            other.append(pd.DataFrame())
            other[0] = summarise(open_run(run)).values
        return original(*arguments, **more)

    monkeypatch.setitem(summarise.__globals__, "tables_of", outrun)
    pd.testing.assert_frame_equal(summarise(open_run(run)).values, other[0])
    assert not list((run.parent / "cache").rglob("*tmp-*"))


def test_who_opens_files_late_has_the_steps_that_were_listed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over a network: the writer is two steps ahead when the first file opens."""
    expected = summarise(open_run(run)).values
    forget_all_that_was_read()
    original = store.read_table
    waits = [STEPS + 1, STEPS]

    def late(*arguments: Any) -> Any:
        while waits:
            numbers = waits.pop()
            with RunRecorder(run, resume=True) as recorder:
                step = numbered_step(numbers)
                recorder.record_step(numbers, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        return original(*arguments)

    monkeypatch.setattr(store, "read_table", late)
    pd.testing.assert_frame_equal(summarise(open_run(run)).values, expected)
    assert not waits
    assert summarise(open_run(run)).values.index.tolist() == [*range(STEPS + 2)]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOTDIR, errno.ENOENT])
def test_a_handle_that_a_network_forgot_is_a_file_that_vanished(
    number: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_run(run)

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pq, "ParquetFile", fails)
    with pytest.raises(VanishedError, match=r"steps/000000-000000-w0\.parquet: vanished or changed .*; try again"):
        opened.read("steps")


@pytest.mark.parametrize("ahead", [timedelta(hours=-26), timedelta(0), timedelta(hours=1), timedelta(days=400)])
def test_a_clock_that_jumped_makes_a_run_of_a_dead_process_no_live_one(run: Path, ahead: timedelta) -> None:
    heartbeat = (datetime.now(UTC) + ahead).isoformat()
    gone = {"status": "running", "process_id": 2**22 + 1, "host": socket.gethostname()}
    Manifest(name="run", heartbeat=heartbeat, **gone).write(run)  # type: ignore[arg-type]
    assert open_run(run).status == "interrupted"
    Manifest(name="run", heartbeat=heartbeat, **gone | {"process_id": os.getpid()}).write(run)  # type: ignore[arg-type]
    old = -ahead.total_seconds() > INTERRUPTED_AFTER_SECONDS
    assert open_run(run).status == ("interrupted" if old else "running")


@pytest.mark.parametrize(("silent", "status"), [(0.0, "running"), (100.0, "stalled"), (1000.0, "interrupted")])
def test_the_clock_of_another_machine_that_is_ahead_keeps_no_run_alive(run: Path, silent: float, status: str) -> None:
    """Nobody can ask there whether the process lives; when the file was written is the file system's to say."""
    heartbeat = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    Manifest(name="run", heartbeat=heartbeat, host="elsewhere").write(run)
    written = time.time() - silent
    os.utime(run / MANIFEST_NAME, (written, written))
    assert open_run(run).status == status
