"""From the list of runs to a comparison: two rows, one key; and a note that is there again after a reload."""

import re

import pytest
from playwright.sync_api import Page, expect

from dashboard.components.run_list import ROW_HEIGHT
from tests.browser.conftest import OpenPage
from tests.browser.test_following import settled

pytestmark = pytest.mark.browser

TWO = "/?status=finished&algorithm=grpo&algorithm=reinforce&order=name"


def tick(page: Page, row: int) -> None:
    """Click the check box of a row, the first is 0."""
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible()
    table = page.locator("[data-testid=stDataFrame] .dvn-scroller").first
    table.click(position={"x": 16, "y": ROW_HEIGHT * (row + 1.5)})


def test_two_selected_rows_are_compared_by_one_key(open_page: OpenPage) -> None:
    page = open_page(TWO)
    settled(page, "Runs")
    expect(page.get_by_text("Shown: 2 runs, none live")).to_be_visible()
    compare = page.get_by_role("button", name=re.compile("^Compare"))
    expect(compare).to_be_disabled()
    tick(page, 0)
    expect(page.get_by_text("1 run selected.")).to_be_visible()
    tick(page, 1)
    expect(page.get_by_text("2 runs selected.")).to_be_visible()
    expect(compare).to_be_enabled()
    page.keyboard.press("Alt+P")
    settled(page, "Compare")
    expect(page).to_have_url(re.compile(r"/compare\?.*run=grpo&run=reinforce"))


def test_a_note_is_kept_while_findings_come_in_and_found_again(open_page: OpenPage) -> None:
    page = open_page(TWO)
    settled(page, "Runs")
    tick(page, 1)
    note = page.get_by_role("textbox", name="Note")
    note.fill("compare with **seed 3**")
    page.wait_for_timeout(2_500)  # a tick of the page must not take away what is being typed
    expect(note).to_have_value("compare with **seed 3**")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("1 run selected.")).to_be_visible()

    page = open_page(f"{TWO}&q=seed+3")
    expect(page.get_by_text("Shown: 1 run, not live")).to_be_visible()
    tick(page, 0)
    expect(page.get_by_role("textbox", name="Note")).to_have_value("compare with **seed 3**")
