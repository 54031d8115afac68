"""How commands end, as processes: a crash is no finding, Ctrl-C is one line and 130, a full disk is one sentence."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratioscope.ending import CRASHED, INTERRUPTED, USAGE_ERROR
from tests.making.interruptions import LINE, commands, heard, interrupted
from tests.making.runs import stale_step, write_run

PRESS = (
    "import os, signal, sys, time; from ratioscope import ending; press = lambda: os.kill(os.getpid(), signal.SIGINT)"
)


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "stale", [stale_step(step, 0.25) for step in range(4)])


def ended(body: str) -> subprocess.CompletedProcess[str]:
    """A command whose body this is."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    program = f"{PRESS}\ndef command():\n{lines}\nending.run(command)"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=heard)


@pytest.mark.parametrize(
    "body",
    [
        "press()",
        "try: press()\nexcept KeyboardInterrupt: raise RuntimeError('Query interrupted')",
        "try: press()\nexcept KeyboardInterrupt: print('left out', file=sys.stderr)",  # and went on to its end
        "class A:\n    def __del__(self): press()\nA()\ntime.sleep(60)",  # where Python ignores errors
        "exec('press()', globals())",
        "try: press()\nexcept KeyboardInterrupt: sys.exit(1)",
    ],
)
def test_ctrl_c_is_one_line_and_130_whatever_becomes_of_it(body: str) -> None:
    began = time.monotonic()
    outcome = ended(body)
    assert (outcome.returncode, outcome.stderr) == (INTERRUPTED, LINE)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("last", "code"), [("", 0), ("sys.exit(3)", 3), ("press()", INTERRUPTED)])
def test_a_thread_inside_of_duckdb_does_not_abort_the_end(last: str, code: int) -> None:
    """Where Python takes itself down, it ends such a thread in the middle of C++, which aborts."""
    outcome = ended(
        "import atexit, duckdb, threading\n"
        "def query():\n"
        "    connection = duckdb.connect()\n"
        "    while True: connection.execute('select sum(i) from range(20000) numbers(i)').fetchall(); asked.set()\n"
        "atexit.register(print, 'cleaned up')\n"
        "asked = threading.Event()\n"
        "for _ in range(3): threading.Thread(target=query, daemon=True).start()\n"
        "asked.wait()\n"
        f"print('said'); {last}"
    )
    said = ("said\ncleaned up\n", LINE if code == INTERRUPTED else "")
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (code, *said)


@pytest.mark.parametrize(("daemon", "said"), [(True, ""), (False, "RuntimeError: too late\n")])
def test_only_a_thread_that_is_waited_for_complains_of_the_end(daemon: bool, said: str) -> None:
    """`import torch` under way is such a thread: it must not register what is to be called at the end any more."""
    outcome = ended(
        "import atexit, threading\n"
        "def late():\n"
        "    threading.main_thread().join()\n"  # returns when the end begins
        "    raise RuntimeError('too late')\n"
        f"thread = threading.Thread(target=late, daemon={daemon})\n"
        "thread.start()\n"
        "atexit.register(thread.join)"
    )
    assert outcome.returncode == 0
    assert outcome.stderr.endswith(said) and bool(outcome.stderr) is bool(said)


def test_a_crash_is_not_a_finding() -> None:
    outcome = ended("{}['x']")
    assert outcome.returncode == CRASHED == 70
    assert (
        outcome.stderr.startswith("Traceback") and "an error of ratioscope itself (KeyError), not a" in outcome.stderr
    )


@pytest.mark.parametrize(("name", "after"), [("check", 0.5), ("report", 2.0), ("watch", 1.0)])
def test_a_command_that_is_interrupted_leaves_nothing(stale: Path, tmp_path: Path, name: str, after: float) -> None:
    """More moments, and all commands: python -m tests.making.interruptions."""
    environment = os.environ | {"RATIOSCOPE_CACHE": str(tmp_path / "cache")}
    arguments = commands(stale, stale, tmp_path)[name]
    if name == "watch":  # it waits for a run that never comes
        (tmp_path / "none").mkdir()
        arguments = ["watch", str(tmp_path / "none"), "--wait", "60"]
    code, said, _ = interrupted(arguments, after, environment)
    assert (code, said) == (INTERRUPTED, LINE)
    assert not list(tmp_path.glob("*tmp-*"))


def test_a_full_disk_is_one_sentence_and_leaves_nothing(stale: Path, tmp_path: Path) -> None:
    """As large a file as the report is refused here; /dev/full refuses everything.

    No bytecode is written: Python would not notice that it is cut off, and the next process could not import it.
    """
    target = tmp_path / "report.json"
    report = f"ulimit -f 8; exec {sys.executable} -P -m ratioscope report {stale} -o {target} --full"
    outcome = subprocess.run(
        ["bash", "-c", report],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"RATIOSCOPE_CACHE": str(stale.parent.parent / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (outcome.returncode, outcome.stderr) == (USAGE_ERROR, f"ratioscope: {target}: File too large.\n")
    assert list(tmp_path.iterdir()) == []
    listed = f"exec {sys.executable} -P -m ratioscope ls {stale.parent} > /dev/full"
    outcome = subprocess.run(["bash", "-c", listed], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr) == (
        USAGE_ERROR,
        "ratioscope: The output cannot be written: No space left on device.\n",
    )
