"""Height, words and charts of each page of a running dashboard, as it opens.

python -m tests.making.page_sizes http://127.0.0.1:8501 RUN [WIDTH HEIGHT]
"""

import sys
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from ratioscope.dashboard.sections import MENU as PAGES
from tests.find_chromium import find_chromium

_HEIGHT = "document.querySelector('[data-testid=stMain]').scrollHeight"
_WORDS = "document.querySelector('[data-testid=stMain]').innerText.split(/\\s+/).length"
_TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"


def _settled(page: Page) -> None:
    page.wait_for_selector("h1", timeout=60_000)
    for _ in range(200):
        page.wait_for_timeout(300)
        state = page.get_by_test_id("stApp").get_attribute("data-test-script-state")
        if state == "notRunning" and not page.locator("[data-testid=stSkeleton]").count():
            return


def main(address: str, run: str, width: int = 1440, height: int = 900) -> None:
    """Print a line a page: its height, words, charts, and whether it scrolls sideways."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": height})
        for name in PAGES:
            page.goto(f"{address}/{'' if name == 'runs' else name}?{urlencode({'run': run})}")
            _settled(page)
            charts = page.locator(".ratioscope-plot").count()
            sideways = ", scrolls sideways" if page.evaluate(_TOO_WIDE) else ""
            print(
                f"{name:<10} {page.evaluate(_HEIGHT):>6} px {page.evaluate(_WORDS):>5} words {charts} charts{sideways}"
            )
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]))
