"""A written report in a real browser: opened from its file, in light and dark, and on paper; nothing is asked for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard import theme
from ratioscope.dashboard.report.build import full_pages, run_report
from ratioscope.dashboard.report.figures import csv_text
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.sections.model import Report
from tests.browser.actions import drag_over
from tests.browser.conftest import MARKUP, PATIENCE_MS

PAPER = 688  # CSS pixels between the margins of A4
DRAWN = "[...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.main-svg'))"


@dataclass
class Seen:
    """A report in a tab, and all that the tab did."""

    page: Page
    address: str
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def check(self) -> None:
        """The file was read, and nothing else happened."""
        assert not self.problems
        assert set(self.requests) == {self.address}


@pytest.fixture(scope="module")
def report(root: Path) -> Report:
    opened = open_folder(root / "grpo")
    return run_report(opened, pages=full_pages([opened]))


@pytest.fixture(scope="module")
def written(report: Report, root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of an honest run and of one with markup wherever text goes."""
    folder = tmp_path_factory.mktemp("reports")
    hostile = run_report(
        open_folder(root / MARKUP.replace("/", "∕")), pages=["setting", "findings", "tokens", "linter"]
    )
    for name, made in (("honest", report), ("hostile", hostile)):
        (folder / f"{name}.html").write_text(html(made), encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def look(chromium: Browser, written: dict[str, Path]) -> Iterator[Callable[..., Seen]]:
    """look("honest") -> the report in a browser that has never been used."""
    contexts = []

    def open_it(name: str, **options: object) -> Seen:
        context = chromium.new_context(viewport={"width": 1400, "height": 1000}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        seen = Seen(context.new_page(), written[name].as_uri())
        context.on("request", lambda request: seen.requests.append(request.url))
        context.on("weberror", lambda error: seen.problems.append(str(error.error)))
        context.on("console", lambda message: message.type == "error" and seen.problems.append(message.text))
        context.on("dialog", lambda dialog: (seen.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        seen.page.goto(seen.address)
        expect(seen.page.locator("html")).to_have_attribute("data-ready", "true")
        return seen

    yield open_it
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def honest(look: Callable[..., Seen]) -> Seen:
    return look("honest", color_scheme="light", accept_downloads=True)


def _scroll_through(page: Page) -> None:
    for figure in page.locator(".plot").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".main-svg").first).to_be_attached()


def _colours(page: Page) -> tuple[str, str]:
    """Of the page and of the writing in a figure that is drawn."""
    return tuple(page.evaluate(  # type: ignore[return-value]
        "[getComputedStyle(document.body).backgroundColor,"
        " [...document.querySelectorAll('.plot')].find(plot => plot._fullLayout)._fullLayout.font.color]"
    ))  # fmt: skip


def _until(page: Page, condition: str) -> None:
    """Wait until it holds; the page's policy forbids Playwright's own way, which evaluates text in the page."""
    for _ in range(PATIENCE_MS // 100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(condition)


def test_every_figure_is_drawn_and_the_contents_follow(honest: Seen, report: Report) -> None:
    _scroll_through(honest.page)
    assert honest.page.evaluate(DRAWN)
    assert honest.page.locator(".plot").count() == len(list(report.charts))
    honest.page.locator("#methods").scroll_into_view_if_needed()
    honest.page.locator("nav").get_by_text("Methods").click()
    expect(honest.page.locator("nav a[aria-current]")).to_have_text("Methods")
    assert honest.page.evaluate("document.documentElement.scrollWidth") <= 1400
    honest.check()


def test_the_numbers_are_shown_and_handed_out_in_full_precision(honest: Seen, report: Report) -> None:
    chart = next(chart for chart in report.charts if chart.key == "distances")
    figure = honest.page.locator(f"#figure-{chart.key}")
    figure.get_by_role("button", name="Numbers of").press("Enter")
    expect(figure.locator("tbody tr")).to_have_count(len(chart.data))
    with honest.page.expect_download() as download:
        figure.get_by_role("button", name="CSV of").press("Enter")
    assert download.value.suggested_filename == f"{chart.key}.csv"
    assert Path(download.value.path()).read_text(encoding="utf-8") == csv_text(chart.data)
    honest.check()


def test_the_switch_to_dark_keeps_the_zoom(honest: Seen) -> None:
    figure = honest.page.locator("#figure-distances .plot")
    steps = "plot => plot._fullLayout.xaxis.range"
    before = figure.evaluate(steps)
    drag_over(figure, 0.2, 0.6)
    honest.page.wait_for_function(
        "before => document.querySelector('#figure-distances .plot')._fullLayout.xaxis.range[0] > before", arg=before[0]
    )
    zoomed = figure.evaluate(steps)
    assert _colours(honest.page) == ("rgb(255, 255, 255)", theme.LIGHT.text)
    honest.page.get_by_role("button", name="Dark colours").click()
    assert _colours(honest.page) == ("rgb(15, 18, 22)", theme.DARK.text)
    assert figure.evaluate(steps) == pytest.approx(zoomed)
    honest.page.get_by_role("button", name="Light colours").click()
    honest.check()


def test_a_dark_page_prints_every_figure_in_light_colours_on_a4(look: Callable[..., Seen]) -> None:
    seen = look("honest", color_scheme="dark")
    page = seen.page
    assert not page.evaluate(DRAWN)  # most are still out of sight
    page.set_viewport_size({"width": PAPER, "height": 1000})
    page.emulate_media(media="print")
    _until(page, DRAWN)
    assert _colours(page) == ("rgb(255, 255, 255)", theme.LIGHT.text)
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
    cut = page.evaluate("""[...document.querySelectorAll('.plot')].flatMap((plot) => {
      const outer = plot.getBoundingClientRect(), parts = [...plot.querySelectorAll('.main-svg, .main-svg text')];
      return parts.map((part) => part.getBoundingClientRect())
        .filter((box) => box.width && (box.left < outer.left - 2 || box.right > Math.min(outer.right, innerWidth) + 2
                || box.top < outer.top - 2 || box.bottom > outer.bottom + 2))
        .map((box) => `${plot.dataset.key}: ${JSON.stringify(box)}`);
    })""")
    assert not cut
    expect(page.locator(".tools").first).to_be_hidden()
    page.emulate_media(media="screen")
    _until(page, "getComputedStyle(document.body).backgroundColor === 'rgb(15, 18, 22)'")
    assert _colours(page) == ("rgb(15, 18, 22)", theme.DARK.text)
    seen.check()


def test_markup_of_a_log_is_inert(look: Callable[..., Seen]) -> None:
    seen = look("hostile")
    _scroll_through(seen.page)
    for button in seen.page.locator(".show").all():
        button.click()
    expect(seen.page.get_by_text("onerror=alert(2)").first).to_be_visible()
    for foreign in ("img", "script", "b", "a[href^='javascript:']", "a[href^='http']", "svg image[href^='http']",
                    "svg a[*|href^='javascript:']", "svg a[*|href^='http']"):  # fmt: skip
        expect(seen.page.locator(f"main {foreign}")).to_have_count(0)
    seen.check()
