"""What every figure keeps to, in both modes: few points, no extreme lost, no markup from a log, one axis, contrast."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import ratioscope.dashboard.figures
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.report.figures import in_dark
from ratioscope.dashboard.theme import DARK, LIGHT, MODES, Mode
from tests.making.figure_cases import CASES, DIP, MARK, SPIKE, Case, Material, material
from tests.making.loops import in_one_loop

BY_NAME = in_one_loop("case", {f"{number}-{case.name}": case for number, case in enumerate(CASES)})
BY_MODE = pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))

CHOSEN = (4, 90)
_DRAWN: dict[tuple[int, bool], go.Figure] = {}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return material(tmp_path_factory.mktemp("figures"))


def drawn(case: Case, made: Material, mode: Mode) -> go.Figure:
    """The figure of all steps in light, of `CHOSEN` in dark mode; drawn once."""
    place = (CASES.index(case), mode is DARK)
    if place not in _DRAWN:
        figure = case.draw(made, mode, CHOSEN if mode is DARK else (None, None))
        assert figure is not None
        _DRAWN[place] = figure
    return _DRAWN[place]


def test_no_figure_of_the_package_is_missing_here() -> None:
    found = set()
    for path in Path(ratioscope.dashboard.figures.__path__[0]).glob("[!_]*.py"):
        module = importlib.import_module(f"ratioscope.dashboard.figures.{path.stem}")
        for name, function in vars(module).items():
            result = getattr(function, "__annotations__", {}).get("return")
            own = not name.startswith("_") and getattr(function, "__module__", "") == module.__name__
            if own and path.stem != "base" and result in (go.Figure, go.Figure | None):
                found.add(f"{path.stem}.{name}")
    assert found == {case.name for case in CASES}


@BY_NAME
def test_dark_is_light_in_other_colours(case: Case, made: Material) -> None:
    """What a report draws once, its reader sees in both modes."""
    dark = json.loads(drawn(case, made, DARK).to_json())
    light = case.draw(made, LIGHT, CHOSEN)
    assert light is not None
    assert in_dark(json.loads(light.to_json())) == dark


@BY_MODE
@BY_NAME
def test_no_trace_has_more_points_than_a_screen_has_pixels(case: Case, made: Material, mode: Mode) -> None:
    figure = drawn(case, made, mode)
    assert figure.data
    for trace in figure.data:
        assert len(trace.x) <= base.MOST_POINTS, trace.name
        assert trace.y is None or len(trace.y) <= base.MOST_POINTS, trace.name
    figure.to_json()


@BY_NAME
def test_the_extremes_of_every_series_are_drawn(case: Case, made: Material) -> None:
    points = np.concatenate([np.asarray(trace.y, dtype=float) for trace in _scatters(drawn(case, made, LIGHT))] or [[]])
    for key in case.plotted:
        table = made.summary.values if key in made.summary.values else made.by_step
        known = table[key][np.isfinite(table[key])]
        known = known[known > 0] if case.positive else known
        assert {int(known.idxmax()), int(known.idxmin())} <= {SPIKE, DIP} or known.nunique() == 1
        for extreme in (known.max(), known.min()):
            assert np.isclose(points, float(case.place(extreme)), rtol=1e-5).any(), f"{key}: {extreme} is not drawn"


@BY_NAME
def test_what_is_not_finite_never_is_a_point(case: Case, made: Material) -> None:
    for trace in _scatters(drawn(case, made, LIGHT)):
        assert not np.isinf(np.asarray(trace.y, dtype=float)).any(), trace.name


@BY_NAME
def test_text_of_a_log_is_no_markup(case: Case, made: Material) -> None:
    for text in _strings(json.loads(drawn(case, made, LIGHT).to_json())):
        assert f"{MARK}<" not in text and "<a " not in text, text


@BY_NAME
def test_charts_over_steps_have_one_range(case: Case, made: Material) -> None:
    if not case.over_steps:
        return
    assert tuple(drawn(case, made, DARK).layout.xaxis.range) == (CHOSEN[0] - 0.5, CHOSEN[1] + 0.5)
    first, last = drawn(case, made, LIGHT).layout.xaxis.range
    assert first < 0 and last > np.nanmax(np.asarray(drawn(case, made, LIGHT).data[0].x, dtype=float))


@BY_MODE
@BY_NAME
def test_lines_and_text_stand_out_from_the_surface(case: Case, made: Material, mode: Mode) -> None:
    figure = drawn(case, made, mode)
    for trace in figure.data:
        for colour in {_colour(trace, "line"), _colour(trace, "marker")} - {None}:
            assert contrast(str(colour), mode.surface) >= 3, f"{trace.name}: {colour}"
    for words in figure.layout.annotations:
        assert contrast(words.font.color or figure.layout.font.color, mode.surface) >= 4.5, words.text
    for colour in (figure.layout.font.color, figure.layout.xaxis.tickfont.color, figure.layout.yaxis.tickfont.color):
        assert contrast(colour, mode.surface) >= 4.5


@BY_MODE
def test_the_palette_stands_out_from_the_surface(mode: Mode) -> None:
    for surface in (mode.surface, mode.panel):
        for colour in (mode.text, mode.muted):
            assert contrast(colour, surface) >= 4.5
    roles = {theme.CURRENT, theme.NEW, mode.behavior, mode.exact, *mode.severity.values()}
    lines = {*theme.OKABE_ITO, *(theme.metric_colour(key) for key in theme.CATALOGUE)}
    assert [colour for colour in roles | lines if contrast(colour, mode.surface) < 3] == []


def test_contrast_is_that_of_the_wcag() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


def contrast(one: str, other: str) -> float:
    """(L1 + 0.05) / (L2 + 0.05) of the relative luminances of two colours #rrggbb (WCAG 2.2)."""
    dark, light = sorted(_luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def _scatters(figure: go.Figure) -> list[Any]:
    """The traces on the first axes that are lines or points; edge marks have axes of their own."""
    return [trace for trace in figure.data if trace.type == "scatter" and trace.yaxis in (None, "y")]


def _colour(trace: Any, part: str) -> str | None:
    """The colour of a trace's lines or markers, where it is a single one in #rrggbb that is drawn."""
    if trace.type != "scatter" or part not in trace.to_plotly_json() or part not in (trace.mode or ""):
        return None
    colour = getattr(trace, part).color
    return colour if isinstance(colour, str) and re.fullmatch("#[0-9A-Fa-f]{6}", colour) else None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "legendgroup":  # a key that nothing shows
                yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
