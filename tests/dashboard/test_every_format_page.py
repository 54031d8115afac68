"""A folder of any format: nothing calls it broken, every page opens, and what they call "not logged" is not in it."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.writing import Options, import_run
from ratioscope.dashboard.report.build import full_pages, run_report
from ratioscope.dashboard.roots import serve_from
from tests.analysis.importers.test_every_format import SOURCES
from tests.making.pages import RUN_PAGES, sentences, visit

NAMES = tuple(SOURCES)
_PART = 4
"""A page takes a second: of the app each source has every fourth page, and neighbours in the list other ones."""
_ABSENT = re.compile(r"(?:[Nn]either )?(`?[a-z_]+`?(?:,? (?:n?or|and) `?[a-z_]+`?)*) (?:is|are) not logged")
_NOT_SO = re.compile(
    r"\b1 (?:steps|metrics|groups|rewards|tokens|evaluations)\b|\beach of the 1 |\bLogp_|\b1 are |\bnan\b"
)


@pytest.mark.parametrize("name", NAMES)
def test_every_page_opens_and_says_nothing_untrue(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    import_run(the_source(SOURCES[name](tmp_path / "theirs")), tmp_path / "runs" / "run", Options(unpickle=True))
    logged = set(_logged(tmp_path / "runs" / "run"))
    opened = open_folder(tmp_path / "runs" / "run")  # what was written is sound, so nothing may call it broken
    judged = [finding for finding in opened.findings if finding.rule != "nothing_to_judge"]
    assert [each for each in (*judged, *opened.remarks) if each.severity == Severity.CRITICAL] == []
    said = [
        *_texts(asdict(run_report(opened, pages=full_pages([opened])))),
        *(each.sentence for each in opened.remarks),
    ]
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([tmp_path / "runs"])
    for page in RUN_PAGES[NAMES.index(name) % _PART :: _PART]:
        said += sentences(visit(page, run="run")).splitlines()
    wrong = {line for line in said if _NOT_SO.search(line) or logged & set(_said_absent(line))}
    assert not wrong


def _logged(run: Path) -> Iterator[str]:
    """Names of columns with a value."""
    for table in ("tokens", "sequences", "steps"):
        if (run / table).is_dir():
            found = ds.dataset(run / table).to_table()
            yield from (name for name in found.column_names if found[name].null_count < len(found))


def _said_absent(line: str) -> list[str]:
    return [word for match in _ABSENT.finditer(line) for word in re.findall(r"[a-z_]+", match[1])]


def _texts(value: Any) -> Iterator[str]:
    """All texts of a report but its figures' and definitions'."""
    if isinstance(value, dict):
        value = [part for key, part in value.items() if key not in ("figure", "methods", "sources", "data")]
    if isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value
