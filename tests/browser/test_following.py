"""A live run fills in by itself, and the view travels along in the URL."""

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import OpenPage
from tests.runs import random_step, write_run

pytestmark = pytest.mark.browser

PAGES = ("Overview", "Drift", "Ratios", "Clipping", "Compare")
N_CHARTS = {"Overview": 4, "Drift": 5, "Ratios": 6, "Clipping": 3, "Compare": 1}


def shown_step(page: Page) -> int:
    text = page.get_by_text(re.compile(r"data up to step \d+")).inner_text()
    return int(re.findall(r"step (\d+)", text)[0])


def settled(page: Page, heading: str) -> None:
    """Wait until this page is drawn and nothing of it is stale."""
    expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.locator("[data-testid=stStatusWidget]")).to_have_count(0)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


def charts(page: Page) -> Locator:
    return page.locator(".js-plotly-plot:has(.main-svg)")


def badge(page: Page, text: str) -> Locator:
    return page.locator(".stMarkdownBadge").filter(has_text=text)


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


def test_a_live_run_grows_without_reloading(open_page: OpenPage, live: str) -> None:
    page = open_page(f"/overview?run={live}")
    settled(page, "Overview")
    page.evaluate("window.notReloaded = true")
    expect(badge(page, "live")).to_be_visible()
    for _ in range(2):
        before = shown_step(page)
        expect(page.get_by_text(f"data up to step {before},", exact=False)).to_have_count(0)
        assert shown_step(page) > before
    assert page.evaluate("window.notReloaded")
    assert f"run={live}" in page.url


def test_a_run_that_the_link_names_appears_when_it_is_there(open_page: OpenPage, root: Path) -> None:
    page = open_page("/overview?run=later")
    settled(page, "Overview")
    warning = page.get_by_text("The link names a run that is not below the folders")
    expect(warning).to_be_visible()
    write_run(root / "later", [random_step(np.random.default_rng(0))], algorithm={"name": "latecomer"})
    expect(page.get_by_text("latecomer · ")).to_be_visible()
    expect(warning).to_have_count(0)


def test_without_follow_a_live_run_stands_still(open_page: OpenPage, live: str) -> None:
    page = open_page(f"/overview?run={live}")
    settled(page, "Overview")
    page.get_by_text("Follow", exact=True).click()
    expect(page.get_by_role("switch", name="Follow")).not_to_be_checked()
    settled(page, "Overview")
    page.wait_for_timeout(2_000)  # the drawing that the switch itself has asked for
    settled(page, "Overview")
    before, told = shown_step(page), page.get_by_text(re.compile(r"data up to step \d+"))
    for _ in range(2):
        expect(page.get_by_text(told.inner_text(), exact=True)).to_have_count(0)  # the age goes on
        assert shown_step(page) == before


def test_the_run_stays_chosen_from_page_to_page(open_page: OpenPage) -> None:
    page = open_page("/overview?run=grpo")
    for name in PAGES:
        if name != "Overview":
            page.locator("[data-testid=stSidebarNav]").get_by_text(name, exact=True).click()
        settled(page, name)
        expect(page).to_have_url(re.compile(rf"/{name.lower()}\?.*run=grpo"))
        expect(charts(page)).not_to_have_count(0)
        for number in range(N_CHARTS[name]):
            expect(charts(page).nth(number).locator(".main-svg").first).to_be_visible()
    page.locator("[data-testid=stSidebarNav]").get_by_text("Runs", exact=True).click()
    settled(page, "Runs")
    expect(page.get_by_text(re.compile(r"\d+ runs, "))).to_be_visible()
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible()


def brush(page: Page, start: float, end: float) -> None:
    """Drag over the first chart; a drag that begins while the chart is drawn again is lost, as it is to a person."""
    chosen = re.compile(r"from=\d+&to=\d+")
    for _ in range(3):
        drag_over(charts(page).first, start, end)
        with suppress(AssertionError):
            expect(page).to_have_url(chosen, timeout=4_000)
            return
    expect(page).to_have_url(chosen)


def test_a_brushed_step_range_is_in_the_url_and_survives_a_reload(open_page: OpenPage) -> None:
    page = open_page("/drift?run=grpo")
    settled(page, "Drift")
    brush(page, 0.3, 0.6)
    first, last = re.findall(r"from=(\d+)&to=(\d+)", page.url)[0]
    assert 5 < int(first) < int(last) < 30
    chosen = badge(page, f"steps {first} to {last}")
    expect(chosen).to_be_visible()

    page.reload()
    settled(page, "Drift")
    expect(chosen).to_be_visible()

    page.locator("[data-testid=stSidebarNav]").get_by_text("Ratios", exact=True).click()
    settled(page, "Ratios")
    expect(page).to_have_url(re.compile(rf"from={first}&to={last}"))
    expect(chosen).to_be_visible()

    page.get_by_role("button", name="All steps").click()
    expect(chosen).to_have_count(0)
    expect(page).not_to_have_url(re.compile("from="))
    assert "run=grpo" in page.url


def test_brush_and_hidden_lines_outlive_new_steps(open_page: OpenPage, live: str) -> None:
    page = open_page(f"/clipping?run={live}")
    settled(page, "Clipping")
    brush(page, 0.1, 0.9)
    view = re.findall(r"from=\d+&to=\d+", page.url)
    chart = charts(page).first
    chart.locator(".legendtoggle").first.click()
    hidden = "element => element._fullData.filter(trace => trace.visible === 'legendonly').length"
    expect(chart.locator(".traces[style*='opacity: 0.5']")).not_to_have_count(0)
    assert chart.evaluate(hidden) > 0
    before = shown_step(page)
    expect(page.get_by_text(f"data up to step {before},", exact=False)).to_have_count(0)
    settled(page, "Clipping")
    assert chart.evaluate(hidden) > 0
    assert re.findall(r"from=\d+&to=\d+", page.url) == view
    first, last = map(int, re.findall(r"\d+", view[0]))
    assert chart.evaluate("element => element.layout.xaxis.range") == [first - 0.5, last + 0.5]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_are_drawn(open_page: OpenPage, scheme: str) -> None:
    page = open_page("/overview?run=grpo", scheme)
    settled(page, "Overview")
    expect(charts(page).nth(3)).to_be_visible()
    surface = page.locator("[data-testid=stApp]").evaluate("element => getComputedStyle(element).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", surface)[:3])) < 3 * 128
    assert dark == (scheme == "dark")
    tick = charts(page).locator(".xtick text").first.evaluate("element => getComputedStyle(element).fill")
    assert (sum(map(int, re.findall(r"\d+", tick)[:3])) > 3 * 128) == dark
