"""The notebook of the docs runs, and what is written in it is what comes out.

`python -m tests.test_notebook` runs it and writes its outputs anew, with the figures as images for those who only read.
"""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOK = DOCS / "notebook.ipynb"


def executed() -> Any:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(DOCS)}}).execute()


def said(notebook: Any) -> list[str]:
    """The text outputs, cell by cell; figures are compared by their being there."""
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            drawn = "application/vnd.plotly.v1+json" in data
            texts.append("a figure" if drawn else output.get("text") or data.get("text/plain", ""))
    return texts


def test_the_notebook_says_what_is_written_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype")
    stored = nbformat.read(NOTEBOOK, as_version=4)
    assert said(executed()) == said(stored)
    assert said(stored).count("a figure") == 2


if __name__ == "__main__":
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype+png"
    nbformat.write(executed(), NOTEBOOK)
    sys.exit()
