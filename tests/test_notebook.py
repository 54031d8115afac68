"""The notebooks of the docs run, and what is written in them is what comes out.

`python -m tests.test_notebook` runs them and writes their outputs anew, with figures as images for those who only read.
"""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = {DOCS / "notebook.ipynb": 2, DOCS / "laboratory.ipynb": 1}
"""With the number of their figures."""


def executed(path: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_is_written_in_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype")
    stored = nbformat.read(path, as_version=4)
    assert said(executed(path)) == said(stored)
    assert said(stored).count("a figure") == NOTEBOOKS[path]


if __name__ == "__main__":
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype+png"
    for each in NOTEBOOKS:
        nbformat.write(executed(each), each)
    sys.exit()
