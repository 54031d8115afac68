"""What an experiment of the laboratory is: a claim, sliders, one function of them, and how its values are drawn.

The function is the only definition. It is written in the part of Python that `javascript` can write as JavaScript, so
that a page answers while a slider is dragged and says the same as `ratioscope lab` and the tests.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ratioscope.errors import RatioscopeError

Values = dict[str, Any]
"""What an experiment's function returns, by name: a number, a sentence, or the numbers of a curve."""

Colour = Literal["blue", "vermilion", "violet", "sky", "amber", "green", "purple", "grey"]
"""A curve's is that of its symbol in the formula."""

_POSITIONS = 200


@dataclass(frozen=True)
class Slider:
    """One argument of the function."""

    key: str
    """The argument."""
    symbol: str
    """As the formula has it, in plain signs."""
    words: str
    low: float
    high: float
    paper: float
    """The source's number, to which "reset" returns."""
    log: bool = False
    whole: bool = False
    step: float = 0
    """Between positions; 0: as many as fit."""
    options: tuple[str, ...] = ()
    """Words to choose from instead of numbers; the function gets the place in them."""
    plays: bool = False
    """Whether it can be moved from its lowest to its highest position like a film."""
    folded: bool = False
    """Whether it is behind a fold: it matters less, or a dot in a picture is dragged instead."""

    @property
    def stops(self) -> list[float]:
        """The positions, ascending; the source's number is one."""
        if self.options:
            return [float(place) for place in range(len(self.options))]
        if self.log:
            span = math.log(self.high / self.low)
            found = [self.low * math.exp(span * place / _POSITIONS) for place in range(_POSITIONS + 1)]
        else:
            step = self.step or (self.high - self.low) / _POSITIONS
            count = round((self.high - self.low) / step)
            found = [self.low + step * place for place in range(count + 1)]
        found = [float(round(stop)) if self.whole else float(f"{stop:.6g}") for stop in found]
        found[min(range(len(found)), key=lambda place: abs(found[place] - self.paper))] = float(self.paper)
        return sorted({*found})


@dataclass(frozen=True)
class Meter:
    """A value that is shown as a number."""

    key: str
    words: str
    colour: Colour | Literal[""] = ""
    percent: bool = False
    undefined: bool = False
    """Whether it may be undefined, not a number."""


@dataclass(frozen=True)
class Ruler:
    """An axis; where an end is None it follows the values, where it is a name it is the value of that name."""

    title: str
    low: float | str | None = None
    high: float | str | None = None
    log: bool = False


@dataclass(frozen=True)
class Layer:
    """What is drawn of some values of the function.

    line, dots and bars have x and y, arrows where each begins and ends in turn, a band and upright spans x, y and the
    other edge, an area the corners x and y of what is filled. A rule is one number, x upright or y level. A map has the
    values of its cells row by row from the lowest y, over the whole frame. Empty lists draw nothing.
    """

    kind: Literal["line", "dots", "arrows", "band", "spans", "area", "bars", "rule", "map"]
    name: str
    """In the legend; "": not there."""
    x: str = ""
    y: str = ""
    other: str = ""
    """Of a band and of spans: the other edge. Of a map: the number of its columns."""
    colour: Colour = "blue"
    dashed: bool = False
    labels: str = ""
    """Of dots: the words beside each."""
    moves: tuple[str, str] = ("", "")
    """Of dots: the sliders that follow x and y when the dot is dragged, in a simplex the shares of its second and
    third corner; "": none."""
    strong: bool = False
    """Of an area: whether it stands out against others."""
    centre: float | None = None
    """Of a map: the value without a colour; None: a scale from its least to its largest value."""


@dataclass(frozen=True)
class Picture:
    """One frame with its marks."""

    title: str
    x: Ruler
    y: Ruler
    marks: tuple[Layer, ...]
    corners: tuple[str, ...] = ()
    """Names of the corners (0, 0), (1, 0), (½, √¾) of a simplex, which is drawn instead of axes."""


@dataclass(frozen=True)
class Guess:
    """To guess before moving."""

    words: str
    answers: tuple[str, ...]
    right: int
    """Its place in the answers; a test computes it."""
    because: str


@dataclass(frozen=True)
class Experiment:
    """One screen of the laboratory."""

    key: str
    """Its name in commands and addresses; that of its module."""
    claim: str
    """The title: a statement."""
    source: str
    """Where the theory stands: seed and section."""
    prose: str
    """At most five lines."""
    formula: str
    """LaTeX; a symbol has the colour of its curve."""
    compute: Callable[..., Values]
    """Of the sliders' values; `says` in what it returns is the sentence about them."""
    sliders: tuple[Slider, ...]
    numbers: tuple[Meter, ...]
    pictures: tuple[Picture, ...]
    question: Guess
    tries: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Other settings worth a look, by what they show."""

    @property
    def paper(self) -> dict[str, float]:
        """The source's numbers."""
        return {slider.key: float(slider.paper) for slider in self.sliders}

    def at(self, **values: float) -> Values:
        """Compute it at some values, the source's where none is given.

        Raises:
            RatioscopeError: a name is no slider's, or a value is outside of its slider.
        """
        sliders = {slider.key: slider for slider in self.sliders}
        for name, value in values.items():
            if name not in sliders:
                raise RatioscopeError(f"{self.key} has no number {name!r}. It has: {', '.join(sliders)}.")
            slider = sliders[name]
            low, high = slider.stops[0], slider.stops[-1]
            if not low <= value <= high:
                raise RatioscopeError(f"{name} of {self.key} is {value:g}; it must be from {low:g} to {high:g}.")
            if (slider.whole or slider.options) and value != int(value):
                raise RatioscopeError(f"{name} of {self.key} is {value:g}; it must be a whole number.")
        return self.compute(**(self.paper | {name: float(value) for name, value in values.items()}))
