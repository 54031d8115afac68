"""Writes a report to a file in the format that its name says, whole or not at all."""

import io
import shutil
import zipfile
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.report.json_report import json_text
from ratioscope.dashboard.report.markdown import images, markdown, tables
from ratioscope.dashboard.report.pdf import pdf
from ratioscope.dashboard.report.target import check_target, check_target_folder
from ratioscope.dashboard.sections.model import Report, records
from ratioscope.storage.whole_files import replace_atomically


def contents(report: Report, kind: str) -> bytes:
    """A report as one file; Markdown with its folder as a ZIP archive.

    Args:
        kind: one of `FORMATS`.

    Raises:
        RatioscopeError: it needs a Chromium that is not there.
    """
    if kind == ".pdf":
        return pdf(report)
    if kind != ".md":
        return _encoded(html(report) if kind == ".html" else json_text(report))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as folded:
        for name, part in _markdown_files(report, "report.md", "report_files").items():
            folded.writestr(zipfile.ZipInfo(name), part)  # which has a date of its own, always the same
    return archive.getvalue()


def write(report: Report, path: Path) -> list[Path]:
    """Write the report; a file of that name is replaced. Returns what was written: the file, or file and folder.

    Raises:
        RatioscopeError: it cannot be written there (`check_target`), or needs a Chromium that is not there.
    """
    check_target(path)
    kind = path.suffix.lower()
    if kind != ".md":
        replace_atomically(path, contents(report, kind))
        return [path]
    folder = path.with_name(f"{path.stem}_files")
    files = _markdown_files(report, path.name, folder.name)
    anew = not folder.exists()
    folder.mkdir(exist_ok=True)
    check_target_folder(folder)
    try:
        for name, part in reversed(files.items()):  # images and tables first, then the text that links them
            replace_atomically(path.parent / name, part)
    except BaseException:
        if anew:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return [path, folder]


def write_data(report: Report, folder: Path) -> None:
    """Write the numbers behind every figure as CSV and as Parquet, each file named by its figure.

    Raises:
        RatioscopeError: nothing may be written there (`check_target_folder`).
    """
    check_target_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    check_target_folder(folder)
    for key, text in tables(report).items():
        replace_atomically(folder / f"{key}.csv", text.encode())
    for chart in report.charts:
        replace_atomically(folder / f"{chart.key}.parquet", pd.DataFrame(records(chart.data)).to_parquet(index=False))


def _markdown_files(report: Report, name: str, folder: str) -> dict[str, bytes]:
    """The text, and what lies in its folder, by their names."""
    files = {name: _encoded(markdown(report, quote(folder)))}
    files |= {f"{folder}/{key}.png": image for key, image in images(report).items()}
    return files | {f"{folder}/{key}.csv": text.encode() for key, text in tables(report).items()}


def _encoded(text: str) -> bytes:
    """As UTF-8; what a folder's name has in it that is no text is written as its number."""
    return text.encode("utf-8", "backslashreplace")
