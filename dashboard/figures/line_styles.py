"""Which line is which: colour, dash and marker by what settings differ in; no two looks are the same."""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from ratioscope.analysis.compare.curves import NOTHING, attribute
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.dashboard import theme

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = (
    "", "circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down", "pentagon", "hourglass",
)  # fmt: skip
"""The first is none; the others come when colours and dashes have run out."""


class Style(NamedTuple):
    """How a line is drawn: its colour, its dash, and the marker on it or ""."""

    colour: str
    dash: str
    symbol: str


def styles(settings: Sequence[Setting], colour: str = "variant", dash: str = "variant") -> list[Style]:
    """A style for each setting: a colour for each value of one attribute, a dash for each value of the other.

    Values beyond the palette take its colours again and beyond the dashes their dashes; what would then look like
    another line gets a marker. Settings with the same values of both look the same: they are not told apart.
    """
    hues, dashes = [attribute(s, colour) for s in settings], [attribute(s, dash) for s in settings]
    palette = _palette(settings, colour)
    # A variant is one of an algorithm: its dash tells it from the others of that algorithm.
    owners = [s.algorithm if dash == "variant" else "" for s in settings]
    known: dict[str, dict[str, int]] = {}
    for owner, value in zip(owners, dashes, strict=True):
        known.setdefault(owner, {}).setdefault(value, len(known[owner]))
    looks: dict[tuple[str, str], Style] = {}
    used: Counter[tuple[str, str]] = Counter()
    for hue, owner, value in zip(hues, owners, dashes, strict=True):
        if (hue, value) not in looks:
            look = palette[hue], DASHES[known[owner][value] % len(DASHES)]
            looks[hue, value] = Style(*look, SYMBOLS[used[look] % len(SYMBOLS)])
            used[look] += 1
    return [looks[pair] for pair in zip(hues, dashes, strict=True)]


def legend_names(settings: Sequence[Setting], colour: str = "variant", dash: str = "variant") -> list[str]:
    """What the legend calls each setting: its values of the attributes that its style shows."""
    keys = [key for key in dict.fromkeys((colour, dash)) if key != NOTHING]
    if "variant" in keys and "algorithm" in keys:
        keys.remove("algorithm")  # the variant begins with it
    return [", ".join(_words(setting, key) for key in keys) or "all settings" for setting in settings]


def _words(setting: Setting, key: str) -> str:
    value = attribute(setting, key)
    return f"{key.rpartition('.')[2]} {value}" if "." in key else value


def _palette(settings: Sequence[Setting], key: str) -> dict[str, str]:
    """A colour for each value, as long as there are some: an algorithm, or the first of its variants, has its own."""
    of = {attribute(setting, key): setting.algorithm for setting in settings}
    own = theme.algorithm_colours([*of.values()]) if key in ("algorithm", "variant") else {}
    palette: dict[str, str] = {}
    for value, algorithm in of.items():
        if own.get(algorithm) not in (None, *palette.values()):
            palette[value] = own[algorithm]
    left = cycle([colour for colour in theme.OKABE_ITO if colour not in palette.values()] or theme.OKABE_ITO)
    return palette | {value: next(left) for value in of if value not in palette}
