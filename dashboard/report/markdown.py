"""The report as Markdown, with its figures as images and their numbers as CSV in a folder beside it."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ratioscope.dashboard import theme
from ratioscope.dashboard.formats import escape, quote
from ratioscope.dashboard.report.chromium import required_chromium
from ratioscope.dashboard.report.figures import csv_text
from ratioscope.dashboard.sections.model import Block, Chart, FindingBlock, Paragraph, Report, Table, cell_text
from ratioscope.sources import titled

_WIDTH, _SCALE = 900, 2.0


def markdown(report: Report, folder: str) -> str:
    """The file's text; images and CSV are linked in `folder`."""
    return "\n\n".join(_lines(report, folder)) + "\n"


def images(report: Report) -> dict[str, bytes]:
    """The figures as PNG by their keys, in light colours.

    Raises:
        RatioscopeError: there is no Chromium.
    """
    import kaleido  # here: few starts of the app need what it imports

    # Plotly's own way to images looks the browser up under this name.
    os.environ.setdefault("BROWSER_PATH", required_chromium("Images of the figures"))
    charts = list(report.charts)
    drawn = [json.loads(chart.figure) for chart in charts]
    for figure in drawn:
        figure["layout"]["paper_bgcolor"] = theme.LIGHT.surface
    options = {"format": "png", "width": _WIDTH, "scale": _SCALE}
    with tempfile.TemporaryDirectory(prefix="ratioscope-") as folder:
        files = [Path(folder) / f"{place}.png" for place in range(len(charts))]
        kaleido.write_fig_from_object_sync(
            [
                {"fig": figure, "path": file, "opts": options | {"height": figure["layout"]["height"]}}
                for figure, file in zip(drawn, files, strict=True)
            ],
            kopts={"mathjax": False},  # else it would be asked for on the network
        )
        return {chart.key: file.read_bytes() for chart, file in zip(charts, files, strict=True)}


def tables(report: Report) -> dict[str, str]:
    """The figures' numbers as CSV by their keys."""
    return {chart.key: csv_text(chart.data) for chart in report.charts}


def _text(text: object) -> str:
    """As `escape`, without the escapes that no reader of Markdown needs where the sign stands."""
    line = escape(text)
    line = re.sub(r"(?<!^)\\([(+!{}#-])", r"\1", line)
    line = re.sub(r"(?<=\w)\\_(?=\w)", "_", line)
    line = re.sub(r"\\:(?=\s|$)", ":", line)
    listed = re.match(r"\d{1,9}\\[.)](?=\s|$)", line)  # a number and a dot begin a list
    start = listed.end() if listed else 0
    return line[:start] + re.sub(r"(?<!^)\\([.)])", r"\1", line[start:])


def _lines(report: Report, folder: str) -> Iterator[str]:
    yield f"# {_text(report.title)}"
    yield f"{_text(report.subtitle)}"
    yield "## Verdict"
    for question, sentence in report.verdict:
        yield f"**{_text(question)}** {_text(sentence)}" if question else _text(sentence)
    yield from map(_text, report.remarks)
    for section in report.sections:
        run = f"{_text(section.group)}: " if section.group else ""
        yield f"## {run}{section.title}"
        yield f"*{section.question}*"
        if section.answer:
            yield _text(section.answer)
        for block in section.blocks:
            yield from _block(block, folder)
    if not report.brief:
        yield from _methods(report)
    yield "## Provenance"
    rows = list(report.provenance)
    if report.thresholds and not report.brief:
        rows.append(("Thresholds", ", ".join(f"{name} = {value:g}" for name, value in report.thresholds.items())))
    yield "\n".join(f"- {_text(label)}: {_text(value)}" for label, value in rows)


def _methods(report: Report) -> Iterator[str]:
    yield "## Methods"
    for metric in report.methods:
        unit = f" Unit: {metric.unit}." if metric.unit else ""
        yield (
            f"**{metric.title}** ${metric.symbol}$ (`{metric.key}`): {metric.definition} ${metric.formula}$ "
            f"{metric.reading}{unit} *{titled(metric.source)}.*"
        )
    yield "\n".join(f"- {_text(title)}" for title in report.sources.values())


def _block(block: Block, folder: str) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield f"**{_text(block.lead)}** {_text(block.text)}" if block.lead else _text(block.text)
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, FindingBlock):
        found = block.finding
        yield f"### {found.severity.word.capitalize()}: {_text(found.sentence)}"
        yield "\n".join(f"- {_text(quote(found.metric, number))}" for number in found.numbers)
        if block.told:
            yield "Why, what to change and how sure: in the verdict above."
        else:
            yield f"**Why** {_text(found.why)}"
            yield f"**Do** {_text(found.do)}"
            if found.sure:
                yield f"**How sure** {_text(found.sure)}"
        if block.chart:
            yield from _chart(block.chart, folder)
        yield f"Source: {_text(titled(found.source))}."
    else:
        yield from _chart(block, folder)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"#### {_text(table.title)}"
    head = f"| {' | '.join(map(escape, table.head))} |\n|{' --- |' * len(table.head)}"
    rows = (f"| {' | '.join(_text(cell_text(cell)) for cell in row)} |" for row in table.rows)
    yield "\n".join([head, *rows])
    if table.note:
        yield _text(table.note)


def _chart(chart: Chart, folder: str) -> Iterator[str]:
    yield f"#### {_text(chart.title)}"
    yield f"![{_text(chart.title)}]({folder}/{chart.key}.png)"
    yield f"{_text(chart.takeaway)} ([CSV]({folder}/{chart.key}.csv))"
