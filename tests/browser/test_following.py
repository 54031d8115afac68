"""A live run fills in by itself, and the view travels along in the URL from page to page."""

import re
from pathlib import Path
from shutil import rmtree

import numpy as np
from playwright.sync_api import Page, expect

from ratioscope.dashboard.sections import MENU
from tests.browser.accessible import faults
from tests.browser.actions import badge, brush, charts, go_to, settled, shown_step, take_brush_back
from tests.browser.conftest import Live, OpenPage
from tests.making.runs import random_step, write_run

# The pages that show one before anything is opened.
WITH_A_CHART = ("Overview", "Drift", "Ratios", "Clipping", "Bias and variance", "Staleness", "Compare")


def is_dark(page: Page) -> bool:
    """Whether the app's background is dark and the ticks of its charts are light, or the other way round."""
    surface = page.locator("[data-testid=stApp]").evaluate("element => getComputedStyle(element).backgroundColor")
    tick = charts(page).locator(".xtick text").first.evaluate("element => getComputedStyle(element).fill")
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128 for colour in (surface, tick)]
    assert bright[0] != bright[1]
    return bright[1]


def test_run_and_brushed_steps_stay_chosen_from_page_to_page(open_page: OpenPage) -> None:
    page = open_page("/drift?run=grpo")
    settled(page, "Drift")
    first, last = brush(charts(page).first, 0.3, 0.6)
    assert 5 < first < last < 30
    chosen = badge(page, f"steps {first} to {last}")
    expect(chosen).to_be_visible()
    for name, entry in MENU.items():
        if name == "runs":
            continue
        go_to(page, entry.title)
        expect(page).to_have_url(re.compile(rf"/{name}\?.*run=grpo.*from={first}&to={last}"))
        if entry.title in WITH_A_CHART:
            expect(charts(page).first.locator(".main-svg").first).to_be_visible()
        if name == "overview":
            assert not is_dark(page)
        assert not faults(page), entry.title
    go_to(page, "Ratios")
    expect(chosen).to_be_visible()
    page.go_back()
    settled(page, MENU[name].title)
    page.go_forward()
    settled(page, "Ratios")
    take_brush_back(page)
    expect(chosen).to_have_count(0)
    assert "run=grpo" in page.url
    go_to(page, "Runs")
    expect(page.get_by_text(re.compile(r"\d+ runs, "))).to_be_visible()
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible()
    assert not faults(page)


def test_a_live_run_grows_without_reloading_and_brush_and_hidden_lines_outlive_that(
    open_page: OpenPage, live: Live
) -> None:
    page = open_page(f"/drift?run={live.id}")
    settled(page, "Drift")
    page.evaluate("window.notReloaded = true")
    expect(badge(page, "live")).to_be_visible()
    chart = charts(page).filter(has=page.locator(".legendtoggle")).first
    first, last = brush(chart, 0.1, 0.9)
    settled(page, "Drift")
    chart.locator(".legendtoggle").first.click()
    hidden = "element => element._fullData.filter(trace => trace.visible === 'legendonly').length"
    expect(chart.locator(".traces[style*='opacity: 0.5']")).not_to_have_count(0)
    for _ in range(100):  # Plotly waits for a second click
        if chart.evaluate(hidden):
            break
        page.wait_for_timeout(100)
    assert chart.evaluate(hidden) > 0
    for _ in range(2):
        expect(page.get_by_text(f"data up to step {live.grow()},", exact=False)).to_be_visible()
    settled(page, "Drift")
    assert page.evaluate("window.notReloaded")
    assert chart.evaluate(hidden) > 0
    assert f"from={first}&to={last}" in page.url and f"run={live.id}" in page.url
    assert chart.evaluate("element => element.layout.xaxis.range") == [first - 0.5, last + 0.5]
    take_brush_back(page)


def test_without_follow_a_live_run_stands_still(open_page: OpenPage, live: Live) -> None:
    live.grow()
    page = open_page(f"/overview?run={live.id}")
    settled(page, "Overview")
    follow = page.get_by_role("switch", name="Follow")
    page.get_by_text("Follow", exact=True).click()
    expect(follow).not_to_be_checked()
    settled(page, "Overview")
    page.wait_for_timeout(2_000)  # the drawing that the switch itself has asked for
    settled(page, "Overview")
    before, told = shown_step(page), page.get_by_text(re.compile(r"data up to step \d+"))
    live.grow()
    for _ in range(2):
        expect(page.get_by_text(told.inner_text(), exact=True)).to_have_count(0)  # the age goes on
        assert shown_step(page) == before
    page.get_by_text("Follow", exact=True).click()
    expect(page.get_by_text(f"data up to step {live.last_step},", exact=False)).to_be_visible()


def test_a_run_that_the_link_names_appears_in_the_dark_when_it_is_there(open_page: OpenPage, root: Path) -> None:
    page = open_page("/overview?run=later", "dark")
    settled(page, "Overview")
    warning = page.get_by_text("The run in this link is not in the folders")
    expect(warning).to_be_visible()
    rng = np.random.default_rng(0)
    write_run(root / "later", [random_step(rng, number) for number in range(3)], algorithm={"name": "latecomer"})
    expect(page.get_by_text("latecomer", exact=True)).to_be_visible()
    expect(warning).to_have_count(0)
    expect(charts(page).first).to_be_visible()
    assert is_dark(page)
    assert not faults(page)


def test_a_comparison_takes_up_runs_of_its_link_when_they_are_there(open_page: OpenPage, root: Path) -> None:
    """It said that they were missing until the page was loaded again."""
    page = open_page("/compare?run=one+more&run=two+more")
    settled(page, "Compare")
    warning = page.get_by_text("Some chosen runs are not in the folders")
    expect(warning).to_be_visible()
    rng = np.random.default_rng(0)
    for name in ("one more", "two more"):
        write_run(root / name, [random_step(rng, number) for number in range(3)], algorithm={"name": name})
    expect(warning).to_have_count(0)
    expect(charts(page).first).to_be_visible()
    assert not faults(page)
    for name in ("one more", "two more"):
        rmtree(root / name)
