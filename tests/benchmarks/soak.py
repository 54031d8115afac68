"""A live run, a server and its viewers for a long time: what the server takes each minute, and how soon it answers.

A recorder writes a step every two seconds. Each viewer has a page open and asks as its timers do; every few minutes it
goes on to the next page. Most are sessions without a browser (`session`), the first few are pages of one Chromium.

RATIOSCOPE_SOAK_MINUTES, RATIOSCOPE_SOAK_VIEWERS, RATIOSCOPE_SOAK_BROWSERS: 60, 20 and 3 when they are not set. It takes
as long as that says, and is run by its name alone.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import numpy as np

from ratioscope import RunRecorder
from ratioscope.analysis.runs.store import open_run
from ratioscope.dashboard.sections import MENU as PAGES
from tests.benchmarks.session import Server, Session, serving
from tests.find_chromium import find_chromium
from tests.making.runs import random_step

STEP_SECONDS, PAGE_SECONDS = 2.0, 240.0
NAMES = list(PAGES)
# Caches fill for a third of the time, or for these minutes; growth is told from there on.
_WARM_MINUTES = 6.0


@dataclass
class Answers:
    """What all viewers have heard since the last minute: kind of question and seconds; and what went wrong."""

    took: SimpleQueue[tuple[str, float]] = field(default_factory=SimpleQueue)
    failed: SimpleQueue[str] = field(default_factory=SimpleQueue)

    def heard(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {"tick": [], "redraw": [], "page": []}
        while not self.took.empty():
            kind, seconds = self.took.get()
            found[kind].append(seconds)
        return found


class Viewer(Session):
    """A tab whose timers run: it knows whether a tick drew the page anew, which has other timers then."""

    def look(self, number: int, answers: Answers, over: Event) -> None:
        """Keep a page open, and go on to the next one now and then, until it is over."""
        page = number
        try:
            while not over.is_set():
                name, page = NAMES[page % len(NAMES)], page + 1
                answers.took.put(("page", self.open("" if name == "runs" else name, "run=run")))
                leave = time.monotonic() + PAGE_SECONDS * (0.75 + 0.5 * (number % 5) / 4)
                self._stay(leave, answers, over)
        except Exception as error:  # noqa: BLE001 - it is said, and the others go on
            answers.failed.put(f"{NAMES[(page - 1) % len(NAMES)]}: {type(error).__name__}: {str(error)[:200]}")

    def _stay(self, leave: float, answers: Answers, over: Event) -> None:
        due = {fragment: time.monotonic() + pause for fragment, pause in self.ticks.items()}
        while time.monotonic() < leave:
            first = min(due, key=lambda fragment: due[fragment], default=None)
            if over.wait(max(0.0, min(due[first] if first else leave, leave) - time.monotonic())):
                return
            if first is None or due[first] > time.monotonic():
                continue
            before, self.ticks = self.ticks, {}
            took = self.tick(first)
            drawn = bool(self.ticks)  # a page says its timers, a tick of one does not
            answers.took.put(("redraw" if drawn else "tick", took))
            self.ticks = self.ticks or before
            now = time.monotonic()
            due = {fragment: now + pause for fragment, pause in self.ticks.items() if drawn or fragment == first} | {
                fragment: when for fragment, when in due.items() if not drawn and fragment != first
            }


def run() -> None:
    """Print memory, threads, files and answer times each minute, and how much the server has grown at the end."""
    minutes = float(os.environ.get("RATIOSCOPE_SOAK_MINUTES", "60"))
    viewers = int(os.environ.get("RATIOSCOPE_SOAK_VIEWERS", "20"))
    path = find_chromium()
    browsers = min(viewers, int(os.environ.get("RATIOSCOPE_SOAK_BROWSERS", "3"))) if path else 0
    with tempfile.TemporaryDirectory() as name, ExitStack() as open_ones:
        place = Path(name)
        os.environ["RATIOSCOPE_CACHE"] = str(place / "cache")
        recorder = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.soak", str(place / "live" / "run")])
        open_ones.callback(recorder.wait)
        open_ones.callback(recorder.terminate)
        while not list((place / "live").glob("run/steps/*.parquet")):
            time.sleep(0.1)
        server = open_ones.enter_context(serving(place / "live", place))
        over, answers = Event(), Answers()
        sessions = [open_ones.enter_context(Viewer(server)) for _ in range(viewers - browsers)]
        threads = [
            Thread(target=session.look, args=(number, answers, over), daemon=True)
            for number, session in enumerate(sessions)
        ]
        threads += [Thread(target=_browse, args=(str(path), server, browsers, over, answers), daemon=True)] * (
            browsers > 0
        )
        for thread in threads:
            thread.start()
        open_ones.callback(lambda: [thread.join(60) for thread in threads])
        open_ones.callback(over.set)
        print(
            f"  {viewers} viewers, {browsers} of them pages of a browser; a step every {STEP_SECONDS:g} s", flush=True
        )
        _watch(minutes, server, place, answers)


def _watch(minutes: float, server: Server, place: Path, answers: Answers) -> None:
    """A line each minute; then from when on it was warm, how much was added."""
    begun, sizes = time.monotonic(), []
    for minute in range(1, int(minutes) + 1):
        used = server.processor_seconds
        time.sleep(max(0.0, begun + 60 * minute - time.monotonic()))
        heard = answers.heard()
        sizes.append(server.megabytes)
        said = "  ".join(f"{kind} {_quantiles(seconds)}" for kind, seconds in heard.items())
        steps = open_run(place / "live" / "run").last_step + 1
        print(
            f"  minute {minute:3d}: {steps:5,d} steps, {sizes[-1]:5.0f} MB, {server.threads:3d} threads, "
            f"{server.files:3d} files, {(server.processor_seconds - used) / 60:4.0%} of a core;  {said}",
            flush=True,
        )
        while not answers.failed.empty():
            print(f"    failed: {answers.failed.get()}", flush=True)
    warm = int(min(_WARM_MINUTES, len(sizes) // 3))
    if len(sizes) > warm + 1:
        slope = np.polyfit(np.arange(warm, len(sizes)), sizes[warm:], 1)[0]
        print(f"  memory from minute {warm + 1} on: {slope:+.2f} MB a minute, highest {max(sizes):.0f} MB")


def _quantiles(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    median, ninety = np.quantile(seconds, (0.5, 0.9))
    return f"{len(seconds)} x {median:.2f} s ({ninety:.2f} s for one in ten, {max(seconds):.2f} s at most)"


def _browse(path: str, server: Server, pages: int, over: Event, answers: Answers) -> None:
    """Pages of a real browser, which only have to stay open; they go on to other pages as the others do."""
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright, suppress(Error):
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tabs = [browser.new_page() for _ in range(pages)]
        number = 0
        while not over.is_set():
            for tab in tabs:
                name, number = NAMES[number % len(NAMES)], number + 1
                try:
                    tab.goto(f"http://127.0.0.1:{server.port}/{'' if name == 'runs' else name}?run=run")
                except Error as error:
                    answers.failed.put(f"browser, {name}: {str(error)[:200]}")
            wait = time.monotonic() + PAGE_SECONDS
            while not over.is_set() and time.monotonic() < wait:
                tabs[0].wait_for_timeout(500)  # what the pages ask is answered meanwhile
        browser.close()


def record(folder: Path) -> None:
    """Write steps until the process is ended."""
    rng = np.random.default_rng(0)
    with RunRecorder(folder, algorithm={"name": "grpo"}, task={"name": "made"}, seed=0) as recorder:
        for number in range(10**6):
            step = random_step(rng, number, groups=16, responses=8, longest=30)
            recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
            time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
