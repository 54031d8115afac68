"""A query by keyboard, its chart, its link, and Stop."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.test_following import charts, settled

pytestmark = pytest.mark.browser

BY_STEP = "select step, avg(exp(log_rho)) as ratio from tokens group by step order by step"
ENDLESS = "select count(*) from range(1000000) a, range(1000000) b"


def typed(page: Page, text: str) -> None:
    """Put a query into the editor and press Ctrl+Enter."""
    editor = page.get_by_role("textbox", name="Query")
    editor.fill(text)
    editor.press("Control+Enter")


def test_a_query_is_run_by_keyboard_drawn_and_found_again_by_its_link(open_page: OpenPage) -> None:
    page = open_page("/sql?run=grpo")
    settled(page, "SQL")
    typed(page, BY_STEP)
    expect(page.get_by_text("40 rows, 2 columns")).to_be_visible()
    page.get_by_text("Chart", exact=True).first.click()
    expect(charts(page)).to_have_count(1)
    link = parse_qs(urlsplit(page.url).query)
    assert (link["sql"], link["show"]) == ([BY_STEP], ["Chart"])
    page.reload()
    settled(page, "SQL")
    expect(page.get_by_role("textbox", name="Query")).to_have_value(BY_STEP)
    expect(charts(page)).to_have_count(1)


def test_a_query_that_takes_too_long_can_be_stopped(open_page: OpenPage) -> None:
    page = open_page("/sql?run=grpo")
    settled(page, "SQL")
    typed(page, ENDLESS)
    expect(page.get_by_text("Running: ")).to_be_visible()
    page.locator("[data-testid=stMain]").get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The query was stopped.")).to_be_visible()
    typed(page, "select 1 as one")
    expect(page.get_by_text("1 row, 1 column")).to_be_visible()
