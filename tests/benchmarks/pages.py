"""Every page in a real browser: when something is there to read, and when nothing changes any more.

Runs of 5 million tokens in 2,500 steps, and of 100 million in 5,000 where RATIOSCOPE_BENCHMARK_LARGE is set; summary
on disk. *Cold* is the first page of a new server for a new visitor, *warm* the same link in a new tab. Times are from
the start of the navigation, by the browser's own clock. The baseline is a page of the same library with one chart of
2,500 points.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, BrowserContext, sync_playwright

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.app import PAGES
from tests.benchmarks.dashboard import FIELDS, STEPS, made_steps
from tests.benchmarks.scanning import write_large
from tests.benchmarks.session import Server, serving
from tests.browser.conftest import ARGUMENTS
from tests.find_chromium import find_chromium
from tests.making.runs import write_run

TURNS = 3
QUIET_MS = 700
WIDE = {"width": 1440, "height": 900}

# When the page's own part first has words, and when it changed last; the sidebar and the frame do not count.
_WATCH = """
(() => {
  window.seen = {first: null, last: null};
  const look = records => {
    const main = document.querySelector('[data-testid=stMainBlockContainer]');
    if (!main || !records.some(record => main.contains(record.target))) return;
    window.seen.last = performance.now();
    if (window.seen.first === null && main.querySelector('p, .js-plotly-plot, [data-testid=stMetric]'))
      window.seen.first = window.seen.last;
  };
  new MutationObserver(look).observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
})();
"""
_DONE = """
quiet => {
  const app = document.querySelector('[data-testid=stApp]');
  const charts = [...document.querySelectorAll('.ratioscope-plot, .js-plotly-plot')];
  return app?.getAttribute('data-test-script-state') === 'notRunning' && window.seen.first !== null
    && charts.every(chart => !chart.clientWidth || chart.querySelector('.main-svg'))
    && performance.now() - window.seen.last > quiet;
}
"""
PLAIN_PAGE = """
import tempfile, streamlit as st
from pathlib import Path
script = Path(tempfile.mkdtemp()) / "plain.py"
script.write_text('''
import numpy as np, plotly.graph_objects as go, streamlit as st
st.title("Plain")
st.write("One chart.")
st.plotly_chart(go.Figure(go.Scatter(y=np.random.default_rng(0).normal(size=2500))))
''')
st.App(script).run(config={{"server.address": "127.0.0.1", "server.port": {port}, "server.headless": True}})
"""


@dataclass(frozen=True)
class Seen:
    """Of one navigation: seconds until there is something to read, until nothing changes, and what was sent."""

    first: float
    complete: float
    kibibytes: float


def run() -> None:
    """Print every page of one run or two, cold and warm, beside a plain page."""
    with tempfile.TemporaryDirectory() as name, _browser() as browser:
        place = Path(name)
        os.environ["RATIOSCOPE_CACHE"] = str(place / "cache")
        with serving(place, place, PLAIN_PAGE) as server, _visitor(browser) as visitor:
            cold = _seen(visitor, server, "")
            plain = _best([_seen(visitor, server, "") for _ in range(TURNS)])
        print(f"  a plain page with one chart: {_told(cold)} in a new server, {_told(plain)} again")
        runs = {"5 million tokens, 2,500 steps": write_run(place / "small" / "run", made_steps(STEPS), **FIELDS)}
        if os.environ.get("RATIOSCOPE_BENCHMARK_LARGE"):
            runs["100 million tokens, 5,000 steps"] = write_large(place / "large" / "run", 5_000, lengths=(28, 51))
        for what, folder in runs.items():
            open_folder(folder)
            print(f"  {what}")
            _pages(browser, folder, place, plain)


def _pages(browser: Browser, folder: Path, place: Path, plain: Seen) -> None:
    for name in PAGES:
        address = "" if name == "runs" else f"{name}?run={folder.name}"
        cold, warm = [], []
        for _ in range(TURNS):
            with serving(folder.parent, place) as server, _visitor(browser) as visitor:
                cold.append(_seen(visitor, server, address))
                before = server.processor_seconds
                warm += [_seen(visitor, server, address) for _ in range(TURNS)]
                processor = (server.processor_seconds - before) / TURNS
        first, again = _best(cold), _best(warm)
        print(
            f"    {name:<10} new server: {_told(first)}; by link: {_told(again)}, "
            f"{again.complete / plain.complete:.2f} x the plain page; {again.kibibytes:,.0f} KiB, "
            f"{processor:.2f} s of the server's processor",
            flush=True,
        )


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _visitor(browser: Browser) -> Iterator[BrowserContext]:
    """Somebody who has never been there: nothing is in the browser's cache."""
    context = browser.new_context(viewport=WIDE)
    try:
        yield context
    finally:
        context.close()


def _seen(visitor: BrowserContext, server: Server, address: str) -> Seen:
    """Open a link in a new tab."""
    page = visitor.new_page()
    try:
        page.add_init_script(_WATCH)
        received: list[int] = []
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))))
        page.goto(f"http://127.0.0.1:{server.port}/{address}", wait_until="commit")
        page.wait_for_function(_DONE, arg=QUIET_MS, timeout=120_000)
        seen = page.evaluate("window.seen")
        return Seen(seen["first"] / 1e3, seen["last"] / 1e3, sum(received) / 2**10)
    finally:
        page.close()


def _best(seen: Sequence[Seen]) -> Seen:
    """The best of some turns of each figure: whatever else the machine did is in the others."""
    return Seen(min(s.first for s in seen), min(s.complete for s in seen), median(s.kibibytes for s in seen))


def _told(seen: Seen) -> str:
    return f"seen after {seen.first:.2f} s, complete after {seen.complete:.2f} s"
