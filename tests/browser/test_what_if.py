"""What-if in a browser: a slider moved by the keyboard, the URL that restores it, a brush inside of it."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.actions import badge, brush, settled, take_brush_back
from tests.browser.conftest import PPO, SCHEDULE, OpenPage
from tests.making.runs import random_step, write_run

RULE = re.compile(r"rule=one_side.*epsilon_high~0\.2[1-9]")


@pytest.fixture(scope="session")
def clipped(root: Path) -> str:
    """A run that states its clip."""
    rng = np.random.default_rng(1)
    steps = [random_step(rng, number, groups=8, longest=30, spread=0.3) for number in range(20)]
    write_run(root / "clipped", steps, algorithm=PPO, schedule=SCHEDULE, seed=0)
    return "clipped"


def slider(page: Page) -> Locator:
    return page.locator(".st-key-whatif-epsilon_high").get_by_role("slider")


def tile(page: Page, title: str) -> Locator:
    return page.locator("[data-testid=stMetric]").filter(has_text=re.compile(rf"^{title}")).last


def test_a_slider_moved_by_the_keyboard_and_a_brush_change_the_page_and_a_reload_restores_them(
    open_page: OpenPage, clipped: str
) -> None:
    page = open_page(f"/clipping?run={clipped}")
    settled(page, "Clipping")
    expect(page.get_by_text("The applied rule: nothing changes.")).to_be_visible()
    page.evaluate("window.notReloaded = true")
    slider(page).focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    change = page.get_by_test_id("stMarkdown").filter(has_text="Changed most: ")
    expect(change).to_be_visible()
    expect(page).to_have_url(RULE)
    settled(page, "Clipping")

    chart = page.locator(".st-key-chart-whatif-clip_fraction")
    expect(chart.locator(".main-svg").first).to_be_visible()
    first, last = brush(chart, 0.3, 0.7)
    of_steps = page.get_by_text(f"tokens of steps {first} to {last}.")
    expect(badge(page, f"steps {first} to {last}")).to_be_visible()
    expect(of_steps).to_be_visible()
    expect(page).to_have_url(RULE)
    assert page.evaluate("window.notReloaded")
    settled(page, "Clipping")
    said, shown = change.inner_text(), tile(page, "Kept gradient").inner_text()
    assert "instead of" in said

    page.reload()
    settled(page, "Clipping")
    expect(change).to_have_text(said)
    expect(of_steps).to_be_visible()
    expect(page).to_have_url(RULE)
    assert tile(page, "Kept gradient").inner_text() == shown
    take_brush_back(page)
