"""What a person sees and does on a page of the app: wait for it, go to another, read its step, brush, tick a row."""

import re
from contextlib import suppress

from playwright.sync_api import Locator, Page, expect

RANGE_IN_URL = re.compile(r"from=\d+&to=\d+")


def settled(page: Page, heading: str) -> None:
    """Wait until this page is drawn and nothing of it is stale."""
    expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.locator("[data-testid=stApp]")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.locator("[data-testid=stStatusWidget]")).to_have_count(0)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


# Of every text that is drawn in the window, outside the menu, the part whose line lies in it: neither what only screen
# readers get or an icon's name, nor the numbers at the ticks of an axis. A formula is one word.
_SEEN = """() => {
    const main = document.querySelector('[data-testid=stMain]'), texts = [], range = document.createRange()
    let last = null
    const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT)
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const place = node.parentElement
        if (!place.checkVisibility({opacityProperty: true, visibilityProperty: true}) ||
            place.closest('[data-testid=stIconMaterial], [role=img], [class*=tick], .katex-mathml, style')) continue
        const formula = place.closest('.katex')
        if (formula && formula === last) continue
        last = formula
        for (const found of node.data.matchAll(/\\S+/g)) {
            range.setStart(node, found.index)
            range.setEnd(node, found.index + found[0].length)
            const box = range.getBoundingClientRect()
            if (box.width > 1 && box.height > 1 && box.top < innerHeight && box.bottom > 0 && box.left < innerWidth)
                texts.push(found[0])
        }
    }
    return texts
}"""


def seen(page: Page) -> list[str]:
    """The words that are seen without scrolling; signs alone, as an arrow, are none."""
    return [word for word in page.evaluate(_SEEN) if re.search(r"\w", word)]


def go_to(page: Page, name: str) -> None:
    """Click on a page in the menu and wait for it."""
    page.locator("[data-testid=stSidebar]").get_by_role("link", name=name, exact=True).click()
    settled(page, name)


def charts(page: Page) -> Locator:
    return page.locator(".js-plotly-plot:has(.main-svg)")


def badge(page: Page, text: str) -> Locator:
    return page.locator(".stMarkdownBadge").filter(has_text=text)


def shown_step(page: Page) -> int:
    text = page.get_by_text(re.compile(r"data up to step \d+")).inner_text()
    return int(re.findall(r"step (\d+)", text)[0])


def drag_over(chart: Locator, start: float, end: float) -> None:
    """Brush from one share of the plot's width to another."""
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    mouse, middle = chart.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + start * box["width"], middle)
    mouse.down()
    mouse.move(box["x"] + end * box["width"], middle, steps=12)
    mouse.up()


def brush(chart: Locator, start: float, end: float) -> tuple[int, int]:
    """Drag over a chart until the URL has steps; a drag while it is drawn again is lost, as it is to a person.

    Returns:
        The first and the last step that the URL then names.
    """
    for patience in (4_000, 8_000, 16_000):  # a second drag while the first is under way would be another brush
        drag_over(chart, start, end)
        with suppress(AssertionError):
            expect(chart.page).to_have_url(RANGE_IN_URL, timeout=patience)
            break
    expect(chart.page).to_have_url(RANGE_IN_URL)
    first, last = re.findall(r"from=(\d+)&to=(\d+)", chart.page.url)[0]
    return int(first), int(last)


def take_brush_back(page: Page) -> None:
    """Press "All steps"."""
    page.get_by_role("button", name="All steps").click()
    expect(page).not_to_have_url(re.compile("from="))


def tick(table: Locator, row: int) -> None:
    """Tick the box of a row, counted from 1; the grid is a canvas with a scroller above it."""
    table.scroll_into_view_if_needed()
    expect(table.locator("canvas").first).to_be_visible()
    box = table.bounding_box()
    assert box is not None
    table.page.mouse.click(box["x"] + 16, box["y"] + 35 * row + 17)
