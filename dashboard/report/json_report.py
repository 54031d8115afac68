"""The report as JSON, for programs; `report.schema.json` beside this file is its schema."""

import json
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from ratioscope.analysis.findings.plain import json_value
from ratioscope.dashboard.evidence import with_page
from ratioscope.dashboard.sections.model import (
    REPORT_VERSION,
    Block,
    Chart,
    FindingBlock,
    Paragraph,
    Quantity,
    Report,
    Table,
    records,
)
from ratioscope.inert import safe_values

SCHEMA = Path(__file__).with_name("report.schema.json")


def json_text(report: Report) -> str:
    """The file's text; the same report gives the same text. Undefined is null, infinite is "inf" or "-inf"."""
    contents = {
        "report_version": REPORT_VERSION,
        "kind": report.kind,
        "title": report.title,
        "subtitle": report.subtitle,
        "verdict": [{"question": question, "answer": sentence} for question, sentence in report.verdict],
        "lights": [light.to_json() for light in report.lights],
        "remarks": list(report.remarks),
        "sections": [
            {
                "key": section.key,
                "run": section.group,
                "title": section.title,
                "question": section.question,
                "answer": section.answer,
                "blocks": [_block(block) for block in section.blocks],
            }
            for section in report.sections
        ],
        "methods": [
            {"key": metric.key, "title": metric.title, "symbol": metric.symbol, "formula": metric.formula,
             "definition": metric.definition, "unit": metric.unit, "source": metric.source}
            for metric in report.methods
        ],
        "sources": dict(report.sources),
        "thresholds": dict(report.thresholds),
        "provenance": [{"label": label, "value": value} for label, value in report.provenance],
    }  # fmt: skip
    return json.dumps(safe_values(contents), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _block(block: Block) -> dict[str, Any]:
    if isinstance(block, Paragraph):
        return {"type": "text", "text": f"{block.lead} {block.text}".strip()}
    if isinstance(block, Table):
        rows = [[_cell(cell) for cell in row] for row in block.rows]
        return {"type": "table", "title": block.title, "head": list(block.head), "rows": rows, "note": block.note}
    if isinstance(block, FindingBlock):
        return {"type": "finding", **with_page(block.finding), "figure": block.chart and _chart(block.chart)}
    return {"type": "figure", **_chart(block)}


def _chart(chart: Chart) -> dict[str, Any]:
    data = {name: [_value(value) for value in values] for name, values in records(chart.data).items()}
    return {"key": chart.key, "title": chart.title, "takeaway": chart.takeaway, "metrics": list(chart.metrics),
            "data": data}  # fmt: skip


def _cell(cell: str | Quantity) -> Any:
    if isinstance(cell, Quantity):
        return {"run": cell.run, "key": cell.key, "step": cell.step, "value": _value(cell.value), "text": cell.text}
    return cell


def _value(value: Any) -> Any:
    """A value of a frame: numbers stay numbers, everything else that JSON does not know is text."""
    if isinstance(value, float):
        return json_value(value) if isfinite(value) or isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | str):
        return value
    return None if value != value or str(value) in ("<NA>", "NaT") else str(value)
