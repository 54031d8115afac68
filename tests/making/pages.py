"""A page of the app in Streamlit's test harness, and what is on it."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest, local_script_runner
from streamlit.testing.v1.element_tree import Element

from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.sections import MENU
from ratioscope.dashboard.views import runs

PAGES = tuple(MENU)
RUN_PAGES = tuple(name for name, page in MENU.items() if page.group == "One run")


def _ended(runner: local_script_runner.LocalScriptRunner, timeout: float = 3) -> None:
    """Wait for a script. The harness asks a thousand times a second whether it has ended, which slows it down."""
    assert runner._script_thread is not None
    runner._script_thread.join(timeout)
    if runner._script_thread.is_alive():
        runner.request_stop()
        runner.join()
        raise RuntimeError(f"The script has not ended within {timeout} s.")


local_script_runner.require_widgets_deltas = _ended


def _script(page: str) -> None:
    from ratioscope.dashboard import app

    app.main(default=page)


def visit(page: str, **query: str | list[str]) -> AppTest:
    """Open a page with these query parameters; a page never raises, whatever the run."""
    at = AppTest.from_function(_script, args=(page,), default_timeout=120)
    for key, value in query.items():
        at.query_params[key] = value
    return checked(at.run(), page)


def checked(at: AppTest, page: str) -> AppTest:
    """The same page, after having made sure that it is the right one and shows nothing that no page may show."""
    found = list(faults(at))
    assert not found, found
    assert [title.value for title in at.title] == [MENU[page].title]
    assert page == "overview" or at.caption[0].value == MENU[page].question  # its lights ask it
    return at


# Not a number, but for what somebody has set (epsilon=nan).
_NO_NUMBER = re.compile(r"(?<![\w.=])(nan|NaT|None(?! of\b))(?![\w.]*\w)|<NA>")
# How one ends in Markdown: on its line, or at a line of nothing but dollars.
_FORMULA = re.compile(r"^\$\$\n[^$]+\n\$\$$|\$\$[^$\n]+\$\$", re.MULTILINE)


def faults(at: AppTest) -> Iterator[str]:
    """What no page may show, whatever the run: holds of all that is drawn, so folds have to be open."""
    yield from (element.value for element in at.exception)
    yield from (error.value for error in at.error if "cannot be drawn" in error.value)
    for element in elements(at):
        text = str(getattr(element, "value", ""))
        if element.type in _MARKDOWN and "$$" in _FORMULA.sub("", text):
            yield f"a formula that does not end: {text}"
        if element.type in _BUTTONS and not (element.proto.label.strip() or element.proto.icon):
            yield f"a {element.type} without a word: {element.proto}"
    for line in sentences(at).splitlines():
        if _NO_NUMBER.search(line):
            yield f"no number: {line}"
    for tile in at.metric:
        if tile.value.endswith("%") and not 0 <= float(tile.value[:-1].replace(",", "")) <= 100:
            yield f"{tile.label} is {tile.value}"
    for chart in charts(at):
        yield from _impossible(chart)


_MARKDOWN = ("markdown", "caption", "info", "warning", "error", "success")
_BUTTONS = ("button", "page_link", "download_button", "link_button")


def _impossible(figure: dict[str, Any]) -> Iterator[str]:
    """Values that no metric can have, of the curves that say which they are of."""
    for trace in figure["data"]:
        metric = CATALOGUE.get(str(trace.get("meta")))
        values = _numbers(trace.get("y")) if metric else np.array([])
        values = values[np.isfinite(values)]
        if metric and len(values):
            low, high = metric.possible
            slack = 1e-6 * max(1.0, float(np.abs(values).max()))
            if values.min() < low - slack or values.max() > high + slack:
                yield f"{metric.title} goes from {values.min():g} to {values.max():g}"


def elements(at: AppTest) -> Iterator[Element]:
    """Every element of the page from top to bottom, containers opened."""
    nodes = [at._tree]
    while nodes:
        node = nodes.pop()
        if hasattr(node, "children"):
            nodes.extend(reversed(list(node.children.values())))
        else:
            yield node


def sentences(at: AppTest) -> str:
    """Everything that the page says in words, a line each, as it is read: without the escapes of `formats.escape`."""
    kinds = (at.title, at.caption, at.markdown, at.text, at.info, at.warning, at.error, at.code)
    return re.sub(
        r"\\([^\sa-zA-Z0-9])|\u2060", r"\1", "\n".join(str(element.value) for kind in kinds for element in kind)
    )


def charts(at: AppTest) -> list[dict[str, Any]]:
    """The Plotly figures of the page as the browser gets them."""
    components = [element.proto for element in elements(at) if element.type == "bidi_component"]
    return [json.loads(json.loads(it.json)["figure"]) for it in components if it.component_name == "ratioscope_plot"]


def drawn_numbers(figure: dict[str, Any]) -> int:
    """How many finite numbers a figure draws."""
    found = 0
    for trace in figure["data"]:
        axes = ("x",) if trace.get("orientation") == "h" else ("y", "z")
        found += sum(_finite(trace.get(axis)) for axis in axes)
    return found


def _finite(values: Any) -> int:
    if isinstance(values, list | tuple) and any(isinstance(value, list | tuple) for value in values):
        return sum(map(_finite, values))
    return int(np.isfinite(_numbers(values)).sum())


def _numbers(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Plotly writes arrays as lists, or as base64 of their bytes; what is none there is NaN."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"]).astype(float)
    listed = values if isinstance(values, list | tuple) else [values]
    return np.array([value if isinstance(value, int | float) else np.nan for value in listed], dtype=float)


def query(at: AppTest, key: str) -> list[str]:
    """The values of a query parameter, [] when it is not there."""
    values = at.query_params.get(key, [])
    return values if isinstance(values, list) else [values]


def runs_table(at: AppTest) -> dict[str, dict[str, Any]]:
    """The list on the Runs page: row by run."""
    frame = at.dataframe[0].value
    return {row["Run"]: row for row in frame.to_dict("records")}


def read(at: AppTest) -> AppTest:
    """The list of runs once rewards and findings are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "GRACE", 10.0)
        while "Reading rewards and findings" in sentences(at):
            at.run()
    return checked(at, "runs")
