"""What every page is for a screen reader and on any screen: axe finds nothing, and nothing scrolls sideways."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

WIDTHS = (1024, 390)
# Of Streamlit's tables: the head of the column of ticks has no words, and there is no way to give it some.
STREAMLITS = (("empty-table-header", 'aria-colindex="'),)
_AXE = Axe()
# Every rule is tried; what passes is not described node by node, which takes longer than to try it.
_FAULTS_ALONE = {"resultTypes": ["violations"]}
# The page and everything of ours in it: a chart or a table may scroll inside of itself, the room around it may not.
_TOO_WIDE = """() => [document.scrollingElement, ...document.querySelectorAll('[data-testid=stMain]')]
    .filter(element => element.scrollWidth > element.clientWidth + 1)
    .map(element => `${element.tagName} ${element.scrollWidth} of ${element.clientWidth}`)"""


def faults(page: Page) -> list[str]:
    """What axe finds on the page, and where it scrolls sideways; each with its place."""
    found = axe_faults(page)
    before = page.viewport_size
    assert before is not None
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": before["height"]})
        found += too_wide(page)
    page.set_viewport_size(before)
    return found


def too_wide(page: Page) -> list[str]:
    """Where the page scrolls sideways at its present width."""
    assert page.viewport_size is not None
    for _ in range(100):  # charts follow a moment later
        if not page.evaluate(_TOO_WIDE):
            return []
        page.wait_for_timeout(100)
    return [f"{page.viewport_size['width']} pixels: {text}" for text in page.evaluate(_TOO_WIDE)]


def axe_faults(page: Page) -> list[str]:
    """What axe finds on the page at its present width."""
    found = _of_axe(page)
    for _ in range(5):
        if not found:
            break
        page.wait_for_timeout(1000)  # what fades in has too little contrast until it is there
        found = _of_axe(page)
    return found


def _of_axe(page: Page) -> list[str]:
    """What axe finds on the page as it is now."""
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:200]}"
        for violation in _AXE.run(page, options=_FAULTS_ALONE).response["violations"]
        for node in violation["nodes"]
        if not any(violation["id"] == rule and place in node["html"] for rule, place in STREAMLITS)
    ]
