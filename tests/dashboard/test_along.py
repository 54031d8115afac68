"""The pages of a run along tokens and time: figures move there, and a place that is clicked is a step again."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.compare.grouping import Member
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.figures import base
from ratioscope.dashboard.figures.along import Along, along_of, drawn_along
from ratioscope.dashboard.figures.pins import with_pins
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.theme import LIGHT
from tests.making.pages import charts, visit

AXIS = Along(np.array([0.0, 1.0, 2.0, 4.0]), np.array([100.0, 300.0, 350.0, 1000.0]), "tokens trained on")


def test_places_and_steps_are_each_others_way_back() -> None:
    steps = np.linspace(-1, 6, 15)
    np.testing.assert_allclose(AXIS.steps_of(AXIS.places_of(steps)), steps)
    assert AXIS.places_of([1, 3]).tolist() == [300, 675]


def test_a_figure_moves_with_all_that_stands_at_a_step() -> None:
    figure = base.figure(LIGHT)
    figure.add_scatter(x=np.array([0, 2, 4], np.int32), y=[1, 2, 3])
    figure.add_scatter(x=[1, None, 4], y=[1, 2, 3])
    figure.add_vline(x=2)
    base.add_threshold(figure, 2.0, "limit", LIGHT)
    figure.update_xaxes(range=[-0.5, 4.5])
    found = json.loads(drawn_along(str(figure.to_json()), AXIS))
    np.testing.assert_allclose(_numbers(found["data"][0]["x"]), [100, 350, 1000])
    np.testing.assert_allclose(_numbers(found["data"][1]["x"]), [300, np.nan, 1000])
    assert found["layout"]["shapes"][0]["x0"] == found["layout"]["shapes"][0]["x1"] == 350
    assert found["layout"]["shapes"][1]["x0"] == 0 and found["layout"]["annotations"][0]["x"] == 1  # of the paper
    assert found["layout"]["xaxis"]["range"] == AXIS.places_of([-0.5, 4.5]).tolist()
    assert found["layout"]["xaxis"]["title"]["text"] == "tokens trained on"


def test_notes_on_steps_are_drawn_and_move_along() -> None:
    figure = base.figure(LIGHT)
    figure.update_xaxes(range=[-0.5, 4.5])
    pins = ((2, "<b>here</b> " * 9), (4, "the end"))
    layout = json.loads(drawn_along(with_pins(str(figure.to_json()), pins, LIGHT), AXIS))["layout"]
    assert [shape["x0"] for shape in layout["shapes"]] == [350, 1000]
    first, second = layout["annotations"]
    assert first["text"].startswith("&lt;b&gt;here&lt;/b&gt;") and first["text"].endswith("…")
    assert first["hovertext"].startswith("step 2: ") and "<" not in first["hovertext"]
    assert (first["xanchor"], second["xanchor"]) == ("left", "right")


def test_notes_on_steps_cover_no_data() -> None:
    figure = base.figure(LIGHT)
    figure.update_xaxes(range=[-0.5, 9.5])
    plain, pins = figure.to_plotly_json()["layout"], [(step, "look") for step in (1, 2, 3, 8, 400)]
    layout = json.loads(with_pins(str(figure.to_json()), pins, LIGHT))["layout"]
    assert len(layout["annotations"]) == 4  # one is of a step that is not shown
    assert {(note["y"], note["yanchor"], note["yref"]) for note in layout["annotations"]} == {(1, "bottom", "paper")}
    assert [note["yshift"] for note in layout["annotations"]] == [34, 17, 0, 34]
    room = layout["height"] - plain["height"]
    assert room == layout["margin"]["t"] - plain["margin"]["t"] == 3 * 17  # the plot is as high as it was
    plot = plain["height"] - plain["margin"]["t"] - plain["margin"]["b"]
    assert layout["legend"]["y"] == pytest.approx(plain["legend"]["y"] + room / plot)
    assert with_pins(str(figure.to_json()), [(400, "look")], LIGHT) == str(figure.to_json())


def test_every_chart_over_steps_of_a_page_lies_along_the_same_axis(
    gallery: Path, folded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([gallery])
    opened = open_folder(gallery / "finished")
    along = along_of(Member("finished", opened.run, opened.summary), "tokens")
    assert along is not None and along.places[-1] == opened.summary.values["n_tokens"].sum()
    range_of = {"run": "finished", "from": "3", "to": "7"}
    by_step, by_tokens = charts(visit("overview", **range_of)), charts(visit("overview", along="tokens", **range_of))
    pairs = [pair for pair in zip(by_step, by_tokens, strict=True) if pair[0] != pair[1]]
    assert pairs
    for before, after in pairs:
        assert after == json.loads(drawn_along(json.dumps(before), along))
        assert after["layout"]["xaxis"]["title"]["text"].startswith("tokens trained on")
        assert after["layout"]["xaxis"]["range"] == along.places_of([2.5, 7.5]).tolist()


def _numbers(x: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(x["bdata"]), x["dtype"])
