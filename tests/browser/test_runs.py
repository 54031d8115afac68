"""From the list of runs to a comparison: a note, two rows, one key; what is chosen is in the URL and found again."""

import re

import pytest
from playwright.sync_api import Page, expect

from dashboard.components.metric_choice import metric_label
from dashboard.components.run_list import ROW_HEIGHT
from tests.browser.actions import charts, settled
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

TWO = "/?status=finished&algorithm=grpo&algorithm=reinforce&order=name"
NOTE = "compare with **seed 3**"


def tick_run(page: Page, row: int) -> None:
    """Click the check box of a row, the first is 0."""
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible()
    table = page.locator("[data-testid=stDataFrame] .dvn-scroller").first
    table.click(position={"x": 16, "y": ROW_HEIGHT * (row + 1.5)})


def choose(page: Page, box: str, option: str) -> None:
    page.get_by_role("combobox", name=box, exact=True).click()
    page.keyboard.type(option)
    page.get_by_role("option", name=option, exact=True).click()


def test_two_selected_rows_are_compared_by_one_key_and_the_view_is_in_the_url(open_page: OpenPage) -> None:
    page = open_page(TWO)
    settled(page, "Runs")
    expect(page.get_by_text("Shown: 2 runs, none live")).to_be_visible()
    compare = page.get_by_role("button", name=re.compile("^Compare"))
    expect(compare).to_be_disabled()
    tick_run(page, 0)
    expect(page.get_by_text("1 run selected.")).to_be_visible()
    tick_run(page, 1)
    expect(page.get_by_text("2 runs selected.")).to_be_visible()
    expect(compare).to_be_enabled()
    page.keyboard.press("Alt+P")
    settled(page, "Compare")
    expect(page).to_have_url(re.compile(r"/compare\?.*run=grpo&run=reinforce"))

    expect(page.get_by_text("Evaluation accuracy at the end.")).to_be_visible()
    choose(page, "Metric", metric_label("u_k"))
    answer = page.get_by_text("Update drift at the end.")
    expect(answer).to_be_visible()
    expect(page).to_have_url(re.compile("metric=Update"))
    choose(page, "Panels by", "algorithm")
    panels = page.get_by_role("heading", level=6).filter(has_text=re.compile("^(grpo|reinforce)$"))
    expect(panels).to_have_count(2)
    expect(page).to_have_url(re.compile("facet=algorithm"))
    page.reload()
    settled(page, "Compare")
    expect(answer).to_be_visible()
    expect(panels).to_have_count(2)
    expect(charts(page)).to_have_count(3)  # two panels and the difference


def test_a_note_is_kept_while_findings_come_in_and_found_again(open_page: OpenPage) -> None:
    page = open_page(TWO)
    settled(page, "Runs")
    expect(page.get_by_text("Shown: 2 runs, none live")).to_be_visible()
    tick_run(page, 1)
    note = page.get_by_role("textbox", name="Note")
    note.fill(NOTE)
    page.wait_for_timeout(2_500)  # a tick of the page must not take away what is being typed
    expect(note).to_have_value(NOTE)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("1 run selected.")).to_be_visible()

    page.goto(f"{page.url}&q=seed+3")
    settled(page, "Runs")
    expect(page.get_by_text("Shown: 1 run, not live")).to_be_visible()
    tick_run(page, 0)
    expect(note).to_have_value(NOTE)
