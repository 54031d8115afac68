"""Notes on steps, drawn in every chart over the steps: a line with its text."""

import json
from collections.abc import Iterable
from typing import Any

from ratioscope.dashboard.annotations import Pin
from ratioscope.dashboard.figures.base import plotly_text
from ratioscope.dashboard.theme import Mode

_SHOWN = 28
"""Characters of a note beside its line; all of it is in the tooltip."""
_LEFT = 0.75
"""Up to this part of the axis a note stands on the right of its line, beyond it on the left."""
_ROWS, _ROW = 3, 17
"""Notes that follow each other stand below each other, so that close ones can be read; in pixels."""


def with_pins(figure: str, pins: Iterable[Pin], mode: Mode) -> str:
    """The JSON of a figure over steps with a line at each of these steps, and the note above the plot, which stays as
    high as it was: there it covers no data."""
    drawn = json.loads(figure)
    layout = drawn["layout"]
    first, last = layout["xaxis"].get("range", (0.0, float("inf")))
    pins = [pin for pin in pins if first <= pin[0] <= last]
    if not pins:
        return figure
    rows, margin = min(len(pins), _ROWS), layout["margin"]
    row = _ROW / (layout["height"] - margin["t"] - margin["b"])  # of the plot
    lines, texts = (layout.setdefault(name, []) for name in ("shapes", "annotations"))
    for place, (step, said) in enumerate(pins):
        above = rows - 1 - place % rows  # an earlier note stands higher, clear of the lines of those that follow
        side = "right" if step > first + _LEFT * (last - first) else "left"
        lines.append(_line(step, 1 + row * above, mode))
        texts.append(_text(step, said, above, side, mode))
    layout["legend"]["y"] += row * rows
    layout["height"] += _ROW * rows
    margin["t"] += _ROW * rows
    return json.dumps(drawn)


def _line(step: int, top: float, mode: Mode) -> dict[str, Any]:
    line = {"color": mode.text, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": step, "x1": step, "y0": 0, "y1": top, "line": line}


def _text(step: int, said: str, row: int, side: str, mode: Mode) -> dict[str, Any]:
    short = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1].rstrip()}…"
    return {
        "x": step, "xref": "x", "xanchor": side, "xshift": 2 if side == "left" else -2, "showarrow": False,
        "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": _ROW * row,
        "text": plotly_text(short), "hovertext": plotly_text(f"step {step}: {said}"),
        "font": {"size": 11, "color": mode.text}, "bgcolor": mode.panel, "borderpad": 1, "opacity": 0.92,
    }  # fmt: skip
