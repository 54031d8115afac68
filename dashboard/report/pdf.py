"""The report as a PDF on A4: the HTML report, printed by Chromium."""

import re
import tempfile
from pathlib import Path

from ratioscope.dashboard.report.chromium import print_to_pdf, required_chromium
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.sections.model import Report

_DATES = re.compile(rb"(/(?:CreationDate|ModDate) \(D:)\d{14}")
_NODES = re.compile(rb"\(node(\d{8})\)")


def pdf(report: Report) -> bytes:
    """The file's bytes; the same report printed by the same Chromium gives the same bytes.

    Raises:
        RatioscopeError: there is no Chromium, or it fails.
    """
    required_chromium("A PDF")  # before the work
    with tempfile.TemporaryDirectory(prefix="ratioscope-") as folder:
        page, printed = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_text(html(report), encoding="utf-8", errors="backslashreplace")
        print_to_pdf(page, printed)
        # The time of printing is no part of the report.
        return _numbered(_DATES.sub(rb"\g<1>20000101000000", printed.read_bytes()))


def _numbered(printed: bytes) -> bytes:
    """Chromium names the nodes of the outline by a counter that other work of it moves: here from 0, in its order."""
    ranks = {number: rank for rank, number in enumerate(sorted(set(_NODES.findall(printed))))}
    return _NODES.sub(lambda found: b"(node%08d)" % ranks[found[1]], printed)
