"""From the list of runs to a comparison: a note, two rows, one key; what is chosen is in the URL and found again."""

import re
import time
from collections import deque
from collections.abc import Callable

from playwright.sync_api import Page, WebSocketRoute, expect

from ratioscope.dashboard.components.run_list import ROW_HEIGHT
from ratioscope.dashboard.formats import metric_label
from ratioscope.dashboard.views.runs import IDLE_PAUSE
from tests.browser.actions import charts, settled
from tests.browser.conftest import OpenPage

TWO = "/?status=finished&algorithm=grpo&algorithm=reinforce&order=name"
NOTE = "compare with **seed 3**"


class SlowLine:
    """Between browser and server: what the browser asks for arrives `delay` seconds later."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self._under_way: deque[tuple[float, str | bytes]] = deque()

    def connect(self, browser: WebSocketRoute) -> None:
        server = browser.connect_to_server()
        self._arrive = server.send
        browser.on_message(lambda message: self._under_way.append((time.monotonic() + self.delay, message)))
        server.on_message(browser.send)

    def wait(self, page: Page, done: Callable[[], bool]) -> None:
        """Let messages arrive until that is the case and none is under way, for a minute at most."""
        patience = time.monotonic() + 60
        while (self._under_way or not done()) and time.monotonic() < patience:
            if self._under_way and self._under_way[0][0] <= time.monotonic():
                self._arrive(self._under_way.popleft()[1])
            page.wait_for_timeout(20)


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
    expect(page).to_have_url(re.compile(r"[?&]run=grpo&run=reinforce"))
    page.go_back()
    expect(page.get_by_text("1 run selected.")).to_be_visible()
    tick_run(page, 1)
    expect(page.get_by_text("2 runs selected.")).to_be_visible()
    page.reload()
    settled(page, "Runs")
    expect(page.get_by_text("2 runs selected.")).to_be_visible()
    expect(compare).to_be_enabled()
    page.keyboard.press("Alt+P")
    settled(page, "Compare")
    expect(page).to_have_url(re.compile(r"/compare\?.*run=grpo&run=reinforce"))

    expect(page.get_by_role("heading", name="Evaluation accuracy at the end (")).to_be_visible()
    choose(page, "Metric", metric_label("u_k"))
    answer = page.get_by_role("heading", name="Update drift at the end (")
    expect(answer).to_be_visible()
    expect(page).to_have_url(re.compile("metric=Update"))
    page.get_by_role("button", name="Display").click()
    choose(page, "Panels by", "algorithm")
    panels = page.get_by_role("heading", level=2).filter(has_text=re.compile("^(grpo|reinforce)$"))
    expect(panels).to_have_count(2)
    expect(page).to_have_url(re.compile("facet=algorithm"))
    page.reload()
    settled(page, "Compare")
    expect(answer).to_be_visible()
    expect(panels).to_have_count(2)
    expect(charts(page)).to_have_count(3)  # the ends and two panels


def test_a_tick_that_comes_too_late_does_not_empty_the_page_that_was_opened(open_page: OpenPage) -> None:
    page, line = open_page("/overview?run=grpo"), SlowLine(0.0)
    settled(page, "Overview")
    page.route_web_socket(re.compile("_stcore/stream"), line.connect)
    page.goto(page.url.partition("/overview")[0] + TWO)  # anew: over a connection that can be made slow
    line.wait(page, page.get_by_text("Shown: 2 runs, none live").is_visible)
    settled(page, "Runs")
    for row in (0, 1):
        tick_run(page, row)
        line.wait(page, page.get_by_text(re.compile(f"^{row + 1} runs? selected")).is_visible)
    line.delay = IDLE_PAUSE + 0.5  # so that there is always a tick under way
    page.keyboard.press("Alt+P")
    line.wait(page, page.get_by_role("heading", name="Compare", exact=True).is_visible)
    settled(page, "Compare")
    expect(page.get_by_role("heading", name="Evaluation accuracy at the end (")).to_be_visible()
    page.close()  # its connection ends with this test


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
    expect(page.get_by_text("Saved in your own files")).to_be_visible()
    expect(page.get_by_text("1 run selected.")).to_be_visible()

    page.goto(f"{page.url}&q=seed+3")
    settled(page, "Runs")
    expect(page.get_by_text("Shown: 1 run, not live")).to_be_visible()
    expect(page.get_by_text("1 run selected.")).to_be_visible()
    expect(note).to_have_value(NOTE)
