"""Charts over steps along another axis: tokens trained on, or time; a place that is clicked there is a step again."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ratioscope.analysis.compare.alignment import AXES, Axis
from ratioscope.analysis.compare.grouping import Member
from ratioscope.dashboard.figures.compare import axis_scale

_STEP = axis_scale("step", 0.0).title

Places = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Along:
    """Where the steps of a run lie on an axis."""

    steps: Places
    """Ascending, shape (n,)."""
    places: Places
    """Of each step, in the unit of the title; never descending, shape (n,)."""
    title: str

    def places_of(self, steps: ArrayLike) -> Places:
        """Of steps and of what lies between and beyond them, in a straight line."""
        return _along(np.asarray(steps, float), self.steps, self.places)

    def steps_of(self, places: ArrayLike) -> Places:
        """The way back."""
        return _along(np.asarray(places, float), self.places, self.steps)


def along_of(member: Member, by: Axis) -> Along | None:
    """Where the steps of a run lie; None along the steps themselves.

    Raises:
        RatioscopeError: the run does not have this axis.
    """
    found = AXES[by](member)
    if by == "step" or len(found) < 2:
        return None
    title, unit = axis_scale(by, float(found.iloc[-1]))
    return Along(np.asarray(found.index, float), np.asarray(found, float) / unit, title)


def drawn_along(figure: str, along: Along) -> str:
    """The JSON of a figure over steps, drawn along another axis."""
    drawn = json.loads(figure)
    layout = drawn["layout"]
    for trace in drawn["data"]:
        if "x" in trace:
            trace["x"] = _written(along.places_of(_read(trace["x"])))
    for shape in (*layout.get("shapes", ()), *layout.get("annotations", ())):
        if str(shape.get("xref", "")).startswith("x") and "domain" not in shape["xref"]:
            shape |= {key: float(along.places_of(shape[key])) for key in ("x", "x0", "x1") if key in shape}
    for axis in _horizontal(layout):
        if "range" in axis:
            axis["range"] = along.places_of(axis["range"]).tolist()
        title = axis.get("title", {})
        title["text"] = title.get("text", "").replace(_STEP, along.title)
    layout["uirevision"] = along.title  # what was zoomed along another axis means nothing here
    return json.dumps(drawn)


def _along(wanted: Places, known: Places, values: Places) -> Places:
    """Linear interpolation that goes on beyond both ends with the mean slope."""
    width = known[-1] - known[0]
    slope = (values[-1] - values[0]) / width if width > 0 else 0.0
    inside = np.clip(wanted, known[0], known[-1])
    found: Places = np.interp(inside, known, values) + slope * (wanted - inside)
    return found


def _horizontal(layout: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (axis for name, axis in layout.items() if name.startswith("xaxis"))


def _read(x: Any) -> Places:
    """Numbers of a figure as Plotly writes them: a list, or the bytes of an array."""
    if isinstance(x, dict):
        return np.frombuffer(b64decode(x["bdata"]), x["dtype"]).astype(float)
    return np.array([np.nan if value is None else value for value in x], float)


def _written(x: Places) -> dict[str, str]:
    return {"dtype": "f8", "bdata": b64encode(x.tobytes()).decode()}
