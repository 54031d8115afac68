"""The laboratory in a browser: what it computes there is what Python defines, and no drag waits for the server."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.laboratory.experiment import Experiment
from ratioscope.analysis.laboratory.tools import show
from ratioscope.dashboard.components.experiment import script
from tests.analysis.laboratory.settings import settings
from tests.browser.actions import settled
from tests.browser.conftest import OpenPage
from tests.making.loops import in_one_loop

COUNT_WHAT_IS_SENT = """() => {
  const send = WebSocket.prototype.send
  window.sent = 0
  WebSocket.prototype.send = function (...all) { window.sent += 1; return send.apply(this, all) }
}"""

# The address says of the sliders what they say themselves, where it names one.
_ADDRESS_HAS = """values => {
  const at = (new URLSearchParams(location.search).get('at') ?? '').split(',').map(part => part.split(':'))
  return at.every(([key, value]) => Math.abs(value - values[key]) <= 1e-5 * Math.abs(values[key]))
}"""


@pytest.fixture(scope="module")
def blank(chromium: Browser) -> Iterator[Page]:
    """A page that has the laboratory's script and nothing else."""
    page = chromium.new_page()
    page.evaluate(f"() => {{ {script().replace('export default function', 'window.draw = function')}\n"
                  "window.COMPUTE = COMPUTE; window.show = show }")  # fmt: skip
    yield page
    page.close()


@in_one_loop("of", EXPERIMENTS)
def test_the_browser_computes_what_python_defines(of: Experiment, blank: Page) -> None:
    tried = [[at[slider.key] for slider in of.sliders] for at in settings(of)]
    text = blank.evaluate(
        "([key, tried]) => JSON.stringify(tried.map(at => COMPUTE[key](...at)), (_, value) =>"
        " typeof value === 'number' && !Number.isFinite(value) ? String(value) : value)",
        [of.key, tried],
    )
    for at, there in zip(tried, json.loads(text), strict=True):
        here = of.compute(*at)
        assert here.keys() == there.keys()
        for key in here:
            assert _same(here[key], there[key]), f"{of.key} at {at}: {key} is {here[key]!r} and {there[key]!r}"


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, list | tuple):
        return len(here) == len(there) and all(map(_same, here, there))
    if isinstance(here, str):
        return bool(here == there)
    value = float(str(there).replace("Infinity", "inf"))
    return (math.isnan(here) and math.isnan(value)) or math.isclose(here, value, rel_tol=1e-9, abs_tol=1e-12)


def test_numbers_are_said_alike(blank: Page) -> None:
    values = [sign * mantissa * 10.0**power for sign in (1, -1) for power in range(-12, 15)
              for mantissa in (1, 1.125, 2.345, 3.3335, 9.995, 9.9951)]  # fmt: skip
    for digits in (2, 3, 7):
        there = blank.evaluate("([values, digits]) => values.map(value => show(value, digits))", [values, digits])
        assert there == [show(value, digits) for value in values]


def test_a_drag_does_not_wait_for_the_server(open_page: OpenPage) -> None:
    page = open_page("/laboratory?experiment=importance_weights")
    settled(page, "Laboratory")
    slider = page.get_by_label("T tokens of a response")
    slider.scroll_into_view_if_needed()
    lab = page.locator(".lab")
    expect(lab).to_have_attribute("data-draws", re.compile("[0-9]+"))
    said = page.locator(".says").inner_text()
    page.evaluate(COUNT_WHAT_IS_SENT)
    box = slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2, steps=10)
    assert page.evaluate("window.sent") == 0, "nothing is sent while the hand is on the slider"
    expect(page.locator(".says")).not_to_have_text(said)
    assert page.locator(".says").inner_text().startswith("With T = ")
    page.mouse.up()
    page.wait_for_url("**at=T*")  # only then, so that the link can be passed on


def test_a_hand_on_the_keyboard_is_enough(open_page: OpenPage) -> None:
    page = open_page("/laboratory")
    settled(page, "Laboratory")
    for each in EXPERIMENTS.values():  # a picture of each, of its own function
        expect(
            page.get_by_role("img", name=f"{each.pictures[0].title}: ").locator("polyline, polygon, circle, rect, line")
        ).not_to_have_count(0)
    page.get_by_role("link", name=EXPERIMENTS["rare_token"].claim).press("Enter")
    expect(page.get_by_role("heading", name=EXPERIMENTS["rare_token"].claim)).to_be_visible()
    page.get_by_role("button", name="about half").press("Enter")
    expect(page.locator(".because").first).to_contain_text("No: 20%.")
    page.get_by_label("R its ratio").press("ArrowRight")
    page.wait_for_url("**at=R*")
    expect(page.locator(".slider output").nth(1)).not_to_have_text("200")
    page.get_by_role("button", name="Reset").press("Enter")
    expect(page.locator(".slider output").nth(1)).to_have_text("200")
    page.wait_for_url(lambda address: "at=" not in address)
    page.go_back()  # at once, before the answer to Reset is there
    expect(page.locator(".slider output").nth(1)).to_have_text("210")
    settled(page, EXPERIMENTS["rare_token"].claim)  # a late answer to Back would undo the next Reset
    page.get_by_role("button", name="Reset").press("Enter")
    page.wait_for_url(lambda address: "at=" not in address)


def test_a_link_with_nonsense_shows_the_source_s_numbers(open_page: OpenPage) -> None:
    page = open_page("/laboratory?experiment=rare_token&at=R:1e99,e:x,y:1,N:500")
    expect(page.locator(".slider output")).to_have_text(["0.0001", "200", "0.2", "501"])
    page = open_page("/laboratory?experiment=%3Cb%3E")
    expect(page.get_by_text("There is no experiment '<b>'.")).to_be_visible()


@pytest.mark.parametrize("key", ["one_token", "wrong_arm", "no_policy_near"])
def test_every_dot_that_can_be_dragged_moves_its_sliders(key: str, open_page: OpenPage) -> None:
    page = open_page(f"/laboratory?experiment={key}")
    settled(page, "Laboratory")
    lab, handles = page.locator(".lab"), page.locator(".handle")
    expect(page.locator(f"[id^=lab-{key}-]").first).to_be_attached()  # not the page before
    expect(handles.first).to_be_visible()
    moving = {int(place): mark.moves for picture in EXPERIMENTS[key].pictures
              for place, mark in enumerate(picture.marks) if any(mark.moves)}  # fmt: skip
    for place in range(handles.count()):
        settled(page, "Laboratory")  # what the last move has opened above moves this dot
        handle = handles.nth(place)
        handle.scroll_into_view_if_needed()
        sliders = {name for name in moving[int(handle.get_attribute("data-mark") or -1)] if name}
        before = lab.evaluate("lab => ({ ...lab.values })")
        box = handle.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2 - 15, box["y"] - 15, steps=5)
        page.mouse.up()
        page.wait_for_url("**at=*")
        after = lab.evaluate("lab => ({ ...lab.values })")
        assert {name for name in after if after[name] != before[name]} == sliders
        # What is still on its way would bring this page back in the test after this one.
        page.wait_for_function(_ADDRESS_HAS, arg=after)
