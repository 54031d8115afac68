"""Ctrl-C, once or several times, while the last steps are written: none is lost, and the run says how it ended."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from ratioscope import Manifest
from ratioscope.analysis.runs.store import open_run

_STEPS = 6
# A disk that takes a quarter of a second for each file, so that the end takes a while.
_PROGRAM = """
import sys, time
import numpy as np
from ratioscope import RunRecorder, recorder

write = recorder.write_table_file
def slowly(path, table):
    time.sleep(0.25)
    write(path, table)
recorder.write_table_file = slowly

def record(run):
    for step in range({steps}):
        run.record_step(step, sequences={{"seq_id": np.arange(3)}}, tokens={{
            "seq_id": np.arange(3), "position": np.zeros(3, int), "logp_behavior": -np.ones(3),
            "logp_current": -np.ones(3), "token_id": np.zeros(3, int), "group_id": np.zeros(3, int)}})
        time.sleep(0.01)

run = RunRecorder(sys.argv[1], flush_seconds=0)
{end}
"""
_ENDS = {
    "by close": ('record(run); print("now", flush=True); run.close()', "finished"),
    "inside of with": (
        'with run:\n    record(run); print("now", flush=True); time.sleep(60)', "interrupted",
    ),
    "without close": ('record(run); print("now", flush=True)', "finished"),
}  # fmt: skip


_CASES = [(end, interrupts) for interrupts in (1, 2, 4) for end in _ENDS]


class _Ended(NamedTuple):
    """A run that was interrupted."""

    folder: Path
    code: int
    said: str


def _interrupted(folder: Path, end: str, interrupts: int) -> _Ended:
    program, _ = _ENDS[end]
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(steps=_STEPS, end=program), str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == "now\n"
        for _ in range(interrupts):
            time.sleep(0.12)
            child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    return _Ended(folder, child.returncode, said)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], _Ended]:
    """Every case, all at the same time: what they do is wait for the disk."""
    place = tmp_path_factory.mktemp("interrupted")
    with ThreadPoolExecutor(len(_CASES)) as pool:
        runs = [pool.submit(_interrupted, place / f"{end} {times}", end, times) for end, times in _CASES]
        return {case: run.result() for case, run in zip(_CASES, runs, strict=True)}


@pytest.mark.parametrize(("end", "interrupts"), _CASES)
def test_no_step_is_lost(ended: dict[tuple[str, int], _Ended], end: str, interrupts: int) -> None:
    folder, code, said = ended[end, interrupts]
    run = open_run(folder)
    assert (run.last_step, run.problems) == (_STEPS - 1, ()), said
    assert Manifest.read(folder).status == _ENDS[end][1], said
    assert code != 0 or end == "without close", said


def test_a_disk_that_hangs_is_given_up_and_the_run_is_not_called_finished(tmp_path: Path) -> None:
    end = """
recorder._EXIT_SECONDS = 0.5
def hangs(path, table):
    time.sleep(600)
recorder.write_table_file = hangs
record(run)
print("now", flush=True)
run.close()
"""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(steps=2, end=end), str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == "now\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert "could not be written" in said and "KeyboardInterrupt" in said
    assert Manifest.read(tmp_path / "run").live_status() == "interrupted"
