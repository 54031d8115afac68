"""The report as a PDF on A4: the HTML report, printed by Chromium."""

import re
import tempfile
from pathlib import Path

from ratioscope.dashboard.report.chromium import print_to_pdf, required_chromium
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.sections.model import Report

_DATES = re.compile(rb"(/(?:CreationDate|ModDate) \(D:)\d{14}")


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
        return _DATES.sub(rb"\g<1>20000101000000", printed.read_bytes())
