"""Every page as it opens, in both themes and at three widths, to be looked at: `python -m tests.making.gallery FOLDER`.

The pictures have the whole height of a page; `index.html` shows them one by one, with height, words and what axe finds.
"""

import html
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, expect, sync_playwright

from ratioscope.dashboard.sections import MENU
from tests.benchmarks.session import serving
from tests.browser.accessible import WIDTHS, axe_faults, too_wide
from tests.browser.actions import seen, settled
from tests.browser.conftest import ARGUMENTS
from tests.find_chromium import find_chromium
from tests.making.screenshots import COLLAPSED, SAMPLE_RUNS, WIDTH, runs_of

THEMES = ("light", "dark")
SCREEN, HIGHEST, DRAWING_MS = 900, 12_000, 1_200
LEARNS, DIFFERS = "sync_interval20-grpo-seed0", "mismatch-grpo-seed0"
# Beside each page of a run that collapsed: what another run, or a deeper link, has them show.
OTHERS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "overview-learns": ("overview", [("run", LEARNS)]),
    "engine-differs": ("engine", [("run", DIFFERS)]),
    "tokens-of-a-step": ("tokens", [("run", COLLAPSED), ("step", "15")]),
    "laboratory-surrogate": ("laboratory", [("experiment", "surrogate")]),
    "gone": ("overview", [("run", "a-run-that-is-not-there")]),
}
_HEIGHT = "document.querySelector('[data-testid=stMain]').scrollHeight"


@dataclass(frozen=True)
class Picture:
    """A page in one theme at one width."""

    name: str
    height: int
    words: int
    """On the first screen, of SCREEN pixels."""
    faults: list[str]

    def __str__(self) -> str:
        return "\n    ".join((f"{self.name}: {self.height} px, {self.words} words at first sight", *self.faults))


def pages() -> Iterator[tuple[str, str, str]]:
    """Name of the picture, heading of the page and its address."""
    figure3 = [("run", run) for run in runs_of("figure3")]
    usual = {name: (name, figure3 if name == "compare" else [("run", COLLAPSED)]) for name in MENU}
    for picture, (place, query) in (usual | OTHERS).items():
        path = "" if place == next(iter(MENU)) else place
        yield picture, MENU[place].title, f"{path}?{urlencode(query)}"


def take(page: Page, name: str, folder: Path) -> Picture:
    """A picture of the page at its present width, as high as the page is."""
    assert page.viewport_size is not None
    width = page.viewport_size["width"]
    page.wait_for_timeout(DRAWING_MS)
    words = len(seen(page))
    height = int(page.evaluate(_HEIGHT))
    faults = [*axe_faults(page), *too_wide(page)]
    page.set_viewport_size({"width": width, "height": min(max(height, SCREEN), HIGHEST)})
    page.wait_for_timeout(DRAWING_MS)
    page.screenshot(path=folder / f"{name}.png")
    page.set_viewport_size({"width": width, "height": SCREEN})
    return Picture(name, height, words, faults)


def write_index(folder: Path, pictures: list[Picture]) -> None:
    """The pictures one below the other, with their names and what was found of them."""
    parts = [
        f'<h2 id="{html.escape(each.name)}">{html.escape(each.name)}</h2><pre>{html.escape(str(each))}</pre>'
        f'<img loading="lazy" src="{html.escape(each.name)}.png" alt="{html.escape(each.name)}">'
        for each in pictures
    ]
    names = " ".join(f'<a href="#{html.escape(each.name)}">{html.escape(each.name)}</a>' for each in pictures)
    head = "<!doctype html><meta charset=utf-8><title>Gallery</title><style>img{border:1px solid #888}</style>"
    (folder / "index.html").write_text(f"{head}<nav>{names}</nav>{''.join(parts)}", encoding="utf-8")


def main(folder: Path, wanted: list[str]) -> None:
    """Write the gallery.

    Args:
        wanted: names of pictures; empty: all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures: list[Picture] = []
    with (
        tempfile.TemporaryDirectory() as name,
        sync_playwright() as playwright,
        serving(SAMPLE_RUNS, Path(name)) as server,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        for theme in THEMES:
            page = browser.new_page(color_scheme=theme, viewport={"width": WIDTH, "height": SCREEN})  # type: ignore[arg-type]
            page.set_default_timeout(120_000)
            for picture, heading, address in pages():
                if wanted and picture not in wanted:
                    continue
                page.goto(f"http://127.0.0.1:{server.port}/{address}")
                settled(page, heading)
                expect(page.get_by_text(re.compile("being read|read so far"))).to_have_count(0, timeout=120_000)
                for width in (WIDTH, *WIDTHS):
                    page.set_viewport_size({"width": width, "height": SCREEN})
                    pictures.append(take(page, f"{picture}-{theme}-{width}", folder))
                    print(pictures[-1], flush=True)
                page.set_viewport_size({"width": WIDTH, "height": SCREEN})
            page.close()
        browser.close()
    write_index(folder, pictures)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
