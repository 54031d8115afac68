"""Settings of an experiment at which it is tried: the source's, the named ones, the ends, and some between."""

import random
from collections.abc import Iterator

from ratioscope.analysis.laboratory.experiment import Experiment


def settings(of: Experiment, between: int = 12) -> Iterator[dict[str, float]]:
    """Values of all sliders."""
    yield of.paper
    for tried in of.tries.values():
        yield of.paper | tried
    for slider in of.sliders:
        for end in (slider.stops[0], slider.stops[-1]):
            yield of.paper | {slider.key: end}
    draw = random.Random(of.key)
    for _ in range(between):
        yield {slider.key: draw.choice(slider.stops) for slider in of.sliders}
