"""The token reader by mouse and keyboard: extremes, numbers, worst sequences; hostile tokens stay text."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, expect

from ratioscope.analysis.findings.facts import UPDATE_METRIC
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.tokens.contributions import contributions
from ratioscope.analysis.tokens.reader import SequenceReading, extremes, read_sequence
from ratioscope.dashboard.components.token_colours import COLOURINGS
from tests.browser.actions import charts, settled, tick
from tests.browser.conftest import MARKUP, OpenPage
from tests.making.runs import random_step, write_run

ADDRESS = "/tokens?run=words&step=1&seq=2"


@pytest.fixture(scope="module")
def words(root: Path) -> Path:
    """A run whose tokens, prompts and responses are markup."""
    rng, steps = np.random.default_rng(3), []
    for number in range(3):
        step = random_step(rng, number, longest=40, spread=0.8)
        step.sequences.update(dict.fromkeys(("prompt", "response"), [MARKUP] * len(step.sequences["seq_id"])))
        steps.append(step)
    texts = {token: MARKUP if token == 0 else f" word{token}" for token in range(7)}
    # An algorithm of its own: the list of runs is asked for the others by theirs.
    return write_run(root / "words", steps, vocabulary=texts.__getitem__, algorithm={"name": "wordy"})


@pytest.fixture
def read(words: Path) -> Iterator[SequenceReading]:
    """The sequence that the address names."""
    yield read_sequence(open_run(words), 1, 2)


def tokens(page: Page) -> Locator:
    return page.locator(".strip .token")


def in_focus(page: Page) -> Locator:
    return page.locator(".strip .token:focus")


def test_keys_go_to_the_extremes_and_the_token_into_the_url(open_page: OpenPage, read: SequenceReading) -> None:
    page = open_page(ADDRESS)
    settled(page, "Tokens")
    expect(tokens(page)).to_have_count(len(read.tokens))
    ranked = extremes(read.tokens["log_rho"], COLOURINGS["current"].edges[1])
    assert len(ranked) > 2
    page.locator(".strip .token[tabindex='0']").focus()
    culprit = int((read.tokens["ratio"] - 1).abs().to_numpy().argmax())
    expect(in_focus(page)).to_have_attribute("data-place", str(culprit))
    following = ranked[ranked.index(culprit) + 1]
    page.keyboard.press("n")
    expect(in_focus(page)).to_have_attribute("data-place", str(following))
    page.keyboard.press("n")
    page.keyboard.press("p")
    expect(in_focus(page)).to_have_attribute("data-place", str(following))
    expect(page).to_have_url(re.compile(rf"token={following}(&|$)"))
    page.keyboard.press("End")
    expect(in_focus(page)).to_have_attribute("data-place", str(len(read.tokens) - 1))
    page.keyboard.press("ArrowLeft")
    expect(in_focus(page)).to_have_attribute("data-place", str(len(read.tokens) - 2))
    page.keyboard.press("Home")
    expect(in_focus(page)).to_have_attribute("data-place", "0")
    expect(page).to_have_url(re.compile(r"token=0(&|$)"))
    expect(in_focus(page)).to_have_attribute("data-place", "0")  # the answer of the server takes the focus from nobody

    page.reload()
    settled(page, "Tokens")
    expect(page.locator(".strip .token[aria-selected='true']")).to_have_attribute("data-place", "0")


def test_hovering_shows_every_log_probability_and_markup_is_inert(open_page: OpenPage, read: SequenceReading) -> None:
    page = open_page(ADDRESS)
    settled(page, "Tokens")
    tokens(page).nth(3).hover()
    detail = page.locator(".detail")
    for words, column in (("log p behavior", "logp_behavior"), ("log p current", "logp_current"),
                          ("log p new", "logp_new"), ("log p reference", "logp_reference"),
                          ("log p teacher", "logp_teacher")):  # fmt: skip
        pair = detail.locator("dl > div").filter(has=page.get_by_text(words, exact=True))
        assert float(pair.locator("dd").inner_text()) == pytest.approx(float(read.tokens[column][3]), rel=0.01)
    tokens(page).nth(4).focus()
    expect(detail.locator("dl > div").first).to_contain_text("4")

    marked = int((read.tokens["token_id"] == 0).to_numpy().argmax())
    expect(tokens(page).nth(marked)).to_contain_text("<script>alert(1)</script>")
    tokens(page).nth(marked).hover()
    expect(page.locator(".detail .name")).to_contain_text("<img")
    main = page.locator("[data-testid=stMain]")
    expect(main.locator("script, img[onerror], img[src*='127.0.0.2'], .strip b, .detail b")).to_have_count(0)
    expect(page.locator("a[href^='javascript:']")).to_have_count(0)


def test_a_choice_that_is_not_reported_yet_does_not_empty_the_next_page(open_page: OpenPage) -> None:
    page = open_page(ADDRESS)
    settled(page, "Tokens")
    for place in (3, 5):
        tokens(page).nth(place).click()
        page.wait_for_timeout(250)  # of the 400 ms after which it is reported
        open_page("/drift?run=words")
        settled(page, "Drift")
        page.wait_for_timeout(500)
        expect(charts(page).first).to_be_visible()
        open_page(ADDRESS)
        settled(page, "Tokens")


def test_from_a_spike_to_its_tokens_in_two_clicks_and_on_to_a_worst_sequence(open_page: OpenPage, words: Path) -> None:
    page = open_page("/drift?run=words")
    settled(page, "Drift")
    chart = charts(page).first
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Step 1", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)

    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(dialog.get_by_role("heading", name="Response", exact=False).first).to_be_visible()
    tick(dialog.locator("[data-testid=stDataFrame]").first, 2)
    worst = contributions(open_run(words), UPDATE_METRIC, 1, 1).frame
    expect(dialog.get_by_role("heading", name=f"Response {worst.iloc[1]['seq_id']}", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Open on the Tokens page").click()
    settled(page, "Tokens")
    expect(page).to_have_url(re.compile(r"by=Update"))  # the curve that was clicked
    expect(dialog).to_have_count(0)
    assert_open(page, worst.iloc[1])

    tick(page.locator("[data-testid=stDataFrame]").first, 3)
    assert_open(page, worst.iloc[2])
    expect(page).to_have_url(re.compile(rf"seq={worst.iloc[2]['seq_id']:.0f}(&|$)"))
    assert "step=1" in page.url


def assert_open(page: Page, sequence: "pd.Series[float]") -> None:
    """This sequence is the one that is shown, with all of its tokens."""
    name = f"Step {sequence['step']:.0f}, response {sequence['seq_id']:.0f}"
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    expect(tokens(page)).to_have_count(int(sequence["n_tokens"]))
