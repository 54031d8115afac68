"""Every page in a real browser: when something is there to read, when the first screen is done, and when all is.

Runs of 5 million tokens in 2,500 steps, and of 100 million in 5,000 where RATIOSCOPE_BENCHMARK_LARGE is set; summary
on disk. A *new visitor* has an empty browser, one who *returns* has the caches that three visits left on the disk; both
get the first page of a new server. *By link* is the same address in a new tab of who returns, *by the menu* a click in
a tab that is open: the first on a page since the server started, and later ones. Times are from the start of the
navigation, by the browser's own clock. The baseline is a page of the same library with one chart of 2,500 points.
RATIOSCOPE_BENCHMARK_PAGES names the pages (`overview,drift`) that are opened by links too where not all are wanted.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.sections import MENU as PAGES
from tests.benchmarks.dashboard import FIELDS, STEPS, made_steps
from tests.benchmarks.scanning import write_large
from tests.benchmarks.session import Server, serving
from tests.browser.conftest import ARGUMENTS
from tests.browser.processes import free_port
from tests.find_chromium import find_chromium
from tests.making.runs import write_run

TURNS = 3
QUIET_MS = 700
WIDE = {"width": 1440, "height": 900}

# When the page's own part first has words, and when it changed last, with and without the charts below the first
# screen; the sidebar and the frame do not count.
_WATCH = """
(() => {
  window.seen = {first: null, screen: null, last: null};
  const below = node => {
    const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
    const chart = element?.closest('.ratioscope-plot');
    return chart && chart.getBoundingClientRect().top >= innerHeight;
  };
  const look = records => {
    const main = document.querySelector('[data-testid=stMainBlockContainer]');
    const changed = main ? records.map(record => record.target).filter(target => main.contains(target)) : [];
    if (!changed.length) return;
    window.seen.last = performance.now();
    if (!changed.every(below)) window.seen.screen = window.seen.last;
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
    """Of one navigation: seconds until there is something to read, until the first screen is done and until nothing
    changes, and what was sent."""

    first: float
    screen: float
    complete: float
    kibibytes: float


def run() -> None:
    """Print every page of one run or two beside a plain page."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        place = Path(name)
        os.environ["RATIOSCOPE_CACHE"] = str(place / "cache")
        with serving(place, place, PLAIN_PAGE) as server, _visitor(playwright, place / "plain") as visitor:
            cold = _seen(visitor, server, "")
            plain = _best([_seen(visitor, server, "") for _ in range(TURNS)])
        print(f"  a plain page with one chart: {_told(cold)} in a new server, {_told(plain)} again")
        runs = {"5 million tokens, 2,500 steps": write_run(place / "small" / "run", made_steps(STEPS), **FIELDS)}
        if os.environ.get("RATIOSCOPE_BENCHMARK_LARGE"):
            runs["100 million tokens, 5,000 steps"] = write_large(place / "large" / "run", 5_000, lengths=(28, 51))
        for what, folder in runs.items():
            open_folder(folder)
            print(f"  {what}")
            _by_menu(playwright, folder, place)
            _pages(playwright, folder, place, plain)


def _by_menu(playwright: Playwright, folder: Path, place: Path) -> None:
    profile = place / f"{folder.parent.name}-menu"
    with serving(folder.parent, place) as server, _visitor(playwright, profile) as visitor:
        page = visitor.new_page()
        page.add_init_script(_WATCH)
        page.goto(f"http://127.0.0.1:{server.port}/overview?run={folder.name}", wait_until="commit")
        page.wait_for_function(_DONE, arg=QUIET_MS, timeout=120_000)
        found = [{name: _clicked(page, name) for name in PAGES} for _ in range(1 + TURNS)]
    for name in PAGES:
        first, *later = (turn[name] for turn in found)
        print(f"    {name:<10} by the menu: complete after {first:.2f} s, {min(later):.2f} s later on", flush=True)


def _clicked(page: Page, name: str) -> float:
    """Seconds from a click in the menu until nothing changes."""
    page.evaluate("window.seen = {first: null, screen: null, last: null, began: performance.now()}")
    page.locator("[data-testid=stSidebar]").get_by_role("link", name=PAGES[name].title, exact=True).click()
    page.wait_for_url(lambda url: name == "runs" or f"/{name}" in url)
    page.wait_for_function(_DONE, arg=QUIET_MS, timeout=120_000)
    return float(page.evaluate("window.seen.last - window.seen.began")) / 1e3


def _pages(playwright: Playwright, folder: Path, place: Path, plain: Seen) -> None:
    wanted = os.environ.get("RATIOSCOPE_BENCHMARK_PAGES", "").split(",")
    port = free_port()  # a browser keeps what it has by address
    for name in PAGES if wanted == [""] else wanted:
        address = "" if name == "runs" else f"{name}?run={folder.name}"
        known, new, back, warm = place / f"{folder.parent.name}-{name}", [], [], []
        with serving(folder.parent, place, port=port) as server, _visitor(playwright, known) as visitor:
            for _ in range(3):  # the second visit has the browser keep what it compiled, the third uses it
                _seen(visitor, server, address)
        for turn in range(TURNS):
            nobody = place / f"{known.name}-{turn}"
            with serving(folder.parent, place, port=port) as server, _visitor(playwright, nobody) as visitor:
                new.append(_seen(visitor, server, address))
            with serving(folder.parent, place, port=port) as server, _visitor(playwright, known) as visitor:
                back.append(_seen(visitor, server, address))
                before = server.processor_seconds
                warm += [_seen(visitor, server, address) for _ in range(TURNS)]
                processor = (server.processor_seconds - before) / TURNS
        again = _best(warm)
        print(
            f"    {name:<10} new server, new visitor: {_told(_best(new))}; who returns: {_told(_best(back))}\n"
            f"    {'':<10} by link: {_told(again)}, {again.complete / plain.complete:.2f} x the plain page; "
            f"{again.kibibytes:,.0f} KiB, {processor:.2f} s of the server's processor",
            flush=True,
        )


@contextmanager
def _visitor(playwright: Playwright, profile: Path) -> Iterator[BrowserContext]:
    """A browser that keeps what it has in this folder; somebody new where there is none yet."""
    context = playwright.chromium.launch_persistent_context(
        profile, executable_path=find_chromium(), args=list(ARGUMENTS), viewport=WIDE
    )
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
        return Seen(seen["first"] / 1e3, seen["screen"] / 1e3, seen["last"] / 1e3, sum(received) / 2**10)
    finally:
        page.close()


def _best(seen: Sequence[Seen]) -> Seen:
    """The best of some turns of each figure: whatever else the machine did is in the others."""
    return Seen(
        min(s.first for s in seen),
        min(s.screen for s in seen),
        min(s.complete for s in seen),
        median(s.kibibytes for s in seen),
    )


def _told(seen: Seen) -> str:
    return f"seen after {seen.first:.2f} s, first screen {seen.screen:.2f} s, complete {seen.complete:.2f} s"
