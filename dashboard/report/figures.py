"""A report's figures as a browser draws them: in light colours, and what has to change in dark ones."""

import gzip
import io
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from ratioscope.dashboard import theme
from ratioscope.dashboard.sections.model import Chart, chart_numbers


def drawn_figure(chart: Chart) -> dict[str, Any]:
    """A figure of `Plotly.newPlot`, and the values by path that dark colours put into it: numbers are there once."""
    light = json.loads(chart.figure)
    return {"data": light["data"], "layout": light["layout"], "dark": list(dark_changes(light))}


def in_dark(figure: dict[str, Any]) -> dict[str, Any]:
    """A light figure with dark colours."""
    for (*way, last), value in list(dark_changes(figure)):
        part: Any = figure
        for key in way:
            part = part[key]
        part[last] = value
    return figure


def csv_text(frame: pd.DataFrame) -> str:
    """The numbers behind a figure in full precision; undefined is empty, infinite is inf."""
    text, table = io.BytesIO(), chart_numbers(frame)
    # The shortest text of a float32 is another number to those who read it as double.
    table = table.astype(dict.fromkeys(table.select_dtypes("float32"), "float64"))
    pyarrow.csv.write_csv(pa.Table.from_pandas(table, preserve_index=False), text)
    return text.getvalue().decode()


def packed_text(contents: bytes) -> str:
    """Bytes compressed into text, the same for the same input; a browser unpacks them with DecompressionStream."""
    return b64encode(gzip.compress(contents, compresslevel=4, mtime=0)).decode("ascii")


def dark_changes(part: Any, path: Sequence[str | int] = ()) -> Iterator[tuple[list[str | int], Any]]:
    """The values of a light figure that differ in dark mode, by their paths; of a list of colours, the list."""
    if isinstance(part, dict):
        for key, value in part.items():
            yield from dark_changes(value, [*path, key])
    elif isinstance(part, list) and any(isinstance(value, dict | list) for value in part):
        for place, value in enumerate(part):
            yield from dark_changes(value, [*path, place])
    else:
        dark = [_in_dark(value) for value in part] if isinstance(part, list) else _in_dark(part)
        if dark != part:
            yield list(path), dark


def _in_dark(value: Any) -> Any:
    return theme.in_dark(value) if isinstance(value, str) else value
