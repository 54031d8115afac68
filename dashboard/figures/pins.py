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
_ROWS = 3
"""Notes that follow each other stand below each other, so that close ones can be read."""


def with_pins(figure: str, pins: Iterable[Pin], mode: Mode) -> str:
    """The JSON of a figure over steps with a line at each of these steps, and the note at its upper end."""
    pins = list(pins)
    if not pins:
        return figure
    drawn = json.loads(figure)
    lines, texts = (drawn["layout"].setdefault(name, []) for name in ("shapes", "annotations"))
    top = drawn["layout"].get("yaxis", {}).get("domain", (0.0, 1.0))[1]  # of panels, below the name of the first one
    first, last = drawn["layout"]["xaxis"].get("range", (0.0, float("inf")))
    for place, (step, said) in enumerate(pins):
        lines.append(_line(step, mode))
        side = "right" if step > first + _LEFT * (last - first) else "left"
        texts.append(_text(step, said, top, place % _ROWS, side, mode))
    return json.dumps(drawn)


def _line(step: int, mode: Mode) -> dict[str, Any]:
    line = {"color": mode.text, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": step, "x1": step, "y0": 0, "y1": 1, "line": line}


def _text(step: int, said: str, top: float, row: int, side: str, mode: Mode) -> dict[str, Any]:
    short = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1].rstrip()}…"
    return {
        "x": step, "xref": "x", "xanchor": side, "xshift": 2 if side == "left" else -2, "showarrow": False,
        "y": top, "yref": "paper", "yanchor": "top", "yshift": -2 - 17 * row,
        "text": plotly_text(short), "hovertext": plotly_text(f"step {step}: {said}"),
        "font": {"size": 11, "color": mode.text}, "bgcolor": mode.panel, "borderpad": 2, "opacity": 0.92,
    }  # fmt: skip
