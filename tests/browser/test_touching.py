"""Grey lines of a chart are dark while they are touched, whatever was drawn before and is drawn next."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from ratioscope.dashboard.components import plot
from tests.browser.actions import charts

ADDRESS = "http://127.0.0.1:1/"  # nothing listens there: the test answers
PAGE = """<!doctype html><div id="place" style="width: 900px"></div><script type="module">
import draw from "./plot.js";
window.drawn = figure => draw({
  parentElement: place, setTriggerValue: () => {},
  data: {figure, events: [], alt: "lines", source: "./plotly.js", config: {}},
});
</script>"""
GREYS = ("rgb(200, 200, 200)", "rgb(190, 190, 190)", "rgb(180, 180, 180)")
DARK = "rgb(1, 2, 3)"


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    files = {
        "": ("text/html", PAGE),
        "plot.js": ("text/javascript", plot.__file__.removesuffix(".py") + ".js"),
        "plotly.js": ("text/javascript", str(plot.PLOTLY_FILE)),
    }

    def answer(route: Route) -> None:
        kind, what = files.get(route.request.url.removeprefix(ADDRESS), ("text/plain", ""))
        if kind == "text/javascript":
            route.fulfill(path=what, content_type=kind)
        else:
            route.fulfill(body=what, content_type=kind)

    problems: list[str] = []
    context = chromium.new_context(viewport={"width": 1000, "height": 600})
    context.on("weberror", lambda error: problems.append(str(error.error)))
    page = context.new_page()
    page.route(f"{ADDRESS}**", answer)
    page.goto(ADDRESS)
    page.wait_for_function("() => Boolean(window.drawn)")
    yield page
    context.close()
    assert not problems


def draw(page: Page, greys: tuple[str, ...], height: float) -> None:
    """A figure of a loud line at 0 and grey ones above it, the first of which is at this height."""
    traces: list[dict[str, Any]] = [{"x": [0, 1, 2], "y": [0, 0, 0], "mode": "lines", "line": {"color": "red"}}]
    traces += [
        {"x": [0, 1, 2], "y": [height + place] * 3, "mode": "lines", "meta": "quiet", "line": {"color": grey}}
        for place, grey in enumerate(greys)
    ]  # fmt: skip
    layout = {
        "height": 400, "hovermode": "closest", "font": {"color": DARK}, "meta": {"narrow": {"showlegend": False}},
        "yaxis": {"range": [-1, 5]},
    }  # fmt: skip
    page.evaluate("figure => drawn(figure)", json.dumps({"data": traces, "layout": layout}))
    page.wait_for_function(
        "count => document.querySelector('.js-plotly-plot')?.data?.length === count", arg=len(traces)
    )


def touch(page: Page, height: float) -> None:
    """Put the pointer on the middle of the line at this height."""
    x, y = charts(page).evaluate(
        """(chart, height) => {
          const {xaxis, yaxis} = chart._fullLayout, box = chart.getBoundingClientRect();
          return [box.x + xaxis._offset + xaxis.d2p(1), box.y + yaxis._offset + yaxis.d2p(height)];
        }""",
        height,
    )
    page.mouse.move(5, 5)
    page.mouse.move(x, y, steps=4)


def await_lines(page: Page, *colours: str) -> None:
    page.wait_for_function(
        "colours => document.querySelector('.js-plotly-plot')._fullData.map(one => one.line.color).join() === colours",
        arg=",".join(("red", *colours)),
    )


def test_a_touched_line_is_dark_and_grey_again_in_whatever_is_drawn_next(page: Page) -> None:
    draw(page, (), 1)
    expect(charts(page)).to_have_count(1)  # listens now, and has no grey line yet
    draw(page, GREYS[:2], 1)
    touch(page, 2)
    await_lines(page, GREYS[0], DARK)
    touch(page, 0)
    await_lines(page, *GREYS[:2])

    touch(page, 2)
    await_lines(page, GREYS[0], DARK)
    draw(page, GREYS[::-1], 1)  # another figure, while the pointer rests
    touch(page, 1)
    await_lines(page, DARK, *GREYS[1::-1])
    page.mouse.move(5, 5)
    await_lines(page, *GREYS[::-1])

    touch(page, 3)
    await_lines(page, *GREYS[:0:-1], DARK)
    page.mouse.move(5, 595)
    touch(page, 3)
    await_lines(page, *GREYS[:0:-1], DARK)
    page.evaluate("place.style.width = '400px'")  # drawn again from the same traces, as on a phone
    page.wait_for_function("document.querySelector('.js-plotly-plot').layout.width === 400")
    page.mouse.move(5, 595)
    await_lines(page, *GREYS[::-1])
