"""Colours and type: one palette for app and figures, in a light and a dark mode.

Roles keep their colour everywhere. The categorical order is Okabe and Ito's, which the common kinds of colour blindness
can tell apart, with a violet for its second blue; grey is the colour of lines that are too many. Severity always comes
with an icon and a word.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ratioscope.analysis.diagnosis import Severity
from ratioscope.catalogue import CATALOGUE

CURRENT, NEW = "#0072B2", "#D55E00"
# Okabe and Ito's two palest colours, darkened until a line of them stands out on white as well (contrast above 3).
AMBER, SKY = "#C58200", "#3A95CB"
VIOLET = "#9030FC"
"""Kept apart from all others by each kind of colour blindness, as a second blue is not."""
OKABE_ITO = (CURRENT, AMBER, "#009E73", "#CC79A7", NEW, VIOLET, "#8C6D1F")

FONT = '"Inter", "Source Sans", system-ui, sans-serif'


@dataclass(frozen=True, eq=False)
class Mode:
    """The colours that differ between light and dark."""

    surface: str
    panel: str
    text: str
    muted: str
    grid: str
    behavior: str
    exact: str
    severity: dict[Severity, str]
    sequential: tuple[str, str]
    """From little to much, standing out from the surface at both ends; so do the next two."""
    share: tuple[str, str, str]
    """Of 0, a half and all."""
    density: tuple[str, str, str, str]
    """On a logarithmic axis, from the rarest to the most frequent."""


LIGHT = Mode(
    surface="#FFFFFF",
    panel="#F6F7F9",
    text="#1B1F24",
    muted="#5B6470",
    grid="#E6E9ED",
    behavior="#6E7781",
    exact="#000000",
    severity={Severity.NOTICE: "#086BA3", Severity.WARNING: "#965800", Severity.CRITICAL: "#B93C0B"},
    sequential=("#8CC1E3", "#08306B"),
    share=("#DCEBF7", "#5BA3D0", "#0A2E63"),
    density=("#8FBBDD", "#2F7FBA", "#0B4A85", "#061C3A"),
)
DARK = Mode(
    surface="#0F1216",
    panel="#171C22",
    text="#E6E9ED",
    muted="#9AA4AF",
    grid="#262D36",
    behavior="#9AA4AF",
    exact="#FFFFFF",
    severity={Severity.NOTICE: "#56B4E9", Severity.WARNING: "#F0B429", Severity.CRITICAL: "#FF7A45"},
    sequential=("#35638F", "#FFE9A8"),
    share=("#1B2F55", "#7C7B78", "#FEE838"),
    density=("#27548A", "#2E96D3", "#8FD3F4", "#FFF6D6"),
)
MODES = {"light": LIGHT, "dark": DARK}
DARK_ACCENT = "#4AA8DC"
"""The current policy's blue, bright enough for links on dark."""


def _roles(mode: Mode) -> list[str]:
    """The colours of a mode, each role at its place."""
    colours: list[str] = []
    for value in vars(mode).values():
        colours += [value] if isinstance(value, str) else value.values() if isinstance(value, dict) else value
    return colours


_IN_DARK = dict(zip(_roles(LIGHT), _roles(DARK), strict=True))
assert len(_IN_DARK) == len(_roles(LIGHT)), "a light colour with two roles has no one dark counterpart"
_RGBA = re.compile(r"rgba\((\d+),(\d+),(\d+),(0\.\d+)\)")


def rgba(colour: str, alpha: float) -> str:
    """A colour that lets through what is behind it."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def in_dark(colour: str) -> str:
    """What a colour of a light figure is in dark mode: itself, unless it belongs to the mode."""
    found = _RGBA.fullmatch(colour)
    if found is None:
        return _IN_DARK.get(colour, colour)
    solid = "#" + "".join(f"{int(part):02X}" for part in found.groups()[:3])
    return rgba(_IN_DARK[solid], float(found[4])) if solid in _IN_DARK else colour


_LEAST_CONTRAST = 4.5
"""Of text and what is behind it, as WCAG 2 asks of letters of this size."""


def as_text(colour: str, mode: Mode) -> str:
    """A colour that words can be read in: as much nearer to the mode's text as its contrast takes."""
    ends = [[int(each[place : place + 2], 16) for place in (1, 3, 5)] for each in (colour, mode.text)]
    for share in range(0, 101, 5):
        red, green, blue = (round(one + (other - one) * share / 100) for one, other in zip(*ends, strict=True))
        found = f"#{red:02X}{green:02X}{blue:02X}"
        if contrast(found, mode.surface) >= _LEAST_CONTRAST:
            return found
    return mode.text


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, from 1 to 21 (WCAG 2)."""
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


SEVERITY_ICON = {
    Severity.NOTICE: ":material/info:",
    Severity.WARNING: ":material/warning:",
    Severity.CRITICAL: ":material/error:",
}

SEVERITY_COLOUR = {
    Severity.NONE: "green", Severity.NOTICE: "blue", Severity.WARNING: "orange", Severity.CRITICAL: "red"
}  # fmt: skip
"""By Streamlit's name of it, which has a shade for either mode; always beside an icon and a word."""

