"""What pages and reports say, before anything is drawn: sections of text, tables, figures and findings; a report.

All text is plain, as it came from the analysis or from a log; the page and each writer of reports escape it in their
own way. Every number of the step summary is a `Quantity`: a writer prints its text and keeps metric, step and full
precision beside it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.overview.lights import Light
from ratioscope.metric import Metric

REPORT_VERSION = "1.2"
"""Of the JSON report's schema; a reader of 1.x reads every 1.y."""


@dataclass(frozen=True)
class Quantity:
    """A number of the step summary of a run as the report writes it."""

    run: str
    key: str
    """Of the catalogue or of the counts."""
    step: int
    value: float
    """NaN where it is undefined."""
    text: str


Cell = str | Quantity


@dataclass(frozen=True)
class Paragraph:
    """Some sentences."""

    text: str
    lead: str = ""
    """The words that it begins with, which stand out."""
    small: bool = False
    """Whether it is a remark beside the point."""


@dataclass(frozen=True)
class Table:
    """Rows under a head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    help: Mapping[str, str] = field(default_factory=dict)
    """What a column holds, by its head; said where a reader can ask for it."""
    sentences: bool = False
    """Whether cells are sentences, which a page breaks into lines; such a table has no `help`."""


@dataclass(frozen=True)
class Chart:
    """A figure with what it says in words and the numbers behind it."""

    key: str
    """Unique on its page and in the report; names its files."""
    title: str
    figure: str
    """JSON of Plotly. A report's is in light colours; the dark ones follow from it (`report.figures.dark_changes`)."""
    takeaway: str
    """From the data; caption, and alternative text for screen readers."""
    data: pd.DataFrame
    metrics: tuple[str, ...] = ()
    """Keys of the catalogue whose definitions belong to it."""
    by_step: bool = False
    """Whether the x axis is the step: on a page such a figure can be brushed, and its steps clicked."""
    symbol: str = ""
    """LaTeX that a page writes behind the title."""


@dataclass(frozen=True)
class FindingBlock:
    """A finding with the figure that shows its evidence."""

    key: str
    """Unique within its report."""
    finding: Finding
    chart: Chart | None
    """None where it is about what is not there."""
    told: bool = False
    """Whether the answers above it have its reason, its remedy and how sure they are, word by word."""


Piece = Paragraph | Table | Chart
Block = Piece | FindingBlock


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    key: str
    title: str
    question: str
    answer: str
    blocks: tuple[Block, ...]
    group: str = ""
    """The run that it is about, where the report is about several."""

    @property
    def charts(self) -> Iterator[Chart]:
        """Its figures, in their order."""
        for block in self.blocks:
            if isinstance(block, Chart):
                yield block
            elif isinstance(block, FindingBlock) and block.chart:
                yield block.chart


@dataclass(frozen=True)
class Report:
    """Everything that a writer needs."""

    kind: str
    """run or comparison."""
    title: str
    subtitle: str
    verdict: tuple[tuple[str, str], ...]
    """The answers, the most important first; the question that each answers, or nothing."""
    sections: tuple[Section, ...]
    methods: tuple[Metric, ...]
    """Every definition that is used, in the catalogue's order."""
    sources: Mapping[str, str]
    """The documents that these name, by their short names."""
    provenance: tuple[tuple[str, str], ...]
    """How the report came about: label and value."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    """What holds for all numbers of it, and is said beside the verdict."""
    lights: tuple[Light, ...] = ()
    """Of one run; in words they are the first of the answers, too."""
    brief: bool = False
    """Whether it is the short form: definitions and limits are then folded away, and not printed."""

    @property
    def charts(self) -> Iterator[Chart]:
        """All figures, in their order."""
        for section in self.sections:
            yield from section.charts


def has_content(block: Block) -> bool:
    """Whether there is anything to show: not of a figure without a number, nor of a table without a row."""
    if isinstance(block, Table):
        return bool(block.rows)
    if not isinstance(block, Chart):
        return True
    keys = [key for key in block.metrics if key in block.data]
    numbers_of = block.data if keys else block.data.select_dtypes("number").drop(columns="step", errors="ignore")
    return any(numbers_of[key].notna().any() for key in keys or numbers_of)


def cell_text(cell: Cell) -> str:
    """What is printed for a cell."""
    return cell.text if isinstance(cell, Quantity) else cell


def chart_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """A chart's numbers with the index, where it says something, as the first column."""
    return frame.reset_index() if frame.index.name or not isinstance(frame.index, pd.RangeIndex) else frame


def records(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """A chart's numbers as columns; undefined and infinite are left to the writer."""
    table = chart_numbers(frame)
    return {str(name): table[name].tolist() for name in table.columns}
