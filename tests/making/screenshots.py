"""The pictures of README.md and docs, of pages and reports as they are now: `python -m tests.making.screenshots`."""

import io
import re
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tests.benchmarks.session import serving
from tests.browser.actions import settled
from tests.browser.conftest import ARGUMENTS
from tests.find_chromium import find_chromium
from tests.making.packages import ROOT

DOCS, SAMPLE_RUNS = ROOT / "docs", ROOT / "sample_runs"
COLLAPSED = "sync_interval20-reinforce-lr0.0003-seed0"
# Picture of a page: its name, heading, and what its link says.
PAGES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "tokens": ("tokens", "Tokens", [("run", COLLAPSED), ("step", "15")]),
    "compare": ("compare", "Compare", []),
    "laboratory": ("laboratory", "Laboratory", [("experiment", "surrogate"), ("at", "alpha:0.2")]),
}
# From the collapse to its token and the theory: what a frame shows, where it is, and the element that is brought up.
SEQUENCE = (
    ("A run collapsed: what happened, why, what to change", "overview", "Overview", [("run", COLLAPSED)], ""),
    ("A click on the step: the responses that made it", "tokens", "Tokens", [("run", COLLAPSED), ("step", "15")], ""),
    ("The token", "tokens", "Tokens", [("run", COLLAPSED), ("step", "15")], ".reader"),
    ("What another rule would have done", "clipping", "Clipping", [("run", COLLAPSED)], ""),
    ("The theory behind it, to play with", *PAGES["laboratory"], ""),
)  # fmt: skip
FRAME_MS, FRAME = 2_000, (1000, 700)
CAPTION = """text => {
  const bar = document.getElementById("caption") ?? document.body.appendChild(document.createElement("div"))
  bar.id = "caption"
  bar.textContent = text
  bar.style = "position:fixed;inset:auto 0 0 0;z-index:1000000;padding:12px 20px;background:#0072B2;color:#fff;"
    + "font:600 24px system-ui,sans-serif"
}"""
REPORTS = {"report-two-runs": "reinforce-and-grpo", "report-ablation": "figure3"}
WIDTH, HIGHEST, DRAWING_MS = 1440, 1350, 4_000


def runs_of(report: str) -> list[str]:
    """The runs of a report in `docs/reports/`, by the command that it says it was made with."""
    text = (DOCS / "reports" / f"{report}.html").read_text(encoding="utf-8")
    command = re.search(r"ratioscope report ([^<]*)", text)
    assert command is not None
    return [Path(word).name for word in command[1].split() if word.startswith("sample_runs/")]


def main() -> None:
    """Write them over those in `docs/`."""
    with (
        tempfile.TemporaryDirectory() as name,
        sync_playwright() as playwright,
        serving(SAMPLE_RUNS, Path(name)) as server,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": WIDTH, "height": HIGHEST})
        for picture, (place, heading, options) in PAGES.items():
            chosen = options or [("run", run) for run in runs_of("figure3")]
            page.goto(f"http://127.0.0.1:{server.port}/{place}?{urlencode(chosen)}")
            settled(page, heading)
            expect(page.get_by_text(re.compile("being read|read so far"))).to_have_count(
                0, timeout=120_000
            )  # siblings of the run
            _take(page, picture)
        _sequence(page, server.port)
        page.set_viewport_size({"width": 1280, "height": 1000})
        for picture, report in REPORTS.items():
            page.goto((DOCS / "reports" / f"{report}.html").as_uri())
            _take(page, picture)
        browser.close()


def _sequence(page: Page, port: int) -> None:
    """The frames as one picture that moves."""
    page.set_viewport_size({"width": FRAME[0] * 5 // 4, "height": FRAME[1] * 5 // 4})
    frames = []
    for words, place, heading, options, brought_up in SEQUENCE:
        page.goto(f"http://127.0.0.1:{port}/{place}?{urlencode(options)}")
        settled(page, heading)
        expect(page.get_by_text(re.compile("being read|read so far"))).to_have_count(0, timeout=120_000)
        page.wait_for_timeout(DRAWING_MS)
        if brought_up:
            page.locator(brought_up).first.evaluate("element => element.scrollIntoView({ block: 'center' })")
            page.wait_for_timeout(DRAWING_MS)
        page.evaluate(CAPTION, words)
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(FRAME, Image.Resampling.LANCZOS)
        frames.append(image.quantize(128, dither=Image.Dither.NONE))
    frames[0].save(DOCS / "tour.gif", save_all=True, append_images=frames[1:], duration=FRAME_MS, loop=0, optimize=True)
    print("docs/tour.gif", flush=True)


def _take(page: Page, picture: str) -> None:
    page.wait_for_timeout(DRAWING_MS)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # 256 colours of a flat page: a third of the bytes, and no difference to the eye.
    image.quantize(256, dither=Image.Dither.NONE).save(DOCS / f"{picture}.png", optimize=True)
    print(f"docs/{picture}.png", flush=True)


if __name__ == "__main__":
    main()
