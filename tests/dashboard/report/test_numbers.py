"""Each number in a report is that of `ratioscope summarize --json`, found in the written file."""

import json
import math

import pytest

from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.summary.summary import summary_json
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.report.json_report import json_text
from ratioscope.dashboard.report.markdown import tables
from ratioscope.dashboard.sections.model import Report
from tests.dashboard.report.conftest import SAMPLES
from tests.dashboard.report.reading import Page, read


def summarised(opened: Opened) -> dict[int, dict[str, float | None]]:
    return {entry["step"]: entry for entry in summary_json(opened.run, opened.summary)["steps"]}


def check(page: Page, runs: list[Opened]) -> None:
    expected = {opened.run_id: summarised(opened) for opened in runs}
    for run, key, step, value in page.numbers:
        known = expected[run][step][key]
        assert value == known or (known is None and not math.isfinite(value)), (run, key, step)


def test_the_numbers_in_the_page_are_those_of_summarize(page: Page, opened: Opened) -> None:
    check(page, [opened])
    assert len({key for _, key, _, _ in page.numbers}) > 25


def test_the_printed_digits_are_those_of_the_value_beside_them(report: Report, opened: Opened) -> None:
    widths = (opened.summary.high - opened.summary.low).fillna(0.0)
    for section in report.sections:
        for block in section.blocks:
            for row in getattr(block, "rows", ()):
                for cell in row:
                    if not isinstance(cell, str) and math.isfinite(cell.value):
                        number = cell.text.split(" ")[0]
                        shown = float(number.removesuffix("%").replace(",", "")) / (100 if number.endswith("%") else 1)
                        digit = 0.0251 * float(widths.loc[cell.step, cell.key]) if cell.key in widths else 0.0
                        assert shown == pytest.approx(cell.value, rel=6e-3, abs=max(6e-4, digit)), cell


def test_figures_over_steps_hold_the_numbers_of_summarize(page: Page, opened: Opened) -> None:
    expected, compared = summarised(opened), 0
    for key in page.figures:
        frame = page.table(key)
        if frame.columns[0] != "step" or frame["step"].duplicated().any():
            continue
        for name in set(frame.columns) & CATALOGUE.keys():
            for step, value in zip(frame["step"], frame[name], strict=True):
                known = expected[int(step)][name]
                assert value == known or (known is None and not math.isfinite(value)), (key, name, step)
                compared += 1
    assert compared > 200


def test_of_several_runs_each_number_is_that_of_its_run(pair: Report) -> None:
    runs = [open_folder(SAMPLES / f"sync_interval20-{name}-lr0.0003-seed0") for name in ("grpo", "reinforce")]
    page = read(html(pair))
    check(page, runs)
    assert {run for run, *_ in page.numbers} == {opened.run_id for opened in runs}


def test_json_and_csv_and_page_say_the_same(report: Report, page: Page) -> None:
    contents = json.loads(json_text(report))
    blocks = [block for section in contents["sections"] for block in section["blocks"]]
    cells = [cell for block in blocks if block["type"] == "table" for row in block["rows"] for cell in row]
    quantities = [(cell["run"], cell["key"], cell["step"], cell["value"]) for cell in cells if isinstance(cell, dict)]
    assert quantities == page.numbers
    figures = [block.get("figure", block) for block in blocks if block["type"] in ("figure", "finding")]
    assert [figure["key"] for figure in figures] == [chart.key for chart in report.charts]
    written = tables(report)
    for figure in figures:
        assert page.figures[figure["key"]]["csv"] == written[figure["key"]]
        assert list(figure["data"]) == list(page.table(figure["key"]).columns)
