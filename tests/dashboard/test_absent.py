"""Runs of other frameworks lack columns: every page and report shows what there is, and says once what there is not."""

import re
from collections import Counter
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.report.build import full_pages, run_report
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.report.json_report import json_text
from ratioscope.dashboard.report.markdown import markdown
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import SECTIONS
from ratioscope.dashboard.sections.model import Chart, Paragraph, Table, cell_text, has_content
from tests.making.pages import RUN_PAGES, charts, drawn_numbers, sentences, visit
from tests.making.sources import HOSTILE, SOURCES, write_source

# What each source leaves open: pages that have nothing, and words of what others do not say.
EMPTY = {
    "ratios": (),
    "groups": (),
    "behavior": ("drift", "ratios", "clipping", "variance"),
    "current": ("drift", "ratios", "clipping", "variance", "staleness"),
    "recomputed": (),
    "texts": ("drift", "ratios", "clipping", "variance", "staleness"),
}
# With groups a log says the same but for its intervals; what the SQL page offers, every table has.
VISITS = [
    (page, source)
    for page in RUN_PAGES
    for source in SOURCES
    if (source != "groups" or page in ("overview", "tokens")) and (page != "sql" or source in ("current", "texts"))
]


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for source in SOURCES:
        write_source(folder / source, source)
    return folder


@pytest.fixture
def served(sources: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([sources])
    return sources


def said_once(at: AppTest) -> None:
    """No sentence stands twice: what is wrong with a log is not said at every number."""
    lines = [line for line in sentences(at).splitlines() if len(line.split()) > 5]
    assert [line for line, n in Counter(lines).items() if n > 1] == []


@pytest.mark.parametrize(("page", "source"), VISITS)
def test_a_page_shows_what_there_is_and_says_once_what_there_is_not(served: Path, page: str, source: str) -> None:
    at = visit(page, run=source)
    said = sentences(at)
    assert "–" not in [tile.value for tile in at.metric]
    assert all(map(drawn_numbers, charts(at)))
    said_once(at)
    assert re.search(r"\*\*.{20,}\.\*\*", said), "it opens with a sentence"
    if page in EMPTY[source]:
        assert "This log does not say" in said
        assert "Pages with something to show:" in said
        assert not at.metric
        assert not charts(at)
    assert (said.count("This log does not say") <= 1) and (f"from {source} {HOSTILE}" in said)


def test_the_overview_says_where_an_imported_run_comes_from_and_what_is_assumed(served: Path) -> None:
    at = visit("overview", run="groups")
    (door,) = [door for door in at.expander if "1 assumption, 1 missing column" in door.label]
    assert "<script>" not in re.sub(r"\\.", "", door.label)
    assert "differences up to 1e-04 are rounding" in sentences(at)
    assert "rounding below 1e-04 nats" in sentences(visit("drift", run="groups"))


def test_lists_compare_and_offer_runs_that_log_hardly_anything(served: Path) -> None:
    visit("runs")
    assert charts(visit("compare", run=["ratios", "texts", "current"]))
    visit("report", run="texts")


@pytest.mark.parametrize("source", SOURCES)
def test_a_report_says_the_same_in_every_format(sources: Path, source: str) -> None:
    opened = open_folder(sources / source)
    report = run_report(opened, pages=full_pages([opened]))
    for section in report.sections:
        assert section.answer
        assert all(map(has_content, section.blocks))
        texts = [section.answer, *(block.text for block in section.blocks if isinstance(block, Paragraph))]
        assert sum("This log does not say" in text for text in texts) <= 1
        if SECTIONS[section.key].asks and section.key in EMPTY[source]:
            assert not section.blocks
        for table in (block for block in section.blocks if isinstance(block, Table)):
            assert not any(set(map(cell_text, row[1:])) == {"–"} for row in table.rows), table.title
    assert all(chart.takeaway for chart in report.charts if isinstance(chart, Chart))
    setting = next(section for section in report.sections if section.key == "setting")
    assert {"Where it comes from", "What is assumed", "Columns that the source does not have"} <= {
        block.title for block in setting.blocks if isinstance(block, Table)
    }
    assert "<script>alert" not in html(report).replace("\\u003c", "<").split("<body", 1)[1].split("<script", 1)[0]
    assert json_text(report)
    assert markdown(report, "files")
