"""Pages of one run by mouse and keyboard: a slider of Staleness, a remark of the Linter, a query on the SQL page."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Page, expect

from ratioscope.dashboard import state
from ratioscope.dashboard.sections import MENU
from tests.browser.actions import charts, go_to, seen, settled
from tests.browser.conftest import OpenPage
from tests.making.pages import RUN_PAGES
from tests.making.samples import SAMPLE_RUNS

BY_STEP = "select step, avg(exp(log_rho)) as ratio from tokens group by step order by step"
ENDLESS = "select count(*) from range(1000000) a, range(1000000) b"


def typed(page: Page, text: str) -> None:
    """Put a query into the editor and press Ctrl+Enter."""
    editor = page.get_by_role("textbox", name="Query")
    editor.fill(text)
    editor.press("Control+Enter")


def test_a_slider_changes_what_would_be_dropped_and_the_link(open_page: OpenPage) -> None:
    page = open_page("/staleness?run=grpo&lagcut=1&whatif=true")
    settled(page, "Staleness")
    expect(page.get_by_text("A window of W = 2 (lags up to 1) would drop")).to_be_visible()
    slider = page.get_by_role("slider", name="Largest lag to keep")
    slider.focus()
    slider.press("ArrowLeft")
    expect(page.get_by_text("A window of W = 1 (lags up to 0) would drop")).to_be_visible()
    expect(page).to_have_url(re.compile("lagcut=0"))


def test_explain_opens_where_it_leads_to_and_formulas_are_drawn(open_page: OpenPage) -> None:
    """The fold was closed, and below everything else, where it had been closed on another page before."""
    page = open_page("/tokens?run=grpo&from=3&to=9")
    for name in ("Overview", "Drift"):
        settled(page, "Tokens")
        go_to(page, name)
        page.get_by_text("How to read this page").click()
        expect(page.locator(".katex").last).to_be_visible()
        expect(page.locator(".katex-error")).to_have_count(0)
        page.get_by_role("link", name="Explain").click()
        settled(page, "Tokens")
        expect(page.get_by_text("Explain these steps")).to_be_in_viewport()
        expect(page.get_by_text("What differs is shown, not why.")).to_be_visible()
        page.get_by_text("Explain these steps").click()
        expect(page.get_by_text("What differs is shown, not why.")).to_have_count(0)


def test_every_page_draws_its_formulas_with_every_fold_open(open_page: OpenPage) -> None:
    """What only a browser can see of the sweep in `tests/dashboard/test_every_page.py`."""
    page = open_page("/overview?run=grpo")
    settled(page, "Overview")
    drawn = 0
    for name in RUN_PAGES:
        go_to(page, MENU[name].title)
        folds = page.locator("[data-testid=stMain] details:not([open]) > summary")
        while folds.count():
            folds.evaluate_all("folds => folds.forEach(fold => fold.click())")
            settled(page, MENU[name].title)
        expect(page.locator(".katex-error")).to_have_count(0)
        assert "$$" not in page.locator("[data-testid=stMain]").inner_text(), name
        drawn += page.locator(".katex").count()
    assert drawn > 20


def test_a_remark_leads_to_the_response_that_shows_it(open_page: OpenPage) -> None:
    page = open_page("/linter?run=grpo&notices=true")
    settled(page, "Linter")
    expect(page.get_by_text("Steps 0 to 39 were checked.")).to_be_visible()
    page.locator("[data-testid=stPageLink]").filter(has_text=re.compile(r"Response \d+ of step \d+")).first.click()
    settled(page, "Tokens")
    expect(page).to_have_url(re.compile(r"run=grpo.*step=\d+.*seq=\d+"))


def test_a_query_can_be_stopped_and_is_drawn_and_found_again_by_its_link(open_page: OpenPage) -> None:
    page = open_page("/sql?run=grpo")
    settled(page, "SQL")
    typed(page, ENDLESS)
    expect(page.get_by_text("Running: ")).to_be_visible()
    page.locator("[data-testid=stMain]").get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The query was stopped.")).to_be_visible()
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


@contextmanager
def sample_runs(root: Path, *names: str) -> Iterator[None]:
    """Some of `sample_runs/` in the folder that is served, from when the server lists its runs again."""
    places = [root / name for name in names]
    for place in places:
        place.symlink_to(SAMPLE_RUNS / place.name, target_is_directory=True)
    time.sleep(2 * state._LISTED)  # a list that took its time is kept for longer
    try:
        yield
    finally:
        for place in places:
            place.unlink()


def read_at_a_glance(page: Page, least: int) -> None:
    """A first screen has more words than these, which an empty page has, and at most 150."""
    usual = page.viewport_size
    assert usual is not None
    page.set_viewport_size({"width": 1440, "height": 900})
    words = seen(page)
    assert least < len(words) <= 150, " ".join(words)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight") <= 1400
    page.set_viewport_size(usual)


def test_the_first_screens_of_the_other_pages_are_read_at_a_glance(open_page: OpenPage, root: Path) -> None:
    """Three of them had up to 184 words, and only the gallery said so."""
    collapsed, differs = "sync_interval20-reinforce-lr0.0003-seed0", "mismatch-grpo-seed0"
    runs = {name: differs if name == "engine" else collapsed for name in RUN_PAGES if name != "overview"}
    with sample_runs(root, collapsed, differs):
        for name, run in runs.items():
            page = open_page(f"/{name}?run={run}")
            settled(page, MENU[name].title)
            expect(page.get_by_role("combobox", name="Run")).to_have_value(run)
            if name not in ("tokens", "linter", "sql"):
                expect(charts(page).first).to_be_visible()
            read_at_a_glance(page, 60)


def test_the_first_screen_of_compare_is_read_at_a_glance(open_page: OpenPage, root: Path) -> None:
    """Twenty runs of one schedule: it had 164 words."""
    names = sorted(run.name for run in SAMPLE_RUNS.iterdir() if run.name.startswith("sync_interval20-"))[:20]
    with sample_runs(root, *names):
        page = open_page(f"/compare?{urlencode([('run', name) for name in names])}")
        settled(page, "Compare")
        expect(charts(page).nth(1)).to_be_visible()
        read_at_a_glance(page, 90)


@pytest.mark.parametrize(
    ("run", "tried"),
    [
        (
            "sync_interval20-reinforce-lr0.0003-seed0",
            ["rec_ring_nois-lr0.0003", "reinforce", "rec_twoside_nois-lr0.0003"],
        ),
        ("sync_interval20-grpo-seed0", []),
    ],
)
def test_the_first_screen_of_overview_is_read_at_a_glance(
    open_page: OpenPage, root: Path, run: str, tried: list[str]
) -> None:
    """A run in trouble with its siblings, and a healthy one: it had 285 words, and readers took a minute."""
    with sample_runs(root, run, *(f"sync_interval20-{each}-seed0" for each in tried)):
        page = open_page(f"/overview?run={run}")
        expect(page.get_by_role("combobox", name="Run")).to_have_value(run)  # not the one before
        settled(page, "Overview")
        expect(charts(page).first).to_be_visible()
        if tried:
            expect(page.get_by_text("Tried: final means")).to_be_visible()
            expect(page.locator(".st-key-sibling-lines img")).to_have_count(len(tried))
        read_at_a_glance(page, 60)
