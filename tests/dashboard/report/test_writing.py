"""Where reports may be written, whole or not at all; Markdown with its images, PDF on paper."""

import io
import re
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from ratioscope import RatioscopeError
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.dashboard.annotations import Annotation, write_annotation
from ratioscope.dashboard.report import chromium
from ratioscope.dashboard.report.build import run_report
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.report.markdown import tables
from ratioscope.dashboard.report.target import check_target
from ratioscope.dashboard.report.write import contents, write, write_data
from ratioscope.dashboard.sections.model import Report, Table


@pytest.fixture(scope="module")
def short(opened: Opened) -> Report:
    return run_report(opened, pages=["learning"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.docx", r"the name of a report must end in one of \.html, \.pdf, \.md, \.json"),
        ("report", r"the name of a report must end in one of"),
        ("missing/report.html", r"there is no such folder"),
    ],
)
def test_a_place_that_will_not_do_is_told_before_the_work(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(RatioscopeError, match=message):
        check_target(tmp_path / name)


def test_nothing_is_written_into_a_run(opened: Opened, short: Report) -> None:
    before = sorted(opened.run.folder.rglob("*"))
    for place in (opened.run.folder / "report.html", opened.run.folder / "tokens" / "report.json"):
        with pytest.raises(RatioscopeError, match="runs are never written to"):
            write(short, place)
    with pytest.raises(RatioscopeError, match="runs are never written to"):
        write_data(short, opened.run.folder / "data")
    assert sorted(opened.run.folder.rglob("*")) == before


def test_a_report_replaces_an_older_one_and_leaves_nothing_else(short: Report, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    assert write(short, target) == [target]
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [target]


def test_the_numbers_of_every_figure_are_written_as_csv_and_parquet(short: Report, tmp_path: Path) -> None:
    write_data(short, tmp_path / "data")
    for chart in short.charts:
        parquet = pd.read_parquet(tmp_path / "data" / f"{chart.key}.parquet")
        csv = pd.read_csv(tmp_path / "data" / f"{chart.key}.csv")
        pd.testing.assert_frame_equal(parquet, csv, check_dtype=False)
        assert len(parquet) == len(chart.data)


def test_without_chromium_a_sentence_says_how_to_get_it(
    short: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium.shutil, "which", lambda name: None)
    for name in ("report.pdf", "report.md"):
        with pytest.raises(RatioscopeError, match="apt install chromium"):
            write(short, tmp_path / name)
    assert not list(tmp_path.iterdir())


if chromium.find_chromium():

    def test_markdown_links_images_and_csv_in_the_folder_beside_it(short: Report, tmp_path: Path) -> None:
        written = write(short, tmp_path / "my report.md")
        assert [path.name for path in written] == ["my report.md", "my report_files"]
        text = written[0].read_text(encoding="utf-8")
        for chart in short.charts:
            image = (written[1] / f"{chart.key}.png").read_bytes()
            assert image.startswith(b"\x89PNG")
            assert len(image) > 5_000
            assert f"(my%20report_files/{chart.key}.png)" in text
            assert (written[1] / f"{chart.key}.csv").read_text() == tables(short)[chart.key]

    def test_the_archive_holds_the_same_files(short: Report) -> None:
        with zipfile.ZipFile(io.BytesIO(contents(short, ".md"))) as archive:
            names = set(archive.namelist())
        keys = {chart.key for chart in short.charts}
        assert names == {"report.md"} | {f"report_files/{key}.{kind}" for key in keys for kind in ("png", "csv")}

    def test_a_pdf_is_the_same_each_time_and_on_a4(short: Report, monkeypatch: pytest.MonkeyPatch) -> None:
        first = contents(short, ".pdf")
        # Chromium counts otherwise where it has more to do, as now and then without being asked.
        monkeypatch.setattr(chromium, "_QUIET", (*chromium._QUIET, "--force-renderer-accessibility"))
        second = contents(short, ".pdf")
        assert first.startswith(b"%PDF-")
        assert first == second
        boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", first)
        assert boxes
        for width, height in boxes:  # in points
            assert (float(width), float(height)) == pytest.approx((595, 842), abs=1)


def test_notes_on_steps_are_in_charts_and_in_a_table(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_NOTES", str(tmp_path / "notes"))
    last = opened.summary.last_step
    write_annotation(opened.run.folder, Annotation().pinned(last, "<b>here</b>").pinned(last + 1, "beyond"))
    report = run_report(opened, pages=["learning"])
    assert report.sections[-1].blocks == (Table("", ("Step", "Note"), ((str(last), "<b>here</b>"),)),)
    assert report.charts and all("&lt;b&gt;here" in chart.figure for chart in report.charts if chart.by_step)
    assert "&lt;b&gt;here&lt;/b&gt;" in html(report)
