"""An experiment of the laboratory in the browser: sliders, pictures, numbers and the sentence about them.

experiment(EXPERIMENTS["rare_token"], key="lab", start={"R": 50}, on_values=...)

All is computed there, by the experiment's own function as `analysis.laboratory.javascript` writes it: no drag waits for
the server.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.laboratory.experiment import Experiment
from ratioscope.analysis.laboratory.javascript import PRELUDE, written
from ratioscope.dashboard.theme import PALETTE

_FOLDER = Path(__file__).parent
COLOURS = {**PALETTE, "grey": "#7F7F7F"}


@cache
def script() -> str:
    """What the browser runs: every experiment's function, and what draws."""
    functions = ",\n".join(f"{key}: {written(experiment.compute)}" for key, experiment in EXPERIMENTS.items())
    drawing = (_FOLDER / "experiment.js").read_text(encoding="utf-8")
    return f"{PRELUDE}\nconst COMPUTE = {{\n{functions}\n}}\n{drawing}"


@cache
def _component() -> Callable[..., Any]:
    css = (_FOLDER / "experiment.css").read_text(encoding="utf-8")
    return st.components.v2.component("ratioscope_experiment", html='<div class="lab"></div>', css=css, js=script())


def experiment(
    of: Experiment, *, key: str, start: Mapping[str, float], on_values: Callable[[dict[str, float]], None] | None = None
) -> None:
    """Show an experiment.

    Args:
        key: of the widget.
        start: values of the sliders at first, where they are not the source's.
        on_values: is called with all values a moment after a slider was let go.
    """

    def report() -> None:
        values = st.session_state.get(key, {}).get("values")  # it can report after its page was left
        if on_values is not None and isinstance(values, dict):
            known = {slider.key: slider for slider in of.sliders}
            on_values({name: float(value) for name, value in values.items()
                       if name in known and isinstance(value, int | float)})  # fmt: skip

    data = _drawn(of, start) | {
        "claim": of.claim,
        "numbers": [asdict(number) for number in of.numbers],
        "question": asdict(of.question),
        "tries": {words: dict(values) for words, values in of.tries.items()},
    }
    _component()(key=key, data=data, on_values_change=report)


def preview(of: Experiment, *, key: str) -> None:
    """Show the first picture of an experiment at the source's numbers, small and without words."""
    _component()(key=key, data=_drawn(of, {}) | {"small": True})


def _drawn(of: Experiment, start: Mapping[str, float]) -> dict[str, Any]:
    return {
        "key": of.key,
        "sliders": [asdict(slider) | {"stops": slider.stops} for slider in of.sliders],
        "start": {**of.paper, **start},
        "pictures": [asdict(picture) for picture in of.pictures],
        "colours": COLOURS,
    }
