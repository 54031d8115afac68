"""What people expect of a dashboard: the next wrong answer, a command palette, notes on a step, views by name."""

import re
from pathlib import Path

from playwright.sync_api import expect

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.tokens.search import next_response, reward_halves
from tests.browser.accessible import faults
from tests.browser.actions import charts, settled
from tests.browser.conftest import OpenPage


def test_a_text_is_found_and_the_next_answer_opened(open_page: OpenPage, root: Path) -> None:
    run = open_run(root / "grpo")
    halves = reward_halves(run)
    assert halves is not None
    page = open_page("/tokens?run=grpo&step=3&seq=1&where=these+steps")
    settled(page, "Tokens")
    for high in (False, True):
        expected = next_response(run, (3, 1), halves.condition(high=high))
        assert expected is not None
        open_page("/tokens?run=grpo&step=3&seq=1&where=these+steps")
        page.get_by_role("button", name=re.compile(f"Next {halves.names[high]}")).click()
        name = f"Step {expected[0]}, response {expected[1]}"
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    settled(page, "Tokens")


def test_the_palette_goes_to_steps_metrics_and_runs_by_keyboard(open_page: OpenPage) -> None:
    page = open_page("/drift?run=grpo")
    settled(page, "Drift")
    dialog, chosen = page.get_by_role("dialog", name="Go to"), page.locator(".go [aria-selected=true]")

    def go(words: str, to: str, *keys: str) -> None:
        expect(page.locator(".go[data-listens]")).to_have_count(1)
        page.keyboard.press("Control+k")
        expect(dialog).to_be_visible(timeout=15_000)
        expect(dialog.get_by_text("Looking …")).to_have_count(0)
        expect(dialog.get_by_role("group", name="Runs")).to_be_visible()
        page.keyboard.type(words)
        for key in keys:
            page.keyboard.press(key)
        expect(chosen).to_contain_text(to)
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)

    go("steps 10-20", "Steps 10 to 20")
    expect(page).to_have_url(re.compile(r"/drift\?run=grpo&from=10&to=20$"))
    go("tok", "Tokens")  # chosen run and steps go along
    settled(page, "Tokens")
    expect(page).to_have_url(re.compile(r"/tokens\?run=grpo&from=10&to=20$"))
    go("clip fraction lower", "Clip fraction, lower bound")
    settled(page, "Metrics")
    expect(page).to_have_url(re.compile(r"/metrics\?run=grpo&from=10&to=20&pin="))
    expect(page.get_by_role("heading", name=re.compile("^Clip fraction, lower bound")).first).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("^Sampling staleness")).first).to_be_visible()  # pinned before
    go("gate mean", "Mean gate")
    expect(page).to_have_url(re.compile(r"pin=Mean\+gate.*&pin=Clip\+fraction%2C\+lower.*&pin=Sampling"))
    go("reinforce", "reinforce")
    settled(page, "Metrics")
    expect(page).to_have_url(re.compile(r"/metrics\?run=reinforce$"))
    for _ in range(2):  # the second list of the same entries arrives, too
        page.keyboard.press("Control+k")
        page.keyboard.type("zzz")
        expect(dialog.get_by_text("Nothing is called that.")).to_be_visible()
        page.keyboard.press("Escape")
    go("999", "Step 39, the last one")
    settled(page, "Tokens")
    view = re.sub(".*/", "/", page.url)
    page.get_by_role("button", name="Views", exact=True).click()
    page.get_by_label("Save this view as").fill("mine")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.keyboard.press("Escape")
    go("drif", "Drift")
    settled(page, "Drift")
    go("views mine", "mine")
    settled(page, "Tokens")
    expect(page).to_have_url(re.compile(f"{re.escape(view)}$"))

    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys.get_by_text("Next wrong answer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0)
    page.get_by_role("button", name=re.compile("^Go to")).click()
    page.keyboard.type("999")
    expect(chosen).to_contain_text("Step 39, the last one")  # all entries have come
    dialog.get_by_role("combobox").clear()
    expect(dialog.locator(".more")).to_contain_text(re.compile(r"^\d+ more: type on\. "))
    page.keyboard.press("ArrowUp")
    expect(dialog.get_by_role("option").last).to_have_attribute("aria-selected", "true")
    page.keyboard.type("onerror")
    expect(chosen).to_contain_text("<script>alert(1)<")
    assert faults(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_the_palette_offers_nothing_of_the_address_it_was_asked_at_before(open_page: OpenPage) -> None:
    page = open_page("/drift?run=grpo")
    settled(page, "Drift")
    expect(page.locator(".go[data-listens]")).to_have_count(1)
    page.keyboard.press("Control+k")
    runs = page.get_by_role("dialog", name="Go to").get_by_role("group", name="Runs")
    expect(runs).to_be_visible()
    page.keyboard.press("Escape")
    at_once = page.locator(".go").evaluate(
        """dialog => {
            history.pushState({}, "", "?run=reinforce")
            document.dispatchEvent(new Event("ratioscope-palette"))
            return [...dialog.querySelectorAll("[role=group]")].map(each => each.ariaLabel)
        }"""
    )
    assert at_once == ["Pages"]
    expect(runs).to_be_visible()
    page.evaluate("history.back()")
    expect(page.get_by_role("dialog", name="Go to")).to_have_count(0)


def test_the_palette_can_be_read_in_the_dark(open_page: OpenPage) -> None:
    page = open_page("/drift?run=grpo", "dark")
    settled(page, "Drift")
    expect(page.locator(".go[data-listens]")).to_have_count(1)
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Go to")
    expect(dialog.get_by_role("group", name="Runs")).to_be_visible()
    page.keyboard.type("onerror")
    expect(page.locator(".go [aria-selected=true]")).to_contain_text("<script>alert(1)<")
    assert faults(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_note_on_a_step_is_in_all_charts_and_can_be_found(open_page: OpenPage) -> None:
    page = open_page("/drift?run=reinforce")
    settled(page, "Drift")
    notes = charts(page).get_by_text("look <b>here</b>")
    charts(page).first.focus()
    page.wait_for_timeout(1000)  # it hears keys a moment after it is drawn
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    field = page.get_by_role("dialog").get_by_label("Your note on this step")
    field.fill("look <b>here</b>")
    field.press("Enter")
    expect(page.get_by_text("Noted. The charts show it when this is closed.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(notes.first).to_be_visible()
    open_page("/metrics?run=reinforce")
    settled(page, "Metrics")
    expect(notes.first).to_be_visible()
    open_page("/metrics?run=grpo")
    expect(notes).to_have_count(0)


def test_pictures_are_in_the_page_itself(open_page: OpenPage) -> None:
    """The server takes a file away where a run of the script is cut short, and the browser gets a 404 for it."""
    page = open_page("/overview?run=grpo")
    settled(page, "Overview")
    shown = page.locator("img, link[rel~=icon]").evaluate_all("all => all.map((each) => each.src || each.href)")
    assert len(shown) >= 2 and not [address for address in shown if "/media/" in address]
