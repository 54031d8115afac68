"""The laboratory while a slider is dragged: redraws a second and what each takes, in a real browser.

The baseline is the same drag on the first experiment of two numbers without a sample: ratios are to its time a redraw.
"""

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.dashboard.components.experiment import script
from tests.benchmarks.session import serving
from tests.browser.conftest import ARGUMENTS
from tests.find_chromium import find_chromium

BASELINE = "rare_token"

# Every position that a hand passes in two seconds, one a frame of the screen: how many were drawn, and their times.
DRAG = """
async (lab, place) => {
  const input = lab.querySelectorAll('.slider input[type=range]')[place]
  const times = [], before = Number(lab.dataset.draws), began = performance.now()
  for (let moved = 0; moved < 120; moved++) {
    input.value = Math.round(moved / 119 * Number(input.max))
    input.dispatchEvent(new Event('input', { bubbles: true }))
    await new Promise(requestAnimationFrame)
    times.push(Number(lab.dataset.took))
  }
  return [Number(lab.dataset.draws) - before, (performance.now() - began) / 1000, times]
}
"""


def run() -> None:
    """Print them by experiment, of the slowest slider of each."""
    found = {}
    with (
        tempfile.TemporaryDirectory() as name,
        serving(Path(name), Path(name)) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        for key in EXPERIMENTS:
            page.goto(f"http://127.0.0.1:{server.port}/laboratory?experiment={key}")
            lab = page.locator(".lab[data-draws]")
            lab.wait_for()
            page.wait_for_timeout(1_000)
            drags = [lab.evaluate(DRAG, place) for place in range(lab.locator(".slider input[type=range]").count())]
            found[key] = max(((sorted(times)[len(times) // 2], max(times), draws / seconds)
                              for draws, seconds, times in drags), key=lambda drag: drag[0])  # fmt: skip
        browser.close()
    base = found[BASELINE][0]
    print(f"  script of all experiments: {len(script().encode()) / 1000:.0f} kB")
    for key, (middle, worst, rate) in sorted(found.items(), key=lambda item: -item[1][0]):
        print(
            f"  {key:20} {rate:4.0f} redraws/s, median {middle:5.1f} ms ({middle / base:.1f} x), worst {worst:5.1f} ms"
        )
