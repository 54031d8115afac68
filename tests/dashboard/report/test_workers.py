"""Sections that other processes make are those that this one makes, and they end with it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.dashboard.report import workers
from ratioscope.dashboard.report.build import full_pages, run_report
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.report.json_report import json_text
from ratioscope.dashboard.report.markdown import markdown
from ratioscope.dashboard.sections.model import Report

WAITS = """
import sys, time
from pathlib import Path
from ratioscope.dashboard.report import workers
workers._WORTH_IT = 0
if __name__ == "__main__":
    with workers.workers([Path(sys.argv[1])]) as pool:
        import os
        print(pool.submit(os.getpid).result(), flush=True)
        time.sleep(60)
"""


def test_processes_make_the_same_files_of_the_same_run(
    opened: Opened, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_WORTH_IT", 0)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # other tests leave a script that is gone
    with workers.workers([opened.run.folder]) as pool:
        assert pool is not None
        again = run_report(open_folder(opened.run.folder), pages=full_pages([opened]), pool=pool)
    assert html(again) == html(report)
    assert json_text(again) == json_text(report)
    assert markdown(again, "files") == markdown(report, "files")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_process_that_is_killed_costs_time_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = ["setting", "learning", "drift"]
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL)
        assert html(run_report(opened, pages=pages, pool=pool)) == html(run_report(opened, pages=pages))


def test_a_small_run_is_not_worth_a_process(opened: Opened) -> None:
    with workers.workers([opened.run.folder]) as pool:
        assert pool is None


def test_a_process_ends_with_the_one_that_asked_for_it(opened: Opened, tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    command = [sys.executable, str(script), str(opened.run.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asking:
        assert asking.stdout is not None
        worker = int(asking.stdout.readline())
        asking.kill()
        asking.wait(30)
    for _ in range(300):
        if not _is_there(worker):
            return
        time.sleep(0.1)
    raise AssertionError(f"process {worker} is still there")


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
