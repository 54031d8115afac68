"""The pictures of README.md, of pages and reports as they are now: `python -m tests.making.screenshots`."""

import re
import tempfile
from pathlib import Path
from urllib.parse import urlencode

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
    "overview": ("overview", "Overview", [("run", COLLAPSED)]),
    "tokens": ("tokens", "Tokens", [("run", COLLAPSED), ("step", "15")]),
    "compare": ("compare", "Compare", []),
}
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
            expect(page.get_by_text("being read")).to_have_count(0, timeout=120_000)  # siblings of the run
            _take(page, picture)
        page.set_viewport_size({"width": 1280, "height": 1000})
        for picture, report in REPORTS.items():
            page.goto((DOCS / "reports" / f"{report}.html").as_uri())
            _take(page, picture)
        browser.close()


def _take(page: Page, picture: str) -> None:
    page.wait_for_timeout(DRAWING_MS)
    page.screenshot(path=DOCS / f"{picture}.png")
    print(f"docs/{picture}.png", flush=True)


if __name__ == "__main__":
    main()
