"""The dashboard: server time of the list of 1,000 runs, of every page of a 5 M-token run, of a tick; memory; points.

Times are those of a really running server, asked over its websocket (`session`): Streamlit's AppTest runs the script
without the runtime, its caches of messages and its serialisation. A browser's drawing is not in them.

RATIOSCOPE_BENCHMARK_SESSIONS and RATIOSCOPE_BENCHMARK_REFRESHES: 20 and 500 when they are not set.
"""

import base64
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from ratioscope import RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.sections import MENU as PAGES
from tests.benchmarks.session import Server, Session, serving
from tests.benchmarks.timing import row, seconds
from tests.making.runs import Step, random_step, write_run

RUNS, STEPS, GROUPS, RESPONSES, LONGEST = 1_000, 2_500, 16, 8, 30  # 2,500 steps: more than a chart may have points
COLD, WARM, TICKS = 3, 7, 50
_LISTING_AGE = 3.5  # seconds; after these the app looks again what is there
FIELDS: dict[str, Any] = {
    "algorithm": {"name": "grpo"},
    "schedule": {"sync_interval": 4, "sync_offset": 0, "offline": False},
    "task": {"name": "addition"},
    "seed": 0,
}
EMPTY_PAGE = """
import tempfile, streamlit as st
from pathlib import Path
script = Path(tempfile.mkdtemp()) / "empty.py"
script.write_text("import streamlit as st\\nst.title('Empty')")
st.App(script).run(config={{"server.address": "127.0.0.1", "server.port": {port}, "server.headless": True}})
"""


