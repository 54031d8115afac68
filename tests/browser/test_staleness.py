"""The Staleness page: a slider moves what a filter would do, and the link carries it."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.test_following import settled

pytestmark = pytest.mark.browser


def test_a_slider_changes_what_would_be_dropped_and_stays_in_the_link(open_page: OpenPage) -> None:
    page = open_page("/staleness?run=grpo&lagcut=1")
    settled(page, "Staleness")
    expect(page.get_by_text("A window of W = 2 (lags up to 1) would drop")).to_be_visible()
    slider = page.get_by_role("slider", name="Largest lag to keep")
    slider.focus()
    slider.press("ArrowLeft")
    expect(page.get_by_text("A window of W = 1 (lags up to 0) would drop")).to_be_visible()
    page.reload()
    settled(page, "Staleness")
    expect(page.get_by_text("A window of W = 1 (lags up to 0) would drop")).to_be_visible()
