"""The report as one HTML file: works offline, uses no network, holds its figures and their numbers.

Numbers of the step summary are `<data value=… data-run=… data-key=… data-step=…>`; figures and their CSV are JSON in
the gzipped script element `figures`. Everything from a log is escaped, and a content security policy forbids what is
not inline.
"""

import json
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Literal

import plotly
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from latex2mathml.converter import convert
from markupsafe import Markup

from ratioscope.analysis.diagnosis import RULES
from ratioscope.dashboard import theme
from ratioscope.dashboard.formats import quote
from ratioscope.dashboard.report.figures import csv_text, drawn_figure, packed_text
from ratioscope.dashboard.sections.model import (
    Cell,
    Chart,
    FindingBlock,
    Paragraph,
    Quantity,
    Report,
    Table,
    cell_text,
)
from ratioscope.inert import safe, safe_values
from ratioscope.sources import titled

_HERE = Path(__file__).parent
_PLOTLY = Path(plotly.__file__).with_name("package_data") / "plotly.min.js"
# In letters: what the narrowest column of a table still holds.
_LONGEST_WORD = 24


def html(report: Report) -> str:
    """The file's text; the same report gives the same text."""
    figures = {chart.key: drawn_figure(chart) | {"csv": csv_text(chart.data)} for chart in report.charts}
    text = _environment().get_template("report.html.j2").render(
        report=report,
        groups=list(dict.fromkeys(section.group for section in report.sections)),
        style=Markup(_text("report.css")),
        script=Markup(_text("report.js")),
        modes=theme.MODES,
        rules=RULES,
        accents={"light": theme.CURRENT, "dark": theme.DARK_ACCENT},
        plotly=_packed_plotly(),
        figures=packed_text(json.dumps(safe_values(figures), separators=(",", ":"), sort_keys=True).encode()),
    )  # fmt: skip
    return safe(text)


@cache
def _packed_plotly() -> str:
    return packed_text(_PLOTLY.read_bytes())


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    kinds = {"figure": Chart, "finding": FindingBlock, "paragraph": Paragraph, "table": Table, "quantity": Quantity}
    environment.tests |= {name: lambda value, kind=kind: isinstance(value, kind) for name, kind in kinds.items()}
    environment.tests |= {"pairs": _pairs, "wordy": _wordy}
    environment.filters |= {"formula": _formula, "exact": _exact, "quote": quote, "titled": titled}
    return environment


def _formula(latex: str, display: Literal["inline", "block"] = "inline") -> Markup:
    """MathML; only formulas of the catalogue come here, never text from a log."""
    return Markup(convert(latex, display=display))


def _pairs(block: object) -> bool:
    """Whether it is a table of names and their values, several of which fit beside each other."""
    return isinstance(block, Table) and len(block.head) == 2


def _wordy(cell: Cell) -> bool:
    """Whether it has a word so long that it must be broken to keep the table on the paper."""
    return any(len(word) > _LONGEST_WORD for word in cell_text(cell).split())


def _exact(value: float) -> str:
    """A number for machines; empty where it is undefined."""
    return repr(value) if isfinite(value) else "" if value != value else ("inf" if value > 0 else "-inf")