def run() -> None:
    """Print the list, every page, ticks, memory, the largest trace; against an empty page and reading the columns."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        os.environ["RATIOSCOPE_CACHE"] = str(place / "cache")
        with serving(place, place, EMPTY_PAGE) as server, Session(server) as session:
            session.open("")
            empty = _median(session.refresh, WARM)
        _list(place / "list", place, empty)
        big = write_run(place / "one" / "big", made_steps(STEPS), **FIELDS)
        files = [file.path for file in open_run(big).files["tokens"]]
        columns = ["logp_behavior", "logp_current", "logp_new"]
        read = seconds(lambda: [pd.read_parquet(path, columns=columns) for path in files])
        against = "pandas reading three log-prob columns"
        _first(place, read, against)
        summary = summarise(open_run(big))
        print(f"  {summary.values['n_tokens'].sum():,.0f} tokens in {STEPS:,} steps, {len(files)} files")
        _pages(place, empty, read, against)
        _ticks(place, empty)
        _memory(place)


def made_steps(n: int) -> Iterator[Step]:
    rng = np.random.default_rng(0)
    for number in range(n):
        spread = 0.05 + 0.1 * (number % 4)
        yield random_step(rng, number, groups=GROUPS, responses=RESPONSES, longest=LONGEST, spread=spread)


def _list(root: Path, place: Path, empty: float) -> None:
    """The Runs page of copies of a small run: with nothing known, with headlines on disk, and warm."""
    first = write_run(root / "run-0000", made_steps(3), **FIELDS)
    manifest = json.loads((first / "run.json").read_text())
    for number in range(1, RUNS):
        folder = shutil.copytree(first, root / f"run-{number:04d}")
        (folder / "run.json").write_text(json.dumps(manifest | {"name": folder.name, "run_id": f"{number:032x}"}))
    for what in ("nothing known of them", "60 of them read before"):
        times, again, processor = [], [], []
        for _ in range(1 if what.startswith("nothing") else COLD):
            with serving(root, place) as server, Session(server) as session:
                _import(session)
                time.sleep(_LISTING_AGE)  # the import has listed the runs too
                times.append(session.open(""))
                if session.ticks:  # leave the newest ones time to be read, so that the next server finds them
                    _until_read(session)
                before = server.processor_seconds
                again.append(_median(session.refresh, WARM))
                processor.append((server.processor_seconds - before) / WARM)
                size = session.bytes
        row(f"list of {RUNS:,} runs, first time, {what}", median(times), empty, "an empty page")
    row(f"list of {RUNS:,} runs, again", median(again), empty, "an empty page")
    print(f"    {median(processor) * 1e3:.0f} ms of processor time, {size / 2**10:.0f} KiB to the browser")


def _until_read(session: Session) -> None:
    while min(session.ticks.values()) < 2:  # the page looks again and again while rewards and findings come in
        session.refresh()


def _import(session: Session) -> None:
    """The first script of a process imports everything; this page opens no run."""
    session.open("compare")


def _first(place: Path, read: float, against: str) -> None:
    """Nothing computed before: every page waits for the same summary, so one page stands for all."""
    times = []
    for _ in range(COLD):
        shutil.rmtree(place / "cache", ignore_errors=True)
        with serving(place / "one", place) as server, Session(server) as session:
            _import(session)
            times.append(session.open("overview", "run=big"))
    row("overview, fresh process, summary not cached", median(times), read, against)


def _pages(place: Path, empty: float, read: float, against: str) -> None:
    """Every page, in a fresh process and again, and its largest trace."""
    most, cells = (0, ""), (0, "")
    imports = []
    for name in PAGES:
        cold, warm, processor = [], [], []
        path, query = ("", "") if name == "runs" else (name, "run=big")
        for attempt in range(COLD):
            with serving(place / "one", place) as server, Session(server) as session:
                imports.append(session.open("compare"))
                cold.append(session.open(path, query))
                most = max(most, (_largest(session.specs, "xy"), name))
                cells = max(cells, (_largest(session.specs, "z"), name))
                if attempt == 0:
                    before = server.processor_seconds
                    warm.append(_median(session.refresh, WARM))
                    processor.append((server.processor_seconds - before) / WARM)
        row(f"{name}, fresh process, summary on disk", median(cold), read, against)
        row(f"{name}, again", median(warm), empty, "an empty page")
        print(f"    {median(processor) * 1e3:.0f} ms of processor time")
    row("imports: the first script of a process", median(imports), read, against)
    print(f"  largest trace: {most[0]:,} points, on {most[1]}; largest heat map: {cells[0]:,} cells, on {cells[1]}")


def _largest(specs: list[dict[str, Any]], axes: str) -> int:
    """The longest of these axes of all traces."""
    return max((_length(trace.get(axis)) for spec in specs for trace in spec["data"] for axis in axes), default=0)


def _length(values: Any) -> int:
    if isinstance(values, dict):
        return len(base64.b64decode(values["bdata"])) // np.dtype(values["dtype"]).itemsize
    return sum(_length(value) if isinstance(value, list | dict) else 1 for value in values or ())


def _ticks(place: Path, empty: float) -> None:
    """What the timer of a live run's page costs while no new step arrives."""
    with RunRecorder(place / "live" / "run", flush_seconds=float("inf"), **FIELDS) as recorder:
        for step in made_steps(20):
            recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        recorder.flush()
        with serving(place / "live", place) as server, Session(server) as session:
            for name, path in (("overview", "overview"), ("runs", "")):
                session.open(path, "run=run")
                if name == "runs":
                    _until_read(session)
                (fragment,) = session.ticks
                session.tick(fragment)
                before = server.processor_seconds
                took = _median(lambda: session.tick(fragment), TICKS)  # noqa: B023
                processor = (server.processor_seconds - before) / TICKS
                row(f"tick without news, {name}", took, empty, "an empty page")
                print(f"    {processor * 1e3:.1f} ms of processor time")


def _memory(place: Path) -> None:
    """Resident memory of a server whose pages are drawn again and again by many sessions."""
    sessions = int(os.environ.get("RATIOSCOPE_BENCHMARK_SESSIONS", "20"))
    refreshes = int(os.environ.get("RATIOSCOPE_BENCHMARK_REFRESHES", "500"))
    views = [("", "") if name == "runs" else (name, "run=big") for name in PAGES]

    def draw(server: Server, session: Session, first: int, times: int) -> float:
        for number in range(first, first + times):
            session.open(*views[number % len(views)])
        return server.megabytes

    with serving(place / "one", place) as server:
        start = server.megabytes
        with Session(server) as session:
            warm = draw(server, session, 0, 2 * len(views))
        tabs = [Session(server) for _ in range(sessions)]
        each = refreshes // sessions
        after = [draw(server, tab, number, each) for number, tab in enumerate(tabs)]
        for tab in tabs:
            tab.__exit__(None, None, None)
    print(
        f"  server's memory: {start:.0f} MB at the start, {warm:.0f} MB warm, {after[sessions // 2 - 1]:.0f} MB after "
        f"{refreshes // 2} refreshes, {after[-1]:.0f} MB after {refreshes} in {sessions} open sessions"
    )


def _median(action: Callable[[], float], repeats: int) -> float:
    return median(action() for _ in range(repeats))
