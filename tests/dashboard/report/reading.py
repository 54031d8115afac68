"""Reads a written report back, as a program would that has only the file."""

import gzip
import io
import json
from base64 import b64decode
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pandas as pd


@dataclass
class Page(HTMLParser):
    """An HTML report: its elements, its text, its numbers."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: str = ""
    numbers: list[tuple[str, str, int, float]] = field(default_factory=list)
    """Run, key, step and value of every number of the step summary."""
    packed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        self._inside = given.get("id", tag) if tag == "script" else tag
        if tag == "data":
            value = float(given["value"] or "nan")
            self.numbers.append((given["data-run"], given["data-key"], int(given["data-step"]), value))

    def handle_data(self, data: str) -> None:
        if self._inside in ("plotly", "figures"):
            self.packed[self._inside] = self.packed.get(self._inside, "") + data
        elif self._inside not in ("script", "style"):
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    @property
    def figures(self) -> dict[str, Any]:
        """Every figure by its key, with its CSV."""
        return json.loads(gzip.decompress(b64decode(self.packed["figures"])))

    def table(self, key: str) -> pd.DataFrame:
        """The numbers behind a figure."""
        return pd.read_csv(io.StringIO(self.figures[key]["csv"]))


def read(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    return page
