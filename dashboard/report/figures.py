"""A report's figures as a browser draws them: in light colours, and what has to change in dark ones."""

import gzip
import json
from base64 import b64encode
from typing import Any

import pandas as pd

from dashboard import theme
from dashboard.report.model import Chart, records

Path = list[str | int]


def drawn(chart: Chart) -> dict[str, Any]:
    """A figure of `Plotly.newPlot`, and the values by path that dark colours put into it: numbers are there once."""
    light, dark = (json.loads(chart.draw(mode).to_json()) for mode in (theme.LIGHT, theme.DARK))
    return {"data": light["data"], "layout": light["layout"], "dark": _changes(light, dark, [])}


def csv_text(frame: pd.DataFrame) -> str:
    """The numbers behind a figure in full precision; undefined is empty, infinite is inf."""
    return pd.DataFrame(records(frame)).to_csv(index=False, lineterminator="\n")


def packed(contents: bytes) -> str:
    """Bytes compressed into text, the same for the same input; a browser unpacks them with DecompressionStream."""
    return b64encode(gzip.compress(contents, compresslevel=6, mtime=0)).decode("ascii")


def _changes(light: Any, dark: Any, path: Path) -> list[tuple[Path, Any]]:
    """The leaves in which two figures differ."""
    if type(light) is type(dark):
        if isinstance(light, dict) and light.keys() == dark.keys():
            return [change for key in light for change in _changes(light[key], dark[key], [*path, key])]
        if isinstance(light, list) and len(light) == len(dark) and any(isinstance(part, dict | list) for part in light):
            pairs = enumerate(zip(light, dark, strict=True))
            return [change for place, pair in pairs for change in _changes(*pair, [*path, place])]
    return [] if light == dark else [(path, dark)]