# Lines of metrics, by the colour that a catalogue entry names: where a metric is about one policy pair, it has that
# pair's colour.
PALETTE = {
    "blue": CURRENT,
    "vermilion": NEW,
    "violet": VIOLET,
    "sky": SKY,
    "amber": AMBER,
    "green": "#009E73",
    "purple": "#CC79A7",
}


def metric_colour(key: str) -> str:
    """The colour of a metric's line."""
    return PALETTE[CATALOGUE[key].colour]


# Each algorithm's place in the palette: those that are compared most often come first and share no colour.
ALGORITHMS = (
    "reinforce", "grpo", "rec_oneside_is", "rec_oneside_nois", "rec_twoside_nois", "rec_ring_nois", "adaptive_clip",
    "incremental_clip", "vanilla_pg", "a2c", "trpo", "ppo", "ppo_kl", "dr_grpo", "dapo", "gspo", "sapo", "cispo",
    "gmpo", "rec_twoside_is", "rec_ring_is", "opmd", "asymre", "pairwise_reinforce", "red_drop", "red_weight",
    "surrogate_pairs", "token_tis", "seq_is", "seq_tis", "seq_mis", "vespo", "a3c", "grpo_dual_clip", "dppo_tv",
    "dppo_kl", "prime_rl", "prime_rl_ipo", "opsm", "reject_k3", "m2po", "topr", "snis", "decoupled_tis",
    "decoupled_seq_tis", "icepop", "seq_mask", "geo_mask", "clip_cov", "kl_cov", "top_entropy", "rloo",
    "reinforce_plus_plus", "gpg", "optimal_token_baseline", "overlong_filter", "opmd_token", "opmd_log_z",
    "remax",
)  # fmt: skip


def algorithm_colours(names: Sequence[str]) -> dict[str, str]:
    """The colour of each algorithm; where two of these share one, the later takes what is left over."""
    order = [*ALGORITHMS, *sorted(set(names) - set(ALGORITHMS))]
    colours: dict[str, str] = {}
    for name in sorted(set(names), key=order.index):
        start = order.index(name)
        choices = [OKABE_ITO[(start + step) % len(OKABE_ITO)] for step in range(len(OKABE_ITO))]
        colours[name] = next((colour for colour in choices if colour not in colours.values()), choices[0])
    return colours


def streamlit_options() -> dict[str, object]:
    """Theme options for the server: both modes, so that the browser's preference decides."""
    shared: dict[str, object] = {
        "font": "sans-serif",
        "baseRadius": "0.4rem",
        "showWidgetBorder": True,
    }
    options: dict[str, object] = {
        "theme.chartCategoricalColors": list(OKABE_ITO),
        "theme.baseFontSize": 15,
        "theme.headingFontSizes": ["1.7rem", "1rem", "0.95rem", "0.95rem", "0.95rem", "0.95rem"],
        "theme.headingFontWeights": [650, 600, 600, 600, 600, 600],
        "theme.metricValueFontSize": "1.55rem",
        "theme.metricValueFontWeight": 550,
        "theme.paddingTop": "1rem",
        "theme.paddingBottom": "3rem",
    }
    for name, mode in MODES.items():
        accent = DARK_ACCENT if mode is DARK else CURRENT
        colours = {
            "backgroundColor": mode.surface,
            "secondaryBackgroundColor": mode.panel,
            "textColor": mode.text,
            "borderColor": mode.grid,
            "primaryColor": accent,
            "linkColor": accent,
        }
        options |= {f"theme.{name}.{key}": value for key, value in {**shared, **colours}.items()}
        options |= {f"theme.{name}.sidebar.backgroundColor": mode.panel}
    return options
