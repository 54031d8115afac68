"""The laboratory in a browser: what it computes there is what Python defines, and no drag waits for the server."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.laboratory.experiment import Experiment
from ratioscope.analysis.laboratory.tools import show
from ratioscope.dashboard.components.experiment import script
from tests.analysis.laboratory.settings import settings
from tests.making.loops import in_one_loop


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
