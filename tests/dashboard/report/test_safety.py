"""A report asks nothing of any network, and nothing from a log is read as markup; in a file, not in a browser."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.report.build import comparison_report, full_pages, run_report
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.report.json_report import json_text
from ratioscope.dashboard.report.markdown import markdown
from ratioscope.dashboard.sections.model import Report
from ratioscope.inert import safe_values
from tests.dashboard.report.reading import Page, read
from tests.making.runs import random_step

HOSTILE = (
    "EVIL</script><script>alert(1)</script><img src=x onerror=alert(1)> ![](http://127.0.0.2/x) | $x$ "
    "[link](javascript:alert(1)) <a href='http://127.0.0.2'>a</a> {{ 7 * 7 }} **bold**"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs in which everything that can carry text is hostile."""
    folder, rng = tmp_path_factory.mktemp("hostile"), np.random.default_rng(1)
    found = []
    for number in range(2):
        place = folder / f"{HOSTILE} {number}".replace("/", "∕")
        parts = {"name": f"{HOSTILE}{number}", "parts": {HOSTILE: HOSTILE + str(number)}, "parameters": {HOSTILE: 1.0}}
        recorder = RunRecorder(
            place, vocabulary=lambda token: HOSTILE, name=HOSTILE, algorithm=parts, tags=[HOSTILE], notes=HOSTILE,
            schedule={"sync_interval": HOSTILE}, task={"name": HOSTILE}, model={HOSTILE: number},
        )  # fmt: skip
        for step in (random_step(rng, place) for place in range(3)):
            texts = dict.fromkeys(("prompt", "response"), [HOSTILE] * len(step.sequences["seq_id"]))
            recorder.record_step(
                step.number, tokens=step.tokens, sequences=step.sequences | texts, scalars=step.scalars
            )
        recorder.close("finished")
        found.append(place)
    return found


@pytest.fixture(scope="module")
def reports(folders: list[Path]) -> list[Report]:
    """Of the one and of both; their ids turn the direction of writing, too."""
    runs = [replace(opened, run_id=f"a\u202eb\x1b[2Jc{opened.run_id}") for opened in map(open_folder, folders)]
    return [
        run_report(runs[0], pages=full_pages(runs[:1])),
        comparison_report(runs, pages=["setting", "learning", "tokens"]),
    ]


@pytest.fixture(scope="module")
def pages(reports: list[Report]) -> list[Page]:
    return [read(html(report)) for report in reports]


def test_text_of_a_log_makes_no_element(pages: list[Page], page: Page) -> None:
    ours = {tag for tag, _ in page.elements} | {"strong"}
    for hostile in pages:
        assert "EVIL" in hostile.text
        assert {tag for tag, _ in hostile.elements} <= ours
        assert [given.get("id") for tag, given in hostile.elements if tag == "script"] == ["plotly", "figures", None]
        assert "{{ 7 * 7 }}" in hostile.text


def test_nothing_is_asked_for_outside_of_the_file(pages: list[Page]) -> None:
    for hostile in pages:
        for tag, given in hostile.elements:
            for name in ("src", "href", "action", "srcset", "poster"):
                assert given.get(name, "#").startswith(("#", "data:")), (tag, given)
            assert not any(name.startswith("on") for name in given), (tag, given)
        (policy,) = [given["content"] for tag, given in hostile.elements if "http-equiv" in given]
        assert "default-src 'none'" in policy
        assert "http" not in policy


def test_labels_of_figures_hold_no_markup_of_a_log(pages: list[Page]) -> None:
    for hostile in pages:
        for key, figure in hostile.figures.items():
            for label in re.findall(
                r'"(?:text|name|title|ticktext|hovertext)": "([^"]*)"', str(figure).replace("'", '"')
            ):
                assert "<img" not in label, key
                assert "<a " not in label, key


def test_nothing_turns_the_direction_of_writing(reports: list[Report]) -> None:
    for report in reports:
        for text in (html(report), markdown(report, "files")):
            assert not re.search("[\u202e\x1b]", text)
    assert safe_values({"a\x07": ["a\u202eb\x1b\n\\u202e", 1]}) == {"a\ufffd": ["a\ufffdb\ufffd\n\\u202e", 1]}


def test_no_cloud_button(reports: list[Report]) -> None:
    assert "showSendToCloud: false" in html(reports[0])


def test_markdown_is_escaped_and_json_is_text(folders: list[Path]) -> None:
    report = run_report(open_folder(folders[0]), pages=["setting", "tokens"])
    text = markdown(report, "files")
    for sign in ("<", "[", "]", "!"):  # each in front of the hostile text's own words
        assert not re.search(rf"(?<!\\){re.escape(sign)}(?=script|/script|img|link|\(javascript|\[\]\(http)", text), (
            sign
        )
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in rows}
    assert max(widths) <= 10  # a pipe of a log makes no column
    assert "<script>" in json_text(report)  # as text, for whoever reads it
